"""The pictures of the documentation: what a forge shows of them, and that the recording still comes out of a session.

tests/packaging/pictures.py --binary target/debug/ipybox --tools target/test-tools
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

from report import StepFailure, Steps, expect

ROOT = Path(__file__).resolve().parent.parent.parent
IMAGES = ROOT / "docs/images"
SVG = "{http://www.w3.org/2000/svg}"
MOST_BYTES = 100_000


def showable(file: Path) -> None:
    """Forges show an SVG as an image: alone, without scripts, and only what is in the file."""
    text = file.read_text(encoding="utf-8")
    if len(text.encode()) > MOST_BYTES:
        raise StepFailure(
            f"{file.name} has {len(text.encode())} bytes, and may have {MOST_BYTES}"
        )
    root = xml.fromstring(text)
    if root.tag != f"{SVG}svg" or "viewBox" not in root.attrib:
        raise StepFailure(f"{file.name} is no SVG that can be scaled")
    if not (root.findtext(f"{SVG}title") and root.findtext(f"{SVG}desc")):
        raise StepFailure(
            f"{file.name} has no title and description for those who cannot see it"
        )
    for element in root.iter():
        if element.tag in [f"{SVG}script", f"{SVG}image", f"{SVG}foreignObject"]:
            raise StepFailure(
                f"{file.name} has <{element.tag.removeprefix(SVG)}>, which forges do not show"
            )
        for name, value in element.attrib.items():
            if name.endswith("href") and not value.startswith("#"):
                raise StepFailure(f"{file.name} refers to {value}")
    if found := re.search(r"@import|@font-face|url\((?!#)", text):
        raise StepFailure(f"{file.name} loads something: {found[0]}")


def small(file: Path) -> None:
    """A picture of pixels, of a size that a page loads at once."""
    content = file.read_bytes()
    if content[:4] != b"RIFF" or content[8:12] != b"WEBP":
        raise StepFailure(f"{file.name} is no picture in WebP")
    if len(content) > MOST_BYTES:
        raise StepFailure(
            f"{file.name} has {len(content)} bytes, and may have {MOST_BYTES}: packaging/pictures.mjs takes it anew"
        )


def lines(file: Path) -> list[str]:
    """The lines of the recording."""
    return [
        "".join(text.itertext())
        for text in xml.parse(file).getroot().iter(f"{SVG}text")
    ]


def same_session(binary: Path, tools: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory, "demo.svg")
        server, python = (
            tools / "servers/bin/mcp-server-time",
            tools / "kernel/bin/python",
        )
        options = ["--server", server, "--out", out, "--", binary, "--python", python]
        command = [sys.executable, ROOT / "packaging/recording.py", *options]
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise StepFailure(done.stdout + done.stderr)
        showable(out)
        committed, now = lines(IMAGES / "demo.svg"), lines(out)
        # What the session found out about the day it was held on.
        season = re.compile(r"\d\d:00|True|False")
        if [season.sub("", line) for line in committed] != [
            season.sub("", line) for line in now
        ]:
            raise StepFailure(
                f"demo.svg shows another session; now it is {now}: draw it anew by packaging/recording.py"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument(
        "--tools",
        type=Path,
        required=True,
        help="where tests/tools/install has installed",
    )
    arguments = parser.parse_args()
    binary, tools = arguments.binary.resolve(), arguments.tools.resolve()
    pictures = sorted(IMAGES.glob("*.svg"))
    steps = Steps()
    steps.step("there are pictures", expect, len(pictures) >= 2, pictures)
    for file in pictures:
        steps.step(f"{file.name} can be shown by a forge", showable, file)
    for file in sorted(IMAGES.glob("*.webp")):
        steps.step(f"{file.name} is small", small, file)
    steps.step("the recording is what a session says", same_session, binary, tools)
    steps.end()


if __name__ == "__main__":
    main()
