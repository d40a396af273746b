"""Runs every fenced block of the documentation: `run.py --binary PATH [--tools DIR] [PAGE …]`.

What a block is follows from its language, its contents and what stands before it; a block that none of this explains is
a failure. Needs the Python environment `mcp1` of the tests' tools. Prints a line for each block; ends with 1 if one
failed.

| block | what is done |
|---|---|
| `rust` | `src/guide.rs` has to include the page: its doctests compile it |
| `sh` | executed, in a home of its own, with the programs of `programs.py` first on PATH |
| `sh` that starts a server of Jupyter's | started on loopback, until the next one is or the page ends |
| `ini` with a unit of systemd | its command is the one that was started above |
| `json` with `mcpServers` | each server is started, and answers a cell |
| `json` with the parameters of an MCP server | registered, in a session |
| `json`, `toml` with a policy of the sandbox or of approval | loaded by ipybox |
| `toml` with `[dependencies]` | resolved by cargo |
| `python` | a cell in the page's session; what it imports from `mcptools` is registered before |
| `python` below `docs/python`, or that imports `ipybox_rs` | run by an application, whose names and event loop the page's blocks share |
| the same, with `asyncio.run(…)` or the like | a program of its own; it asks by `(Y/n): `, and gets a yes, an empty line and a no, in turns |
| `python` that imports an agent library | a program of its own, by the environment that has the library |
| `text`, `json` after `sh` or `python` | what that printed; `…` is anything |
| `text` with `NAME=value` | the workspace's `.env` from there on |
| `text` with a tree of files | the files are there, after the server was registered |

What cannot be so has a note above it: see `blocks.py`.
"""

import argparse
import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from blocks import blocks_of
from page import Page
from place import (
    DEADLINE_SECS,
    REPOSITORY,
    Failed,
    Place,
    expect,
    free_port,
    innermost,
)

PAGES = ["README.md", "SECURITY.md", "CONTRIBUTING.md", "packaging/wheel/README.md"]
"""Beside those of `docs/`; CONTRIBUTING.md may be missing."""

PAGES_AT_ONCE = 3
"""Sessions mostly wait for each other's programs to start."""

LOG_LINES_SHOWN = 20


@contextlib.contextmanager
def github(options):
    """A stand-in for GitHub's MCP server, on a port of its own."""
    port = free_port()
    command = [
        str(options.tools / "mcp1/bin/python"),
        str(REPOSITORY / "tests/docs/servers.py"),
        "github",
        "--port",
        str(port),
    ]
    server = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + DEADLINE_SECS
        while True:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", port), 1),
            ):
                break
            expect(
                server.poll() is None and time.monotonic() < end,
                f"{' '.join(command)} does not listen",
            )
            time.sleep(0.05)
        yield port
    finally:
        server.terminate()
        server.wait()


async def run_page(name, options, github_port):
    """Goes through a page; gives the number of blocks, the number of failures and what is to be said."""
    blocks = blocks_of(name, (REPOSITORY / name).read_text())
    failures, lines = 0, []
    with tempfile.TemporaryDirectory(prefix="ipybox-docs-") as scratch:
        async with contextlib.AsyncExitStack() as stack:
            place = Place(options, Path(scratch).resolve(), github_port, stack)
            page = Page(name, place)
            for block in blocks:
                begin = time.monotonic()
                try:
                    result, problem = await page.run(block), None
                except Failed as failure:
                    result, problem = "", str(failure)
                except Exception as error:  # noqa: BLE001 - whatever it is, the next block runs
                    error = innermost(error)
                    result, problem = "", f"{type(error).__name__}: {error}"
                failures += problem is not None
                took = time.monotonic() - begin
                lines.append(
                    f"{'FAIL' if problem else 'ok':4} {took:5.2f} s  {block}  {result}"
                )
                if problem:
                    lines.append("    " + problem.strip().replace("\n", "\n    "))
        last = place.stderr_path.read_text().splitlines()[-LOG_LINES_SHOWN:]
        if failures and last:
            lines += [
                "the last lines on standard error:",
                *(f"  {line}" for line in last),
            ]
    return len(blocks), failures, lines


async def run(options):
    every = [page for page in PAGES if (REPOSITORY / page).exists()]
    every += sorted(
        file.relative_to(REPOSITORY).as_posix()
        for file in (REPOSITORY / "docs").rglob("*.md")
    )
    for name in options.pages:
        if not (REPOSITORY / name).is_file():
            raise SystemExit(f"no such page: {name}")
    turns, begin = asyncio.Semaphore(PAGES_AT_ONCE), time.monotonic()

    async def in_turn(name, port):
        async with turns:
            count, failures, lines = await run_page(name, options, port)
        print(*lines, sep="\n", end="\n" if lines else "", flush=True)
        return count, failures

    with github(options) as port:
        names = options.pages or every
        done = await asyncio.gather(*(in_turn(name, port) for name in names))
    count, failures = (sum(numbers) for numbers in zip(*done))
    print(f"{count} blocks, {failures} failed, {time.monotonic() - begin:.0f} s")
    if options.wrong:
        return 0 if count and failures == count else 1
    return 1 if failures or not count else 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--binary", type=Path, required=True, help="the program ipybox under test"
    )
    parser.add_argument(
        "--tools",
        type=Path,
        default=os.environ.get("IPYBOX_TEST_TOOLS", REPOSITORY / "target/test-tools"),
        help="what tests/tools/install makes; default: $IPYBOX_TEST_TOOLS or target/test-tools",
    )
    parser.add_argument(
        "--wrong",
        action="store_true",
        help="pass if every block fails: the runner's own test, on tests/docs/wrong.md",
    )
    parser.add_argument(
        "pages",
        nargs="*",
        metavar="PAGE",
        help="default: all, as README.md or docs/tools.md",
    )
    options = parser.parse_args()
    options.binary, options.tools = options.binary.resolve(), options.tools.resolve()
    return asyncio.run(run(options))


if __name__ == "__main__":
    sys.exit(main())
