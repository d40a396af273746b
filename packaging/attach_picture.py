#!/usr/bin/env python3
"""Draws docs/images/attach.svg from a session that it holds: a person at `ipybox attach`, beside an agent.

    packaging/attach_picture.py --out docs/images/attach.svg -- ipybox [ARGUMENT …]

Python 3.10 or newer, nothing else; fonts are the reader's.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import textwrap
import time
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from smoke import SessionFailure, SmokeSession

CHARACTER, LINE, MARGIN, BAR = 8.6, 20, 20, 34
COLUMNS, SECONDS = 78, 60

STYLE = """\
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #e6edf3;
  white-space: pre }
.prompt { fill: #7ee787; font-weight: 600 } .agent { fill: #9198a1 } .asks { fill: #ffb757 } .bar { font-size: 13px }"""

AGENT = "revenue = {'north': 131_500, 'south': 98_200}\nprint(len(revenue), 'regions')"
PERSON = "sum(revenue.values())"
SHELL = "!echo ready"


class AttachedPrompt:
    """`ipybox attach` on a terminal, whose lines are kept as they are seen at last."""

    def __init__(self, command: list[str]) -> None:
        self.terminal, its = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200", "NO_COLOR": "1"}
        self.process = subprocess.Popen(
            command, stdin=its, stdout=its, stderr=its, env=environment, close_fds=True
        )
        os.close(its)
        self.bytes = b""

    def shows(self, words: str) -> None:
        until = time.monotonic() + SECONDS
        while words not in "\n".join(lines_of(self.bytes)):
            ready, _, _ = select.select([self.terminal], [], [], 0.2)
            if ready:
                self.bytes += os.read(self.terminal, 65536)
            elif time.monotonic() > until:
                raise SessionFailure(
                    f"the prompt does not show {words!r}: {self.bytes!r}"
                )

    def types(self, text: str) -> None:
        os.write(self.terminal, text.encode())


def lines_of(seen: bytes) -> list[str]:
    """The lines of a terminal that has shown this. What a prompt does with it: moves in a line, and clears its rest."""
    lines, row, column = [""], 0, 0
    for part in re.findall(
        r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|\x08|[^\x1b\r\n\x08]+|\x1b.",
        seen.decode("utf-8", "replace"),
    ):
        if part == "\r":
            column = 0
        elif part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part == "\x08":
            column = max(0, column - 1)
        elif part.startswith("\x1b["):
            count, kind = int(re.sub(r"\D", "", part) or 1), part[-1]
            if kind == "A":
                row = max(0, row - count)
            elif kind == "C":
                column += count
            elif kind == "D":
                column = max(0, column - count)
            elif kind in "JK":
                lines[row] = lines[row][:column]
                if kind == "J":
                    del lines[row + 1 :]
        elif not part.startswith("\x1b"):
            line = lines[row].ljust(column)
            lines[row] = line[:column] + part + line[column + len(part) :]
            column += len(part)
    return [line.rstrip() for line in lines]


def hold(command: list[str]) -> list[str]:
    """A session with a person, as the lines at their prompt."""
    with tempfile.TemporaryDirectory(prefix="ipybox-picture-") as directory:
        state = f"{directory}/state"
        flags = [
            "--keep-session",
            "60s",
            "--approval",
            "ask",
            "--approve-shell-cmds",
            "--log-level",
            "WARNING",
        ]
        places = ["--workspace", f"{directory}/reports", "--state-dir", state]
        session = SmokeSession([*command, *places, *flags])
        try:
            session.initialize("picture")
            session.call("execute_ipython_cell", code="1")
            prompt = AttachedPrompt([command[0], "attach", "--state-dir", state])
            prompt.shows("In [2]:")
            session.call("execute_ipython_cell", code=AGENT)
            prompt.shows("In [3]:")
            prompt.types(PERSON + "\r")
            prompt.shows("In [4]:")
            prompt.types(SHELL + "\r")
            prompt.shows("[n]o:")
            prompt.types("y\r")
            prompt.shows("In [5]:")
            prompt.process.kill()
            session.end()
        finally:
            session.kill()
            subprocess.run(
                [command[0], "sessions", "end", "--all", "--state-dir", state],
                check=False,
                capture_output=True,
            )
    shown = "\n".join(lines_of(prompt.bytes)).replace(directory, "/home/me")
    return re.sub(r"session [0-9a-f]{8}", "session 31802cf4", shown).split("\n")


def marked(line: str) -> str:
    """A line of the picture."""
    for kind, begin in [
        ("agent", r"agent \[\d+\]: "),
        ("prompt", r"In \[\d+\]:"),
        ("asks", r"Allow\? .*?\[n\]o:"),
    ]:
        if found := re.match(begin, line):
            rest = escape(line[found.end() :], quote=False)
            return (
                f'<tspan class="{kind}">{escape(found[0], quote=False)}</tspan>{rest}'
            )
    return escape(line, quote=False)


def draw(lines: list[str]) -> str:
    folded = [
        part
        for line in lines
        for part in textwrap.wrap(line, COLUMNS, drop_whitespace=False) or [""]
    ]
    width, height = (
        COLUMNS * CHARACTER + 2 * MARGIN,
        BAR + len(folded) * LINE + 2 * MARGIN - 6,
    )
    texts = [
        f'<text x="{MARGIN}" y="{BAR + MARGIN + number * LINE:g}">{marked(line)}</text>'
        for number, line in enumerate(folded)
    ]
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img">
<title>A person at ipybox attach</title>
<desc>A terminal: the agent's cell and its output, the person's own cell with its value, and a question about a shell command.</desc>
<style>{STYLE}</style>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
<text class="bar agent" x="{MARGIN}" y="24">ipybox attach</text>
{chr(10).join(texts)}
</svg>
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    try:
        arguments.out.write_text(draw(hold(arguments.command)), encoding="utf-8")
    except SessionFailure as failure:
        print(f"failed: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
