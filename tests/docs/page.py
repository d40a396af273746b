"""Runs the blocks of one page, by their languages: the table is in `run.py`."""

import ast
import configparser
import json
import re
import shutil

from application import IMPORTS_LIBRARY
from place import KNOWN_SERVERS, REPOSITORY, expect, words_of

SAVED_TOOLS = {
    "tools": [
        {"name": name, "inputSchema": {"type": "object"}}
        for name in ("read", "list_commits")
    ]
}
"""A result of `tools/list`, for commands that read one from `tools.json`."""

SERVES_KERNELS = re.compile(r"bin/jupyter |^kubectl port-forward ", re.MULTILINE)
"""A command by which there is a server of Jupyter's, and which goes on."""

AGENT_LIBRARIES = {
    "agents": "agents2",
    "claude_agent_sdk": "agents2",
    "fastmcp": "agents2",
    "langchain": "agents1",
    "langchain_mcp_adapters": "agents1",
    "mcp_use": "agents1",
    "pydantic_ai": "agents2",
    "smolagents": "agents1",
}
"""The libraries of agents, and the environments of the tests' tools that have them."""

KERNELS = {"docs/scaling.md": "computing"}
"""The environments of the tests' tools in which the cells of pages run that need more than others."""

MODULE = re.compile(r"# (\w+\.py)\n")
"""The first line of a module that the page's programs import."""

MODEL = re.compile(r"^model = .*$", re.MULTILINE)
"""The text that a reader replaces by a model."""

IMPORTS = re.compile(r"^(?:from|import) (\w+)", re.MULTILINE)

RAISES = re.compile(r"#.*\b([A-Z]\w+Error)\b")
"""A comment by which a cell says what it raises."""


def agrees(expected, actual):
    """True if the lines of `expected` are lines of `actual`, in this order; `…` matches anything."""
    lines = iter([" ".join(line.split()) for line in actual.splitlines()])
    for line in expected.splitlines():
        words = " ".join(line.split())
        if words not in ("", "…"):
            pattern = ".*".join(re.escape(part) for part in words.split("…"))
            if not any(re.fullmatch(pattern, candidate) for candidate in lines):
                return False
    return True


