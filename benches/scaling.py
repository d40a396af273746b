#!/usr/bin/env python3
"""Simulates a day of many users: sessions awake, memory, nodes, and how long users wait, by idle times and pool sizes.

    python3 benches/scaling.py [--trace FILE] [--users 10000] [--seed 1] [--start 10] [--node-gb 64] [--data-mb 300]

A session is awake from its first task until it was idle for a time. A user who comes back waits for a place: one of a pool that was
started beforehand, which begins another start at once, or one that has yet to start. The time in which variables are restored is
not in it (25 ms in the median, 1.9 s at most, by `team.py`). Nothing else is simulated: no node fails or has to be started, and
tasks have all processors that they need.

Without `--trace`, tasks are drawn from the quantiles of that trace, each number for itself: the 30,909 training tasks of June 2021
that https://github.com/ds2-lab/NotebookOS-Dashboard publishes (`driver-backend/scripts/tiresias_generator/sensei_june_60sec.csv`,
revision 87ddf65852c5). It has minutes, and no task shorter than one. Standard library only; the same arguments print the same.
"""

import argparse
import bisect
import csv
import hashlib
import heapq
import math
import random
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

DAY = 24 * 60

SESSION_MB = 39.4
"""The memory of an idle session with its sandbox and kernel, measured by `idle_users.py`."""
FRONT_MB, FRONT_USER_MB = 14.5, 0.08
"""The memory of a team server's front, and of each of its idle users, measured by `team.py`."""
STARTS_AT_ONCE = 64
"""The starts of places at one time, as a JupyterHub on Kubernetes has it by default (`concurrentSpawnLimit`)."""

TRACE_SHA256 = "2afb2815149cd0d8a9f37e7b67f9fb99ebaacae19cf210426fe1d1351af471b5"
LEVELS = (0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1)
TASKS = (1, 1, 1, 2, 4, 11, 40, 78, 152, 248)
"""The quantiles of the trace at these levels: tasks of a user in a day."""
MINUTES = (1, 3, 3, 3, 5, 11, 32, 95, 1021, DAY)
"""The length of a task; longer ones end with the day."""
PAUSES = (1, 1, 1, 1, 3, 6, 18, 47, 274, 1407)
"""The minutes between two tasks of a user."""
FIRST_HOURS = (
    *(395, 145, 143, 137, 80, 74, 59, 57, 45, 65, 85, 92),
    *(98, 92, 87, 82, 70, 74, 53, 31, 35, 19, 35, 53),
)
"""The users whose first task begins in each hour."""
MORNING, SPREAD = 9 * 60, 45
"""In one time zone, users begin at 9 o'clock, with this standard deviation in minutes."""

IDLE_MINUTES = (15, 60, 480, DAY)
POOLS = (0, 10, 20, 50, 100)


@dataclass(frozen=True)
class SimulatedDay:
    """The figures of a day."""

    wakes: int
    waits: list
    """The seconds for which each user waited who came back, in order."""
    peak: int
    """The most sessions that were awake at one time."""
    mean: float

    def quantile(self, level):
        return self.waits[min(len(self.waits) - 1, int(level * len(self.waits)))]


def drawn(quantiles, chance):
    """A number between two quantiles, on a logarithmic scale."""
    level = chance.random()
    above = max(1, bisect.bisect_left(LEVELS, level))
    (low, high), (begin, end) = (
        (values[above - 1], values[above]) for values in (quantiles, LEVELS)
    )
    part = (level - begin) / (end - begin)
    return math.exp(math.log(low) + part * (math.log(high) - math.log(low)))


def drawn_day(chance):
    """The tasks of a user in a day: their beginnings and ends, in minutes."""
    hour = chance.choices(range(24), FIRST_HOURS)[0]
    at, tasks = 60 * (hour + chance.random()), []
    for _ in range(round(drawn(TASKS, chance))):
        end = at + drawn(MINUTES, chance)
        tasks.append((at, end))
        at = end + drawn(PAUSES, chance)
    return tasks


def traced_days(file):
    """The days of users in a trace. Its lines are in order of sessions, and in each of them in order of time."""
    content = Path(file).read_bytes()
    if hashlib.sha256(content).hexdigest() != TRACE_SHA256:
        raise SystemExit(f"error: {file} is not the trace that this program describes")
    days, session, last = defaultdict(list), 0, 0
    for row in csv.DictReader(content.decode().splitlines()):
        begin, length = int(row["submit_time"]), int(row["duration"])
        session += begin < last
        last = begin
        day, minute = divmod(begin, DAY)
        days[session, day].append((minute, minute + length))
    return [sorted(tasks) for tasks in days.values()]


