"""The machine of somebody who reads a page: a home, a workspace, programs on PATH, and a session with ipybox."""

import asyncio
import json
import os
import shutil
import socket
import sys
from datetime import timedelta
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/clients"))

import programs
import session

DEADLINE_SECS = 60
"""A command or a cell of the documentation that takes longer hangs."""

GITHUB = "https://api.githubcopilot.com/mcp/"

KNOWN_SERVERS = {
    "brave_search": {
        "command": "npx",
        "args": ["-y", "@brave/brave-search-mcp-server", "--transport", "stdio"],
        "env": {"BRAVE_API_KEY": "${BRAVE_API_KEY}"},
    },
    "fetch": {"command": "uvx", "args": ["mcp-server-fetch"]},
    "github": {"url": GITHUB},
    "time": {"command": "uvx", "args": ["mcp-server-time"]},
}
"""What the documentation's cells import, where the page itself registers it in a language that is not run here."""


class Failed(Exception):
    """What is wrong with a block."""


def expect(condition, problem):
    if not condition:
        raise Failed(problem)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Place:
    """Directories, variables and what has been started; `stack` ends it."""

    def __init__(self, options, scratch, github_port, stack):
        self.options, self.stack = options, stack
        self.home, self.workspace = scratch / "home", scratch / "workspace"
        self.log = scratch / "covered"
        for directory in (self.home, self.workspace, scratch / "bin"):
            directory.mkdir()
        self.log.touch()
        self.stderr_path = scratch / "stderr"
        self.stderr = stack.enter_context(self.stderr_path.open("w"))
        self.port = free_port()
        self.github = f"http://127.0.0.1:{github_port}/mcp"
        places = {
            "BINARY": options.binary,
            "TOOLS": options.tools,
            "LOG": self.log,
            "PORT": self.port,
        }
        programs.install(scratch / "bin", self.home, places)
        self.environment = {
            "PATH": f"{scratch / 'bin'}:{options.tools / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "IPYBOX_STATE_DIR": str(scratch / "state"),
            "BRAVE_API_KEY": "a key",
            "GITHUB_API_KEY": "a key",
        }
        self.session, self.registered = None, set()

    def filled(self, text):
        """`text` with what a reader puts in."""
        text = text.replace("/path/to/workspace", str(self.workspace))
        text = text.replace(GITHUB, self.github)
        return text.replace("127.0.0.1:8900", f"127.0.0.1:{self.port}")

    async def output_of(self, command, *, environment=None):
        """What a command printed, which has to succeed."""
        environment = environment or self.environment
        program = shutil.which(command[0], path=environment["PATH"])
        expect(program, f"there is no program `{command[0]}`")
        process = await asyncio.create_subprocess_exec(
            program,
            *command[1:],
            cwd=self.home,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            outputs = await asyncio.wait_for(process.communicate(), DEADLINE_SECS)
        except asyncio.TimeoutError:
            process.kill()
            await process.wait()
            raise Failed(f"no end within {DEADLINE_SECS} s") from None
        printed, said = (output.decode(errors="replace") for output in outputs)
        problem = f"it ended with {process.returncode}:\n{printed}{said}"
        expect(process.returncode == 0, problem)
        return printed

    async def output_of_ours(self, command):
        """The same of a command that has to be the real one, with the variables of the tests."""
        return await self.output_of(command, environment=dict(os.environ))

    async def serve(self, command):
        """Starts a program that goes on; gives the first line that it prints."""
        server = await asyncio.create_subprocess_shell(
            f"exec {command}",
            cwd=self.home,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=self.stderr,
        )

        async def stop():
            server.terminate()
            await asyncio.wait_for(server.wait(), DEADLINE_SECS)

        self.stack.push_async_callback(stop)
        line = await asyncio.wait_for(server.stdout.readline(), DEADLINE_SECS)
        expect(line, "it printed nothing")
        return line.decode()

    async def start_entry(self, name, entry):
        """Starts a server of a client's configuration as the client would, and has it answer a cell."""
        environment = self.environment | entry.get("env", {})
        connection = self._connect(entry["command"], entry.get("args", []), environment)
        try:
            async with connection as (read, write), self._client(read, write) as client:
                await client.initialize()
                arguments = {"code": "print(40 + 2)"}
                result = await client.call_tool("execute_ipython_cell", arguments)
        except Exception as error:
            raise Failed(f"`{name}` does not start: {innermost(error)}") from error
        text = result.content[0].text
        expect(text.strip() == "42", f"`{name}` answered {text}")

    async def connected(self):
        """The session, opened when it is needed first."""
        if not self.session:
            arguments = ["--workspace", str(self.workspace)]
            connection = self._connect("ipybox", arguments, self.environment)
            read, write = await self.stack.enter_async_context(connection)
            client = await self.stack.enter_async_context(self._client(read, write))
            version = (await client.initialize()).protocolVersion
            self.session = session.Session(client, version)
        return self.session

    async def register(self, name, params=None):
        """Registers an MCP server in the session; gives the answer."""
        params = params or KNOWN_SERVERS.get(name)
        problem = (
            f"no test knows the MCP server `{name}`, which no block above registers"
        )
        expect(params, problem)
        arguments = {
            "server_name": name,
            "server_params": json.loads(self.filled(json.dumps(params))),
        }
        connected = await self.connected()
        answer = await connected.call("register_mcp_server", arguments)
        expect(not answer.is_error, answer.text)
        self.registered.add(name)
        return answer.text

    def _connect(self, command, arguments, environment):
        found = shutil.which(command, path=environment["PATH"])
        expect(found, f"there is no program `{command}`")
        parameters = session.StdioServerParameters(
            command=found, args=arguments, env=environment, cwd=self.workspace
        )
        return session.stdio_client(parameters, errlog=self.stderr)

    def _client(self, read, write):
        deadline = timedelta(seconds=DEADLINE_SECS)
        return session.mcp.ClientSession(read, write, deadline)


def innermost(error):
    """The one error that groups of tasks are wrapped around."""
    while (wrapped := getattr(error, "exceptions", None)) and len(wrapped) == 1:
        error = wrapped[0]
    return error
