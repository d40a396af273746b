"""A package is installed, is importable at once, and survives a reset. Needs a package index.

The server's Python must not have `iniconfig` yet, and has it afterwards: give it one of its own, which
`tests/tools/layer` makes in no time.
"""

from steps import Scenario, expect, expect_error, expect_success


def prepare(workspace):
    """Has pip refuse anything but a virtual environment: a `pip` that is the wrong one must not reach the machine's."""
    (workspace / ".env").write_text("KERNEL_ENV_PIP_REQUIRE_VIRTUALENV=1\n")


scenario = Scenario(__doc__, prepare=prepare)
step = scenario.step

IMPORT = "import iniconfig, importlib.metadata\nimportlib.metadata.version('iniconfig')"


@step("the package is not there at first")
async def absent(bench):
    expect_error(await bench.server.cell("import iniconfig"), "ModuleNotFoundError")


@step("installing answers with what was installed")
async def install(bench):
    outcome = await bench.server.call(
        "install_package", {"package_name": "iniconfig>=2.0,<2.1"}
    )
    expect(
        "iniconfig" in expect_success(outcome),
        "the answer does not name the package",
        outcome,
    )


@step("it is importable at once, in the version asked for")
async def importable(bench):
    outcome = await bench.server.cell(IMPORT)
    expect("2.0." in expect_success(outcome), "another version", outcome)


@step("it survives a reset")
async def survives(bench):
    expect_success(await bench.server.call("reset"))
    outcome = await bench.server.cell(IMPORT)
    expect("2.0." in expect_success(outcome), "another version", outcome)


@step("installing it again succeeds")
async def again(bench):
    expect_success(
        await bench.server.call(
            "install_package", {"package_name": "iniconfig>=2.0,<2.1"}
        )
    )


@step("cells install to the same place, with `%pip` and `!pip`")
async def pip_in_cells(bench):
    for command in ("%pip install toolz", "!pip install zipp"):
        expect_success(await bench.server.cell(command))
    outcome = await bench.server.cell(
        "import sys, toolz, zipp\nall(m.__file__.startswith(sys.prefix) for m in (toolz, zipp))"
    )
    expect(
        "True" in expect_success(outcome),
        "a package is not in the kernel's environment",
        outcome,
    )


if __name__ == "__main__":
    scenario.main()