def users_of(options, chance):
    """The tasks of each user."""
    if options.trace:
        # Within its minute, each task begins at a time of its own.
        days = chance.choices(traced_days(options.trace), k=options.users)
        moved = [chance.random() for _ in days]
        return [
            [(begin + by, end + by) for begin, end in day]
            for day, by in zip(days, moved, strict=True)
        ]
    return [drawn_day(chance) for _ in range(options.users)]


def in_one_time_zone(users, chance):
    """The same tasks, which begin in the morning."""
    moved = []
    for tasks in users:
        by = chance.gauss(MORNING, SPREAD) - tasks[0][0]
        moved.append([(begin + by, end + by) for begin, end in tasks])
    return moved


def awake_times(tasks, idle):
    """The times for which a session is awake, in minutes."""
    found = []
    for begin, end in tasks:
        if begin >= DAY:
            break
        end = min(end, DAY)
        if found and begin <= found[-1][1]:
            found[-1][1] = max(found[-1][1], min(end + idle, DAY))
        else:
            found.append([begin, min(end + idle, DAY)])
    return found


def simulate(users, idle, pool, start):
    """A day with sessions that sleep after `idle` minutes, `pool` places kept ready, and starts of `start` seconds."""
    times = sorted(time for tasks in users for time in awake_times(tasks, idle))
    changes = sorted(
        [(end, -1) for _, end in times] + [(begin, 1) for begin, _ in times]
    )
    now, peak, busy = 0, 0, 0.0
    for (at, change), (following, _) in pairwise([*changes, (DAY, 0)]):
        now += change
        peak = max(peak, now)
        busy += now * (following - at)
    ready, starters = [0.0] * pool, [0.0] * STARTS_AT_ONCE
    waits = []
    for begin, _ in times:
        asked = 60 * begin
        # A place begins to start as soon as one is taken.
        started = max(asked, heapq.heappop(starters)) + start
        heapq.heappush(starters, started)
        heapq.heappush(ready, started)
        waits.append(max(0.0, heapq.heappop(ready) - asked))
    return SimulatedDay(len(times), sorted(waits), peak, busy / DAY)


def table(head, rows):
    lines = [f"| {' | '.join(row)} |" for row in [head, *rows]]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def by_idle_time(users, options):
    rows = []
    for idle in IDLE_MINUTES:
        day = simulate(users, idle, 0, options.start)
        rows.append(
            [
                "never" if idle == DAY else f"{idle} min",
                f"{day.mean:,.0f}",
                f"{day.peak:,}",
                f"{day.wakes / len(users):.1f}",
                f"{day.peak * SESSION_MB / 1000:,.0f} GB",
                f"{nodes(day.peak, options):,}",
            ]
        )
    head = ["asleep after", "awake, mean", "most", "starts of a user", "without data"]
    return table([*head, "nodes"], rows)


def nodes(places, options):
    """The nodes whose memory takes so many places with data."""
    each = (SESSION_MB + options.data_mb) / 1000
    return math.ceil(places / math.floor(options.node_gb / each))


def by_pool(users, options):
    rows = []
    for pool in POOLS:
        day = simulate(users, options.idle, pool, options.start)
        late = sum(wait > 0 for wait in day.waits) / day.wakes
        quantiles = (f"{day.quantile(level):.1f} s" for level in (0.5, 0.99, 1))
        rows.append([f"{pool}", f"{100 * late:.1f} %", *quantiles])
    head = ["places kept ready", "starts that wait for one", "p50", "p99"]
    return table([*head, "longest"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--trace", help="the published trace, in place of its quantiles")
    add("--users", type=int, default=10_000)
    add("--seed", type=int, default=1)
    add("--idle", type=float, default=60, help="minutes, where pools are compared")
    add("--start", type=float, default=10, help="seconds that a place takes to start")
    add("--node-gb", type=float, default=64, help="memory of a node for sessions")
    add("--data-mb", type=float, default=300, help="memory of a user's data")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    users = users_of(options, chance)
    tasks = sum(map(len, users)) / len(users)
    origin = "days of the trace" if options.trace else "days drawn from its quantiles"
    print(f"{len(users):,} {origin}, {tasks:.1f} tasks each; seed {options.seed}")
    front = (FRONT_MB + FRONT_USER_MB * len(users)) / 1000
    print(f"front: {front:.1f} GB for all, if one could serve them")
    for name, found in (
        ("as traced", users),
        ("in one time zone", in_one_time_zone(users, chance)),
    ):
        print(f"\n{name}\n\n{by_idle_time(found, options)}\n")
        print(by_pool(found, options))


if __name__ == "__main__":
    main()
