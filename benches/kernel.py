#!/usr/bin/env python3
"""Compares ipybox's kernel with ipykernel, driven by jupyter_client: both in the same environment, in one run.

    PYTHON benches/kernel.py [--rounds 5] [--program target/release/ipybox]

PYTHON has ipython, pydantic, ipykernel, jupyter_client and psutil. The two alternate, because a machine is not equally fast
all the time; the figures are medians over the rounds. A cell of ipybox goes through the whole program, over MCP.
"""

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from mcp_session import McpSession, ipybox_command

CELLS = 300
PRINTS = "for number in range(1_000_000): print(number)"
LONG_PRINT = "print('x' * 100_000_000)"


class IpyboxKernel(McpSession):
    """A session of ipybox, driven over MCP."""

    def __init__(self, program, directory):
        super().__init__(ipybox_command(program, directory, "--python", sys.executable))
        self._id_file = Path(directory, "workspace/id.txt")

    def cell(self, code):
        super().cell(code, timeout=600)

    def kernel(self):
        # In a file: what an answer says is for models.
        self.cell("import os; print(os.getpid(), file=open('id.txt', 'w'), flush=True)")
        return int(self._id_file.read_text())


class Ipykernel:
    """ipykernel as jupyter_client drives it, over Unix sockets."""

    def __init__(self, program, directory):
        from jupyter_client import KernelManager

        self._manager = KernelManager(kernel_name="python3", transport="ipc")
        self._manager.start_kernel()
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=120)

    def cell(self, code):
        self._client.execute_interactive(code, timeout=600, output_hook=lambda _: None)

    def kernel(self):
        return self._manager.provisioner.process.pid

    def stop(self):
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


def seconds(action):
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def measure(kind, program, directory):
    begin = time.perf_counter()
    session = kind(program, directory)
    with contextlib.closing(contextlib.ExitStack()) as stack:
        stack.callback(session.stop)
        session.cell("1")
        first = time.perf_counter() - begin
        kernel = psutil.Process(session.kernel())
        memory = kernel.memory_full_info().pss
        warm = statistics.median(
            seconds(lambda: session.cell("1 + 1")) for _ in range(CELLS)
        )
        printed = statistics.median(
            seconds(lambda: session.cell("print(1)")) for _ in range(CELLS)
        )
        return {
            "start to the first cell's answer, ms": first * 1e3,
            "warm cell with a value, p50, ms": warm * 1e3,
            "warm cell that prints, p50, ms": printed * 1e3,
            "kernel's memory (PSS), MB": memory / 1e6,
            "10⁶ prints, s": seconds(lambda: session.cell(PRINTS)),
            "a print of 100 MB, s": seconds(lambda: session.cell(LONG_PRINT)),
        }


def run(program, rounds):
    taken = {IpyboxKernel: [], Ipykernel: []}
    # The first round fills the caches of the machine.
    for number in range(rounds + 1):
        for kind, rows in taken.items():
            with tempfile.TemporaryDirectory() as directory:
                figures = measure(kind, program, directory)
            if number:
                rows.append(figures)
    print("| figure | ipybox | ipykernel | ratio |\n|---|---|---|---|")
    for figure in taken[IpyboxKernel][0]:
        ours, theirs = (
            statistics.median(row[figure] for row in rows) for rows in taken.values()
        )
        print(f"| {figure} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f} |")


MAKE_SHELL = """\
from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.instance().run_cell("1")
"""

# What is started, each with all that the one before starts.
PARTS = {
    "Python": ["-I", "-c", "pass"],
    "IPython's shell, imported": ["-I", "-c", "import IPython.core.interactiveshell"],
    "IPython's shell, made": [
        "-I",
        "-c",
        MAKE_SHELL,
    ],
}


def seconds_of(arguments):
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def parts(program, rounds):
    """Measures the parts of a cold start."""
    taken = {}
    for number in range(2 * rounds + 1):
        with tempfile.TemporaryDirectory() as directory:
            steps = {name: seconds_of(arguments) for name, arguments in PARTS.items()}
            begin = time.perf_counter()
            session = IpyboxKernel(program, directory)
            session.cell("1")
            steps["ipybox, first cell answered"] = time.perf_counter() - begin
            session.stop()
        for name, step in steps.items() if number else []:
            taken.setdefault(name, []).append(step * 1e3)
    before = 0
    print("\n| up to here | ms | more than the line above |\n|---|---|---|")
    for name, times in taken.items():
        median = statistics.median(times)
        print(f"| {name} | {median:.0f} | {median - before:.0f} |")
        before = median


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", default="target/release/ipybox")
    options = parser.parse_args()
    program = str(Path(options.program).absolute())
    run(program, options.rounds)
    parts(program, options.rounds)


main()
