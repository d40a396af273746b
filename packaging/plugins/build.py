"""Writes what the Claude Code plugins share into each of them.

A plugin is copied when it is installed, and an installed one follows no link out of its own directory; so each has
its own copy. `build.py` writes the copies from what lies beside it, `build.py --check` lists those that are not what it
would write, and ends with 1.
"""

import argparse
import sys
from pathlib import Path

COMMON = Path(__file__).resolve().parent
REPOSITORY = COMMON.parent.parent
PLUGINS = REPOSITORY / "plugins"
ICON = REPOSITORY / "packaging/icon/icon.png"

FLAVOURS = {
    "default": ("scripts/start.sh",),
    "sandbox": ("scripts/start.sh",),
    # Docker's own program starts this one, on Windows too.
    "docker": (),
}
"""Each flavour, and what its plugin has beside the skill and the icon."""

FLAVOUR_MARK = "<!-- flavour -->\n"
"""The line of the skill that a section of the flavour replaces."""


def copies():
    """Every copy: its path, its content, its mode."""
    skill = sorted(path for path in (COMMON / "skills").rglob("*") if path.is_file())
    for flavour, programs in FLAVOURS.items():
        plugin = PLUGINS / f"codeact-{flavour}"
        yield plugin / ".claude-plugin/icon.png", ICON.read_bytes(), 0o644
        sources = [*skill, *(COMMON / program for program in programs)]
        for source in sources:
            content = source.read_bytes()
            if source.name == "SKILL.md":
                content = with_flavour(content.decode(), flavour).encode()
            mode = source.stat().st_mode & 0o777
            yield plugin / source.relative_to(COMMON), content, mode


def with_flavour(skill, flavour):
    """The skill with the flavour's own section."""
    if skill.count(FLAVOUR_MARK) != 1:
        raise ValueError(f"SKILL.md must have one line {FLAVOUR_MARK!r}")
    section = (COMMON / "flavours" / f"{flavour}.md").read_text()
    return skill.replace(FLAVOUR_MARK, section)


def leftovers(written):
    """Files where only copies may be, and which are none."""
    for flavour in FLAVOURS:
        for directory in ("skills", "scripts"):
            for path in (PLUGINS / f"codeact-{flavour}" / directory).rglob("*"):
                if path.is_file() and path not in written:
                    yield path


def problems():
    """The differences between the files and what would be written, in words."""
    written = set()
    for path, content, mode in copies():
        written.add(path)
        name = path.relative_to(REPOSITORY)
        if not path.is_file():
            yield f"{name} is missing"
        elif path.is_symlink():
            yield f"{name} is a link, which would not be installed"
        elif path.read_bytes() != content:
            yield f"{name} is not what packaging/plugins makes of it"
        elif path.stat().st_mode & 0o111 != mode & 0o111:
            yield f"{name} is {'not ' if mode & 0o111 else ''}executable"
    for path in leftovers(written):
        yield f"{path.relative_to(REPOSITORY)} is in no list, and packaging/plugins has no such file"


def write():
    """Writes all copies, and removes what is none."""
    written = set()
    for path, content, mode in copies():
        written.add(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
    for path in list(leftovers(written)):
        path.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing, list what differs"
    )
    if not parser.parse_args().check:
        write()
        return 0
    found = list(problems())
    for problem in found:
        print(problem)
    if found:
        print(
            "hint: edit packaging/plugins, then run `python3 packaging/plugins/build.py`",
            file=sys.stderr,
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
