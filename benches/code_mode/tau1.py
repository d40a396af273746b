"""Published runs of the first τ-bench, airline: what GPT-4o called, as recordings that the suite's tools have to answer again.

The suite publishes the whole dialogues with what each tool answered, and whether the database was right at the end. Both are
compared with what the living tools answer, and with the hash that the living database has.
"""

import json
from dataclasses import replace
from pathlib import Path

from arms import Arm, call
from replays import Replayer, differences, of_kind, read, write
from suite import code_of, tools

NAME = "airline"
FILE = "historical_trajectories/gpt-4o-airline.json"
SESSION = {
    "format": 1,
    "ipybox": "",
    "session": NAME,
    "time": "",
    "workspace": "/",
    "site": "local",
    "seed": 0,
}
"""The members of a recording's first line that the published runs say nothing of."""


def calls_of(messages):
    """The calls in a dialogue, with their answers."""
    for place, message in enumerate(messages):
        if message["role"] != "assistant" or not message.get("tool_calls"):
            continue
        # The suite makes the first call of a message and no other, and its answer follows.
        function = message["tool_calls"][0]["function"]
        arguments = json.loads(function["arguments"])
        # Code gets None for an empty text.
        yield function["name"], arguments, messages[place + 1]["content"] or None


def recording_of(calls, server):
    """The lines of a recording in which each call is a cell."""
    yield {"line": "session", **SESSION}
    yield server
    for number, (tool, arguments, said) in enumerate(calls, 1):
        made = {"server": NAME, "tool": tool, "arguments": arguments}
        yield {
            "line": "call",
            "cell": number,
            **made,
            "answer": {"result": said},
            "decision": "accepted",
            "by": "policy",
            "duration_ms": 0,
            "order": [2 * number - 1, 2 * number],
        }
        yield {
            "line": "cell",
            "cell": number,
            "author": "agent",
            "code": code_of([call(NAME, tool, **arguments)], NAME),
            "end": "finished",
            "outputs": [{"text": f"{said}\n"}],
            "duration_ms": 0,
        }
    yield {"line": "end", "cells": len(calls)}


async def rows(suite, program, directory, count):
    """The outcome of each run."""
    place = Path(directory) / NAME
    place.mkdir()
    head = place / "head.jsonl"
    flags = ("--record", str(head))
    async with tools(NAME, "tau1.py", directory, suite) as server:
        # It registers the server, and records its definitions.
        starting = Arm.start(
            "ipybox", server.servers(), replace(program, flags=flags), place, count
        )
        async with await starting:
            pass
        (definitions,) = of_kind(read(head), "server")
        replayer, targets = Replayer(program, place), {}
        for run in json.loads((Path(suite) / FILE).read_text()):
            calls = list(calls_of(run["traj"]))
            file = write(place / "run.jsonl", recording_of(calls, definitions))
            report = await replayer.report(file, "live")
            misfits = [words for _, words in differences(report)]
            task = run["task_id"]
            if task not in targets:
                actions = run["info"]["task"]["actions"]
                targets[task] = server.task(actions=actions)["hash"]
            right = server.task()["hash"] == targets[task]
            info = run["info"].get("reward_info") or {}
            verdict = (info.get("info") or {}).get("r_actions")
            if verdict is not None and right != bool(verdict):
                misfits.append(f"the database is {'right' if right else 'wrong'} now")
            yield {
                "suite": "tau1 airline",
                "task": f"{task}, trial {run['trial']}",
                "model": "gpt-4o",
                "calls": len(calls),
                "verdict": verdict,
                "misfits": misfits,
            }
