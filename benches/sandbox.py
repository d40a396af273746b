#!/usr/bin/env python3
"""Holds the same session without a sandbox, with srt and with bubblewrap, and compares.

    python3 benches/sandbox.py PYTHON SERVER_PYTHON [--rounds 5] [--program target/release/ipybox]

PYTHON has ipython and pydantic, SERVER_PYTHON the package mcp. srt and bwrap are on PATH. The three alternate, because a machine is
not equally fast all the time; the figures are medians over the rounds.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from mcp_session import McpSession, ipybox_command

MODES = {
    "no sandbox": [],
    "srt": ["--sandbox"],
    "bwrap": ["--sandbox", "--sandbox-backend", "bwrap"],
}

SERVER = """
from mcp.server.fastmcp import FastMCP

server = FastMCP("bench", log_level="ERROR")


@server.tool()
def echo(text: str) -> str:
    return text


server.run()
"""

CALLS = """
import statistics, time
from mcptools.bench import echo
params = echo.Params(text="x")
echo.run(params)
times = []
for _ in range(200):
    begin = time.perf_counter()
    echo.run(params)
    times.append(time.perf_counter() - begin)
with open("seconds.txt", "w") as file:
    print(statistics.median(times), file=file)
"""

SETTINGS = {
    "network": {"allowedDomains": [], "deniedDomains": []},
    "filesystem": {"denyRead": [], "allowWrite": [], "denyWrite": []},
}


def timed(action, count):
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def measure(program, python, server_python, flags):
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        server = directory / "server.py"
        server.write_text(SERVER)
        session = McpSession(
            ipybox_command(program, directory, "--python", python, *flags)
        )
        session.cell("1")
        figures = {"start": time.perf_counter() - session.begun}
        params = {"command": str(server_python), "args": [str(server)]}
        session.call("register_mcp_server", server_name="bench", server_params=params)
        timed(lambda: session.cell("1"), 20)
        figures["cell"] = timed(lambda: session.cell("1"), 200)
        session.cell(CALLS)
        # In a file: what an answer says is for models.
        seconds = directory / "workspace/seconds.txt"
        figures["tool call"] = float(seconds.read_text())
        figures["reset"] = timed(lambda: (session.call("reset"), session.cell("1")), 3)
        figures["shutdown"] = timed(session.stop, 1)
        return figures


def srt_alone():
    """The seconds that srt takes for a program that does nothing."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as settings:
        json.dump(SETTINGS, settings)
        settings.flush()
        # Without a level of shells, bash runs `.bashrc` when its input is a socket.
        environment = {**os.environ, "SHLVL": "1"}
        command = ["srt", "--settings", settings.name, "--", "true"]
        run = lambda: subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, check=True
        )
        return timed(run, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", type=Path)
    parser.add_argument("server_python", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", type=Path, default=Path("target/release/ipybox"))
    arguments = parser.parse_args()
    program = arguments.program.resolve()
    pythons = arguments.python.absolute(), arguments.server_python.absolute()
    rounds = {mode: [] for mode in MODES}
    alone = []
    for _ in range(arguments.rounds):
        alone.append(srt_alone())
        for mode, flags in MODES.items():
            rounds[mode].append(measure(program, *pythons, flags))
    print(f"srt -- true: {statistics.median(alone) * 1000:.0f} ms\n")
    names = list(rounds["no sandbox"][0])
    print("| ms | " + " | ".join(names) + " |")
    print("|---|" + "---|" * len(names))
    for mode, figures in rounds.items():
        medians = (
            statistics.median(round[name] for round in figures) for name in names
        )
        print(
            f"| {mode} | " + " | ".join(f"{each * 1000:.2f}" for each in medians) + " |"
        )


main()
