"""The common part of the suites of others: a server of their tools, tasks of calls, and the arms that replay them."""

import asyncio
import json
import os
import re
import sys
import urllib.request
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from arms import OUTPUT_CHARS, Arm, Call, Misfit, Servers, cell

HERE = Path(__file__).parent
FEW = 2
"""Up to so many calls an agent that has both ways makes without code."""
START = 60
"""Seconds within which a server has to be there."""


@dataclass
class Tools:
    """A running server of a suite's tools."""

    name: str
    port: int

    def servers(self):
        return Servers({self.name: {"url": f"http://127.0.0.1:{self.port}/mcp/"}})

    def task(self, **request):
        """Asks the server for something that is no part of MCP."""
        body = json.dumps(request).encode()
        url = f"http://127.0.0.1:{self.port}/task"
        made = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(made, timeout=600) as answered:
            return json.load(answered)


@asynccontextmanager
async def tools(name, program, directory, path, **variables):
    """Runs a server of `servers/`; `path` is where its suite's modules are."""
    announcement = Path(directory) / f"{name}.port"
    log = Path(directory) / f"{name}.log"
    environment = {**os.environ, "PYTHONPATH": str(path), **variables}
    with log.open("a") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(HERE / "servers" / program),
            name,
            str(announcement),
            env=environment,
            stdout=file,
            stderr=file,
        )
    try:
        async with asyncio.timeout(START):
            while not announcement.exists():
                if process.returncode is not None:
                    raise Misfit(
                        f"the server of {name} did not start:\n{log.read_text()}"
                    )
                await asyncio.sleep(0.05)
        yield Tools(name, json.loads(announcement.read_text())["port"])
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@dataclass
class Task:
    """A task of a suite, with its reference solution as calls in groups."""

    name: str
    prompt: str
    groups: list[list[Call]]
    """Calls of one group need nothing of each other's results."""
    answer: str
    cells: list[str] | None = None
    """The same as code, where the suite has it; else a cell for each group."""


def code_of(group, server):
    """A cell that makes calls one after the other and prints what they return, since the model has to see it."""
    lines = [f"from mcptools import {server}"]
    for made in group:
        arguments = ", ".join(
            f"{name}={literal(value)}" for name, value in made.arguments.items()
        )
        tool = made.tool.partition("__")[2]
        lines.append(f"print({server}.{tool}.run({arguments}))")
    return "\n".join(lines)


def literal(value):
    """A value as one writes it: a text of several lines stays one."""
    plain = isinstance(value, str) and "\n" in value
    if plain and "\\" not in value and '"""' not in value:
        return f'"""{value}"""'
    return repr(value)


def search_for(names):
    """The cell by which a model learns how these tools are called."""
    lines = ["from mcptools import search"]
    for name in names:
        query = name.replace("_", " ")
        lines.append(f"print(search({query!r}, limit=1))")
    return "\n".join(lines)


class Replay:
    """Replays tasks in one arm."""

    ARMS = ("direct", "parallel", "ipybox", "hybrid")

    def __init__(self, arm, name, server):
        self.arm, self.name, self.server = arm, name, server

    async def run(self, task):
        """The conversation of a task."""
        talk = self.arm.begin(task.prompt)
        if self.name == "direct":
            for group in task.groups:
                for made in group:
                    await talk.turn(made)
        elif self.name == "parallel":
            for group in task.groups:
                # What changes the same record must not change places.
                await talk.turn(*group, in_order=True)
        elif self.name == "ipybox":
            await self.learn(task, talk)
            await self.cells(task, talk)
        elif task.cells and len(task.groups) > FEW:
            await self.cells(task, talk)
        else:
            for group in task.groups:
                if len(group) == 1:
                    await talk.turn(*group)
                else:
                    await self.cell(talk, code_of(group, self.server))
        talk.end(task.answer)
        return talk

    async def learn(self, task, talk):
        names = list(
            dict.fromkeys(
                made.tool.partition("__")[2] for group in task.groups for made in group
            )
        )
        if not names:
            return
        printed = await talk.cell(search_for(names), max_output_chars=OUTPUT_CHARS)
        for name in names:
            if not re.search(rf"\b{name}\b", printed):
                raise Misfit(f"the search does not find `{name}`:\n{printed}")

    async def cells(self, task, talk):
        for code in task.cells or [
            code_of(group, self.server) for group in task.groups
        ]:
            await self.cell(talk, code)

    async def cell(self, talk, code):
        (answer,) = await talk.turn(cell(code, max_output_chars=OUTPUT_CHARS))
        return answer


def transcript(talk):
    """The calls and their answers."""
    return "\n".join(
        f"  {call.written()[:300]}\n    {answer.text[:300]}"
        for turn in talk.calls
        for call, answer in turn
    )


async def replay(
    suite, server, tasks, program, directory, count, verify, arms=None, begin=None
):
    """The figures of a suite's tasks in all arms.

    `begin` prepares a task, `verify` ends it, and raises if its end state is wrong.
    """
    for name in arms or Replay.ARMS:
        place = Path(directory) / f"{suite}-{name}"
        place.mkdir()
        kind = "direct" if name == "parallel" else name
        async with await Arm.start(
            kind, server.servers(), program, place, count
        ) as arm:
            replaying = Replay(arm, name, server.name)
            for task in tasks:
                if begin:
                    begin(task)
                talk = await replaying.run(task)
                try:
                    verify(task, talk)
                except Misfit as misfit:
                    raise Misfit(f"{name}: {misfit}\n{transcript(talk)}") from None
                yield {
                    "suite": suite,
                    "task": task.name,
                    "arm": name,
                    "calls": sum(map(len, task.groups)),
                    **talk.account.figures(),
                }
