"""Actions that one half of τ-bench's tasks leaves, and what they save the other half. Without a model.

The calls by which a task begins to read become an action: a function whose arguments are those that the user's words have, and
which takes the others from results, of all items where a call took one. A task of the other half is served by an action whose
reading has its own in it. Both halves are the first one in turn. The end state of each task is verified, as in the other suites.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import tau
from arms import OUTPUT_CHARS, Arm, Misfit
from suite import Replay, Task, search_for, tools

CATEGORY = "tasks"
WORDS = 300
"""The characters of what a user says that are searched for."""
HELPERS = '''import json


def told(text: str) -> object:
    """The result of a tool as data."""
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return text


def each(found: list, path: list) -> list:
    """The values at a path in results, of all items where it has no name."""
    for name in path:
        found = [item for one in found for item in one] if name is None else [one[name] for one in found]
    return found
'''


@dataclass(frozen=True)
class Step:
    """A call, or one for each of some values."""

    tool: str
    arguments: tuple
    """The name of each, with that of a parameter, or the number of an earlier step and a path in its results."""


@dataclass(frozen=True)
class Reading:
    """The calls by which a task begins."""

    steps: tuple[Step, ...]
    parameters: tuple
    """The name of each, with its value."""
    calls: int
    """The number of calls that are in it."""

    def serves(self, other):
        """Say whether all that the other one reads is in this one, with the same parameters."""
        same = dict(self.parameters).keys() == dict(other.parameters).keys()
        return same and set(other.steps) <= set(self.steps)

    def tools(self):
        """The names of its tools, in order."""
        return list(dict.fromkeys(step.tool for step in self.steps))

    def name(self, taken):
        """A name that no other action has."""
        name = "_and_".join(self.tools())[:60].rstrip("_")
        others = sum(re.sub(r"_\d+$", "", other) == name for other in taken)
        return f"{name}_{others + 1}" if others else name


def parsed(result):
    try:
        return json.loads(result)
    except ValueError:
        return result


def path_to(value, result, path=()):
    """The path to a value in a result, with nothing in the place of the number of an item."""
    if result == value:
        return path
    named = result.items() if isinstance(result, dict) else ()
    items = ((None, item) for item in result) if isinstance(result, list) else named
    for name, item in items:
        found = path_to(value, item, (*path, name))
        if found is not None:
            return found
    return None


def reading_of(actions, results, kinds, prompt):
    """The reading part of a task, as far as what it asks for is in the prompt or in earlier results."""
    steps, parameters, given = [], {}, []
    for action, result in zip(actions, results, strict=True):
        if kinds[action["name"]] != "read" or result.startswith("Error"):
            break
        arguments, known = [], dict(parameters)
        for name, value in action["arguments"].items():
            source = source_of(value, given, prompt, known, name)
            if source is None:
                break
            arguments.append((name, source))
        taken = sum(not isinstance(source, str) for _, source in arguments)
        # Two values of a result may belong together.
        if len(arguments) < len(action["arguments"]) or taken > 1:
            break
        parameters = known
        step = Step(action["name"], tuple(arguments))
        if step not in steps:
            steps.append(step)
        given.append((steps.index(step), parsed(result)))
    return Reading(tuple(steps), tuple(parameters.items()), len(given))


def source_of(value, given, prompt, parameters, name):
    """The parameter, or the step and the path in its result, that a value comes from."""
    for step, result in given:
        path = path_to(value, result)
        if path is not None:
            return step, path
    for known, other in parameters.items():
        if other == value:
            return known
    if str(value) in prompt and name not in parameters:
        parameters[name] = value
        return name
    return None


def sentences_of(tools, descriptions):
    """The first sentences of tools, which explain a function that calls them."""
    found = [re.split(r"(?<=[.])\s", descriptions[one].strip())[0] for one in tools]
    return " ".join(dict.fromkeys(found))


def halves(tasks):
    """Three turns, as number, tasks that save actions, and tasks that use them: nothing saved, and each half as the first one."""
    half = len(tasks) // 2
    return (
        (0, [], tasks),
        (1, tasks[:half], tasks[half:]),
        (2, tasks[half:], tasks[:half]),
    )


def function_of(name, reading, server, descriptions):
    """The action as an agent would write it."""
    explained = sentences_of(reading.tools(), descriptions)
    parameters = ", ".join(
        f"{name}: {type(value).__name__}" for name, value in reading.parameters
    )
    lines = [f"def {name}({parameters}) -> list:"]
    lines.append(f'    """{explained}"""')
    for number, step in enumerate(reading.steps):
        taken = [source for _, source in step.arguments if not isinstance(source, str)]
        arguments = ", ".join(
            f"{name}={source if isinstance(source, str) else 'value'}"
            for name, source in step.arguments
        )
        made = f"told({server}.{step.tool}.run({arguments}))"
        if taken:
            (source, path) = taken[0]
            made += f" for value in each(found_{source}, {list(path)!r})"
        lines.append(f"    found_{number} = [{made}]")
    found = ", ".join(f"*found_{number}" for number in range(len(reading.steps)))
    return "\n".join([*lines, f"    return [{found}]"])


def call_of(function, reading):
    """The lines that call a function and show what it returns."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in reading.parameters)
    return f"for one in {function}({arguments}):\n    print(one)"


