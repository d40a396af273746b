"""Our own recording of four shapes, which the living servers still have to answer in the same way.

It is a reference solution in the form that a model's session has: this is where a model's sessions would be kept.
"""

from pathlib import Path

import office
from arms import Arm, Misfit
from replays import RecordedSolution, Replayer, differences, of_kind, read, write
from shapes import SHAPES

FILE = Path(__file__).parent / "recordings/office.jsonl"
KEPT = ("one lookup", "two steps", "long chain", "retry on errors")
"""The shapes with short answers."""

BY_NAME = {shape.name: shape for shape in SHAPES}


def chosen():
    return [BY_NAME[name] for name in KEPT]


def names(shapes):
    """The servers that shapes need, in a fixed order."""
    needed = {name for shape in shapes for name in shape.needs}
    return [name for name in office.EVERY_SERVER if name in needed]


async def record(program, directory, count, file=FILE):
    """Makes the recording anew, without the paths and packages of this machine."""
    effects = Path(directory) / "recorded-effects.jsonl"

    async def solve(arm):
        for shape in chosen():
            await office.solve(shape, arm, effects)

    servers = office.servers(names(chosen()), effects)
    session = RecordedSolution("office", "four shapes", servers, solve, lambda: None)
    place = Path(directory) / "recorded"
    await session.record(program, place, count)
    lines = read(session.file(place))
    lines[0]["workspace"] = "/workspace"
    for line in of_kind(lines, "server"):
        line["parameters"] = {}
    for line in of_kind(lines, "environment"):
        line["packages"] = {}
    file.parent.mkdir(exist_ok=True)
    write(file, lines)


async def row(program, directory, count, file=FILE):
    """The outcome of its replay against the living servers."""
    place = Path(directory) / f"played-{file.stem}"
    place.mkdir()
    effects = place / "effects.jsonl"
    servers = office.servers(names(chosen()), effects)
    # This registers them.
    async with await Arm.start("ipybox", servers, program, place, count):
        pass
    report = await Replayer(program, place).report(file, "live")
    misfits = [words for _, words in differences(report)]
    expected = [change for shape in chosen() for change in shape.effects()]
    try:
        office.verify_changes("the recording", expected, effects)
    except Misfit as misfit:
        misfits.append(str(misfit))
    return {
        "suite": "office",
        "task": "four shapes",
        "model": "reference solution",
        "calls": len(of_kind(read(file), "call")),
        "misfits": misfits,
    }
