"""The fenced blocks of a page, and the notes to the tests above them.

A note is a comment of its own line, which no reader sees: `<!-- test: covered by FILE -->` or
`<!-- test: illustration -->`.
"""

import re
from dataclasses import dataclass

FENCE = re.compile(r"^( {0,3})(`{3,})\s*(\S*)\s*$")
NOTE = re.compile(r"^<!-- test: (covered by \S+|illustration) -->$")


class PageError(Exception):
    """A page that cannot be read as one."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page of the repository."""

    page: str
    line: int
    info: str
    text: str
    note: str | None

    @property
    def language(self):
        """The first word of the info string."""
        return self.info.split(",")[0]

    def __str__(self):
        return f"{self.page}:{self.line} {self.info or 'no language'}"


def blocks_of(page, text):
    """Every fenced block of a page, in order."""
    found, note, opened = [], None, None
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if opened:
            indent, mark, begin, info, lines = opened
            if fence and not fence[3] and fence[2].startswith(mark):
                found.append(
                    Block(page, begin, info, "".join(f"{one}\n" for one in lines), note)
                )
                opened = note = None
            else:
                lines.append(line.removeprefix(indent))
        elif fence:
            opened = (fence[1], fence[2], number, fence[3], [])
        elif line.startswith("<!-- test:"):
            matched = NOTE.match(line)
            if not matched:
                raise PageError(f"{page}:{number}: no such note: {line}")
            note = matched[1]
        elif line.strip() and note:
            raise PageError(f"{page}:{number}: a note stands above no block")
    if opened or note:
        raise PageError(f"{page}: a block or a note at its end is not closed")
    return found
