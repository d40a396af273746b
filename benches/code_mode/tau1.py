"""Published runs of the first τ-bench, airline: what GPT-4o called, played again to the suite's tools.

The suite publishes the whole dialogues with what each tool answered, and whether the database was right at the end. Both are
compared with what the living tools answer, and with the hash that the living database has.
"""

import json
from pathlib import Path

from arms import Arm
from recordings import Recorded, Run, play
from suite import tools

NAME = "airline"
FILE = "historical_trajectories/gpt-4o-airline.json"


def turns_of(messages):
    """The calls in a dialogue, with their answers, in turns."""
    turns = []
    for place, message in enumerate(messages):
        if message["role"] != "assistant" or not message.get("tool_calls"):
            continue
        # The suite makes the first call of a message and no other, and its answer follows.
        function = message["tool_calls"][0]["function"]
        answer = messages[place + 1] if place + 1 < len(messages) else {}
        turns.append(
            [
                Recorded(
                    f"{NAME}__{function['name']}",
                    json.loads(function["arguments"]),
                    answer["content"] if answer.get("role") == "tool" else None,
                )
            ]
        )
    return turns


def read(suite):
    """The published runs, each with its task's actions and the verdict on its database."""
    found = []
    for run in json.loads((Path(suite) / FILE).read_text()):
        name = f"{run['task_id']}, trial {run['trial']}"
        info = run["info"].get("reward_info") or {}
        verdict = (info.get("info") or {}).get("r_actions")
        actions = run["info"]["task"]["actions"]
        turns = turns_of(run["traj"])
        recorded = Run("tau1 airline", name, "direct", "gpt-4o", "", turns)
        found.append((recorded, actions, verdict))
    return found


async def rows(suite, program, directory, count):
    """The outcome of each run."""
    async with tools(NAME, "tau1.py", directory, suite) as server:
        place = Path(directory) / "direct"
        place.mkdir()
        arm = await Arm.start("direct", server.servers(), program, place, count)
        async with arm:
            targets = {}
            for run, actions, verdict in read(suite):
                _, misfits = await play(run, arm, "")
                task = run.task.partition(",")[0]
                if task not in targets:
                    targets[task] = server.task(actions=actions)["hash"]
                right = server.task()["hash"] == targets[task]
                if verdict is not None and right != bool(verdict):
                    misfits.append(
                        f"{run.task}: the database is {'right' if right else 'wrong'} now"
                    )
                yield {
                    "suite": run.suite,
                    "task": run.task,
                    "model": run.model,
                    "calls": sum(map(len, run.turns)),
                    "verdict": verdict,
                    "misfits": misfits,
                }
