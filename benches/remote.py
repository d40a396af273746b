#!/usr/bin/env python3
"""Runs cells by real Jupyter servers, with this program and with the least that it takes, and compares.

    python3 benches/remote.py [TOOLS] [--program target/release/ipybox] [--rounds 5] [--only "Kernel Gateway"]

TOOLS is what `tests/tools/install` makes (default: target/test-tools). Each server gets a home of its own, and kernels of
TOOLS' environment `kernel`.

The floor of a server is a client that does nothing but send a request and wait until the kernel has replied and is idle:
a WebSocket on a plain socket that acknowledges what it reads at once. Its kernel is ipykernel as the server starts it.
"default" is the same client with a socket as it comes. All take turns, because a machine is not equally fast all the
time. Cells of a kernel on this machine, without a server, are there to show what a server costs.
"""

import argparse
import base64
import contextlib
import http.client
import itertools
import json
import os
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from mcp_session import McpSession, ipybox_command

TOKEN = "a-token-of-the-bench"
HOST = "127.0.0.1"
SUBPROTOCOL = "v1.kernel.websocket.jupyter.org"
# The longest wait for anything, in seconds.
PATIENCE = 60

# By server: its program, the application that most options belong to, and what it takes to let us in.
SERVERS = {
    "Jupyter Server": (
        "jupyter/bin/jupyter-server",
        "ServerApp",
        [f"--IdentityProvider.token={TOKEN}", "--allow-root", "--no-browser"],
    ),
    "Kernel Gateway": (
        "jupyter/bin/jupyter-kernelgateway",
        "KernelGatewayApp",
        [f"--KernelGatewayApp.auth_token={TOKEN}"],
    ),
    "Enterprise Gateway": (
        "enterprise/bin/jupyter-enterprisegateway",
        "EnterpriseGatewayApp",
        # It starts no kernel for root otherwise.
        [
            f"--EnterpriseGatewayApp.auth_token={TOKEN}",
            "--EnterpriseGatewayApp.unauthorized_users=nobody",
        ],
    ),
}

CELLS = {"1+1": "2", "print('x')": "x"}
# The cells of a turn, and those before the first turn, which are not counted.
TURN = 20
WARM_UP = 20

CALLS = """
import json, time
from mcptools.probe import add

def milliseconds():
    begin = time.perf_counter()
    add.run(add.Params(a=1, b=2))
    return (time.perf_counter() - begin) * 1e3

for _ in range({warm_up}):
    milliseconds()
with open({file!r}, "w") as file:
    json.dump([milliseconds() for _ in range({count})], file)
"""