class ReplayWithActions(Replay):
    """Replays tasks, saves the reading parts of those of one half, and uses them in the others."""

    def __init__(self, arm, server, readings, words, descriptions):
        super().__init__(arm, "ipybox", server)
        self.readings, self.words, self.descriptions = readings, words, descriptions
        self.saved, self.is_saving = {}, True
        self.figures = {}

    async def run(self, task):
        talk = self.arm.begin(task.prompt)
        reading, rest = self.readings[task.name]
        name, needed, others = self.sought(task)
        self.figures = {"is_served": False, "found_by_tools": None}
        self.figures |= {"found_by_words": None, "could_be_served": name is not None}
        if self.is_saving and reading.calls > 1 and name is None:
            await self.save(talk, reading)
            task = rest
        elif not self.is_saving and await self.is_found(
            task, talk, name, needed, others
        ):
            self.figures["is_served"] = True
            call = call_of(f"{name}.run", reading)
            code = f"from gentools.{CATEGORY} import {name}\n{call}"
            await talk.cell(code, max_output_chars=OUTPUT_CHARS)
            task = rest
        if not self.figures["is_served"]:
            await self.learn(task, talk)
        await self.cells(task, talk)
        talk.end(task.answer)
        return talk

    def sought(self, task):
        """The action for a task, the tools that it calls, and those that the rest of the task calls."""
        reading, rest = self.readings[task.name]
        return self.served(reading), reading.tools(), others_of(rest)

    async def save_of(self, task):
        """Saves what a task leaves, without the rest of it."""
        reading, _ = self.readings[task.name]
        if reading.calls > 1 and self.served(reading) is None:
            await self.save(self.arm.begin(""), reading)

    def served(self, reading):
        """The name of the smallest saved action that reads all of it."""
        fitting = [name for name, one in self.saved.items() if one.serves(reading)]
        fitting = fitting if reading.calls > 1 else []
        return min(fitting, key=lambda name: len(self.saved[name].steps), default=None)

    async def save(self, talk, reading):
        """Runs the reading as a function, and saves that."""
        name = reading.name(self.saved)
        function = function_of(name, reading, self.server, self.descriptions)
        imported = f"from mcptools import {self.server}\n"
        parts = [imported + HELPERS, function, call_of(name, reading)]
        await talk.cell("\n\n".join(parts), max_output_chars=OUTPUT_CHARS)
        example = dict(reading.parameters)
        saving = f"save({name}, category={CATEGORY!r}, example={example!r})"
        await talk.cell(f"from mcptools import save\nprint({saving})")
        self.saved[name] = reading

    async def is_found(self, task, talk, name, tools, others):
        """Search for all that the task needs, which the agent pays for: is the action among the first three?"""
        if name is None:
            return False
        by_tools = ", ".join(tool.replace("_", " ") for tool in tools)
        # Only to measure.
        apart = self.arm.begin("")
        found = []
        for query, asked in ((by_tools, talk), (self.words[task.name], apart)):
            code = f"from mcptools import search\nprint(search({query!r}, limit=3))"
            if asked is talk and others:
                code += "\n" + search_for(others).partition("\n")[2]
            printed = await asked.cell(code, max_output_chars=OUTPUT_CHARS)
            imported = rf"from gentools\.{CATEGORY} import .*\b{name}\b"
            found.append(re.search(imported, printed) is not None)
        self.figures["found_by_tools"], self.figures["found_by_words"] = found
        return found[0]


def others_of(task):
    """The names of the tools that a task calls."""
    named = [made.tool for group in task.groups for made in group]
    return list(dict.fromkeys(tool.partition("__")[2] for tool in named))


def read(server, data):
    """The tasks, their target states, and of each its reading part and a task of what follows that."""
    tasks, targets = tau.read(server, data)
    policy = (data / "policy.md").read_text()
    readings, user_words = {}, {}
    for raw, task in zip(json.loads((data / "tasks.json").read_text()), tasks):
        actions = raw["evaluation_criteria"]["actions"] or []
        gold = server.task(actions=actions)
        prompt = tau.prompt_of(policy, raw)
        words = prompt.removeprefix(policy)
        reading = reading_of(actions, gold["results"], gold["kinds"], words)
        known = prompt + "".join(gold["results"][: reading.calls])
        groups = tau.grouped(
            actions[reading.calls :],
            gold["results"][reading.calls :],
            known,
            gold["kinds"],
            server.name,
        )
        rest = Task(task.name, task.prompt, groups, task.answer)
        readings[task.name] = (reading, rest)
        said = raw["user_scenario"]["instructions"].get("reason_for_call")
        user_words[task.name] = (said or "")[:WORDS]
    return tasks, targets, readings, user_words


async def rows(domain, package, program, directory, count):
    """The figures of a domain's tasks, without actions, and with those of the other half."""
    data = Path(package) / "tau2/data/tau2/domains" / domain
    async with tools(domain, "tau.py", directory, package) as server:
        tasks, targets, readings, words = read(server, data)
        described = server.task(descriptions=True)["descriptions"]
        for fold, first, second in halves(tasks):
            place = Path(directory) / f"actions-{domain}-{fold}"
            place.mkdir()
            async with await Arm.start(
                "ipybox", server.servers(), program, place, count
            ) as arm:
                replaying = ReplayWithActions(
                    arm, server.name, readings, words, described
                )
                for task in [*first, *second]:
                    replaying.is_saving = task in first
                    saved = len(replaying.saved)
                    talk = await replaying.run(task)
                    if server.task()["hash"] != targets[task.name]:
                        raise Misfit(f"{domain} {task.name}: the end state is wrong")
                    yield {
                        "suite": f"actions {domain}",
                        "task": task.name,
                        "arm": "with" if first else "without",
                        "fold": fold,
                        "half": 1 if replaying.is_saving else 2,
                        "saves": len(replaying.saved) > saved,
                        "calls": readings[task.name][0].calls,
                        **replaying.figures,
                        **talk.account.figures(),
                    }
