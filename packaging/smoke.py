#!/usr/bin/env python3
"""Checks that a built ipybox works on this machine: a session as a client holds it, with a kernel and a tool.

    packaging/smoke.py [--version 0.1.0] -- target/release/ipybox [ARGUMENT …]

The command gets `--workspace` and `--state-dir` in a fresh directory. The tool that the cell calls is another ipybox's,
started by the first from the same command, so that nothing but Python with a package index is needed. Prints one line
for each step; exit status 1 when one fails. Python 3.10 or newer, nothing else.
"""

from __future__ import annotations

import argparse
import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

# The first cell waits for an environment, for which pip takes minutes on a slow machine. Only what hangs takes longer.
ANSWER_SECONDS = 1800
END_SECONDS = 120


class SessionFailure(Exception):
    """The program did something else than it should."""


class SmokeSession:
    """A client of the server `command`, over its stdin and stdout."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.lines: queue.Queue[bytes] = queue.Queue()
        self.count = 0
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(b"")

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(
            json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        )
        self.process.stdin.flush()

    def request(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self.count += 1
        self.send({"id": self.count, "method": method, "params": parameters})
        until = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise SessionFailure(
                    f"no answer to {method} within {ANSWER_SECONDS} seconds"
                ) from None
            if not line:
                raise SessionFailure(f"the server ended before it answered {method}")
            message = json.loads(line)
            if message.get("id") == self.count:
                if "error" in message:
                    raise SessionFailure(f"{method}: {message['error']}")
                return message["result"]

    def initialize(self, name: str) -> dict[str, Any]:
        """Begins the session for the client `name`. Returns what the server says of itself."""
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": name, "version": "1"},
        }
        answer = self.request("initialize", hello)
        self.send({"method": "notifications/initialized"})
        return answer

    def call(self, tool: str, **arguments: object) -> str:
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        text = "\n".join(block.get("text", "") for block in result["content"])
        if result.get("isError"):
            raise SessionFailure(f"{tool}: {text}")
        return text

    def end(self) -> int:
        assert self.process.stdin
        self.process.stdin.close()
        try:
            return self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            raise SessionFailure(
                f"still running {END_SECONDS} seconds after its input ended"
            ) from None

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def expect(found: str, wanted: str) -> None:
    if wanted not in found:
        raise SessionFailure(f"{wanted!r} is not in {found!r}")


def play(command: list[str], version: str | None, directory: Path) -> None:
    started = time.monotonic()

    def step(name: str) -> None:
        print(f"ok  {time.monotonic() - started:6.2f} s  {name}", flush=True)

    printed = subprocess.run(
        [command[0], "--version"], check=True, capture_output=True, text=True
    ).stdout.strip()
    expect(printed, f"ipybox {version or ''}".strip())
    step(f"--version prints `{printed}`")

    def arguments(name: str) -> list[str]:
        places = [
            "--workspace",
            str(directory / name),
            "--state-dir",
            str(directory / "state"),
        ]
        return [*command[1:], *places, "--log-level", "WARNING"]

    session = SmokeSession([command[0], *arguments("workspace")])
    try:
        expect(session.initialize("smoke")["serverInfo"]["version"], version or "")
        step("a session is initialized")

        tools = {tool["name"] for tool in session.request("tools/list", {})["tools"]}
        wanted = {
            "register_mcp_server",
            "execute_ipython_cell",
            "install_package",
            "reset",
        }
        if not wanted <= tools:
            raise SessionFailure(f"the tools are {sorted(tools)}")
        step("the four tools are listed")

        expect(
            session.call(
                "execute_ipython_cell",
                code="x = 6 * 7\nimport platform; platform.platform()",
            ),
            "-",
        )
        step("a kernel runs a cell")
        expect(session.call("execute_ipython_cell", code="print(x)"), "42")
        step("the next cell sees the first one's variable")

        inner = {"command": command[0], "args": arguments("inner")}
        expect(
            session.call(
                "register_mcp_server", server_name="inner", server_params=inner
            ),
            "execute_ipython_cell",
        )
        step("an MCP server is registered")
        code = 'from mcptools.inner import execute_ipython_cell as cell\nprint("answer:", cell.run(code="6 * 7"))'
        expect(session.call("execute_ipython_cell", code=code), "answer: 42")
        step("a cell calls the server's tool")

        session.call("reset")
        expect(session.call("execute_ipython_cell", code="'x' in globals()"), "False")
        step("a reset forgets the variables")

        status = session.end()
        if status != 0:
            raise SessionFailure(f"the exit status is {status}")
        step("the server ends with its input, exit status 0")
    finally:
        session.kill()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", help="what the program must say its version is")
    parser.add_argument(
        "ipybox", nargs="+", help="the program and arguments for it, after `--`"
    )
    options = parser.parse_args()
    # The servers that ipybox starts have another working directory.
    program = str(Path(options.ipybox[0]).resolve())
    with tempfile.TemporaryDirectory(
        prefix="ipybox-smoke-", ignore_cleanup_errors=True
    ) as directory:
        try:
            play([program, *options.ipybox[1:]], options.version, Path(directory))
        except (SessionFailure, OSError, subprocess.CalledProcessError) as failure:
            print(f"FAILED: {failure}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