class JupyterServer:
    """One of Jupyter's servers, started for us alone."""

    def __init__(self, name, tools, python):
        program, application, admission = SERVERS[name]
        self.home = Path(tempfile.mkdtemp(prefix="bench-jupyter-"))
        spec = self.home / "data/kernels/python3"
        spec.mkdir(parents=True)
        words = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        kernel = {"argv": words, "display_name": "Python", "language": "python"}
        (spec / "kernel.json").write_text(json.dumps(kernel))
        self.log = self.home / "log"
        self.port = free_port()
        command = [tools / program, *admission, f"--{application}.ip={HOST}"]
        command += [
            f"--{application}.port={self.port}",
            f"--{application}.port_retries=0",
        ]
        environment = {
            **{
                name: os.environ[name]
                for name in ("PATH", "LANG")
                if name in os.environ
            },
            "HOME": str(self.home),
            # Neither the system's settings nor extensions.
            "JUPYTER_NO_CONFIG": "1",
            "JUPYTER_DATA_DIR": str(self.home / "data"),
            "JUPYTER_PATH": str(self.home / "data"),
            "JUPYTER_RUNTIME_DIR": str(self.home / "runtime"),
            "IPYTHONDIR": str(self.home / "ipython"),
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.home,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for us, who end it.
                start_new_session=True,
            )
        try:
            self.wait()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self):
        return f"http://{HOST}:{self.port}"

    def wait(self):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError):
                return self.ask("GET", "/api")
            time.sleep(0.05)
        sys.exit(f"error: the server does not start\n{self.log.read_text()}")

    def ask(self, method, path, document=None):
        """Ask its REST interface on a new connection."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=PATIENCE)
        headers = {
            "Authorization": f"token {TOKEN}",
            "Content-Type": "application/json",
        }
        connection.request(method, path, document and json.dumps(document), headers)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        if response.status >= 300:
            sys.exit(f"error: {method} {path}: {response.status} {text.decode()}")
        return json.loads(text) if text else None

    def stop(self):
        # It ends its kernels itself.
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)


def free_port():
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return listener.getsockname()[1]


class KernelChannels:
    """A WebSocket to a kernel, by which nothing is done that need not be."""

    def __init__(self, server, kernel, *, acknowledges_at_once):
        self.acknowledges_at_once = acknowledges_at_once
        self.session = uuid.uuid4().hex
        self.socket = socket.create_connection((HOST, server.port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data = bytearray()
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET /api/kernels/{kernel}/channels?session_id={self.session} HTTP/1.1",
            f"Host: {HOST}:{server.port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Protocol: {SUBPROTOCOL}",
            f"Authorization: token {TOKEN}",
        ]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        while b"\r\n\r\n" not in self.data:
            self.read()
        head, self.data = self.data.split(b"\r\n\r\n", 1)
        if not head.startswith(b"HTTP/1.1 101"):
            sys.exit(f"error: no WebSocket: {head.decode()}")
        self.is_binary = SUBPROTOCOL.encode() in head

    def close(self):
        self.socket.close()

    def execute(self, code):
        """Run a cell. Returns the text that it shows."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        request = self.send("execute_request", content)
        shown = ""
        is_idle = has_replied = False
        while not (is_idle and has_replied):
            header, parent, content = self.receive()
            if parent.get("msg_id") != request:
                continue
            kind = header["msg_type"]
            if kind == "status":
                is_idle = json.loads(content)["execution_state"] == "idle"
            elif kind == "execute_reply":
                has_replied = True
            elif kind == "error":
                sys.exit(f"error: a cell failed: {json.loads(content)['evalue']}")
            elif kind == "stream":
                shown += json.loads(content)["text"]
            elif kind == "execute_result":
                shown += json.loads(content)["data"]["text/plain"]
        return shown.strip()

    def send(self, kind, content):
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": kind,
            "session": self.session,
            "username": "bench",
            "date": "2026-01-01T00:00:00Z",
            "version": "5.3",
        }
        if self.is_binary:
            parts = [b"shell", json.dumps(header).encode(), b"{}", b"{}"]
            parts.append(json.dumps(content).encode())
            offsets = itertools.accumulate(
                map(len, parts), initial=8 * (len(parts) + 2)
            )
            table = struct.pack(f"<{len(parts) + 2}Q", len(parts) + 1, *offsets)
            self.send_frame(0x82, table + b"".join(parts))
        else:
            message = {"channel": "shell", "header": header, "parent_header": {}}
            message |= {"metadata": {}, "content": content}
            self.send_frame(0x81, json.dumps(message).encode())
        return header["msg_id"]

    def send_frame(self, first, payload):
        size = len(payload)
        head = bytes([first, 0x80 | min(size, 126)])
        if size >= 126:
            head += struct.pack(">H", size)
        # A mask of zeros changes nothing.
        self.socket.sendall(head + bytes(4) + payload)

    def receive(self):
        """The header and parent header of the next message, and its content as text."""
        payload = self.receive_frame()
        if not self.is_binary:
            message = json.loads(payload)
            content = json.dumps(message["content"])
            return message["header"], message["parent_header"], content
        (count,) = struct.unpack_from("<Q", payload)
        offsets = struct.unpack_from(f"<{count}Q", payload, 8)
        parts = [payload[begin:end] for begin, end in itertools.pairwise(offsets)]
        _, header, parent, _, content, *_ = parts
        return json.loads(header), json.loads(parent), content

    def receive_frame(self):
        while True:
            first, size = self.take(2)
            if size == 126:
                (size,) = struct.unpack(">H", self.take(2))
            elif size == 127:
                (size,) = struct.unpack(">Q", self.take(8))
            payload = self.take(size)
            if first in (0x81, 0x82):
                return payload
            if first == 0x89:
                self.send_frame(0x8A, payload)
            elif first != 0x8A:
                sys.exit(f"error: a frame of an unexpected kind: {first:#x}")

    def take(self, size):
        while len(self.data) < size:
            self.read()
        taken = bytes(self.data[:size])
        del self.data[:size]
        return taken

    def read(self):
        data = self.socket.recv(1 << 16)
        if not data:
            sys.exit("error: the server closed the connection")
        if self.acknowledges_at_once:
            # For this time: Linux goes back to delaying.
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        self.data += data


