"""Measures the time that the npm launcher and npx add to a start, and the memory of the launcher.

Run it with a Python that has an MCP SDK, and with the options of tests/packaging/npm.py. The ways to start alternate,
so that what else the machine does hits all; figures are medians.
"""

import argparse
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/packaging"))
import npm
import npm_launcher
from npm_bench import HERE, VERSION, NpmBench


def cpu_secs():
    """The processor time of the processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_ms(bench, command):
    """The time that a command takes, and the processor's time that it needs, which other work slows down less."""
    begin, used = time.perf_counter(), cpu_secs()
    bench.run(*command)
    return (time.perf_counter() - begin) * 1000, (cpu_secs() - used) * 1000


def initialize_ms(bench, command):
    """From the start of the process to the answer of `initialize`."""
    begin = time.perf_counter()
    with (bench.scratch / "stderr").open("w") as stderr:
        workspace = bench.directory("workspace")
        running = bench.start(*command, "--workspace", workspace, stderr=stderr)
        npm_launcher.initialize(running)
        took = time.perf_counter() - begin
        running.communicate()
    return took * 1000


def launcher_memory_kb(bench, launcher):
    """Proportional memory of the launcher while its binary runs; Linux only."""
    running = bench.start(launcher, "--workspace", bench.directory("workspace"))
    npm_launcher.initialize(running)
    lines = Path(f"/proc/{running.pid}/smaps_rollup").read_text().splitlines()
    running.communicate()
    (pss,) = [line.split()[1] for line in lines if line.startswith("Pss:")]
    return int(pss)


def main():
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--node-bin", required=True)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    options.binary = os.path.abspath(options.binary)
    with tempfile.TemporaryDirectory(prefix="ipybox-npm-") as scratch:
        bench = NpmBench(Path(scratch).resolve(), options)
        npm.build(bench)
        with npm.serving(bench):
            bench.forget_cache()
            cold, _ = run_ms(bench, ["npx", "-y", f"ipybox@{VERSION}", "--version"])
            report(bench, options, cold)


def row(name, runs, initialize):
    """A line of the table."""
    columns = [*zip(*runs, strict=True), *([initialize] if initialize else [])]
    medians = [f"{statistics.median(column):.0f} ms" for column in columns]
    return f"{name:28}{medians[0]:>12}" + "".join(f"{one:>14}" for one in medians[1:])


def report(bench, options, cold_ms):
    """Measures and prints."""
    launcher = bench.installed(HERE) / "node_modules/ipybox/bin/ipybox.js"
    ways = {
        "the binary": [options.binary],
        "the launcher": [launcher],
        "npx, installed before": ["npx", "-y", f"ipybox@{VERSION}"],
    }
    runs = {way: [] for way in ways}
    initialize = {way: [] for way in ways}
    floor = []
    for _ in range(options.rounds):
        floor.append(run_ms(bench, ["node", "-e", "0"]))
        for way, command in ways.items():
            runs[way].append(run_ms(bench, [*command, "--version"]))
            initialize[way].append(initialize_ms(bench, command))
    node = bench.run("node", "--version").stdout.strip()
    print(f"{'':28}{'`--version`':>12}{'processor':>14}{'`initialize`':>14}")
    print(row(f"Node.js {node}, nothing", floor, []))
    for way in ways:
        print(row(way, runs[way], initialize[way]))
    print(f"npx from a cold cache, registry on loopback: {cold_ms / 1000:.1f} s")
    if sys.platform == "linux":
        print(
            f"memory of the launcher: {launcher_memory_kb(bench, launcher) / 1024:.0f} MB"
        )


if __name__ == "__main__":
    main()
