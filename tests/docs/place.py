"""The machine of somebody who reads a page: a home, a workspace, programs on PATH, and a session with ipybox."""

import asyncio
import contextlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import sys
import urllib.error
import urllib.request
from datetime import timedelta
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/clients"))

import programs
import session
from application import Application, BlockError

DEADLINE_SECS = 900
"""A command or a cell of the documentation that takes longer hangs."""

SERVER_GRACE_SECS = 10
"""The time that a server of Jupyter's gets to end its kernels. A signal that comes while it writes its log can be lost on it."""

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
"""The servers that the documentation's cells import, where the page itself registers them in a language that is not run here."""


class Failed(Exception):
    """A block is wrong."""


def expect(condition, problem):
    if not condition:
        raise Failed(problem)


PORTS = iter(random.sample(range(12_000, 32_000), 20_000))
"""Ports that the system gives to nobody by itself: some are used long after they were chosen."""


def free_port():
    for port in PORTS:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise Failed("no port is free")


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
        self.kernel_ports = {"8888": free_port(), "8890": free_port()}
        """The ports of Jupyter's servers, by those that the documents name."""
        self.kernel_servers, self.kernel_server_words = {}, None
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
        self.kernels = "kernel"
        """The environment of the tests' tools that the session's kernels run in."""
        self.application = Application(
            options.tools / "kernel/bin/python",
            self.environment
            | {
                "IPYBOX_PROGRAM": str(options.binary),
                "PYTHONPATH": str(REPOSITORY / "python"),
            },
            self.workspace,
            self.stderr,
        )
        stack.push_async_callback(self.application.stop)

    def filled(self, text):
        """`text` with what a reader puts in."""
        text = text.replace("/path/to/workspace", str(self.workspace))
        text = text.replace(GITHUB, self.github)
        # Code that is to run out of time has to print something first, also on a slow machine.
        text = text.replace("timeout=1)", "timeout=20)")
        for documented, port in self.kernel_ports.items():
            text = re.sub(rf"\b{documented}\b", str(port), text)
        token = self.home / ".config/kernels/token"
        if token.exists():
            text = text.replace("the-token", token.read_text())
        return re.sub(r"\b8900\b", str(self.port), text)

    async def output_of(self, command, *, environment=None):
        """The output of a command, which has to succeed."""
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

    async def run_application(self, text):
        """The output of a block of a Python application."""
        try:
            running = self.application.run(text)
            return await asyncio.wait_for(running, DEADLINE_SECS)
        except asyncio.TimeoutError:
            await self.application.stop()
            raise Failed(f"no end within {DEADLINE_SECS} s") from None
        except BlockError as error:
            raise Failed(str(error)) from None

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

    async def serve_kernels(self, command):
        """Starts one of Jupyter's servers, in the place of the one with its port, and waits until it answers."""
        ports = self.kernel_ports.values()
        port = next((port for port in ports if str(port) in command), None)
        expect(port, f"it is on none of the ports {', '.join(self.kernel_ports)}")
        if port in self.kernel_servers:
            await self._stop_kernel_server(port)
        else:
            self.stack.push_async_callback(self._stop_kernel_server, port)
        log = self.home / "server.log"
        server = await asyncio.create_subprocess_exec(
            *("bash", "-euo", "pipefail", "-c", command),
            cwd=self.home,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=self.stack.enter_context(log.open("w")),
            # What the shell has started is ended with it.
            start_new_session=True,
        )
        self.kernel_servers[port] = server
        self.kernel_server_words = words_of(command)
        end = asyncio.get_running_loop().time() + DEADLINE_SECS
        while not await asyncio.to_thread(answers, f"http://127.0.0.1:{port}/api"):
            is_in_time = asyncio.get_running_loop().time() < end
            goes_on = server.returncode is None and is_in_time
            expect(goes_on, f"it does not answer:\n{log.read_text()}")
            await asyncio.sleep(0.1)

    async def _stop_kernel_server(self, port):
        server = self.kernel_servers.pop(port)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(server.wait(), SERVER_GRACE_SECS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        await server.wait()

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
        finally:
            await self._end_sessions(environment)
        text = result.content[0].text
        # The end of an earlier session is reported first.
        expect(text.split()[-1:] == ["42"], f"`{name}` answered {text}")

    async def _end_sessions(self, environment):
        """Ends the sessions that an entry keeps without its client."""
        program = shutil.which("ipybox", path=environment["PATH"])
        ending = await asyncio.create_subprocess_exec(
            *[program, "sessions", "end", "--all"], env=environment, stderr=self.stderr
        )
        expect(await ending.wait() == 0, "kept sessions do not end")

    async def connected(self):
        """The session, opened when it is needed first."""
        if not self.session:
            python = self.options.tools / self.kernels / "bin/python"
            arguments = ["--workspace", str(self.workspace), "--python", str(python)]
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


def words_of(command):
    """The words of a command whose lines end with a backslash, as the shell reads it; systemd joins lines like that."""
    return shlex.split(command.replace("\\\n", " "))


def answers(url):
    """True if a server is there, be it one that wants a token first."""
    # Not by a proxy, which the environment may name.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def innermost(error):
    """The one error that groups of tasks are wrapped around."""
    while (wrapped := getattr(error, "exceptions", None)) and len(wrapped) == 1:
        error = wrapped[0]
    return error
