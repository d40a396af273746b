#!/usr/bin/env python3
"""Compares copies of sessions, resets and further sessions with cold starts, in one run.

    python3 benches/branch.py PYTHON [--rounds 5] [--resets 1000] [--copies 10000] [--program target/release/ipybox]

PYTHON is the interpreter of the kernels, with ipython, pydantic and numpy. For each size of the origin's state, copies and cold
starts alternate, because a machine is not equally fast all the time; the figures are medians over the rounds. The time is that of
a call with its first cell, a moment after the cell before. Then: the memory of idle copies and of the template, and what many
kernels leave in it and in a kernel that is copied; the best of 8 attempts from one prepared state, how long it takes to undo a
cell, and what states cost the cells of an agent that thinks for a moment after each.
"""

import argparse
import contextlib
import re
import statistics
import tempfile
import time
from pathlib import Path

from mcp_session import McpSession, ipybox_command

# A state has arrays and, for each MB, two thousand small objects.
SIZES_MB = (0, 50, 1000, 4000)
STATE = """
import numpy
arrays = [numpy.ones(1 << 17) for _ in range({mb})]
objects = [str(number) for number in range({mb} * 2000)]
"""
# Code that takes as long as an agent's loading of data.
PREPARE = "import time; time.sleep({seconds}); state = list(range(1000))"
ATTEMPT = "sum(state) + 1"
IDLE = (1, 8, 32)
# The copies that a client may have.
MOST_COPIES = 8
# The copies before their traces are counted.
WARM_UP = 20
COLD = ("--cold-start",)
# The processes of an idle session: the kernel and its watcher, and the template.
PROCESSES = {COLD: 2, (): 3}
UNDO_SIZES_MB = (0, 50, 1000)
# A cell that writes to a part of the state.
CHANGE = "objects[::100] = [str(number) for number in objects[::100]]"
THINK_SECONDS = 0.3
KERNELS = """
import os
command = open("/proc/self/cmdline").read()
names = [name for name in os.listdir("/proc") if name.isdigit()]
print(*(name for name in names if open(f"/proc/{name}/cmdline").read() == command))
"""


class TimedSession(McpSession):
    """A session whose calls return how long they took, in milliseconds, with their text."""

    def timed(self, tool, **arguments):
        begun = time.perf_counter()
        text = self.call(tool, **arguments)
        return text, (time.perf_counter() - begun) * 1000

    def cell(self, code, session="main"):
        arguments = {"code": code, "session": session, "timeout": 600}
        return self.timed("execute_ipython_cell", **arguments)

    def reset(self, session="main"):
        """Reset a session, and run a cell; return how long both took, in milliseconds."""
        return self.timed("reset", session=session)[1] + self.cell("1", session)[1]


def memory_mb(process, kind):
    rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
    lines = [line.split() for line in rollup.splitlines()]
    kilobytes = sum(int(line[1]) for line in lines if line[0].startswith(kind))
    return kilobytes / 1024


def await_processes(directory, flags=()):
    """Waits until an idle session is complete. Returns its processes."""
    workspace = Path(directory, "workspace").resolve()
    processes = []
    deadline = time.monotonic() + 60
    while len(processes) < PROCESSES[flags] and time.monotonic() < deadline:
        time.sleep(0.2)
        processes = [
            path.name
            for path in Path("/proc").glob("[0-9]*")
            if is_script(path) and (path / "cwd").resolve() == workspace
        ]
    return processes


def is_script(process):
    try:
        return b"boot.py" in (process / "cmdline").read_bytes()
    except OSError:
        return False  # It has ended.


def resets(start, rounds):
    """A reset, and a further session, from the template and from scratch."""
    for mb in SIZES_MB[:3]:
        took = {(flags, kind): [] for flags in ((), COLD) for kind in ("reset", "new")}
        for _ in range(rounds):
            for flags in ((), COLD):
                with tempfile.TemporaryDirectory() as directory:
                    ipybox = start(directory, *flags)
                    await_processes(directory, flags)
                    ipybox.cell(STATE.format(mb=mb))
                    time.sleep(THINK_SECONDS)
                    took[flags, "new"].append(ipybox.cell("1", "new")[1])
                    took[flags, "reset"].append(ipybox.reset())
                    ipybox.stop()
        for kind in ("reset", "new"):
            fork, cold = (statistics.median(took[flags, kind]) for flags in ((), COLD))
            print(
                f"{mb:5} MB: {kind} {fork:6.1f} ms, cold {cold:6.1f} ms, ratio {fork / cold:.2f}",
                flush=True,
            )


def session_memory(start):
    """The memory of a session that has run a cell, with a template and without."""
    for flags in (COLD, ()):
        with tempfile.TemporaryDirectory() as directory:
            ipybox = start(directory, *flags)
            processes = await_processes(directory, flags)
            ipybox.cell("1")
            memory = sum(memory_mb(process, "Pss:") for process in processes)
            kind = "without a template" if flags else "with a template"
            print(f"a session {kind}: {memory:.1f} MB in {len(processes)} processes")
            ipybox.stop()


def leftovers(start, count):
    """Compares a template before and after many kernels were forked from it."""
    with tempfile.TemporaryDirectory() as directory:
        ipybox = start(directory)
        await_processes(directory)
        ipybox.reset()
        parent = ipybox.cell("import os; os.getppid()")[0].split()[-1]
        before = left_in(parent)
        for _ in range(count):
            ipybox.call("reset")
        print(
            f"descriptors, mappings, children, MB of a template: {before}, after {count} resets {left_in(parent)}"
        )
        ipybox.stop()


