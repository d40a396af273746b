"""Recorded runs: what a model wrote, played again to living servers and a living kernel.

A recording is a file of JSON lines, one run each:

    {"suite": "office", "task": "two steps", "arm": "direct", "model": "…", "answer": "C017 …",
     "turns": [[{"tool": "crm__find_customer", "arguments": {…}, "answer": "…", "failed": false}, …], …]}

`answer` is what the tool said then; a call without it is made, and its answer is not compared. Playing a run again finds
where it no longer fits: a tool that is gone, arguments that its schema no longer takes, another answer, another end state.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import jsonschema
from arms import Call, Misfit


@dataclass
class Recorded:
    """A call, and what was answered."""

    tool: str
    arguments: dict
    answer: str | None = None
    failed: bool = False


@dataclass
class Run:
    """One task, as a model did it."""

    suite: str
    task: str
    arm: str
    model: str
    answer: str
    turns: list[list[Recorded]] = field(default_factory=list)

    @classmethod
    def of(cls, talk, suite, task, model):
        """The run of a conversation."""
        turns = [
            [
                Recorded(call.tool, call.arguments, answer.text, answer.failed)
                for call, answer in turn
            ]
            for turn in talk.calls
        ]
        return cls(suite, task, talk.arm.name, model, talk.answer, turns)


def read(file):
    """The runs of a file."""
    found = []
    for number, line in enumerate(Path(file).read_text().splitlines(), 1):
        try:
            run = json.loads(line)
            turns = [[Recorded(**call) for call in calls] for calls in run.pop("turns")]
            found.append(Run(turns=turns, **run))
        except (KeyError, TypeError, ValueError) as error:
            raise Misfit(f"{file}, line {number} is no recorded run: {error}") from None
    return found


def write(file, runs):
    """A file of runs."""
    lines = [json.dumps(asdict(run), ensure_ascii=False) for run in runs]
    Path(file).write_text("\n".join(lines) + "\n")


async def play(run, arm, task):
    """Plays a run again. The conversation, and where the run no longer fits."""
    talk, misfits = arm.begin(task), []
    for number, recorded in enumerate(run.turns, 1):
        place = f"{run.task}, turn {number}"
        known = []
        for call in recorded:
            if problem := no_longer_fits(call, arm.definitions):
                misfits.append(f"{place}: {problem}")
            if call.tool in arm.definitions:
                known.append(call)
        answers = await talk.turn(*(Call(call.tool, call.arguments) for call in known))
        for call, answer in zip(known, answers, strict=True):
            if problem := other_answer(call, answer):
                misfits.append(f"{place}: {problem}")
    talk.end(run.answer)
    return talk, misfits


def no_longer_fits(call, definitions):
    """The reason for which the tool no longer takes a call."""
    if call.tool not in definitions:
        return f"there is no tool `{call.tool}` any more"
    # What failed then may have failed because of its arguments.
    if call.failed:
        return None
    try:
        jsonschema.validate(call.arguments, definitions[call.tool]["input_schema"])
    except jsonschema.ValidationError as error:
        return f"`{call.tool}` no longer takes these arguments: {error.message}"
    return None


def other_answer(call, answer):
    """The difference between two answers."""
    if call.answer is None:
        return None
    if answer.failed != call.failed:
        now = "fails" if answer.failed else "succeeds"
        return f"`{call.tool}` {now} now: {answer.text[:300]}"
    found = difference(normal(answer.text), normal(call.answer))
    return found and f"`{call.tool}` answers otherwise: {found}"


def normal(text):
    """The JSON of an answer, else its text: spaces and the order of keys make no difference."""
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


def difference(now, then, place=""):
    """The first difference between two answers."""
    if isinstance(now, dict) and isinstance(then, dict):
        gone, new = sorted(then.keys() - now.keys()), sorted(now.keys() - then.keys())
        if gone or new:
            return f"{place or 'it'} had {gone} and has {new}"
        parts = [(f"{place}.{key}".strip("."), now[key], then[key]) for key in now]
    elif isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        parts = [
            (f"{place}[{number}]", *pair)
            for number, pair in enumerate(zip(now, then, strict=True))
        ]
    else:
        shown = [str(value)[:200] for value in (now, then)]
        return None if now == then else f"{place} {shown[0]!r}, and not {shown[1]!r}"
    found = (difference(one, other, name) for name, one, other in parts)
    return next(filter(None, found), None)
