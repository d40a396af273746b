#!/usr/bin/env python3
"""Compares cells with `--checkpoint` and without, in one run.

    python3 benches/checkpoint.py PYTHON [--rounds 12] [--program target/release/ipybox]

PYTHON is the interpreter of the kernels, with ipython, pydantic, cloudpickle, numpy and pandas. The two alternate, because a
machine is not equally fast all the time; the figures are medians over the rounds.
"""

import argparse
import statistics
import tempfile
import time

from mcp_session import McpSession, ipybox_command

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


def cell_ms(session, code):
    """The milliseconds that a cell takes."""
    begun = time.perf_counter()
    session.cell(code)
    return (time.perf_counter() - begun) * 1000


def measure(name, setup, arguments):
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        program, flags = arguments.program, ["--python", arguments.python]
        sessions = [
            McpSession(ipybox_command(program, one, *flags)),
            McpSession(ipybox_command(program, other, *flags, "--checkpoint")),
        ]
        for session in sessions:
            session.cell(setup)
        times = {session: ([], []) for session in sessions}
        for _ in range(arguments.rounds):
            time.sleep(PAUSE_SECONDS)
            for session in sessions:
                after_pause, at_once = times[session]
                after_pause.append(cell_ms(session, "x = 1"))
                at_once.append(cell_ms(session, "x = 1"))
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