class Page:
    """A page that is being gone through, block by block, in a place of its own."""

    def __init__(self, name, place):
        self.name, self.place = name, place
        place.kernels = KERNELS.get(name, place.kernels)
        self.output, self.covered = None, ""
        """The output of the last command or cell, or the tests that run it instead."""

    async def run(self, block):
        """Does what a block is for; gives a word about it."""
        if block.note and block.note.startswith("covered by "):
            file = block.note.removeprefix("covered by ")
            is_there = (REPOSITORY / file).is_file()
            expect(is_there, f"there is no {file}, which the note above names")
            return block.note
        if block.note:
            return block.note
        handler = getattr(self, f"run_{block.language}", None)
        expect(handler, "no test knows what to do with this language")
        return await handler(block)

    async def run_rust(self, block):
        guide = (REPOSITORY / "src/guide.rs").read_text()
        problem = f"src/guide.rs does not include {self.name}: nothing compiles this"
        expect(f'include_str!("../{self.name}")' in guide, problem)
        expect("ignore" not in block.info, "an ignored block is not compiled")
        return "compiled by the doctests"

    async def run_sh(self, block):
        text = self.place.filled(block.text)
        if "tools.json" in text:
            (self.place.home / "tools.json").write_text(json.dumps(SAVED_TOOLS))
        if text.startswith("ipybox tool-server"):
            self.output, self.covered = await self.place.serve(text), ""
            served = json.loads(self.output)
            tokens = {"TOKEN": served["token"], "HOST_TOKEN": served["host_token"]}
            self.place.environment |= tokens
            return "it serves"
        if SERVES_KERNELS.search(text):
            await self.place.serve_kernels(text)
            return "it answers"
        before = self.place.log.read_text()
        command = ["bash", "-euo", "pipefail", "-c", text]
        self.output = await self.place.output_of(command)
        log = self.place.log.read_text().removeprefix(before)
        covered = [line.split("\t") for line in log.splitlines()]
        for command, file in covered:
            problem = f"`{command}` is said to be covered by {file}, which is not there"
            expect((REPOSITORY / file).is_file(), problem)
        self.covered = ", ".join(sorted({file for _command, file in covered}))
        return f"covered by {self.covered}" if covered else "executed"

    async def run_ini(self, block):
        """A unit of systemd: what it starts is what a block above has started."""
        unit = configparser.ConfigParser(interpolation=None)
        unit.optionxform = str
        unit.read_string(self.place.filled(block.text))
        service = unit["Service"]
        words = words_of(f"{service['Environment']} {service['ExecStart']}")
        words = [word.replace("%h", "~") for word in words]
        started = self.place.kernel_server_words
        expect(words == started, f"started was {started}, the unit has {words}")
        return "its command was started above"

    async def run_json(self, block):
        text = self.place.filled(block.text)
        try:
            values = [json.loads(text)]
        except ValueError:
            values = [json.loads(line) for line in text.splitlines()]
        value = values[0]
        if "mcpServers" in value:
            for name, entry in value["mcpServers"].items():
                await self.place.start_entry(name, entry)
            return "started, and answered a cell"
        if {"network", "filesystem"} <= value.keys():
            sandbox = ["--sandbox", "--sandbox-backend", "bwrap", "--sandbox-config"]
            return await self.load_policy("sandbox.json", text, *sandbox)
        if "server_params" in value:
            return await self.register(value["server_name"], value["server_params"])
        if "command" in value or "url" in value:
            return await self.register(name_of(value), value)
        if "jsonrpc" in value:
            return check_messages(values)
        expect(self.output is not None, "no test knows what this JSON is")
        problem = f"printed was:\n{self.output}"
        expect(self.output.lstrip().startswith("{"), problem)
        expect(value.keys() == json.loads(self.output).keys(), problem)
        return "printed"

    async def register(self, name, params):
        self.output, self.covered = await self.place.register(name, params), ""
        return "registered"

    async def run_toml(self, block):
        if "[dependencies]" in block.text:
            return await self.resolve(block.text)
        return await self.load_policy("policy.toml", block.text, "--approval-policy")

    async def load_policy(self, name, text, *flags):
        """Starts ipybox with a policy; nobody speaks to it, so that it ends again when the policy is read."""
        file = self.place.home / name
        file.write_text(text)
        binary, workspace = self.place.options.binary, self.place.workspace
        await self.place.output_of([binary, "--workspace", workspace, *flags, file])
        return "loaded by ipybox"

    async def resolve(self, text):
        """Lets cargo read a project of the reader's."""
        project = self.place.home / "project"
        (project / "src").mkdir(parents=True, exist_ok=True)
        (project / "src/lib.rs").touch()
        ours = f'ipybox = {{ path = "{REPOSITORY}", version'
        text = text.replace("ipybox = { version", ours)
        package = '[package]\nname = "project"\nversion = "0.0.0"\nedition = "2024"\n\n'
        (project / "Cargo.toml").write_text(package + text)
        shutil.copy(REPOSITORY / "Cargo.lock", project / "Cargo.lock")
        manifest = ["--manifest-path", project / "Cargo.toml"]
        # Of this platform alone: what others need is downloaded for nothing else.
        command = ["cargo", "tree", "--offline", "--quiet", "--depth", "1"]
        await self.place.output_of_ours([*command, *manifest])
        return "resolved by cargo"

    async def run_python(self, block):
        text = self.place.filled(block.text)
        if module := MODULE.match(text):
            (self.place.home / module[1]).write_text(text)
            return "a module, for the programs below"
        if libraries := AGENT_LIBRARIES.keys() & set(IMPORTS.findall(text)):
            return await self.run_program(text, libraries)
        if IMPORTS_LIBRARY.search(text) or self.name.startswith("docs/python/"):
            self.output, self.covered = None, ""
            self.output = await self.place.run_application(text)
            return "run by an application"
        for name, params in registrations(text):
            await self.place.register(name, params)
        for name in re.findall(r"^\s*from mcptools\.(\w+)", text, re.MULTILINE):
            if name not in self.place.registered:
                await self.place.register(name)
        answer = await (await self.place.connected()).cell(text)
        self.output, self.covered = answer.text, ""
        if raised := RAISES.search(text):
            is_so = answer.is_error and raised[1] in answer.text
            expect(is_so, f"no {raised[1]} was raised:\n{answer.text}")
            return f"raised {raised[1]}"
        expect(not answer.is_error, answer.text)
        return "a cell that ran"

    async def run_program(self, text, libraries):
        """A program that starts ipybox by an agent library, as a reader runs it."""
        environments = {AGENT_LIBRARIES[library] for library in libraries}
        expect(len(environments) == 1, f"no environment has all of {sorted(libraries)}")
        environment = self.place.options.tools / environments.pop()
        self.output, self.covered = None, ""
        if "mcp_use" in libraries and any(environment.glob("lib/python3.10")):
            self.covered = "Python 3.11 or newer, which mcp-use needs"
            return f"skipped: wants {self.covered}"
        variables = self.place.environment
        if IMPORTS_LIBRARY.search(text):
            # The library asks a model and a user, which follow a script here.
            (library,) = libraries
            scripted = f"scripted.{library}()"
            text, count = MODEL.subn(f"model = {scripted}", text)
            text = f"import scripted\n{'' if count else scripted}\n{text}"
            modules = f"{REPOSITORY / 'python'}:{REPOSITORY / 'tests/docs'}"
            program = str(self.place.options.binary)
            variables = variables | {"PYTHONPATH": modules, "IPYBOX_PROGRAM": program}
        program = self.place.home / "program.py"
        program.write_text(text)
        command = [environment / "bin/python", program]
        self.output = await self.place.output_of(command, environment=variables)
        return f"a program of {', '.join(sorted(libraries))}"

    async def run_text(self, block):
        lines = block.text.splitlines()
        if "▶" in block.text:
            return "a diagram"
        if any("── " in line for line in lines):
            return await self.check_tree(lines)
        if all(re.fullmatch(r"[A-Z][A-Z0-9_]*=\S*", line) for line in lines):
            (self.place.workspace / ".env").write_text(block.text)
            return "the workspace's `.env`"
        expect(self.output is not None, "no test knows what this text is")
        if self.covered:
            return f"printed by what is covered by {self.covered}"
        is_so = agrees(self.place.filled(block.text), self.output)
        expect(is_so, f"printed was:\n{self.output}")
        return "printed"

    async def check_tree(self, lines):
        """A tree of a generated package: each file has to be there."""
        names = re.findall(r"(?:^mcptools/|── )(\w+)/$", "\n".join(lines), re.MULTILINE)
        expect(len(names) == 1, "the tree is of no package, or of several")
        directory = self.place.workspace / "mcptools" / names[0]
        if not directory.is_dir():
            await self.place.register(names[0])
        there = {file.name for file in directory.iterdir()}
        named = set(re.findall(r"── ([\w.]+\.\w+)", "\n".join(lines)))
        missing = sorted(named - there)
        expect(named and not missing, f"not there: {missing}; but: {sorted(there)}")
        return "the files are there"


def registrations(text):
    """The registrations in comments like `# register_mcp_server("name", {…})`, which may go on in indented comments."""
    text = re.sub(r"\n#\s{2,}", " ", text)
    calls = re.findall(r"^# register_mcp_server(\(.*\))$", text, re.MULTILINE)
    return [ast.literal_eval(arguments) for arguments in calls]


def name_of(params):
    """A name for a server of which a block has the parameters alone."""
    known = KNOWN_SERVERS.items()
    names = [name for name, one in known if one.get("args") == params.get("args")]
    return names[0] if names else "documented"


def check_messages(messages):
    """The tool server has to know each method that is documented."""
    files = (REPOSITORY / "src/tools/tool_server").glob("*.rs")
    source = "".join(file.read_text() for file in files)
    for message in messages:
        method = message.get("method", "jsonrpc")
        expect(
            f'"{method}"' in source, f"the tool server sends no such message: {message}"
        )
    return "its messages are the tool server's"
