"""The tables of the page, made of the files of figures: `python3 benches/code_mode/tables.py`. Standard library only."""

import json
from statistics import median

from chart import RESULTS, WAYS, by_calls, mean, ways_of

ARMS = ("without", "with")
"""Those of tasks with actions."""


def table(head, rows):
    """In Markdown."""
    lines = [f"| {' | '.join(map(str, line))} |" for line in [head, *rows]]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def rows_of(name):
    """The rows of a file of figures."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text())["rows"] if file.exists() else []


def of_tasks(rows):
    """The rows of each task, by way."""
    found = {}
    for row in rows:
        found.setdefault((row["suite"], row["task"]), {})[row["arm"]] = row
    return found


def sent(row):
    return f"{row['sent']:,} in {row['turns']}"


def office_sent(rows):
    """Tokens sent, and turns."""
    lines = []
    for (_, task), ways in of_tasks(rows).items():
        direct, code = ways["direct"], ways["ipybox"]
        lines.append(
            [
                task,
                *(sent(ways[way]) for way in ("direct", "ipybox", "hybrid")),
                f"{direct['sent'] / code['sent']:.1f}×",
                f"{direct['sent_with_needed_servers'] / code['sent']:.1f}×",
            ]
        )
    head = ["shape", "direct", "ipybox", "both", "direct / ipybox"]
    return table([*head, "with no other servers"], lines)


def office_parts(rows):
    """The tokens by kind, and the seconds of the tools."""
    lines = []
    for (_, task), ways in of_tasks(rows).items():
        direct, code = ways["direct"], ways["ipybox"]
        learning = code["learning"]
        lines.append(
            [
                task,
                f"{direct['results']:,}",
                f"{code['results']:,}",
                f"{direct['written']:,}",
                f"{code['written']:,}",
                f"{learning['written'] + learning['results']}",
                f"{direct['seconds'] * 1000:,.0f}",
                f"{code['seconds'] * 1000:,.0f}",
            ]
        )
    return table(
        [
            "shape",
            "results, direct",
            "results, ipybox",
            "written, direct",
            "written, ipybox",
            "looking up, in both",
            "ms, direct",
            "ms, ipybox",
        ],
        lines,
    )


def by_number_of_calls(rows):
    """Means over tasks with as many calls."""
    ways, groups = ways_of(rows), by_calls(rows, "").groups
    lines = [
        [label, *(f"{group[way]:,.0f}" for way in ways)]
        for label, group in groups.items()
    ]
    return table(["reference (tasks)", *(WAYS[way] for way in ways)], lines)


def wins(rows):
    """In how many tasks ipybox is sent less, and how much all tasks are sent."""
    tasks = of_tasks(rows)
    ways, lines = ways_of(rows), []
    for way in ways:
        chosen = [task[way] for task in tasks.values()]
        fewer = sum(
            task["ipybox"]["sent"] < task[way]["sent"] for task in tasks.values()
        )
        lines.append(
            [
                WAYS[way],
                f"{mean(row['sent'] for row in chosen):,.0f}",
                f"{mean(row['turns'] for row in chosen):.1f}",
                f"{mean(row['written'] for row in chosen):,.0f}",
                f"{mean(row['results'] for row in chosen):,.0f}",
                f"{1000 * mean(row['seconds'] for row in chosen):,.0f}",
                "" if way == "ipybox" else f"{fewer} of {len(tasks)}",
            ]
        )
    head = ["", "sent", "turns", "written", "results", "ms"]
    return table([*head, "ipybox is sent less"], lines)


def every():
    """All tables of the page that can be made of the files that are there."""
    found = {}
    if rows := rows_of("office"):
        found["office"] = office_sent(rows)
        found["office, parts"] = office_parts(rows)
    for suite in ("tau airline", "tau retail"):
        if rows := [row for row in rows_of("tau") if row["suite"] == suite]:
            found[suite] = by_number_of_calls(rows)
            found[f"{suite}, means"] = wins(rows)
    if rows := rows_of("m3tooleval"):
        found["m3tooleval"] = by_number_of_calls(rows)
        found["m3tooleval, means"] = wins(rows)
    if rows := rows_of("mcpmark"):
        found["mcpmark"] = office_like(rows)
    if rows := rows_of("replays"):
        found["replays"] = replayed(rows)
        found["replays, in short"] = replayed_in_short(rows)
        found["replays, edited"] = edited(rows)
    if rows := rows_of("actions"):
        found["actions"] = with_actions([row for row in rows if "arm" in row])
        found["actions, found"] = found_among_all(rows)
    return found


def with_actions(rows):
    """The cost of tasks without actions and with them, and how often these are found."""
    lines = []
    for suite in dict.fromkeys(row["suite"] for row in rows):
        of_suite = [row for row in rows if row["suite"] == suite]
        saved = " + ".join(
            str(sum(row["saves"] for row in of_suite if row["fold"] == fold))
            for fold in (1, 2)
        )
        ways = of_tasks([row for row in of_suite if row["half"] == 2]).values()
        could = [task for task in ways if task["with"]["could_be_served"]]
        line = [suite.removeprefix("actions "), saved]
        line += [f"{len(could)} of {len(ways)}"]
        for found in ("found_by_tools", "found_by_words"):
            line.append(f"{sum(task['with'][found] for task in could)} of {len(could)}")
        for figure in ("turns", "sent"):
            line.append(" → ".join(mean_of(could, way, figure) for way in ARMS))
        lines.append(line)
    head = ["domain", "actions", "tasks that they serve", "found by tools' names"]
    return table([*head, "found by the user's words", "turns", "tokens sent"], lines)


def found_among_all(rows):
    """The tasks whose action is found, where all actions of a turn are in one workspace."""
    lines = []
    for fold in (1, 2):
        some = [row for row in rows if "arm" not in row and row["fold"] == fold]
        line = [f"{one['actions']}" for one in some[:1]]
        for found in ("found_by_tools", "found_by_words"):
            line.append(f"{sum(row[found] for row in some)} of {len(some)}")
        lines.append(line)
    head = ["actions in one workspace", "found by tools' names"]
    return table([*head, "found by the user's words"], lines)


def mean_of(tasks, way, figure):
    """The mean of a figure in a way, as text."""
    if not tasks:
        return "–"
    return f"{mean(task[way][figure] for task in tasks):,.1f}".removesuffix(".0")


def office_like(rows):
    """Tokens sent, and turns, of each task."""
    lines = [
        [task, *(sent(ways[way]) for way in ("direct", "ipybox", "hybrid"))]
        for (_, task), ways in of_tasks(rows).items()
    ]
    return table(["task", "direct", "ipybox", "both"], lines)


class ReplayFigures:
    """The figures of replays in all modes together."""

    def __init__(self, rows):
        self.sessions = len(rows)
        modes = [mode for row in rows for mode in row["modes"].values()]
        self.replays = len(modes)
        self.cells = sum(row["cells"] * len(row["modes"]) for row in rows)
        self.calls = sum(row["calls"] * len(row["modes"]) for row in rows)
        self.same, self.by_rules, self.differences = (
            sum(mode[part] for mode in modes)
            for part in ("same", "by_rules", "differences")
        )
        edits = [found for row in rows for found in row["edits"].values()]
        self.found = f"{sum(edits):,} of {len(edits):,}"
        kilobytes = [row["bytes"] / 1000 for row in rows]
        self.size = f"{median(kilobytes):.0f} KB, {max(kilobytes):.0f} KB"
        times = [row["modes"]["strict"]["seconds"] / row["seconds"] for row in rows]
        self.time = f"{median(times):.2f}×"

    def share(self):
        return f"{self.same:,} of {self.cells:,} ({100 * self.same / self.cells:.2f} %)"

    def false(self):
        return f"{1000 * self.differences / self.calls:.2f} ({self.differences} in {self.calls:,})"


def replayed(rows):
    """The likeness of replays to their recordings, and what they cost, by suite."""
    suites = dict.fromkeys(row["suite"].partition(" ")[0] for row in rows)
    lines = []
    for suite in suites:
        some = [row for row in rows if row["suite"].partition(" ")[0] == suite]
        figures = ReplayFigures(some)
        line = [suite, figures.sessions, figures.share(), figures.by_rules]
        lines.append([*line, figures.false(), figures.size, figures.time])
    head = ["suite", "sessions", "cells the same to the byte", "by a rule"]
    head += ["false differences per 1,000 calls", "a recording, median and most"]
    return table([*head, "time against the session"], lines)


def replayed_in_short(rows):
    """The same of all suites."""
    figures = ReplayFigures(rows)
    lines = [
        ["sessions, and replays", f"{figures.sessions}, {figures.replays}"],
        ["cells the same to the byte", figures.share()],
        ["false differences per 1,000 calls", figures.false()],
        ["changes found after an edit", figures.found],
        ["a recording, median and most", figures.size],
        ["time of a replay against its session, median", figures.time],
    ]
    return table(["figure", ""], lines)


def edited(rows):
    """The edits after which the recording differs, and how many replays found them."""
    kinds = dict.fromkeys(kind for row in rows for kind in row["edits"])
    lines = []
    for kind in kinds:
        found = [row["edits"][kind] for row in rows if kind in row["edits"]]
        lines.append([kind, f"{sum(found)} of {len(found)}"])
    return table(["difference, and mode of the replay", "found"], lines)


if __name__ == "__main__":
    for name, text in every().items():
        print(f"{name}\n\n{text}\n")
