#!/usr/bin/env python3
"""Compares cells with `--checkpoint` and without, in one run.

    python3 benches/checkpoint.py PYTHON [--rounds 12] [--program target/release/ipybox]

PYTHON is the interpreter of the kernels, with ipython, pydantic, cloudpickle, numpy and pandas. The two alternate, because a
machine is not equally fast all the time; the figures are medians over the rounds.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time

SETUPS = {
    "one variable": "x = 1",
    "numpy, pandas, a small table": "import numpy, pandas; table = pandas.DataFrame({'a': range(1000)})",
    "100 MiB of arrays, 300,000 dictionaries": (
        "import numpy; arrays = [numpy.ones(1 << 20) for _ in range(13)]; "
        "rows = [{'a': number, 'b': str(number)} for number in range(300_000)]"
    ),
}
# A checkpoint of the largest setup takes less.
PAUSE_SECONDS = 3


class Ipybox:
    """ipybox as an MCP server on stdio."""

    def __init__(self, program, python, directory, *flags):
        places = ["--workspace", directory, "--state-dir", f"{directory}/state"]
        self._process = subprocess.Popen(
            [program, "--python", python, "--log-level", "ERROR", *places, *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._count = 0
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        self._ask("initialize", hello)
        self._send({"method": "notifications/initialized"})

    def _send(self, message):
        line = json.dumps({"jsonrpc": "2.0", **message}) + "\n"
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()

    def _ask(self, method, params):
        self._count += 1
        self._send({"id": self._count, "method": method, "params": params})
        while True:
            answer = json.loads(self._process.stdout.readline())
            if answer.get("id") == self._count:
                return answer["result"]

    def cell(self, code):
        """The milliseconds that a cell takes."""
        begun = time.perf_counter()
        arguments = {"code": code}
        answer = self._ask(
            "tools/call", {"name": "execute_ipython_cell", "arguments": arguments}
        )
        if answer.get("isError"):
            raise RuntimeError(answer["content"])
        return (time.perf_counter() - begun) * 1000

    def stop(self):
        self._process.stdin.close()
        self._process.wait()


def measure(name, setup, arguments):
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        program, python = arguments.program, arguments.python
        without = Ipybox(program, python, one)
        saving = Ipybox(program, python, other, "--checkpoint")
        sessions = [without, saving]
        for session in sessions:
            session.cell(setup)
        times = {session: ([], []) for session in sessions}
        for _ in range(arguments.rounds):
            time.sleep(PAUSE_SECONDS)
            for session in sessions:
                after_pause, at_once = times[session]
                after_pause.append(session.cell("x = 1"))
                at_once.append(session.cell("x = 1"))
        for session in sessions:
            session.stop()
    shown = [
        " / ".join(f"{statistics.median(each):.1f} ms" for each in times[session])
        for session in sessions
    ]
    print(f"{name}: {shown[0]} without, {shown[1]} with a checkpoint")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--program", default="target/release/ipybox")
    arguments = parser.parse_args()
    print("a cell after a pause / a cell right after that")
    for name, setup in SETUPS.items():
        measure(name, setup, arguments)


main()
