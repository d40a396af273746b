#!/usr/bin/env python3
"""Draws docs/images/demo.svg from a session that it holds: what is sent, and what came back.

    packaging/recording.py --server PATH/TO/mcp-server-time --out docs/images/demo.svg -- ipybox [ARGUMENT …]

The picture shows one line after the other and stays at the end; who wants no motion sees the end at once. Python 3.10 or
newer, nothing else; fonts are the reader's.
"""

from __future__ import annotations

import argparse
import json
import keyword
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from smoke import SessionFailure, SmokeSession

FIRST = """\
from mcptools.time import convert_time, get_current_time

here = get_current_time.run(timezone="Europe/Berlin")
noon = {}
for city in ["America/New_York", "Asia/Tokyo", "Australia/Sydney"]:
    there = convert_time.run(
        source_timezone="Europe/Berlin", time="12:00", target_timezone=city
    )
    noon[city] = there.target.datetime[11:16]
print(len(noon), "cities, first:", noon["America/New_York"])"""

SECOND = "max(noon, key=noon.get), here.is_dst"

# In pixels; the font's width is that of the widest in use, so that nothing is cut off.
CHARACTER, LINE, MARGIN, BAR = 8.6, 20, 20, 34
COLUMNS = 78

# The times at which things appear, in seconds: slower than the session, for those who read along.
CODE_LINE, ANSWER, PAUSE = 0.16, 0.35, 1.1

STYLE = """\
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #e6edf3;
  white-space: pre }
.tool { fill: #79c0ff; font-weight: 600 } .soft { fill: #9198a1 } .answer { fill: #7ee787 }
.word { fill: #ff9492 } .string { fill: #a5d6ff } .number { fill: #ffb757 } .bar { font-size: 13px }
g { animation: appear .01s backwards }
@keyframes appear { from { opacity: 0 } }
@media (prefers-reduced-motion: reduce) { g { animation: none } }"""

TOKEN = re.compile(
    r"""(?P<string>"[^"]*")|(?P<word>\b[A-Za-z_]+\b)|(?P<number>\b\d+\b)"""
)


@dataclass(frozen=True)
class Line:
    """A line of the picture: marked-up text, and how long after the one before it appears."""

    text: str
    after: float


def span(kind: str, text: str) -> str:
    return f'<tspan class="{kind}">{escape(text, quote=False)}</tspan>'


def coloured(code: str) -> str:
    def token(found: re.Match[str]) -> str:
        kind = found.lastgroup or ""
        if kind == "word" and not keyword.iskeyword(found[0]):
            return found[0]
        return span(kind, found[0])

    # Quotes within text need no escape; the other characters must not look like markup.
    return TOKEN.sub(token, escape(code, quote=False))


def call(tool: str, arguments: list[str]) -> Iterator[Line]:
    yield Line(span("soft", "→ ") + span("tool", tool), PAUSE)
    for line in arguments:
        yield Line("  " + coloured(line), CODE_LINE)


def answer(text: str) -> Iterator[Line]:
    folded = [
        part
        for line in text.strip().split("\n")
        for part in textwrap.wrap(line, COLUMNS - 2, subsequent_indent="    ")
    ]
    for number, line in enumerate(folded):
        mark = span("soft", "← ") if number == 0 else "  "
        yield Line(mark + span("answer", line), ANSWER)
    yield Line("", 0)


def hold(command: list[str], server: str) -> list[Line]:
    """A session, as lines."""
    with tempfile.TemporaryDirectory(prefix="ipybox-recording-") as directory:
        places = [
            "--workspace",
            f"{directory}/workspace",
            "--state-dir",
            f"{directory}/state",
        ]
        session = SmokeSession([*command, *places, "--log-level", "WARNING"])
        try:
            session.initialize("recording")
            lines = [
                *call("register_mcp_server", ['"time", {"command": "mcp-server-time"}'])
            ]
            parameters = {"command": server}
            lines += answer(
                session.call(
                    "register_mcp_server", server_name="time", server_params=parameters
                )
            )
            for code in [FIRST, SECOND]:
                lines += call("execute_ipython_cell", code.split("\n"))
                lines += answer(session.call("execute_ipython_cell", code=code))
            session.end()
        finally:
            session.kill()
    return lines[:-1]


def plain(text: str) -> str:
    return (
        re.sub(r"<[^>]*>", "", text)
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
    )


def draw(lines: list[Line]) -> str:
    if wide := [plain(line.text) for line in lines if len(plain(line.text)) > COLUMNS]:
        raise SessionFailure(f"these lines are wider than the picture: {wide}")
    width = round(COLUMNS * CHARACTER + 2 * MARGIN)
    height = BAR + MARGIN + len(lines) * LINE + MARGIN // 2
    description = escape(" / ".join(plain(line.text) for line in lines if line.text))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="t d">',
        '<title id="t">A session with ipybox</title>',
        f'<desc id="d">{description}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="10" fill="#0d1117" stroke="#3d444d"/>',
        f'<path d="M.5 {BAR}h{width - 1}" stroke="#3d444d"/>',
        *(
            f'<circle cx="{20 + 18 * i}" cy="17" r="5.5" fill="#3d444d"/>'
            for i in range(3)
        ),
        f'<text class="soft bar" x="{width // 2}" y="22" text-anchor="middle">an agent, and ipybox</text>',
    ]
    moment = -PAUSE + 0.3
    for number, line in enumerate(lines):
        moment += line.after
        if line.text:
            y = BAR + MARGIN + LINE // 2 + number * LINE
            text = f'<text x="{MARGIN}" y="{y}" xml:space="preserve">{line.text}</text>'
            parts.append(f'<g style="animation-delay:{moment:.2f}s">{text}</g>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--server", type=Path, required=True, help="the program `mcp-server-time`"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "ipybox", nargs="+", help="the program and arguments for it, after `--`"
    )
    arguments = parser.parse_args()
    program = str(Path(arguments.ipybox[0]).resolve())
    try:
        picture = draw(
            hold([program, *arguments.ipybox[1:]], str(arguments.server.resolve()))
        )
        arguments.out.write_text(picture, encoding="utf-8")
    except (SessionFailure, OSError, json.JSONDecodeError) as failure:
        print(failure, file=sys.stderr)
        return 1
    print(f"{arguments.out}: {len(picture.encode()):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
