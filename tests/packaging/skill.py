"""Does as the `codeact` skill teaches: every code block of it, in order, in one session with real servers.

A block ```` ```python ```` is a cell, and must succeed; ```` ```python PATH ```` is a file that Claude would write, and
is written. Other blocks are not to be in the skill. Run by a Python with the MCP SDK 1.x, such as `mcp1/bin/python` of
the test tools.

    skill.py --tools TEST_TOOLS [--without infer] -- ipybox --workspace {workspace} --python PYTHON
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/clients"))

from steps import Scenario, expect, expect_error, expect_success

SKILL = ROOT / "packaging/plugins/skills/codeact"
PAGES = ("SKILL.md", "references/typed-results.md", "references/saving-actions.md")
"""In the order in which they build on each other."""

FENCE = re.compile(
    r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)

EXPECTED = {
    "convert_time.run(": "True|False .*12:00|[0-2][0-9]:00",
    "len(authors)": r"^60 commits by 3 people on main$",
    "done.append(": "3 of 3",
    "asyncio.wait(": "3 of 3 found; done: True",
    "failed[zone]": r"1 found; failed: .*Mars/Olympus",
    "repository.stargazers_count": r"linux 215000 \['0000000', '0000000'\]",
    "odd[0].author": "^None$",
    "text[:400]": "Commit history:",
    "history.commits[0]": r"^5 (Ada|Grace|Edsger) \d{4}$",
    "busiest_authors.run": r"^Ada 25 \d{4}-\d\d-\d\d$",
}
"""The text that a cell that has the key must print, as a regular expression."""

AUTHORS = ("Ada", "Grace", "Edsger", "Ada")


@dataclass
class SkillBlock:
    """A code block of the skill."""

    page: str
    line: int
    info: str
    text: str

    def __str__(self):
        first = self.text.strip().splitlines()[0]
        return f"{self.page}:{self.line}: {self.info.removeprefix('python').strip() or first}"

    @property
    def file(self):
        """The file that it is, if it is one."""
        language, _, path = self.info.partition(" ")
        return path if language == "python" else None


def blocks(page):
    """The page's code blocks."""
    text = (SKILL / page).read_text()
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield SkillBlock(page, line, match["info"], match["text"])


def prepare(workspace):
    """A repository with commits of several people, as the project that the skill is used in."""
    project = workspace / "project"
    git = ["git", "-C", str(project), "-c", "user.email=someone@example.com"]
    subprocess.run(
        ["git", "init", "--quiet", "--initial-branch", "main", str(project)], check=True
    )
    for number in range(60):
        name = AUTHORS[number % len(AUTHORS)]
        commit = [*git, "-c", f"user.name={name}", "commit", "--quiet", "--allow-empty"]
        subprocess.run(
            [*commit, "--message", f"Change {number}\n\nWith a body."], check=True
        )


def servers(tools):
    """The parameters of the servers that the skill calls."""
    mcp1 = str(tools / "mcp1/bin/python")
    return {
        "time": {"command": str(tools / "servers/bin/mcp-server-time"), "args": []},
        "git": {"command": str(tools / "servers/bin/mcp-server-git"), "args": []},
        "github": {"command": mcp1, "args": [str(ROOT / "tests/servers/hub.py")]},
        "everything": {
            "command": str(tools / "bin/node"),
            "args": [
                str(
                    tools
                    / "npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
                )
            ],
        },
    }


