#!/usr/bin/env python3
"""The cost of users of a team server who do nothing, and of a cell for the server itself.

    python3 benches/idle_users.py PYTHON [--program target/release/ipybox] [--users 8] [--seconds 20] [--cells 100]

PYTHON has ipython and pydantic, and can be run by any user of the machine. Linux only, as root: the processes of each user have
an id of the system then. Memory is the proportional share (PSS), so that a page of several processes counts once.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from team import TeamClient, TeamServer

FIRST_ID = 1_600_000_000
PATIENCE_SECS = 60
IDLE_SECS = 15
"""`idle` of the server's configuration, in the place of 15 minutes."""
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def processes():
    """The processes of all users."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if place.stat().st_uid >= FIRST_ID:
                yield place
        except OSError:
            continue  # It has ended.


def serving(front):
    """The processes by which a front serves sessions that are in use."""
    started = f"PPid:\t{front.name}\n"
    return [place for place in processes() if started in (place / "status").read_text()]


def kilobytes(place):
    found = re.search(
        r"^Pss:\s+(\d+)", (place / "smaps_rollup").read_text(), re.MULTILINE
    )
    return int(found[1])


def processor_seconds(place):
    """The processor time of a process, without its children's."""
    fields = (place / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def total(figure):
    """A figure of all users' processes together."""
    found = 0
    for place in processes():
        try:
            found += figure(place)
        except OSError:
            continue  # It has ended.
    return found


def until(claim, what):
    end = time.monotonic() + PATIENCE_SECS
    while not claim():
        if time.monotonic() > end:
            sys.exit(f"error: {what} has not come within {PATIENCE_SECS} s")
        time.sleep(0.2)


def measure(options, server):
    clients = [TeamClient(server, number).begin() for number in range(options.users)]
    for client in clients:
        client.cell("x = 1")
    front = Path(f"/proc/{server.process.pid}")
    if len(serving(front)) != options.users:
        sys.exit(f"error: not all were in use within {IDLE_SECS} s: take fewer users")
    used, awake = total(kilobytes), len(list(processes()))
    until(lambda: not serving(front), "the end of the processes that serve sessions")
    idle, left = total(kilobytes), len(list(processes()))
    begun = total(processor_seconds)
    time.sleep(options.seconds)
    spent = 60 * (total(processor_seconds) - begun) / options.seconds
    users = options.users
    print(
        f"a user's session in use: {used / users / 1000:.1f} MB, {awake / users:.0f} processes"
    )
    print(
        f"one that is idle: {idle / users / 1000:.1f} MB, {left / users:.0f} processes"
    )
    print(f"its processor time: {1000 * spent / users:.0f} ms a minute")
    for client in clients:
        # The server may have closed it meanwhile.
        client.connection.close()
        client.connection = None
    clients[0].cell("1")
    begun, waited = processor_seconds(front), time.monotonic()
    for number in range(options.cells):
        clients[0].cell(f"{number} + 1")
    spent = 1000 * (processor_seconds(front) - begun) / options.cells
    waited = 1000 * (time.monotonic() - waited) / options.cells
    print(f"processor time of the front for a cell: {spent:.1f} ms, of {waited:.1f} ms")
    server.end_sessions()
    until(lambda: not any(processes()), "the end of all sessions")
    print("a user whose session has ended: no process")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("python")
    add("--program", default="target/release/ipybox")
    add("--users", type=int, default=8)
    add("--seconds", type=float, default=20.0)
    add("--cells", type=int, default=100)
    options = parser.parse_args()
    options.program = os.path.abspath(options.program)
    if any(processes()):
        sys.exit("error: another team server's users have processes here")
    with tempfile.TemporaryDirectory(prefix="team-") as directory:
        # Users pass through it to what is theirs.
        os.chmod(directory, 0o755)
        server = TeamServer(options, Path(directory), options.users)
        text = re.sub(r"\nmcp_config = .*", "", server.config.read_text())
        idle = f'[sessions]\nidle = "{IDLE_SECS}s"\n'
        server.config.write_text(text.replace("[sessions]\n", idle))
        server.start()
        try:
            measure(options, server)
        finally:
            server.kill()
            server.end_sessions()


if __name__ == "__main__":
    main()
