#!/usr/bin/env python3
"""Writes `functions.txt`: the functions that a session uses, as patterns of names that outlive updates of crates.

Builds the program as for a release, with its symbols, and holds a session with it under `valgrind`, which has to be
installed, as the tools of the tests have (`tests/tools/install`). Takes about ten minutes.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "target/order"
TOOLS = ROOT / "target/test-tools"

sys.path.insert(0, str(ROOT / "packaging"))
from smoke import SmokeSession

SESSIONS = 4

BUILD = ["cargo", "build", "--release", "--locked", "--bin", "ipybox"]
VALGRIND = ["valgrind", "--quiet", "--tool=callgrind", "--demangle=no"]
# Without it the program starts once more, out of sight.
os.environ["MALLOC_MMAP_THRESHOLD_"] = "1048576"

# Cells of nearly all sessions, and of many.
MOST = [
    "x = 6 * 7\nx",
    "print('x' * 100_000)",
    "from mcptools.time import get_current_time\nget_current_time.run(timezone='UTC')",
    "from mcptools.git import git_log\ngit_log.run(repo_path='.', max_count=3)",
]
MANY = [
    "1 / 0",
    "import matplotlib.pyplot as plot\nplot.plot([1, 2])\nplot.show()",
    "from mcptools.everything import echo, get_sum, get_tiny_image\nprint(echo.run(message='x'), get_sum.run(a=1, b=2))",
    "get_tiny_image.run()",
    "import asyncio\nawait asyncio.gather(*(asyncio.to_thread(echo.run, message=str(i)) for i in range(20)))",
]


def lasting(name: str) -> str:
    """The name as a pattern, without what changes from one build to another.

    In the v0 scheme of rustc these are the crate at the end, one of those that use the function; the numbers of crates
    (`Cs…_` before a name) and of implementations (`Ms…_`, `Xs…_`); and the places of what is repeated (`B…_`), which
    depend on how long those are. A copy of a function has a number behind its name.
    """
    user = re.match(r"(\w*)Cs[0-9A-Za-z]+_(\d+)_?([a-z]\w*)$", name)
    if user and len(user[3]) == int(user[2]):
        name = user[1]
    name = re.sub(r"Cs[0-9A-Za-z]+_(?=\d)", "*", name)
    name = re.sub(r"([MX])s[0-9A-Za-z]*_", r"\1*", name)
    name = re.sub(r"(?<=[A-Za-z0-9_*])B[0-9A-Za-z]{0,3}_", "*", name)
    return re.sub(r"\*+", "*", name + "*")


def servers() -> dict[str, dict[str, object]]:
    """One with typed results, one with optional parameters, one with all that servers have."""
    packages = TOOLS / "npm/node_modules/@modelcontextprotocol"
    everything = str(packages / "server-everything/dist/index.js")
    return {
        "time": {"command": str(TOOLS / "servers/bin/mcp-server-time")},
        "git": {
            "command": str(TOOLS / "servers/bin/mcp-server-git"),
            "args": ["--repository", str(ROOT)],
        },
        "everything": {
            "command": str(TOOLS / "bin/node"),
            "args": [everything, "stdio"],
        },
    }


def hold(session: SmokeSession, cells: list[str]) -> None:
    """Does in a session as a model does."""
    session.initialize("record")
    session.request("tools/list", {})

    def call(tool: str, **arguments: object) -> None:
        result = session.request("tools/call", {"name": tool, "arguments": arguments})
        print(tool, arguments, "→", str(result)[:200])

    for name, parameters in servers().items():
        if any(f"mcptools.{name}" in code for code in cells):
            call("register_mcp_server", server_name=name, server_params=parameters)
    for code in cells:
        call("execute_ipython_cell", code=code, timeout=60, max_output_chars=10_000)
    call("reset")
    call("execute_ipython_cell", code="1")
    session.end()


def used(directory: Path, cells: list[str]) -> set[str]:
    """The names of the functions that a session calls."""
    places = [
        "--workspace",
        directory / "workspace",
        "--state-dir",
        directory / "state",
    ]
    program = [
        TARGET / "release/ipybox",
        "--python",
        TOOLS / "kernel/bin/python",
        *places,
    ]
    calls = directory / "calls"
    session = SmokeSession(
        [*map(str, [*VALGRIND, f"--callgrind-out-file={calls}", *program])]
    )
    try:
        hold(session, cells)
    finally:
        session.kill()
    # `fn=(7) _RNv…` names a function when it occurs for the first time, `cfn=` when that is as one that is called.
    pattern = r"^c?fn=\(\d+\) (_R\w+|main$)"
    found = set(re.findall(pattern, calls.read_text(), re.MULTILINE))
    if not found:
        sys.exit(f"error: `valgrind` has recorded nothing of `{TARGET}/release/ipybox`")
    return found


def of_sessions(cells: list[str]) -> set[str]:
    """Those of several sessions, since the order of their tasks differs, as patterns."""
    found = set()
    for _ in range(SESSIONS):
        with tempfile.TemporaryDirectory(prefix="ipybox-order-") as directory:
            found |= used(Path(directory), cells)
    return {lasting(name) for name in found}


def functions() -> list[str]:
    """Those that nearly all sessions call, then those that many call: pages of memory have one kind or the other."""
    most = of_sessions(MOST)
    return [*sorted(most), *sorted(of_sessions(MOST + MANY) - most)]


def main() -> None:
    unstripped = ["--config", "profile.release.strip=false"]
    subprocess.run([*BUILD, *unstripped, "--target-dir", TARGET], cwd=ROOT, check=True)
    names = functions()
    (ROOT / "packaging/order/functions.txt").write_text("\n".join(names) + "\n")
    print(f"{len(names)} functions")


if __name__ == "__main__":
    main()
