"""Recorded runs of our own eight shapes: played again in the arm in which they were made, and verified as the shapes are.

They are reference solutions, in the form that a model's runs have: this is where a model's runs would be kept.
"""

from pathlib import Path

import office
from arms import Arm, Misfit
from recordings import Run, play, read, write
from shapes import SHAPES

FILE = Path(__file__).parent / "recordings/office.jsonl"
KEPT = ("one lookup", "two steps", "long chain", "retry on errors")
"""The shapes with short answers."""

BY_NAME = {shape.name: shape for shape in SHAPES}


def chosen():
    return [BY_NAME[name] for name in KEPT]


def names(shapes):
    """The servers that shapes need, in a fixed order: the definitions of others are not recorded."""
    needed = {name for shape in shapes for name in shape.needs}
    return [name for name in office.EVERY_SERVER if name in needed]


async def record(program, directory, count, file=FILE):
    """Makes the recordings anew."""
    runs = []
    for arm in ("direct", "ipybox"):
        async for shape, talk in conversations(arm, program, directory, count):
            runs.append(Run.of(talk, "office", shape.name, "reference solution"))
    write(file, runs)
    return runs


async def conversations(name, program, directory, count):
    """The reference solutions of the chosen shapes."""
    place, effects = prepared(directory, name)
    servers = office.servers(names(chosen()), effects)
    async with await Arm.start(name, servers, program, place, count) as arm:
        for shape in chosen():
            talk, _ = await office.solve(shape, arm, effects)
            yield shape, talk


def prepared(directory, name):
    place = Path(directory) / name
    place.mkdir()
    return place, place / "effects.jsonl"


async def rows(program, directory, count, file=FILE):
    """The outcome of each run."""
    runs = read(file)
    for run in runs:
        if run.task not in BY_NAME:
            raise Misfit(
                f"{file}: there is no shape `{run.task}`: one of {', '.join(BY_NAME)}"
            )
    shapes = [BY_NAME[run.task] for run in runs]
    for name in dict.fromkeys(run.arm for run in runs):
        place, effects = prepared(directory, f"again-{name}")
        servers = office.servers(names(shapes), effects)
        async with await Arm.start(name, servers, program, place, count) as arm:
            for run in (run for run in runs if run.arm == name):
                yield await again(run, arm, effects)


async def again(run, arm, effects):
    """Plays one run, and verifies its end."""
    effects.write_text("")
    shape = BY_NAME[run.task]
    talk, misfits = await play(run, arm, shape.task)
    try:
        office.verify(shape, talk, effects)
    except Misfit as misfit:
        misfits.append(str(misfit))
    return {
        "suite": run.suite,
        "task": run.task,
        "arm": run.arm,
        "model": run.model,
        "calls": sum(map(len, run.turns)),
        "misfits": misfits,
    }
