"""Sessions that ipybox records and replays: each reference solution in code, again in every mode of `ipybox replay`, and again
after the recording was edited, so that it is no longer what the living servers do.

A row has the cells and calls of a session, and for each mode how many cells were the same to the byte, how many by a rule, and
how many differences there were. Nothing has changed, so each difference is a false one.
"""

import asyncio
import contextlib
import itertools
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path

import m3tooleval
import office
import tau
from arms import Arm, Misfit, compact
from shapes import SHAPES
from suite import Replay, tools

MODES = ("strict", "dry", "reads", "live")


@dataclass(frozen=True)
class Replayer:
    """Replays recordings for a session's workspace and its registered servers."""

    program: object
    place: Path

    async def report(self, file, mode):
        """The report of a replay."""
        state = ["--workspace", self.place / "workspace"]
        state += ["--state-dir", self.place / "state"]
        options = ["--json", "--mode", mode, "--python", self.program.python]
        command = [self.program.binary, "replay", file, *state, *options]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *map(str, command), stdout=pipe, stderr=pipe
        )
        report, log = await process.communicate()
        if not report:
            raise Misfit(f"{file} was not replayed:\n{log.decode()}")
        return json.loads(report)


def differences(report):
    """The differences in a report, as kind and words."""
    found = [("schema", change) for change in report["servers"]]
    for cell in report["cells"]:
        for one in cell["differences"]:
            words = " ".join([one["words"], *one["diff"]])
            found.append((one["kind"], f"cell {cell['cell']}: {words[:300]}"))
    return found


def read(file):
    """The lines of a recording."""
    return [json.loads(line) for line in Path(file).read_text().splitlines()]


def write(file, lines):
    """A recording of these lines."""
    Path(file).write_text("".join(f"{compact(line)}\n" for line in lines))
    return file


def of_kind(lines, kind):
    return [line for line in lines if line["line"] == kind]


def changed(value):
    """A value with another first leaf."""
    if isinstance(value, dict) and value:
        first = next(iter(value))
        return {**value, first: changed(value[first])}
    if isinstance(value, list) and value:
        return [changed(value[0]), *value[1:]]
    if isinstance(value, (int, float)):
        return value + 1
    return f"{value}!"


def with_change(lines):
    """The recording of a server that has since changed: the schema and the answer of the first call's tool."""
    first = next(iter(of_kind(lines, "call")), None)
    if first is None:
        return None
    made = []
    for line in lines:
        if line is first:
            line = {**line, "answer": changed(line["answer"])}
        if line["line"] == "server" and line["name"] == first["server"]:
            tools = [with_property(tool, first["tool"]) for tool in line["tools"]]
            line = {**line, "tools": tools}
        made.append(line)
    return made


def with_property(tool, name):
    """The tool, with another schema if it has this name."""
    if tool["name"] != name:
        return tool
    schema = tool["input_schema"]
    properties = {**schema.get("properties", {}), "removed": {"type": "string"}}
    return {**tool, "input_schema": {**schema, "properties": properties}}


def reordered(lines):
    """The recording of two calls the other way round; `None` if no cell makes two different ones after each other."""

    def key(call):
        return call["server"], call["tool"], call["arguments"]

    calls = sorted(of_kind(lines, "call"), key=lambda call: call["order"][0])
    for one, other in itertools.pairwise(calls):
        follows = one["cell"] == other["cell"] and one["order"][1] < other["order"][0]
        if follows and key(one) != key(other):
            swap = {id(one): other["order"], id(other): one["order"]}
            return [
                {**line, "order": swap[id(line)]} if id(line) in swap else line
                for line in lines
            ]
    return None


