"""The suite of our own: eight shapes of work, replayed against the servers of `servers/office.py`."""

import json
import os
import sys
from pathlib import Path

from arms import ARMS, Arm, Misfit, Servers
from shapes import SERVERS, SHAPES, look_up

EVERY_SERVER = (
    "archive",
    "billing",
    "crm",
    "files",
    "fleet",
    "mail",
    "orders",
    "parcels",
    "sales",
    "support",
)


def environment(directory):
    """The environment that a server needs of ours, and the file that it writes its log to."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "CODE_MODE_LOG": str(Path(directory) / "servers.log")}


def servers(names, effects):
    """The commands that start the servers."""
    program = str(SERVERS / "office.py")
    return Servers(
        {
            name: {
                "command": sys.executable,
                "args": [program, name, str(effects)],
                "env": environment(effects.parent),
            }
            for name in names
        }
    )


def changes(effects):
    """The changes without those that were refused, in an order of their own."""
    lines = effects.read_text().splitlines() if effects.exists() else []
    found = [change for change in map(json.loads, lines) if change["kind"] != "refused"]
    return in_order(found)


def in_order(found):
    return sorted(found, key=lambda change: json.dumps(change, sort_keys=True))


def verify(shape, talk, effects):
    """Raises if the answer or the end state is not what it has to be."""
    if talk.answer != shape.expected():
        raise Misfit(
            f"{shape.name}: the answer is {talk.answer!r}, not {shape.expected()!r}"
        )
    verify_changes(shape.name, shape.effects(), effects)


def verify_changes(name, expected, effects):
    """Raises if the end state is not what it has to be."""
    if changes(effects) != in_order(expected):
        raise Misfit(f"{name}: the end state is {changes(effects)}, not {expected}")


async def solve(shape, arm, effects):
    """One shape in one arm, verified. The conversation, and what learning the calls has cost."""
    effects.write_text("")
    talk = arm.begin(shape.task)
    learning = None
    if arm.name == "direct" or (arm.name == "hybrid" and shape.hybrid == "direct"):
        talk.end(await shape.direct(talk))
    else:
        if arm.name == "ipybox":
            learning = await learn(shape, talk)
        talk.end(await talk.cell(shape.code))
    verify(shape, talk, effects)
    return talk, learning


async def learn(shape, talk):
    """The turn in which the model learns how the tools are called."""
    printed = await talk.cell(look_up(shape))
    for tool in shape.tools:
        if f".{tool}" not in printed:
            raise Misfit(
                f"{shape.name}: the search does not find `{tool}`; it answers:\n{printed}"
            )
    turn = talk.account.turns[-1]
    return {"written": turn.written, "results": turn.results}


async def rows(program, directory, count, arms=ARMS, names=EVERY_SERVER, shapes=SHAPES):
    """All figures of the suite."""
    for name in arms:
        place = Path(directory) / name
        place.mkdir()
        effects = place / "effects.jsonl"
        async with await Arm.start(
            name, servers(names, effects), program, place, count
        ) as arm:
            for shape in shapes:
                talk, learning = await solve(shape, arm, effects)
                needed = talk.account.with_schemas(arm.schemas(shape.needs))
                yield {
                    "suite": "office",
                    "task": shape.name,
                    "arm": name,
                    "calls": sum(map(len, talk.calls)),
                    **talk.account.figures(),
                    "learning": learning,
                    "sent_with_needed_servers": needed.figures()["sent"],
                }
