"""τ-bench (tau2), airline and retail: the reference actions of each task, against the suite's own tools.

The suite compares databases by hash, and so does this: the end state of every arm is the one to which the suite's
environment comes by its reference actions.
"""

import json
from pathlib import Path

from arms import Misfit, call
from suite import Task, replay, tools

DOMAINS = ("airline", "retail")


def leaves(value):
    """The values in an argument, as text."""
    if isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield str(value)


def grouped(actions, results, known, kinds, server):
    """Actions in groups that a model could write at once.

    A new group begins where an argument is first seen in a result of the present one; after a call that fails; and
    between reading and writing, because the suite's policy has the agent ask the user before it changes anything.
    """
    groups, seen, last, failed = [], "", None, False
    for action, result in zip(actions, results, strict=True):
        kind = kinds[action["name"]]
        needs = any(
            leaf in seen and leaf not in known for leaf in leaves(action["arguments"])
        )
        if not groups or needs or failed or kind != last:
            groups.append([])
            known, seen = known + seen, ""
        groups[-1].append(call(server, action["name"], **action["arguments"]))
        seen += result
        last, failed = kind, result.startswith("Error")
    return groups


def prompt_of(policy, task):
    """The policy, and what the user says about themselves and their wish."""
    instructions = task["user_scenario"]["instructions"]
    parts = [instructions.get("reason_for_call"), instructions.get("known_info")]
    parts.append(instructions.get("task_instructions"))
    return "\n\n".join([policy, *filter(None, parts)])


def read(server, data):
    """The tasks of a domain, with their target states."""
    policy = (data / "policy.md").read_text()
    found, targets = [], {}
    for task in json.loads((data / "tasks.json").read_text()):
        actions = task["evaluation_criteria"]["actions"] or []
        gold = server.task(actions=actions)
        prompt = prompt_of(policy, task)
        groups = grouped(actions, gold["results"], prompt, gold["kinds"], server.name)
        communicated = task["evaluation_criteria"].get("communicate_info") or []
        answer = ", ".join(communicated) or "Done."
        found.append(Task(task["id"], prompt, groups, answer))
        targets[task["id"]] = gold["hash"]
    return found, targets


async def rows(domain, package, program, directory, count, arms=None, only=None):
    """The figures of a domain."""
    data = Path(package) / "tau2/data/tau2/domains" / domain
    async with tools(domain, "tau.py", directory, package) as server:
        tasks, targets = read(server, data)

        def verify(task, _talk):
            reached = server.task()["hash"]
            if reached != targets[task.name]:
                raise Misfit(
                    f"{domain} {task.name}: the database is {reached}, not {targets[task.name]}"
                )

        chosen = [task for task in tasks if only is None or task.name in only]
        async for row in replay(
            f"tau {domain}", server, chosen, program, directory, count, verify, arms
        ):
            yield row