@dataclass
class RecordedSolution:
    """A reference solution as a session."""

    suite: str
    task: str
    servers: object
    solve: object
    """Runs it in an arm, and raises if its end state is wrong."""
    fresh: object
    """Brings the living servers to the state at the beginning."""

    def file(self, place):
        """Its recording."""
        return place / "recording.jsonl"

    async def record(self, program, place, count):
        """Records it; the seconds from its start to its end."""
        place.mkdir(parents=True)
        flags = (*program.flags, "--record", str(self.file(place)))
        begin = time.monotonic()
        starting = Arm.start(
            "ipybox", self.servers, replace(program, flags=flags), place, count
        )
        async with await starting as arm:
            await self.solve(arm)
        return time.monotonic() - begin

    async def row(self, program, place, count):
        """The figures of its replays."""
        self.fresh()
        seconds = await self.record(program, place, count)
        file = self.file(place)
        lines, replayer = read(file), Replayer(program, place)
        modes, exceptions = {}, []
        for mode in MODES:
            self.fresh()
            begin = time.monotonic()
            report = await replayer.report(file, mode)
            took = time.monotonic() - begin
            found = differences(report)
            results = [cell["result"] for cell in report["cells"]]
            modes[mode] = {
                "same": results.count("same"),
                "by_rules": results.count("same_by_rules"),
                "differences": len(found),
                "seconds": round(took, 3),
            }
            for kind, words in found:
                exceptions.append(f"{mode}: {kind}: {words}")
            for rule, _ in report["rules"]:
                exceptions.append(f"{mode}: by the rule {rule}")
        return {
            "suite": self.suite,
            "task": self.task,
            "cells": len(of_kind(lines, "cell")),
            "calls": len(of_kind(lines, "call")),
            "bytes": file.stat().st_size,
            "seconds": round(seconds, 3),
            "modes": modes,
            "edits": await self.edits(lines, replayer),
            "exceptions": exceptions,
        }

    async def edits(self, lines, replayer):
        """The kinds of differences that the recording is given by edits, and whether each is found."""
        found, file = {}, replayer.place / "edited.jsonl"
        for mode, kinds, edited in (
            ("live", ("schema", "changed_result"), with_change(lines)),
            ("live", ("reordered_call",), reordered(lines)),
            ("strict", ("reordered_call",), reordered(lines)),
        ):
            if edited is None:
                continue
            self.fresh()
            report = await replayer.report(write(file, edited), mode)
            seen = {kind for kind, _ in differences(report)}
            found.update({f"{kind}, {mode}": kind in seen for kind in kinds})
        return found


@contextlib.asynccontextmanager
async def tau_sessions(domain, package, directory):
    """Those of τ-bench."""
    data = Path(package) / "tau2/data/tau2/domains" / domain
    async with tools(domain, "tau.py", directory, package) as server:
        tasks, targets = tau.read(server, data)
        yield of_tasks(
            f"tau {domain}",
            server,
            tasks,
            lambda task, _: server.task()["hash"] == targets[task.name],
            server.task,
        )


@contextlib.asynccontextmanager
async def m3_sessions(family, suite, directory):
    """Those of M3ToolEval."""
    place = Path(suite) / "scripts/eval/m3tooleval"
    async with tools(family, "m3.py", directory, place) as server:
        tasks, _ = m3tooleval.read(server)

        def is_right(task, talk):
            answer = talk.calls[-1][-1][1].text.strip()
            return server.task(check=task.name, answer=answer)["right"]

        # Its tools keep nothing.
        yield of_tasks(f"m3tooleval {family}", server, tasks, is_right, lambda: None)


def of_tasks(suite, server, tasks, is_right, fresh):
    def session(task):
        async def solve(arm):
            talk = await Replay(arm, "ipybox", server.name).run(task)
            if not is_right(task, talk):
                raise Misfit(f"{suite} {task.name}: the end state is wrong")

        return RecordedSolution(suite, task.name, server.servers(), solve, fresh)

    return [session(task) for task in tasks]


@contextlib.asynccontextmanager
async def office_sessions(directory):
    """Those of our own shapes."""
    effects = Path(directory) / "effects.jsonl"

    def session(shape):
        async def solve(arm):
            await office.solve(shape, arm, effects)

        servers = office.servers(shape.needs, effects)
        return RecordedSolution(
            "office", shape.name, servers, solve, lambda: effects.write_text("")
        )

    yield [session(shape) for shape in SHAPES]


async def rows(suites, program, directory, count):
    """The figures of all sessions of these suites."""
    for suite in suites:
        async with suite as sessions:
            for number, session in enumerate(sessions):
                name = f"{session.suite} {number}".replace(" ", "-")
                yield await session.row(program, Path(directory) / name, count)
