"""What is done with the blocks of one page, by their languages: the table is in `run.py`."""

import ast
import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/clients"))

import programs
import session

DEADLINE_SECS = 60
"""A command or a cell of the documentation that takes longer hangs."""

DEADLINE = timedelta(seconds=DEADLINE_SECS)

GITHUB = "https://api.githubcopilot.com/mcp/"

KNOWN_SERVERS = {
    "brave_search": {
        "command": "npx",
        "args": ["-y", "@brave/brave-search-mcp-server", "--transport", "stdio"],
        "env": {"BRAVE_API_KEY": "${BRAVE_API_KEY}"},
    },
    "fetch": {"command": "uvx", "args": ["mcp-server-fetch"]},
    "filesystem": {
        "command": "npx",
        "args": ["-y", "@modelcontextprotocol/server-filesystem", "."],
    },
    "github": {"url": GITHUB},
    "time": {"command": "uvx", "args": ["mcp-server-time"]},
}
"""What the documentation's cells import, where the page itself registers it in a language that is not run here."""

SAVED_TOOLS = {"tools": [{"name": "read", "inputSchema": {"type": "object"}}]}
"""A result of `tools/list`, for commands that read one from `tools.json`."""


class Failed(Exception):
    """What is wrong with a block."""


def expect(condition, problem):
    if not condition:
        raise Failed(problem)