class Floor:
    """A kernel of a server, and what it takes to use it."""

    def __init__(self, server, *, acknowledges_at_once=True):
        self.server = server
        self.acknowledges_at_once = acknowledges_at_once
        self.kernel = server.ask("POST", "/api/kernels", {"name": "python3"})["id"]
        self.connect()

    def connect(self):
        self.channels = KernelChannels(
            self.server, self.kernel, acknowledges_at_once=self.acknowledges_at_once
        )

    def cell(self, code):
        return self.channels.execute(code)

    def reset(self):
        self.channels.close()
        self.server.ask("POST", f"/api/kernels/{self.kernel}/restart")
        self.connect()
        self.cell("1")

    def stop(self):
        self.channels.close()
        self.server.ask("DELETE", f"/api/kernels/{self.kernel}")


class RemoteSession(McpSession):
    """A session of this program, with a kernel of a server or of this machine."""

    def __init__(self, program, flags):
        self.directory = tempfile.TemporaryDirectory(prefix="bench-")
        command = ipybox_command(program, self.directory.name, *flags)
        super().__init__(command, env={**os.environ, "BENCH_TOKEN": TOKEN})

    def cell(self, code):
        return super().cell(code).strip()

    def reset(self):
        self.call("reset")
        self.cell("1")

    def tool_calls(self, count):
        # In a file, which a kernel of this machine's server can write: what an answer says is for models.
        file = Path(self.directory.name) / "calls.json"
        self.cell(CALLS.format(warm_up=WARM_UP, count=count, file=str(file)))
        return json.loads(file.read_text())

    def stop(self):
        super().stop()
        self.directory.cleanup()


def milliseconds(action, *arguments):
    begin = time.perf_counter()
    result = action(*arguments)
    return (time.perf_counter() - begin) * 1e3, result


@contextlib.contextmanager
def stopping(thing):
    try:
        yield thing
    finally:
        thing.stop()


def measure_cells(kinds, rounds):
    """Milliseconds of each cell, by code and kind."""
    times = {code: {kind: [] for kind in kinds} for code in CELLS}
    for code, expected in CELLS.items():
        for runner in kinds.values():
            for _ in range(WARM_UP):
                runner.cell(code)
        for number in range(2 * rounds):
            # The order alternates: each finds the caches as the one before has left them.
            names = list(kinds) if number % 2 == 0 else list(reversed(kinds))
            for name in names:
                for _ in range(TURN):
                    taken, shown = milliseconds(kinds[name].cell, code)
                    if not shown.endswith(expected):
                        sys.exit(
                            f"error: {name}: `{code}` shows `{shown}`, not `{expected}`"
                        )
                    times[code][name].append(taken)
    return times


def measure_starts(make, rounds):
    """Milliseconds until the first cell is answered, and of a reset with a cell after it, by kind."""
    starts = {kind: [] for kind in make}
    resets = {kind: [] for kind in make}
    for _ in range(rounds):
        for kind, start in make.items():
            begin = time.perf_counter()
            with stopping(start()) as runner:
                runner.cell("1")
                starts[kind].append((time.perf_counter() - begin) * 1e3)
                resets[kind].append(milliseconds(runner.reset)[0])
    return starts, resets


