#!/usr/bin/env python3
"""A session as an agent holds it: builds `ipybox`, registers a real MCP server and runs a cell that chains its tools.

    python3 examples/demo.py

Needs Rust, Python 3.10 or newer and a package index; keeps its files in `target/demo`. Cargo compiles the program alone:
an example in Rust would have it compile what the tests need too.
"""

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "packaging"))
from smoke import SessionFailure, SmokeSession

WHICH = """\
from pathlib import Path
import sys

Path("python.txt").write_text(sys.executable)
sys.executable"""

CHAIN = """\
import json
from mcptools.time import convert_time, get_current_time

here = get_current_time.run(timezone="Europe/Berlin")
print("It is", here.datetime, "in Berlin")
noon = {}
for city in ["America/New_York", "Asia/Tokyo", "Australia/Sydney"]:
    there = convert_time.run(source_timezone="Europe/Berlin", time="12:00", target_timezone=city)
    noon[city] = there.target.datetime
    print("Noon there is", noon[city], "in", city)
with open("noon.json", "w") as file:
    json.dump(noon, file)"""


def build():
    """Builds the program; gives its path."""
    command = ["cargo", "build", "--locked", "--bin", "ipybox"]
    print("$", *command, flush=True)
    # What Cargo says to people goes to standard error.
    done = subprocess.run(
        [*command, "--message-format", "json-render-diagnostics"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SessionFailure("the program could not be built")
    made = [json.loads(line).get("executable") for line in done.stdout.splitlines()]
    return next(path for path in reversed(made) if path)


def call(session, tool, **arguments):
    """Calls a tool, and shows the call and the answer: its text is for models, and nothing here depends on it."""
    print(f"→ {tool}")
    for name, value in arguments.items():
        print(f"    {name}:", indented(str(value)), flush=True)
    print("←  ", indented(session.call(tool, **arguments).rstrip()), "\n", flush=True)


def indented(text):
    return text.replace("\n", "\n    ")


def play(session, workspace):
    """The session. What the demo itself needs comes in files that the cells write."""
    session.initialize("demo")
    call(session, "install_package", package_name="mcp-server-time")
    call(session, "execute_ipython_cell", code=WHICH)
    python = (workspace / "python.txt").read_text()
    server = {"command": python, "args": ["-m", "mcp_server_time"]}
    call(session, "register_mcp_server", server_name="time", server_params=server)
    noon = workspace / "noon.json"
    noon.unlink(missing_ok=True)
    call(session, "execute_ipython_cell", code=CHAIN)
    if "Asia/Tokyo" not in json.loads(noon.read_text()):
        raise SessionFailure("the cell did not convert the time to that of Tokyo")
    if status := session.end():
        raise SessionFailure(f"ipybox ended with {status}")


def main():
    workspace = REPOSITORY / "target/demo/workspace"
    places = ["--workspace", str(workspace)]
    command = [build(), *places]
    print("\n$ ipybox", *places, "\n", flush=True)
    state = str(workspace.parent / "state")
    session = SmokeSession([*command, "--state-dir", state, "--log-level", "WARNING"])
    try:
        play(session, workspace)
    finally:
        session.kill()


if __name__ == "__main__":
    try:
        main()
    except (SessionFailure, OSError) as failure:
        sys.exit(f"error: {failure}")
