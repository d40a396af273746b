"""The variables that each of them sees: `.env`, the kernel, a registered server, and the disk.

Give it `--server-python`, a Python with the SDK's 1.x line, which runs the server that reports its environment.
"""

import json
from pathlib import Path

from steps import Scenario, expect, expect_error, expect_success

SECRET = "s3cret-5f1d"
PROBE = Path(__file__).parents[1] / "servers" / "probe.py"


def prepare(workspace):
    """Writes the workspace's `.env`."""
    lines = [
        "# a comment",
        f"PROBE_SECRET={SECRET}",
        "OTHER_SECRET=never-needed",
        'KERNEL_ENV_GREETING_KEY="hello there"',
    ]
    (workspace / ".env").write_text("\n".join(lines) + "\n")


scenario = Scenario(__doc__, prepare=prepare)
step = scenario.step


async def env_of_server(bench):
    """The registered server's environment, asked through a cell."""
    code = (
        "import json\n"
        "from mcptools.probe import env\n"
        "print(json.dumps(env.run(env.Params()).values))"
    )
    outcome = await bench.server.cell(code, max_output_chars=100_000)
    return json.loads(expect_success(outcome))


@step("the kernel has the variables with the prefix, without it, and no other one")
async def kernel(bench):
    outcome = await bench.server.cell(
        "import os\n[os.environ.get(name) for name in ('GREETING_KEY', 'PROBE_SECRET', 'OTHER_SECRET')]"
    )
    expect(
        "['hello there', None, None]" in expect_success(outcome),
        "expected GREETING_KEY alone",
        outcome,
    )
    outcome = await bench.server.cell(
        "[name for name in os.environ if name.startswith('KERNEL_ENV_')]"
    )
    expect(
        expect_success(outcome).strip() == "[]",
        "a prefixed name is in the kernel",
        outcome,
    )


@step("the kernel has PATH and HOME")
async def kernel_basics(bench):
    outcome = await bench.server.cell("bool(os.environ['PATH'] and os.environ['HOME'])")
    expect("True" in expect_success(outcome), "PATH or HOME is empty", outcome)


@step("programs that a cell starts are asked to write no colours")
async def no_colours(bench):
    # ipykernel sets the last three to ask for colours, and TERM to a terminal that has them.
    names = ["NO_COLOR", "TERM", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"]
    outcome = await bench.server.cell(f"[os.environ.get(name) for name in {names}]")
    expected = "['1', 'dumb', None, None, None]"
    expect(
        expected in expect_success(outcome), f"expected {expected} for {names}", outcome
    )


@step("a placeholder is filled from `.env`")
async def placeholder(bench):
    parameters = {
        "command": str(Path(bench.options.server_python).absolute()),
        "args": [str(PROBE)],
        "env": {"TOKEN": "${PROBE_SECRET}", "PLAIN": "as it is"},
    }
    arguments = {"server_name": "probe", "server_params": parameters}
    expect_success(await bench.server.call("register_mcp_server", arguments))
    values = await env_of_server(bench)
    expect(values.get("TOKEN") == SECRET, f"TOKEN is {values.get('TOKEN')!r}")
    expect(values.get("PLAIN") == "as it is", f"PLAIN is {values.get('PLAIN')!r}")


@step("the server has nothing else of `.env`, but PATH and HOME")
async def server(bench):
    values = await env_of_server(bench)
    leaked = {
        "PROBE_SECRET",
        "OTHER_SECRET",
        "GREETING_KEY",
        "KERNEL_ENV_GREETING_KEY",
    } & set(values)
    expect(not leaked, f"the server has {sorted(leaked)}")
    expect(
        values.get("PATH") and values.get("HOME"),
        f"PATH or HOME is missing: {sorted(values)}",
    )


@step("the secret is in no file but `.env`")
async def disk(bench):
    holders = [
        str(path)
        for path in bench.workspace.rglob("*")
        if path.is_file()
        and path.name != ".env"
        and SECRET.encode() in path.read_bytes()
    ]
    expect(not holders, f"the secret is in {holders}")


@step("a variable that is nowhere is an error at registration")
async def missing(bench):
    parameters = {"command": "true", "env": {"TOKEN": "${GREETING_THAT_IS_NOWHERE}"}}
    arguments = {"server_name": "missing", "server_params": parameters}
    expect_error(
        await bench.server.call("register_mcp_server", arguments),
        "GREETING_THAT_IS_NOWHERE",
    )


def main():
    parser = scenario.arguments()
    parser.add_argument(
        "--server-python",
        required=True,
        metavar="PYTHON",
        help="runs tests/servers/probe.py",
    )
    raise SystemExit(scenario.run(*scenario.parse(parser)))


if __name__ == "__main__":
    main()