def measure(name, options):
    """Prints what one server takes."""
    tools, rounds = options.tools, options.rounds
    kernel_python = tools / "kernel/bin/python"
    probe = Path(__file__).resolve().parent.parent / "tests/servers/probe.py"
    probe = {"command": str(tools / "mcp1/bin/python"), "args": [str(probe)]}
    with stopping(JupyterServer(name, tools, kernel_python)) as server:
        flags = [
            "--kernel-gateway-url",
            server.url,
            "--kernel-gateway-token-env",
            "BENCH_TOKEN",
        ]
        flags += ["--kernel-name", "python3"]
        start = lambda: RemoteSession(options.program, flags)
        start_here = lambda: RemoteSession(options.program, ["--python", kernel_python])
        with (
            stopping(start()) as remote,
            stopping(start_here()) as here,
            stopping(Floor(server)) as floor,
            stopping(Floor(server, acknowledges_at_once=False)) as default,
        ):
            kinds = {
                "ipybox": remote,
                "floor": floor,
                "default": default,
                "no server": here,
            }
            cells = measure_cells(kinds, rounds)
            calls = {"remote": [], "here": []}
            for session in (remote, here):
                session.call(
                    "register_mcp_server", server_name="probe", server_params=probe
                )
            for _ in range(rounds):
                calls["remote"] += remote.tool_calls(2 * TURN)
                calls["here"] += here.tool_calls(2 * TURN)
        # The sessions above have ended: nobody else runs now.
        make = {
            "ipybox": start,
            "floor": lambda: Floor(server),
            "no server": start_here,
        }
        starts, resets = measure_starts(make, rounds)
    return {"cells": cells, "calls": calls, "starts": starts, "resets": resets}


def quantiles(times):
    ordered = statistics.quantiles(times, n=10, method="inclusive")
    return ordered[4], ordered[8]


def table(*rows):
    head, *rest = rows
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rest:
        print("| " + " | ".join(row) + " |")
    print()


def pair(times):
    return " / ".join(f"{each:.2f}" for each in quantiles(times))


def compare(mine, floor):
    """The ratio and the difference of medians."""
    mine, floor = statistics.median(mine), statistics.median(floor)
    return f"{mine / floor:.2f}×", f"{mine - floor:+.2f}"


def report(figures):
    print("ms, p50 / p90; ratio and difference of p50\n")
    rows = [("cell", "ipybox", "floor", "ratio", "difference", "default", "no server")]
    for server, taken in figures.items():
        for code, by_kind in taken["cells"].items():
            mine, floor, default, here = by_kind.values()
            texts = (
                pair(mine),
                pair(floor),
                *compare(mine, floor),
                pair(default),
                pair(here),
            )
            rows.append((f"{server}, `{code}`", *texts))
    table(*rows)
    rows = [("tool call", "remote", "here", "ratio", "difference")]
    for server, taken in figures.items():
        remote, here = taken["calls"].values()
        rows.append((server, pair(remote), pair(here), *compare(remote, here)))
    table(*rows)
    rows = [("medians", "ipybox", "floor", "ratio", "difference", "no server")]
    for figure in ("starts", "resets"):
        for server, taken in figures.items():
            mine, floor, here = taken[figure].values()
            texts = [f"{statistics.median(times):.0f}" for times in (mine, floor, here)]
            rows.append(
                (f"{figure}, {server}", *texts[:2], *compare(mine, floor), texts[2])
            )
    table(*rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "tools", type=Path, nargs="?", default=Path("target/test-tools")
    )
    parser.add_argument("--program", type=Path, default=Path("target/release/ipybox"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=SERVERS, action="append")
    options = parser.parse_args()
    options.tools, options.program = options.tools.absolute(), options.program.resolve()
    if not hasattr(socket, "TCP_QUICKACK"):
        parser.error("the floor is measured on Linux only")
    for path in (options.program, options.tools / "kernel/bin/python"):
        if not path.exists():
            parser.error(f"there is no {path}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("error: terminated by a signal"))
    report({name: measure(name, options) for name in options.only or SERVERS})


if __name__ == "__main__":
    main()
