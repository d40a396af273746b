"""A real MCP server is registered and cells chain its tools: loops, conditionals, results that feed parameters.

`chains.py NAME --params JSON -- COMMAND …` registers the server under NAME and runs the cells of `chains/NAME.py`,
which are separated by `# %%` and print `NAME: done` at the end. For a server over HTTP, `--listening` names the
command that serves and prints its URL, which replaces `{url}` in the parameters.
"""

import contextlib
import json
import re
import shlex
import subprocess
from pathlib import Path

from steps import Scenario, expect, expect_error, expect_success

scenario = Scenario(__doc__)
step = scenario.step

CHAINS = Path(__file__).with_name("chains")

# The tools that must be there; a server may have more. `everything` shows some to able clients only.
TOOLS = {
    "everything": [
        "echo",
        "get_annotated_message",
        "get_structured_content",
        "get_sum",
        "get_tiny_image",
    ],
    "filesystem": [
        "create_directory",
        "directory_tree",
        "edit_file",
        "get_file_info",
        "list_allowed_directories",
        "list_directory",
        "list_directory_with_sizes",
        "move_file",
        "read_file",
        "read_media_file",
        "read_multiple_files",
        "read_text_file",
        "search_files",
        "write_file",
    ],
    "git": [
        "git_add",
        "git_branch",
        "git_checkout",
        "git_commit",
        "git_create_branch",
        "git_diff",
        "git_diff_staged",
        "git_diff_unstaged",
        "git_log",
        "git_reset",
        "git_show",
        "git_status",
    ],
    "pages": [f"tool_{number:02}" for number in range(25)],
    "probe": ["add", "big", "crash", "echo", "env", "fail", "pid", "slow"],
    "sqlite": [
        "append_insight",
        "create_table",
        "describe_table",
        "list_tables",
        "read_query",
        "write_query",
    ],
    "time": ["convert_time", "get_current_time"],
}


def cells(name):
    """The cells of a chain; `# %%` begins one."""
    source = (CHAINS / f"{name}.py").read_text()
    return [cell for cell in re.split(r"(?m)^# %%.*\n", source) if cell.strip()]


async def register(bench):
    """Registers the server of the command line."""
    parameters = json.loads(
        bench.filled(bench.options.params).replace("{url}", bench.options.url)
    )
    arguments = {"server_name": bench.options.name, "server_params": parameters}
    return await bench.server.call("register_mcp_server", arguments)


async def run_cells(bench, server):
    """Runs the chain with `server` from its first cell to its last."""
    chain = bench.options.chain or bench.options.name
    for number, cell in enumerate(cells(chain), 1):
        outcome = await server.cell(cell)
        expect(not outcome.is_error, f"cell {number} failed:\n{cell}", outcome)
    expect(
        f"{chain}: done" in outcome.text,
        "the last cell did not say that it is done",
        outcome,
    )


@step("registering answers with the calls of few tools, or the number of many")
async def registration(bench):
    outcome = await register(bench)
    text = expect_success(outcome)
    tools = TOOLS[bench.options.name]
    if number := re.match(r"(\d+) tools in ", text):
        has_all = int(number[1]) >= max(len(tools), 21)
        expect(has_all, f"the server has {len(tools)} tools", outcome)
    else:
        missing = [tool for tool in tools if f".{tool}.run(" not in text]
        expect(not missing, f"these tools are missing: {missing}", outcome)
    package = bench.workspace / "mcptools" / bench.options.name
    for tool in ["__init__", *TOOLS[bench.options.name]]:
        expect(
            (package / f"{tool}.py").is_file(), f"{package / tool}.py is not written"
        )


@step("every module imports")
async def modules(bench):
    code = (
        "import importlib, pathlib\n"
        f"for path in sorted(pathlib.Path('mcptools/{bench.options.name}').glob('[!_]*.py')):\n"
        f"    module = importlib.import_module(f'mcptools.{bench.options.name}.{{path.stem}}')\n"
        "    is_tool = path.stem not in ('resources', 'prompts')\n"
        "    assert not is_tool or callable(module.run) and isinstance(module.Params, type), path\n"
    )
    expect_success(await bench.server.cell(code))


@step("cells chain the server's tools")
async def chain(bench):
    await run_cells(bench, bench.server)


@step("after a reset the registered tools are there without registering again")
async def reset(bench):
    expect_success(await bench.server.call("reset"))
    tool = TOOLS[bench.options.name][0]
    expect_error(await bench.server.cell(tool), "NameError")
    outcome = await bench.server.cell(
        f"from mcptools.{bench.options.name} import {tool}\n{tool}.Params.__name__"
    )
    expect("Params" in expect_success(outcome), "the package is gone", outcome)


@step("a failed registration leaves the old package")
async def failed_registration(bench):
    package = bench.workspace / "mcptools" / bench.options.name
    before = {path.name: path.read_text() for path in package.glob("*.py")}
    arguments = {
        "server_name": bench.options.name,
        "server_params": {"command": "no-such-command-anywhere"},
    }
    expect_error(
        await bench.server.call("register_mcp_server", arguments),
        "no-such-command-anywhere",
    )
    after = {path.name: path.read_text() for path in package.glob("*.py")}
    expect(
        after == before,
        f"the package changed: {sorted(after)} instead of {sorted(before)}",
    )


@step("registering again replaces the package")
async def second_registration(bench):
    package = bench.workspace / "mcptools" / bench.options.name
    stale = package / "left_over.py"
    stale.write_text("")
    expect_success(await register(bench))
    expect(not stale.exists(), f"{stale} is still there")
    expect(
        (package / f"{TOOLS[bench.options.name][0]}.py").is_file(),
        "the package is incomplete",
    )


@step("a second session on the workspace knows what was registered")
async def second_session(bench):
    # The chain starts from scratch: what it wrote must go first.
    written = [
        str(path)
        for path in bench.workspace.iterdir()
        if path.name not in ("mcptools", ".ipybox", ".env")
    ]
    code = f"import os, shutil\nfor path in {written}:\n    shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)"
    expect_success(await bench.server.cell(code))
    expect_success(await bench.server.call("reset"))
    async with bench.connect_again() as server:
        await run_cells(bench, server)


@contextlib.contextmanager
def listening(command):
    """Runs an HTTP server for the scenario; gives its URL."""
    if not command:
        yield ""
        return
    with subprocess.Popen(
        shlex.split(command), stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def main():
    parser = scenario.arguments()
    parser.add_argument(
        "name", choices=sorted(TOOLS), help="the server's name and its chain's"
    )
    parser.add_argument(
        "--params", required=True, metavar="JSON", help="its `server_params`"
    )
    parser.add_argument("--chain", help="run the cells of this file instead of NAME's")
    parser.add_argument(
        "--listening", metavar="COMMAND", help="an HTTP server to start; prints its URL"
    )
    options, command = scenario.parse(parser)
    with listening(options.listening) as options.url:
        code = scenario.run(options, command)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
