#!/usr/bin/env python3
"""Holds the same session with this program and with the Python original, and compares.

    python3 benches/side_by_side.py DIR [--rounds 3] [--program target/release/ipybox]

DIR gets an environment with the original, once, from the package index. The two alternate, because a
machine is not equally fast all the time; the figures are medians over the rounds. Both run their
kernels with DIR's Python: making an environment is not what is measured.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

# What the original needs beside itself: with mcp 2.x it does not start.
REQUIREMENTS = ["ipybox==0.9.2", "mcp<2", "psutil"]

SERVER = '''
from mcp.server.fastmcp import FastMCP

server = FastMCP("bench", log_level="ERROR")

@server.tool(structured_output=False)
def repeat(text: str) -> str:
    """Gives the text back."""
    return text

server.run()
'''

CALLS = """
import json, time
from mcptools.bench import repeat

def seconds():
    begin = time.perf_counter()
    repeat.run(repeat.Params(text="x"))
    return time.perf_counter() - begin

first = seconds()
with open(FILE, "w") as file:
    json.dump([first, *[seconds() for _ in range(300)]], file)
"""

PRINTED = 10_000_000


def prepare(directory):
    """The interpreter of an environment with the original."""
    python = directory / "venv/bin/python"
    if not (directory / "venv/ready").exists():
        venv.create(directory / "venv", with_pip=True, clear=True)
        install = [python, "-m", "pip", "install", "--quiet", *REQUIREMENTS]
        subprocess.run(install, check=True)
        (directory / "venv/ready").touch()
    return python


class Clock:
    """Measures in milliseconds."""

    def __init__(self):
        self.begin = time.perf_counter()

    def elapsed(self):
        return (time.perf_counter() - self.begin) * 1e3


async def measure(command, workspace, log):
    """One session, and the beginning of another in the same workspace; the figures by name."""
    (workspace / "server.py").write_text(SERVER)
    figures = {}
    start = Clock()
    async with connected(command, log) as session:
        figures["initialize (ms)"] = start.elapsed()
        await fill(session, workspace, figures, start)
        end = Clock()
    figures["shutdown (ms)"] = end.elapsed()
    start = Clock()
    async with connected(command, log) as session:
        await session.call_tool("execute_ipython_cell", {"code": "1+1"})
        figures["first cell in a known workspace (ms)"] = start.elapsed()
    return figures


@contextlib.asynccontextmanager
async def connected(command, log):
    """A session that is initialized."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    parameters = StdioServerParameters(
        command=command[0], args=command[1:], env=dict(os.environ)
    )
    async with (
        stdio_client(parameters, errlog=log) as pipes,
        ClientSession(*pipes) as session,
    ):
        await session.initialize()
        yield session


async def fill(session, workspace, figures, start):
    async def call(tool, **arguments):
        result = await session.call_tool(tool, arguments)
        text = result.content[0].text if result.content else ""
        if result.isError:
            raise RuntimeError(f"{tool}: {text}")
        return text

    async def cell(code, **arguments):
        return await call("execute_ipython_cell", code=code, **arguments)

    # An answer may tell something else before.
    lost = not (await cell("1+1")).strip().endswith("2")
    figures["first cell (ms)"] = start.elapsed()
    times = []
    for number in range(200):
        clock = Clock()
        lost += not (await cell(f"{number}+1")).strip().endswith(str(number + 1))
        times.append(clock.elapsed())
    figures["warm cell, p50 (ms)"] = statistics.median(times)
    figures["cells with lost output"] = lost

    clock = Clock()
    server = {"command": sys.executable, "args": [str(workspace / "server.py")]}
    await call("register_mcp_server", server_name="bench", server_params=server)
    figures["register (ms)"] = clock.elapsed()
    file = workspace / "calls.json"
    await cell(CALLS.replace("FILE", repr(str(file))))
    first, *calls = (seconds * 1e3 for seconds in json.loads(file.read_text()))
    figures["first tool call (ms)"] = first
    figures["tool call, p50 (ms)"] = statistics.median(calls)
    figures["memory without kernels (MB)"] = resident_memory() / 1e6

    clock = Clock()
    text = await cell(f"print('x' * {PRINTED})", max_output_chars=2 * PRINTED)
    figures["10 MB of output (ms)"] = clock.elapsed()
    figures["of which delivered (%)"] = 100 * len(text) / PRINTED

    times = []
    for _ in range(3):
        clock = Clock()
        await call("reset")
        times.append(clock.elapsed())
        await cell("1")
    figures["reset (ms)"] = statistics.median(times)


def resident_memory():
    """Of the server's processes but the kernel and the MCP server, which are Python's."""
    import psutil

    processes = psutil.Process().children(recursive=True)
    return sum(
        process.memory_info().rss
        for process in processes
        if not process.name().startswith("python")
    )


def floor():
    """The milliseconds that ipykernel itself takes for a warm cell."""
    from jupyter_client import KernelManager

    manager = KernelManager(kernel_name="python3", transport="ipc")
    manager.start_kernel()
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    times = []
    for number in range(200):
        clock = Clock()
        client.execute_interactive(
            f"{number}+1", store_history=False, timeout=20, output_hook=lambda _: None
        )
        times.append(clock.elapsed())
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    return statistics.median(times)


def run(directory, program, rounds):
    ours = [program, "--python", sys.executable, "--log-level", "ERROR", "--workspace"]
    original = [str(Path(sys.executable).with_name("ipybox")), "--workspace"]
    taken = {"ipybox": [], "original": []}
    floors = []
    for number in range(rounds + 1):
        for name, command in (("ipybox", ours), ("original", original)):
            with (
                tempfile.TemporaryDirectory(dir=directory) as workspace,
                open(os.devnull, "w") as log,
            ):
                session = measure([*command, workspace], Path(workspace), log)
                figures = asyncio.run(session)
            # The first round fills the caches of the machine.
            if number:
                taken[name].append(figures)
        if number:
            floors.append(floor())
    medians = {
        name: {
            figure: statistics.median(figures[figure] for figures in rows)
            for figure in rows[0]
        }
        for name, rows in taken.items()
    }
    print("| figure | ipybox | original | ratio |\n|---|---|---|---|")
    for figure, mine in medians["ipybox"].items():
        theirs = medians["original"][figure]
        ratio = f"{theirs / mine:.1f}×" if mine and theirs else ""
        print(f"| {figure} | {mine:.2f} | {theirs:.2f} | {ratio} |")
    print(f"\nwarm cell of ipykernel itself, p50: {statistics.median(floors):.2f} ms")
    print(json.dumps(medians), file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--program", default="target/release/ipybox")
    options = parser.parse_args()
    directory = options.directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    python = prepare(directory)
    if Path(sys.executable) != python:
        program = str(Path(options.program).absolute())
        arguments = ["--rounds", str(options.rounds), "--program", program]
        os.execv(python, [str(python), __file__, str(directory), *arguments])
    run(directory, options.program, options.rounds)


if __name__ == "__main__":
    main()