def left_by_copies(start, count):
    """Compares a kernel, and the program, before and after many copies of the kernel that have run a cell."""
    with tempfile.TemporaryDirectory() as directory:
        ipybox = start(directory)
        ipybox.cell(STATE.format(mb=50))
        kernel = ipybox.cell("import os; os.getpid()")[0].split()[-1]
        program = str(ipybox.process.pid)
        before = []
        # The first ones have it import and allocate what copies need.
        for rest in (WARM_UP, count):
            for _ in range(rest):
                text, _ = ipybox.cell("objects[::100] = objects[1::100]", "copy")
                handle = re.search(r"New session `(\w+)`", text)[1]
                ipybox.call("reset", session=handle, end=True)
            time.sleep(1)
            before.append((left_in(kernel), left_in(program)))
        print(
            f"descriptors, mappings, children, MB of a kernel and of ipybox: {before[0]}, after {count} copies {before[1]}"
        )
        ipybox.stop()


def left_in(process):
    place = Path("/proc", process)
    children = (place / "task" / process / "children").read_text().split()
    mappings = (place / "maps").read_text().splitlines()
    descriptors = list((place / "fd").iterdir())
    memory = round(memory_mb(process, "Rss:"), 1)
    return len(descriptors), len(mappings), len(children), memory


def sizes(start, rounds):
    for mb in SIZES_MB:
        copies, cold = [], []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as directory:
                ipybox = start(directory)
                ipybox.cell(STATE.format(mb=mb))
                time.sleep(THINK_SECONDS)
                copies.append(ipybox.cell("1", "copy")[1])
                ipybox.stop()
            with tempfile.TemporaryDirectory() as directory:
                ipybox = start(directory, *COLD)
                cold.append(ipybox.cell("1", "new")[1])
                ipybox.stop()
        copy, new = statistics.median(copies), statistics.median(cold)
        ratio = copy / new
        print(
            f"{mb:5} MB: copy {copy:6.1f} ms, cold {new:6.1f} ms, ratio {ratio:.2f}",
            flush=True,
        )


def idle(start):
    """The private memory of copies of a state of 50 MB: of more than one client, if there are more than it may have.

    A copy that keeps states shares its memory with them, and none of it would be private.
    """
    with contextlib.ExitStack() as stack:
        copies = []
        for count in IDLE:
            while len(copies) < count:
                directory = stack.enter_context(tempfile.TemporaryDirectory())
                ipybox = start(directory, "--undo-memory", "0")
                stack.callback(ipybox.stop)
                ipybox.cell(STATE.format(mb=50))
                for _ in range(min(count - len(copies), MOST_COPIES)):
                    text, _ = ipybox.cell("import os; os.getpid()", "copy")
                    copies.append(int(text.split()[-1]))
            memory = sum(memory_mb(process, "Private") for process in copies)
            print(f"{count} idle copies of 50 MB: {memory:.1f} MB of their own")


def best_of_8(start, seconds):
    prepare = PREPARE.format(seconds=seconds)
    with tempfile.TemporaryDirectory() as directory:
        ipybox = start(directory)
        begun = time.perf_counter()
        ipybox.cell(prepare)
        for _ in range(8):
            ipybox.cell(ATTEMPT, "copy")
        copies = time.perf_counter() - begun
        ipybox.stop()
    with tempfile.TemporaryDirectory() as directory:
        ipybox = start(directory)
        begun = time.perf_counter()
        for _ in range(8):
            ipybox.cell(f"{prepare}\n{ATTEMPT}", "new")
        kernels = time.perf_counter() - begun
        ipybox.stop()
    print(
        f"best of 8 after {seconds} s of preparation: copies {copies:.1f} s, eight kernels {kernels:.1f} s"
    )


def undo(start, rounds):
    for mb in UNDO_SIZES_MB:
        with (
            tempfile.TemporaryDirectory() as one,
            tempfile.TemporaryDirectory() as other,
        ):
            states, plain = start(one), start(other, "--undo-memory", "0")
            cells = {states: [], plain: []}
            for ipybox in cells:
                ipybox.cell(STATE.format(mb=mb))
            undone = []
            for _ in range(rounds):
                for ipybox, took in cells.items():
                    time.sleep(THINK_SECONDS)
                    took.append(ipybox.cell(CHANGE)[1])
                time.sleep(THINK_SECONDS)
                undone.append(states.timed("reset", cells=1)[1])
            for _ in range(10):
                time.sleep(THINK_SECONDS)
                states.cell("1")
            time.sleep(THINK_SECONDS)
            processes = states.cell(KERNELS)[0].splitlines()[-1].split()
            # One that took too much has ended meanwhile.
            living = [name for name in processes if Path(f"/proc/{name}").exists()]
            memory = [memory_mb(process, "Private") for process in living]
            on, off = statistics.median(cells[states]), statistics.median(cells[plain])
            print(
                f"{mb:5} MB: undo {statistics.median(undone):6.1f} ms, a cell {on:6.1f} ms with states and"
                f" {off:6.1f} ms without, {len(memory) - 1} states of {sum(sorted(memory)[:-1]):.1f} MB",
                flush=True,
            )
            for ipybox in cells:
                ipybox.stop()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("python")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", default="target/release/ipybox")
    parser.add_argument("--resets", type=int, default=1000)
    parser.add_argument("--copies", type=int, default=10_000)
    parser.add_argument("--prepare-seconds", type=float, default=20)
    arguments = parser.parse_args()

    def start(directory, *flags):
        flags = ["--python", arguments.python, *flags]
        return TimedSession(ipybox_command(arguments.program, directory, *flags))

    resets(start, arguments.rounds)
    session_memory(start)
    leftovers(start, arguments.resets)
    left_by_copies(start, arguments.copies)
    sizes(start, arguments.rounds)
    idle(start)
    undo(start, arguments.rounds)
    best_of_8(start, arguments.prepare_seconds)


if __name__ == "__main__":
    main()
