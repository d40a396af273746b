"""The ways in which an agent can do the same work: direct calls, ipybox, or a choice of both.

An `Arm` holds the connections to real servers. A `Conversation` is one task in it: a script stands in for the model and
says what the model would write, turn by turn, and the account grows with what the servers really answer.
"""

import asyncio
import json
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from account import Account, Turn
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

ARMS = ("direct", "ipybox", "hybrid")
CELL = "execute_ipython_cell"
OUTPUT_CHARS = 100_000
"""Asked for where a model has to read all that a cell prints; 5,000 unless it asks."""


class Misfit(Exception):
    """A script no longer fits the answers of the servers."""


@dataclass(frozen=True)
class Call:
    """A call that the model writes. The name of a server's tool begins with the server's."""

    tool: str
    arguments: dict

    def written(self):
        """The call as the model writes it."""
        return compact({"name": self.tool, "arguments": self.arguments})


@dataclass(frozen=True)
class Answer:
    """The answer of a tool."""

    text: str
    failed: bool
    structured: dict | None = None

    @property
    def value(self):
        """The result as a script works on it."""
        if self.structured is None:
            return json.loads(self.text)
        if set(self.structured) == {"result"}:
            return self.structured["result"]
        return self.structured


def call(server, tool, **arguments):
    """A call of a server's tool."""
    return Call(f"{server}__{tool}", arguments)


def cell(code, **more):
    """A call that runs code."""
    return Call(CELL, {"code": code, **more})


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@dataclass
class Servers:
    """Stdio servers by name: what starts each."""

    parameters: dict[str, dict]

    def configuration(self):
        """As clients are configured."""
        return {"mcpServers": self.parameters}


@dataclass(frozen=True)
class Program:
    """The ipybox under test, and the interpreter of its kernels."""

    binary: str
    python: str
    flags: tuple[str, ...] = ()
    """Those of the session, beside its servers."""


class Arm:
    """Connections to the servers, and the definitions that a model is sent."""

    def __init__(self, name, count):
        self.name, self.count = name, count
        self.sessions, self.definitions, self.instructions = {}, {}, []
        self.stack = AsyncExitStack()

    @classmethod
    async def start(cls, name, servers, program, directory, count):
        """Connects to the servers in the way of this arm; `directory` is ipybox's workspace."""
        if name not in ARMS:
            raise ValueError(f"there is no arm `{name}`: one of {', '.join(ARMS)}")
        arm = cls(name, count)
        try:
            if name in ("direct", "hybrid"):
                for server, parameters in servers.parameters.items():
                    await arm.connect(server, parameters)
            if name in ("ipybox", "hybrid"):
                await arm.connect_ipybox(servers, program, directory)
        except BaseException:
            await arm.stack.aclose()
            raise
        return arm

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        await self.stack.aclose()

    async def connect(self, server, parameters):
        enter = self.stack.enter_async_context
        if "url" in parameters:
            streams = (await enter(streamablehttp_client(parameters["url"])))[:2]
        else:
            started = StdioServerParameters(**parameters)
            streams = await enter(stdio_client(started, self.log(started)))
        session = await enter(ClientSession(*streams))
        started = await session.initialize()
        if started.instructions:
            self.instructions.append(started.instructions)
        # ipybox's four tools have names of their own, as they would in a client that shows no prefix.
        prefix = "" if server == "ipybox" else f"{server}__"
        for tool in (await session.list_tools()).tools:
            self.sessions[prefix + tool.name] = session, tool.name
            self.definitions[prefix + tool.name] = {
                "name": prefix + tool.name,
                "description": tool.description or "",
                "input_schema": tool.inputSchema,
            }

    def log(self, started):
        """The file that a server writes its log to."""
        log = Path(started.env["CODE_MODE_LOG"])
        return self.stack.enter_context(log.open("a"))

    async def connect_ipybox(self, servers, program, directory):
        directory = Path(directory)
        configuration = directory / "servers.json"
        configuration.write_text(json.dumps(servers.configuration()))
        workspace = directory / "workspace"
        workspace.mkdir(exist_ok=True)
        arguments = ["--workspace", str(workspace), "--python", program.python]
        arguments += ["--state-dir", str(directory / "state")]
        arguments += ["--mcp-config", str(configuration), *program.flags]
        log = {"CODE_MODE_LOG": str(directory / "ipybox.log")}
        started = {"command": program.binary, "args": arguments, "env": log}
        await self.connect("ipybox", started)
        # The kernel's start, and the news that the servers are ready, are no part of a task.
        started = await self.call(cell("import mcptools"))
        if started.failed:
            raise Misfit(f"the first cell failed:\n{started.text}")

    async def call(self, call):
        """Makes a call."""
        if call.tool not in self.sessions:
            raise Misfit(
                f"there is no tool `{call.tool}`: the arm {self.name} has {', '.join(sorted(self.sessions))}"
            )
        session, tool = self.sessions[call.tool]
        result = await session.call_tool(tool, call.arguments)
        text = "\n".join(
            block.text if block.type == "text" else f"[{block.type}]"
            for block in result.content
        )
        return Answer(text, bool(result.isError), result.structuredContent)

    def schemas(self, servers=None):
        """The tokens of the definitions, of all servers or of some."""
        shown = [
            definition
            for name, definition in self.definitions.items()
            if servers is None or "__" not in name or name.partition("__")[0] in servers
        ]
        return self.count(compact(shown)) + sum(map(self.count, self.instructions))

    def begin(self, task):
        """A conversation about a task."""
        return Conversation(self, Account(self.schemas(), self.count(task)))


@dataclass
class Conversation:
    """One task in an arm."""

    arm: Arm
    account: Account
    calls: list = field(default_factory=list)
    answer: str | None = None

    async def turn(self, *calls, in_order=False):
        """The model writes calls that need nothing of each other, and gets what the tools answer.

        They run at the same time, unless they have to be made in their order.
        """
        count = self.arm.count
        written = sum(count(call.written()) for call in calls)
        begin = time.monotonic()
        if in_order:
            answers = [await self.arm.call(call) for call in calls]
        else:
            answers = await asyncio.gather(*map(self.arm.call, calls))
        took = time.monotonic() - begin
        results = sum(count(answer.text) for answer in answers)
        self.account.turns.append(Turn(written, results, took))
        self.calls.append(list(zip(calls, answers, strict=True)))
        return answers

    async def one(self, call):
        """A turn with one call, which must not fail."""
        (answer,) = await self.turn(call)
        if answer.failed:
            raise Misfit(f"{call.written()[:300]} failed:\n{answer.text}")
        return answer

    async def cell(self, code, **more):
        """A turn with one cell, which must not fail; what it printed."""
        return (await self.one(cell(code, **more))).text.strip()

    def end(self, answer):
        """The last turn: the model answers the user."""
        self.answer = answer
        self.account.turns.append(Turn(self.arm.count(answer)))
