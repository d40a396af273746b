"""Draws a picture for each file of figures: `python3 benches/code_mode/chart.py`. Standard library only.

The bars are the tokens that a model is sent over all turns of a task, for each way of doing it.
"""

import json
import math
from dataclasses import dataclass
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results"
IMAGES = HERE.parents[1] / "docs/images"

WAYS = {
    "direct": "direct calls",
    "parallel": "direct calls, in parallel where they can be",
    "ipybox": "ipybox",
    "hybrid": "both",
}
CLASSES = {
    "direct": "direct",
    "parallel": "parallel",
    "ipybox": "code",
    "hybrid": "both",
}
LABELS, WIDTH, HEIGHT, GAP = 190, 620, 15, 12
BINS = ((0, 1), (2, 3), (4, 5), (6, 9), (10, 99))
"""Numbers of calls that are one group of bars."""

STYLE = """
    text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
      font-size: 14px; fill: #1f2328 }
    .name { font-size: 16px; font-weight: 600 } .soft { fill: #59636e; font-size: 12.5px } .end { text-anchor: end }
    .paper { fill: #ffffff; stroke: #d0d7de } .axis { stroke: #d0d7de }
    .direct { fill: #9a6700 } .parallel { fill: #d4a72c } .code { fill: #0969da } .both { fill: #8250df }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 } .soft { fill: #9198a1 } .paper { fill: #0d1117; stroke: #30363d } .axis { stroke: #30363d }
      .direct { fill: #d29922 } .parallel { fill: #8a6914 } .code { fill: #58a6ff } .both { fill: #ab7df8 }
    }
"""


@dataclass(frozen=True)
class Chart:
    """Groups of bars, one bar for each way."""

    title: str
    description: str
    ways: tuple[str, ...]
    groups: dict[str, dict[str, float]]
    is_logarithmic: bool = False

    def length(self, value):
        """Of a bar."""
        most = max(max(group.values()) for group in self.groups.values())
        if not self.is_logarithmic:
            return WIDTH * value / most
        least = 1_000
        return WIDTH * math.log(max(value, least) / least) / math.log(most / least)

    def draw(self):
        """The picture."""
        parts, y = [], 84
        for label, group in self.groups.items():
            middle = y + len(self.ways) * HEIGHT / 2 + 5
            parts.append(
                f'<text class="end" x="{LABELS - 12}" y="{middle:.0f}">{escape(label)}</text>'
            )
            for way in self.ways:
                parts.append(self.bar(way, group[way], y))
                y += HEIGHT
            y += GAP
        return self.page(y + 6, [*self.legend(), *parts])

    def bar(self, way, value, y):
        length = self.length(value)
        return (
            f'<rect class="{CLASSES[way]}" x="{LABELS}" y="{y}" width="{length:.1f}" height="{HEIGHT - 2}"/>'
            f'<text class="soft" x="{LABELS + length + 6:.1f}" y="{y + 11}">{value:,.0f}</text>'
        )

    def legend(self):
        x = LABELS
        for way in self.ways:
            yield f'<rect class="{CLASSES[way]}" x="{x}" y="52" width="12" height="12"/>'
            yield f'<text class="soft" x="{x + 18}" y="62">{escape(WAYS[way])}</text>'
            x += 44 + 7 * len(WAYS[way])

    def page(self, height, parts):
        body = "\n  ".join(parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 {height}" role="img" '
            'aria-labelledby="title description">\n'
            f'  <title id="title">{escape(self.title)}</title>\n'
            f'  <desc id="description">{escape(self.description)}</desc>\n'
            f"  <style>{STYLE}  </style>\n"
            f'  <rect class="paper" x="0.5" y="0.5" width="899" height="{height - 1}" rx="8"/>\n'
            f'  <text class="name" x="20" y="32">{escape(self.title)}</text>\n'
            f'  <line class="axis" x1="{LABELS}" y1="78" x2="{LABELS}" y2="{height - 12}"/>\n'
            f"  {body}\n</svg>\n"
        )


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def by_task(rows, title):
    """A group for each task."""
    ways = ways_of(rows)
    groups = {}
    for row in rows:
        groups.setdefault(row["task"], {})[row["arm"]] = row["sent"]
    return Chart(title, described(ways), ways, groups, is_logarithmic=True)


def by_calls(rows, title):
    """A group for each number of calls in the reference solution: the mean of its tasks."""
    ways, groups = ways_of(rows), {}
    for least, most in BINS:
        found = [row for row in rows if least <= row["calls"] <= most]
        if found:
            tasks = sum(row["arm"] == ways[0] for row in found)
            label = f"{least} or more" if most == 99 else f"{least} or {most}"
            label = label if most - least == 1 or most == 99 else f"{least} to {most}"
            groups[f"{label} calls ({tasks})"] = {
                way: mean(row["sent"] for row in found if row["arm"] == way)
                for way in ways
            }
    return Chart(title, described(ways), ways, groups)


def ways_of(rows):
    there = {row["arm"] for row in rows}
    return tuple(way for way in WAYS if way in there)


def described(ways):
    names = ", ".join(WAYS[way] for way in ways)
    return f"Bars: the tokens that a model is sent over all turns of a task, by {names}. The page has them as a table."


KINDS = {
    "office": [
        (
            "office",
            by_task,
            "Eight shapes of work: tokens sent (logarithmic, from 1,000)",
        )
    ],
    "tau": [
        (
            "tau airline",
            by_calls,
            "τ-bench airline: tokens sent, by calls (number of tasks)",
        ),
        (
            "tau retail",
            by_calls,
            "τ-bench retail: tokens sent, by calls (number of tasks)",
        ),
    ],
    "m3tooleval": [
        ("m3tooleval", by_calls, "M3ToolEval: tokens sent, by calls (number of tasks)")
    ],
}
"""For each file of figures, its pictures: whose rows, how they are grouped, and the title."""


def pictures(results):
    """All pictures, by the names of their files."""
    found = {}
    for name, kinds in KINDS.items():
        file = results / f"{name}.json"
        if file.exists():
            rows = json.loads(file.read_text())["rows"]
            for suite, group, title in kinds:
                chosen = [row for row in rows if row["suite"].startswith(suite)]
                picture = f"code-mode-{suite.replace(' ', '-')}.svg"
                found[picture] = group(chosen, title).draw()
    return found


def main():
    for name, drawn in pictures(RESULTS).items():
        (IMAGES / name).write_text(drawn)
        print(name)


if __name__ == "__main__":
    main()