def agrees(expected, actual):
    """Whether the lines of `expected` are lines of `actual`, in this order; `…` stands for anything."""
    lines = iter([" ".join(line.split()) for line in actual.splitlines()])
    for line in expected.splitlines():
        words = " ".join(line.split())
        if words not in ("", "…"):
            pattern = ".*".join(re.escape(part) for part in words.split("…"))
            if not any(re.fullmatch(pattern, candidate) for candidate in lines):
                return False
    return True


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Page:
    """A page that is being gone through: its directories, its session, what was printed last."""

    def __init__(self, name, options, scratch, github_port, stack):
        self.name, self.options, self.stack = name, options, stack
        self.home, self.workspace = scratch / "home", scratch / "workspace"
        self.log, self.stderr = scratch / "covered", scratch / "stderr"
        self.port = free_port()
        self.github = f"http://127.0.0.1:{github_port}/mcp"
        for directory in (self.home, self.workspace, scratch / "bin"):
            directory.mkdir()
        self.log.touch()
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
        self.output, self.covered = None, None

    def filled(self, text):
        """`text` with what a reader puts in."""
        text = text.replace("/path/to/workspace", str(self.workspace)).replace(
            GITHUB, self.github
        )
        return text.replace("127.0.0.1:8900", f"127.0.0.1:{self.port}")

    async def run(self, block):
        """Does what a block is for; gives a word about it."""
        if block.note and block.note.startswith("covered by "):
            file = block.note.removeprefix("covered by ")
            expect(
                (REPOSITORY / file).is_file(),
                f"there is no {file}, which the note above names",
            )
            return block.note
        if block.note:
            return block.note
        handler = getattr(self, f"run_{block.language}", None)
        expect(handler, "no test knows what to do with this language")
        result = handler(block)
        return await result if asyncio.iscoroutine(result) else result

    def run_rust(self, block):
        included = (
            f'include_str!("../{self.name}")'
            in (REPOSITORY / "src/guide.rs").read_text()
        )
        expect(
            included,
            f"src/guide.rs does not include {self.name}, so that nothing compiles this",
        )
        return "compiled by the doctests"

    def run_sh(self, block):
        text = self.filled(block.text)
        if "tools.json" in text:
            (self.home / "tools.json").write_text(json.dumps(SAVED_TOOLS))
        if text.startswith("ipybox tool-server"):
            return self.serve(text)
        before = self.log.read_text()
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECS,
            check=False,
        )
        expect(
            done.returncode == 0,
            f"it ended with {done.returncode}:\n{done.stdout}{done.stderr}",
        )
        covered = [
            line.split("\t")
            for line in self.log.read_text().removeprefix(before).splitlines()
        ]
        for command, file in covered:
            expect(
                (REPOSITORY / file).is_file(),
                f"`{command}` is said to be covered by {file}, which is not there",
            )
        self.output, self.covered = (
            done.stdout,
            ", ".join(sorted({file for _command, file in covered})),
        )
        return f"covered by {self.covered}" if covered else "executed"

    def serve(self, text):
        """Starts a program that goes on; what it prints first are tokens for the blocks to come."""
        server = subprocess.Popen(
            ["bash", "-c", f"exec {text}"],
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.stderr.open("a"),
            text=True,
        )
        self.stack.callback(server.wait, DEADLINE_SECS)
        self.stack.callback(server.terminate)
        self.output, self.covered = server.stdout.readline(), None
        line = json.loads(self.output)
        self.environment |= {"TOKEN": line["token"], "HOST_TOKEN": line["host_token"]}
        return "it serves"

    async def run_json(self, block):
        text = self.filled(block.text)
        try:
            values = [json.loads(text)]
        except ValueError:
            values = [json.loads(line) for line in text.splitlines()]
        value = values[0]
        if "mcpServers" in value:
            for name, entry in value["mcpServers"].items():
                await self.start_entry(name, entry)
            return "started, and answered a cell"
        if {"network", "filesystem"} <= value.keys():
            return self.load_policy(
                "sandbox.json",
                text,
                "--sandbox",
                "--sandbox-backend",
                "bwrap",
                "--sandbox-config",
            )
        if "server_params" in value:
            return await self.register(value["server_name"], value["server_params"])
        if "command" in value or "url" in value:
            known = [
                name
                for name, params in KNOWN_SERVERS.items()
                if params.get("args") == value.get("args")
            ]
            return await self.register(known[0] if known else "documented", value)
        if "jsonrpc" in value:
            source = "".join(
                file.read_text()
                for file in (REPOSITORY / "src/tool_server").glob("*.rs")
            )
            for message in values:
                expect(
                    f'"{message.get("method", "jsonrpc")}"' in source,
                    f"the tool server sends no such message: {message}",
                )
            return "its messages are the tool server's"
        expect(self.output is not None, "no test knows what this JSON is")
        printed = json.loads(self.output)
        expect(value.keys() == printed.keys(), f"printed was {self.output}")
        return "printed"

    async def start_entry(self, name, entry):
        """Starts a server of a client's configuration as the client would."""
        environment = self.environment | entry.get("env", {})
        found = shutil.which(entry["command"], path=environment["PATH"])
        expect(found, f"`{name}`: there is no program `{entry['command']}`")
        parameters = session.StdioServerParameters(
            command=found,
            args=entry.get("args", []),
            env=environment,
            cwd=self.workspace,
        )
        with self.stderr.open("a") as log:
            async with (
                session.stdio_client(parameters, errlog=log) as (read, write),
                session.mcp.ClientSession(read, write, DEADLINE) as client,
            ):
                await client.initialize()
                result = await client.call_tool(
                    "execute_ipython_cell", {"code": "print(40 + 2)"}
                )
        expect(
            result.content[0].text.strip() == "42",
            f"`{name}` answered {result.content}",
        )

    def run_toml(self, block):
        if "[dependencies]" in block.text:
            return self.resolve(block.text)
        return self.load_policy("policy.toml", block.text, "--approval-policy")

    def load_policy(self, name, text, *flags):
        """Starts ipybox with a policy; nobody speaks to it, so that it ends again when the policy is read."""
        file = self.home / name
        file.write_text(text)
        command = [
            str(self.options.binary),
            "--workspace",
            str(self.workspace),
            *flags,
            str(file),
        ]
        self.output_of(command, env=os.environ | self.environment)
        return "loaded by ipybox"

    def resolve(self, text):
        """Lets cargo read a project of the reader's."""
        project = self.home / "project"
        (project / "src").mkdir(parents=True)
        (project / "src/lib.rs").touch()
        text = text.replace(
            "ipybox = { version", f'ipybox = {{ path = "{REPOSITORY}", version'
        )
        package = '[package]\nname = "project"\nversion = "0.0.0"\nedition = "2024"\n\n'
        (project / "Cargo.toml").write_text(package + text)
        shutil.copy(REPOSITORY / "Cargo.lock", project / "Cargo.lock")
        command = ["cargo", "metadata", "--offline", "--quiet", "--format-version", "1"]
        self.output_of(command, cwd=project, env=os.environ)
        return "resolved by cargo"

    def output_of(self, command, **options):
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECS,
            check=False,
            **options,
        )
        expect(
            done.returncode == 0,
            f"`{' '.join(command)}` ended with {done.returncode}:\n{done.stderr}",
        )
        return done.stdout

    async def run_python(self, block):
        text = self.filled(block.text)
        for name, params in re.findall(
            r"^# register_mcp_server\((.*?), (.*?)\)$", uncommented(text), re.DOTALL
        ):
            params = None if params == "…" else ast.literal_eval(params)
            await self.register(ast.literal_eval(name), params)
        for name in re.findall(r"^\s*from mcptools\.(\w+)", text, re.MULTILINE):
            if name not in self.registered:
                await self.register(name, None)
        raised = re.search(r"#.*\b([A-Z]\w+Error)\b", text)
        answer = await (await self.connected()).cell(text)
        self.output, self.covered = answer.text, None
        if raised:
            expect(
                answer.is_error and raised[1] in answer.text,
                f"no {raised[1]} was raised:\n{answer.text}",
            )
            return f"raised {raised[1]}"
        expect(not answer.is_error, answer.text)
        return "a cell that ran"

    async def register(self, name, params):
        """Registers an MCP server in the page's session."""
        params = params or KNOWN_SERVERS.get(name)
        expect(
            params,
            f"no test knows the MCP server `{name}`, which no block above registers",
        )
        params = json.loads(self.filled(json.dumps(params)))
        answer = await (await self.connected()).call(
            "register_mcp_server", {"server_name": name, "server_params": params}
        )
        expect(not answer.is_error, answer.text)
        self.registered.add(name)
        self.output, self.covered = answer.text, None
        return "registered"

    async def connected(self):
        """The page's session, opened when it is needed first."""
        if not self.session:
            command = ["ipybox", "--workspace", str(self.workspace)]
            parameters = session.StdioServerParameters(
                command=shutil.which(command[0], path=self.environment["PATH"]),
                args=command[1:],
                env=self.environment,
            )
            log = self.stack.enter_context(self.stderr.open("a"))
            read, write = await self.stack.enter_async_context(
                session.stdio_client(parameters, errlog=log)
            )
            client = await self.stack.enter_async_context(
                session.mcp.ClientSession(read, write, DEADLINE)
            )
            version = (await client.initialize()).protocolVersion
            self.session = session.Session(client, version)
        return self.session

    async def run_text(self, block):
        lines = block.text.splitlines()
        if "▶" in block.text:
            return "a diagram"
        if any("── " in line for line in lines):
            return await self.check_tree(lines)
        if all(re.fullmatch(r"[A-Z][A-Z0-9_]*=\S*", line) for line in lines):
            (self.workspace / ".env").write_text(block.text)
            return "the workspace's `.env`"
        expect(self.output is not None, "no test knows what this text is")
        if self.covered:
            return f"printed by what is covered by {self.covered}"
        expect(
            agrees(self.filled(block.text), self.output), f"printed was:\n{self.output}"
        )
        return "printed"

    async def check_tree(self, lines):
        """A tree of a registered package: each file has to be there."""
        place = re.search(
            r"(\w+)/\s*$",
            next(
                line
                for line in lines
                if line.rstrip().endswith("/") and "mcptools/\n" != f"{line}\n"
            ),
        )
        expect(place, "no package is named")
        if place[1] not in self.registered:
            await self.register(place[1], None)
        files = {
            file.name for file in (self.workspace / "mcptools" / place[1]).iterdir()
        }
        named = {
            name for line in lines for name in re.findall(r"── ([\w.]+\.\w+)", line)
        }
        expect(
            named and named <= files,
            f"not in the package: {named - files}; there are {sorted(files)}",
        )
        return "the files are there"


def uncommented(text):
    """`text` with comments of several lines, of which the later are indented, as one line."""
    return re.sub(r"\n#\s{2,}", " ", text)