def add_steps(scenario):
    """The steps: servers, then every block, then what the skill says about errors and places."""

    @scenario.step("the servers of the skill are registered")
    async def register(bench):
        for name, parameters in servers(bench.options.tools).items():
            expect_success(
                await bench.server.call(
                    "register_mcp_server",
                    {"server_name": name, "server_params": parameters},
                )
            )

    @scenario.step("each package's index names its tools, as the skill says")
    async def index(bench):
        for name in ("time", "git", "github", "everything"):
            package = bench.workspace / "mcptools" / name
            listed = (package / "__init__.py").read_text()
            modules = [path.stem for path in package.glob("[!_]*.py")]
            missing = [module for module in modules if f"\n{module}: " not in listed]
            expect(
                modules and not missing,
                f"the index of {name} has no line for {missing}",
            )

    for page in PAGES:
        for block in blocks(page):
            scenario.step(str(block))(as_step(block))

    @scenario.step(
        "a value is written by its name, as the skill says of `Location.Chicago`"
    )
    async def value(bench):
        name = "get_structured_content.Location.Chicago"
        expect(
            name in (SKILL / "SKILL.md").read_text(), f"the skill does not name {name}"
        )
        code = f"from mcptools.everything import get_structured_content\nprint({name}.value)"
        outcome = await bench.server.cell(code)
        expect(expect_success(outcome).strip() == "Chicago", "another value", outcome)

    @scenario.step("a wrong argument is pydantic's error, and nothing is sent")
    async def wrong(bench):
        outcome = await bench.server.cell("get_current_time.run(zone='Europe/Berlin')")
        expect_error(outcome, "ValidationError")

    @scenario.step("text that does not fit is the parser's error, with its beginning")
    async def parser(bench):
        code = "import mcpparse.git.git_log as parser\nparser.parse('fatal: no such thing')"
        expect_error(
            await bench.server.cell(code), "ToolRunnerError", "fatal: no such thing"
        )

    @scenario.step("registering a server again leaves its parser and the saved actions")
    async def again(bench):
        parameters = servers(bench.options.tools)["git"]
        arguments = {"server_name": "git", "server_params": parameters}
        expect_success(await bench.server.call("register_mcp_server", arguments))
        expect_success(await bench.server.call("reset"))
        code = "import os\nfrom gentools.history import busiest_authors\nprint(len(busiest_authors.run(os.path.abspath('project'))))"
        outcome = await bench.server.cell(code)
        expect(expect_success(outcome).strip() == "3", "expected 3 authors", outcome)

    @scenario.step("in a sandbox: what the skill's section says cannot be done, cannot")
    async def confined(bench):
        if "--sandbox" not in bench.command:
            print("    not tried: the server runs without a sandbox")
            return
        section = (SKILL.parents[1] / "flavours/sandbox.md").read_text()
        for path in (".env", "sandbox-config.json", "mcptools/"):
            expect(f"`{path}`" in section, f"the section does not name {path}")
            file = f"{path}x" if path.endswith("/") else path
            outcome = await bench.server.cell(f"open({file!r}, 'w')")
            expect_error(outcome, "Error")
            gone = (
                not (bench.workspace / file).is_file()
                or not (bench.workspace / file).stat().st_size
            )
            expect(gone, f"{file} was written")
        outcome = await bench.server.cell(
            "import socket\nsocket.create_connection(('192.0.2.1', 80), 5)"
        )
        expect_error(outcome, "OSError")

    @scenario.step("tools, parsers and actions are importable from every directory")
    async def everywhere(bench):
        expect_success(await bench.server.call("reset"))
        code = (
            "import os\nos.chdir('/')\nimport mcptools.git, mcpparse.git.git_log\n"
            "from gentools.history.busiest_authors import run"
        )
        expect_success(await bench.server.cell(code))


def as_step(block):
    """The step that runs a block."""

    async def do(bench):
        if block.file:
            path = bench.workspace / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
            return
        expect(
            block.info == "python",
            f"no test knows what to do with a block of {block.info!r}",
        )
        if (
            "infer" in bench.options.without
            and "infer_result" in block.text + needs_inferred(block)
        ):
            print("    not run, as asked: it needs inferred result types")
            return
        outcome = await bench.server.cell(block.text)
        text = expect_success(outcome)
        for key, pattern in EXPECTED.items():
            if key in block.text and "print(" in block.text:
                found = re.search(pattern, text, re.MULTILINE)
                expect(found, f"the output does not match {pattern!r}", outcome)

    return do


def needs_inferred(block):
    """The word of a feature that the block needs, if only inference can have made it."""
    return (
        "infer_result" if "run_parsed" in block.text and "github" in block.text else ""
    )


def check_expectations():
    """Each expectation is of a block that is there: else it would never fail."""
    texts = [block.text for page in PAGES for block in blocks(page) if not block.file]
    unused = [key for key in EXPECTED if not any(key in text for text in texts)]
    if unused:
        raise SystemExit(f"the skill has no cell with {unused}")


def main():
    check_expectations()
    scenario = Scenario(__doc__.split("\n\n")[0], prepare=prepare)
    add_steps(scenario)
    parser = scenario.arguments()
    parser.add_argument(
        "--tools", type=Path, required=True, help="the test tools' directory"
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=["infer"],
        help="do not run what needs this",
    )
    options, command = scenario.parse(parser)
    options.tools = options.tools.resolve()
    # Servers find nothing of the user's, but git and Node.js.
    os.environ["PATH"] = f"{options.tools / 'bin'}:{os.environ['PATH']}"
    sys.exit(scenario.run(options, command))


if __name__ == "__main__":
    main()
