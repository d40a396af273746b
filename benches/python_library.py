#!/usr/bin/env python3
"""Uses the Python library and the Python original in the same way, and compares.

    python3 benches/python_library.py DIR [--rounds 3] [--program target/release/ipybox]

DIR gets an environment with the original, once, from the package index; both run their kernels with its Python. The two
take turns, because a machine is not equally fast all the time; the figures are medians over the rounds.
"""

import argparse
import asyncio
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from side_by_side import Clock, prepare

MODULES = {"ours": "ipybox_rs", "original": "ipybox"}
EXECUTORS = 10
CELLS = 200
CALLS = 200

SERVER = """
import json, sys

TOOL = {"name": "repeat", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}

for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = {}
    if request["method"] == "initialize":
        version = request["params"]["protocolVersion"]
        server = {"name": "bench", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
    elif request["method"] == "tools/list":
        result = {"tools": [TOOL]}
    elif request["method"] == "tools/call":
        result = {"content": [{"type": "text", "text": request["params"]["arguments"]["text"]}]}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""
"""Answers at once, so that what is measured are the libraries: one made with an SDK takes most of a call's time."""

CALL = "from mcptools.bench import repeat"
LOOP = f"for _ in range({CALLS}): repeat.run(repeat.Params(text='x'))"


async def measure(module):
    """The figures of one process that uses `module`, by name."""
    begin = Clock()
    library = importlib.import_module(module)
    figures = {"import (ms)": begin.elapsed()}
    server = {"command": sys.executable, "args": [str(Path("server.py").absolute())]}
    await library.generate_mcp_sources("bench", server, Path("mcptools"))
    # What a first start leaves for later ones is there.
    async with library.CodeExecutor() as executor:
        await executor.execute("1")

    clock = Clock()
    executor = library.CodeExecutor()
    await executor.start()
    await executor.execute("1")
    figures["start and first cell (ms)"] = clock.elapsed()
    times = []
    for _ in range(CELLS):
        clock = Clock()
        await executor.execute("1+1")
        times.append(clock.elapsed())
    figures['execute("1+1"), p50 (ms)'] = statistics.median(times)
    await executor.execute(CALL + "\nrepeat.run(repeat.Params(text='x'))")
    times, clock = [], None
    async for item in executor.stream(LOOP):
        if isinstance(item, library.ApprovalRequest):
            if clock:
                times.append(clock.elapsed())
            clock = Clock()
            await item.accept()
    figures["tool call with approval, p50 (ms)"] = statistics.median(times)
    clock = Clock()
    await executor.stop()
    figures["stop (ms)"] = clock.elapsed()

    executors = [library.CodeExecutor() for _ in range(EXECUTORS)]
    for executor in executors:
        await executor.start()
        await executor.execute("1")
    application, helpers = resident_memory()
    figures[f"memory of the application, {EXECUTORS} executors (MB)"] = application
    figures["… and of all its processes but the kernels (MB)"] = application + helpers
    for executor in executors:
        await executor.stop()
    return figures


def resident_memory():
    """Of this process, and of its children that are neither kernels nor MCP servers; in MB."""
    import psutil

    ours = psutil.Process()
    helpers = 0
    for process in ours.children(recursive=True):
        command = " ".join(process.cmdline())
        if not any(
            word in command for word in ("ipykernel", "boot.py", "server.py", "sh ")
        ):
            helpers += process.memory_info().rss
    return ours.memory_info().rss / 1e6, helpers / 1e6


def measure_apart(module, directory, program):
    """As `measure`, in a process and a directory of its own."""
    with tempfile.TemporaryDirectory(dir=directory) as workspace:
        Path(workspace, "server.py").write_text(SERVER)
        python = Path(__file__).resolve().parents[1] / "python"
        variables = {
            **os.environ,
            "IPYBOX_PROGRAM": program,
            "IPYBOX_STATE_DIR": f"{workspace}/state",
            "PYTHONPATH": f"{python}:{Path(__file__).parent}",
        }
        command = [sys.executable, __file__, str(directory), "--measure", module]
        done = subprocess.run(
            command,
            cwd=workspace,
            env=variables,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        return json.loads(done.stdout.splitlines()[-1])


def run(directory, program, rounds):
    taken = {name: [] for name in MODULES}
    for number in range(rounds + 1):
        for name, module in MODULES.items():
            figures = measure_apart(module, directory, program)
            # The first round fills the caches of the machine.
            if number:
                taken[name].append(figures)
        time.sleep(1)
    print("| figure | ipybox_rs | original | ratio |\n|---|---|---|---|")
    for figure in taken["ours"][0]:
        mine, theirs = (
            statistics.median(figures[figure] for figures in taken[name])
            for name in MODULES
        )
        print(f"| {figure} | {mine:.2f} | {theirs:.2f} | {theirs / mine:.1f}× |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--program", default="target/release/ipybox")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(asyncio.run(measure(options.measure))))
        return
    directory = options.directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    python = prepare(directory)
    program = str(Path(options.program).absolute())
    if Path(sys.executable) != python:
        arguments = ["--rounds", str(options.rounds), "--program", program]
        os.execv(python, [str(python), __file__, str(directory), *arguments])
    run(directory, program, options.rounds)


if __name__ == "__main__":
    main()
