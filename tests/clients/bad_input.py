"""Bad input of every tool: each is answered with an error that says what is wrong, and harms nothing."""

import re
import sys

from steps import Scenario, expect, expect_error, expect_success

scenario = Scenario(__doc__)
step = scenario.step

BAD_NAMES = [
    "../x",
    "a/b",
    "a.b",
    "/tmp/x",
    "Class",
    "class",
    "",
    "1st",
    "with space",
    "dash-ed",
    "nön_ascii",
    "__init__\n",
]

BAD_PARAMETERS = {
    "neither command nor url": {},
    "both command and url": {"command": "true", "url": "http://127.0.0.1:9/mcp"},
    "an empty command": {"command": ""},
    "a command that is no string": {"command": 5},
    "args that are no list": {"command": "true", "args": "one two"},
    "env that is no object": {"command": "true", "env": ["A=1"]},
    "a url that is none": {"url": "not a url"},
    "a url that is not HTTP": {"url": "ftp://127.0.0.1/mcp"},
    "an unknown type": {"url": "http://127.0.0.1:9/mcp", "type": "pigeon"},
}


async def register(bench, name, parameters):
    """Calls `register_mcp_server`."""
    arguments = {"server_name": name, "server_params": parameters}
    return await bench.server.call("register_mcp_server", arguments)


def written(bench):
    """Everything in and beside the workspace."""
    return {
        str(path)
        for path in bench.workspace.parent.rglob("*")
        if "__pycache__" not in path.parts
    }


@step(
    "server names that are no lowercase identifiers are refused and nothing is written"
)
async def bad_names(bench):
    # A server that would work, so that only the name can be refused.
    working = {"command": "no-such-command-anywhere"}
    before = written(bench)
    wrong = {}
    for name in BAD_NAMES:
        outcome = await register(bench, name, working)
        if not outcome.is_error or "no-such-command" in outcome.text:
            wrong[name] = outcome.text
    expect(not wrong, f"these are not refused for being bad names: {wrong}")
    new = {
        path
        for path in written(bench) - before
        if "mcptools" in path or not path.startswith(str(bench.workspace))
    }
    expect(not new, f"these were written: {sorted(new)}")


@step("server parameters that make no sense are refused")
async def bad_parameters(bench):
    accepted = []
    for what, parameters in BAD_PARAMETERS.items():
        outcome = await register(bench, "bad", parameters)
        expect(
            outcome.text.strip() or not outcome.is_error,
            f"{what}: the error says nothing",
            outcome,
        )
        if not outcome.is_error:
            accepted.append(what)
    expect(not accepted, f"accepted: {accepted}")
    expect_error(
        await bench.server.call("register_mcp_server", {"server_name": "bad"}),
        "server_params",
    )
    expect_error(
        await bench.server.call(
            "register_mcp_server", {"server_params": {"command": "true"}}
        ),
        "server_name",
    )


@step("parameters without `command` and `url` are refused with both words")
async def missing_keys(bench):
    expect_error(await register(bench, "bad", {"args": []}), "command", "url")


@step("a missing variable is an error that names it")
async def missing_variable(bench):
    parameters = {
        "command": sys.executable,
        "args": ["-c", "pass"],
        "env": {"KEY": "${IPYBOX_TEST_NOT_SET}"},
    }
    expect_error(await register(bench, "bad", parameters), "IPYBOX_TEST_NOT_SET")
    parameters = {
        "url": "http://127.0.0.1:9/mcp",
        "headers": {"Authorization": "Bearer ${IPYBOX_TEST_NOT_SET}"},
    }
    expect_error(await register(bench, "bad", parameters), "IPYBOX_TEST_NOT_SET")


@step("a command that is not found is named")
async def missing_command(bench):
    expect_error(
        await register(bench, "bad", {"command": "no-such-command-anywhere"}),
        "no-such-command-anywhere",
    )


@step("a server that dies at once is reported with its last words")
async def dead_server(bench):
    parameters = {
        "command": sys.executable,
        "args": ["-c", "import sys; sys.exit('no luck ' + 'today')"],
    }
    expect_error(await register(bench, "bad", parameters), "no luck today")


@step("a server that nobody listens at is reported with its address")
async def dead_address(bench):
    expect_error(
        await register(bench, "bad", {"url": "http://127.0.0.1:9/mcp"}), "127.0.0.1:9"
    )


@step("no bad registration left a package")
async def no_package(bench):
    expect(not (bench.workspace / "mcptools" / "bad").exists(), "mcptools/bad exists")
    expect_error(await bench.server.cell("import mcptools.bad"), "ModuleNotFoundError")


@step("a cell's bad arguments are refused by name")
async def bad_cells(bench):
    call = bench.server.call
    expect_error(await call("execute_ipython_cell", {}), "code")
    expect_error(await call("execute_ipython_cell", {"code": 5}))
    expect_error(await call("execute_ipython_cell", {"code": "1", "timeout": "soon"}))
    expect_error(
        await call("execute_ipython_cell", {"code": "1", "max_output_chars": "few"})
    )
    for arguments in ({"timeout": -1}, {"timeout": 0}, {"max_output_chars": -1}):
        outcome = await bench.server.cell("1", **arguments)
        expect(outcome.is_error, f"{arguments} is accepted", outcome)


@step("strange but valid cells are answered")
async def strange_cells(bench):
    for code in (
        "",
        "   \n\n",
        "# only a comment",
        "pass",
        "print('\\ud800'.encode('utf-8', 'replace'))",
    ):
        expect_success(await bench.server.cell(code))
    outcome = await bench.server.cell("print('\\x1b[31mred\\x1b[0m', '\\x00', '世界')")
    expect("世界" in expect_success(outcome), "the text is mangled", outcome)
    huge = await bench.server.cell(f"text = '{'x' * 2_000_000}'\nlen(text)")
    expect("2000000" in expect_success(huge), "a cell of 2 MB fails", huge)
    whole = await bench.server.cell(
        "1 + 1", timeout=86400 * 365, max_output_chars=2**31
    )
    expect_success(whole)


@step("options in a package's name are refused")
async def package_options(bench):
    (bench.workspace / "requirements.txt").write_text("iniconfig\n")
    bad = [
        "-r requirements.txt",
        "-r",
        "--index-url=http://127.0.0.1:9/",
        "-e .",
        "iniconfig --upgrade",
        "",
        "  ",
    ]
    accepted = {}
    for name in bad:
        outcome = await bench.server.call("install_package", {"package_name": name})
        if not outcome.is_error:
            accepted[name] = outcome.text
    expect(not accepted, f"these are accepted: {accepted}")
    expect_error(await bench.server.cell("import iniconfig"), "ModuleNotFoundError")


@step("a package that does not exist is an error that names it")
async def missing_package(bench):
    name = "ipybox-test-no-such-package-0c3f"
    text = expect_error(
        await bench.server.call("install_package", {"package_name": name})
    )
    expect(
        re.search("ipybox[-_]test[-_]no[-_]such", text),
        f"the error does not name the package:\n{text}",
    )
    expect_error(
        await bench.server.call("install_package", {"package_name": "iniconfig==="})
    )
    expect_error(await bench.server.call("install_package", {}), "package_name")


@step("a tool that does not exist is refused by name")
async def missing_tool(bench):
    expect_error(await bench.server.call("no_such_tool"), "no_such_tool")


@step("after all that, a cell still works")
async def still_there(bench):
    outcome = await bench.server.cell("6 * 7")
    expect(expect_success(outcome).strip() == "42", "expected 42", outcome)


if __name__ == "__main__":
    scenario.main()
