"""Variables, directories and registered servers that kernels and MCP servers get from the application."""

import json
import os
import sys

import pytest
from support import ECHO, collect

from ipybox_rs import (
    ApprovalRequest,
    CodeExecutionError,
    CodeExecutor,
    Registry,
    generate_mcp_sources,
)

SERVER_VARIABLES = """
from mcptools.probe import env
import json
print(json.dumps(env.run(env.Params()).values))
"""


async def variables_of_server(executor):
    return json.loads((await executor.execute(SERVER_VARIABLES)).text)


async def test_the_kernel_inherits_no_variables(monkeypatch):
    monkeypatch.setenv("SECRET", "of the application")
    async with CodeExecutor() as executor:
        assert (
            await executor.execute("import os; os.environ.get('SECRET')")
        ).text is None
        assert (await executor.execute("'PATH' in os.environ")).text == "True"


async def test_placeholders_are_filled_from_the_environment_when_the_executor_starts(
    probe, monkeypatch
):
    parameters = {**probe, "env": {"FILLED": "${LATER}"}}
    monkeypatch.setenv("LATER", "first")
    async with CodeExecutor():
        await generate_mcp_sources("probe", parameters, "mcptools")
        # After the first executor, and with it the host process, has started.
        monkeypatch.setenv("LATER", "second")
        async with CodeExecutor() as executor:
            assert (await variables_of_server(executor))["FILLED"] == "second"


async def test_an_executor_keeps_the_environment_of_its_start(probe, monkeypatch):
    monkeypatch.setenv("LATER", "x")
    await generate_mcp_sources(
        "probe", {**probe, "env": {"FILLED": "${LATER}"}}, "mcptools"
    )
    monkeypatch.delenv("LATER")
    async with CodeExecutor() as executor:
        monkeypatch.setenv("LATER", "set after the start")
        with pytest.raises(CodeExecutionError, match="LATER"):
            await variables_of_server(executor)


async def test_placeholders_are_filled_from_the_env_file(probe, workspace):
    workspace.write(".env", "BRAVE_API_KEY=value\n")
    parameters = {**probe, "env": {"BRAVE_API_KEY": "${BRAVE_API_KEY}"}}
    await generate_mcp_sources("probe", parameters, "mcptools")
    async with CodeExecutor() as executor:
        assert (await variables_of_server(executor))["BRAVE_API_KEY"] == "value"


async def test_a_placeholder_that_cannot_be_filled_is_named(probe):
    from ipybox_rs import GenerateError

    with pytest.raises(GenerateError, match="MISSING_VARIABLE"):
        parameters = {**probe, "env": {"X": "${MISSING_VARIABLE}"}}
        await generate_mcp_sources("probe", parameters, "mcptools")


async def test_packages_in_another_directory_are_found_by_the_kernels_pythonpath(
    probe, tmp_path
):
    await generate_mcp_sources("probe", probe, tmp_path / "other/mcptools")
    path = {"PYTHONPATH": str(tmp_path / "other")}
    async with CodeExecutor(kernel_env=path) as executor:
        assert (await executor.execute(ECHO)).text == "hi"


async def test_each_executor_has_the_directory_that_is_current_when_it_starts(
    workspace, monkeypatch
):
    one, two = workspace.directory / "one", workspace.directory / "two"
    one.mkdir()
    two.mkdir()
    monkeypatch.chdir(one)
    async with CodeExecutor() as first:
        monkeypatch.chdir(two)
        async with CodeExecutor() as second:
            assert first.working_dir == one
            assert second.working_dir == two
            for executor in (first, second):
                text = (await executor.execute("import os; print(os.getcwd())")).text
                assert text == str(executor.working_dir)


async def test_a_working_directory_is_made(workspace):
    async with CodeExecutor(working_dir="made/here") as executor:
        assert executor.working_dir == workspace.directory / "made/here"
        assert (await executor.execute("%pwd")).text == repr(str(executor.working_dir))


async def test_a_directory_with_strange_characters_works(workspace, monkeypatch):
    strange = workspace.directory / "a b'\"\n\u00e4\U0001f600"
    strange.mkdir()
    monkeypatch.chdir(strange)
    async with CodeExecutor() as executor:
        assert (await executor.execute("import os; print(os.getcwd())")).text == str(
            strange
        )


async def test_a_directory_that_is_no_unicode_is_refused(workspace, monkeypatch):
    strange = os.fsencode(workspace.directory) + b"/\xff"
    os.mkdir(strange)
    monkeypatch.chdir(strange)
    with pytest.raises(ValueError, match="working_dir"):
        await CodeExecutor().start()


async def test_variables_that_are_no_unicode_are_left_out():
    os.environb[b"STRANGE"] = b"\xff"
    try:
        async with CodeExecutor() as executor:
            assert (await executor.execute("1")).text == "1"
    finally:
        del os.environb[b"STRANGE"]


async def test_servers_generated_after_the_start_are_known(probe):
    async with CodeExecutor() as executor:
        await generate_mcp_sources("probe", probe, "mcptools")
        assert (await executor.execute(ECHO)).text == "hi"


async def test_two_executors_with_the_same_workspace_have_kernels_of_their_own(probe):
    await generate_mcp_sources("probe", probe, "mcptools")
    async with CodeExecutor() as first, CodeExecutor() as second:
        await first.execute("x = 1")
        assert (await second.execute("'x' in dir()")).text == "False"
        assert (await first.execute(ECHO)).text == "hi"
        assert (await second.execute(ECHO)).text == "hi"


async def test_names_are_known_in_a_later_process(probe, workspace):
    await generate_mcp_sources("probe", probe, "mcptools")
    done = workspace.run(f"""
        import asyncio
        from ipybox_rs import CodeExecutor
        async def main():
            async with CodeExecutor() as executor:
                print((await executor.execute({ECHO!r})).text)
        asyncio.run(main())
    """)
    assert done.stdout == "hi\n", done.stderr


async def test_a_registry_keeps_servers_from_other_executors(probe):
    registry = Registry()
    names = await generate_mcp_sources("probe", probe, "mcptools", registry=registry)
    assert "echo" in names
    async with CodeExecutor(registry=registry) as executor:
        assert (await executor.execute(ECHO)).text == "hi"
    async with CodeExecutor() as executor:
        with pytest.raises(CodeExecutionError):
            await executor.execute(ECHO)


async def test_a_registry_outlives_its_executors(probe):
    registry = Registry()
    async with CodeExecutor(registry=registry) as executor:
        await executor.register_mcp_server("probe", probe)
    async with CodeExecutor(registry=registry) as executor:
        events = executor.stream(ECHO)
        assert isinstance(await events.__anext__(), ApprovalRequest)
        await events.aclose()


async def test_reset_stops_mcp_servers_which_start_again(probe):
    pid = "from mcptools.probe import pid; print(pid.run(pid.Params()))"
    async with CodeExecutor() as executor:
        await executor.register_mcp_server("probe", probe)
        first = int((await executor.execute(pid)).text)
        await executor.reset()
        second = int((await executor.execute(pid)).text)
    assert first != second


async def test_the_kernel_runs_on_the_interpreter_of_the_application():
    async with CodeExecutor() as executor:
        text = (await executor.execute("import sys; print(sys.prefix)")).text
    assert text == sys.prefix


async def test_apigen_writes_a_package_without_registering(probe):
    from ipybox_rs import apigen

    report = await apigen("probe", "mcptools", server_params=probe)
    assert "echo" in report.modules
    async with CodeExecutor() as executor:
        with pytest.raises(CodeExecutionError):
            await executor.execute(ECHO)


async def test_doctor_reports_that_executors_work():
    from ipybox_rs.doctor import examine

    report = await examine()
    assert report.can_run
    assert str(report)
    assert set(report.can_sandbox) == {"srt", "bwrap"}


async def test_calls_of_generated_functions_are_asked_for_in_streams(probe):
    async with CodeExecutor() as executor:
        await executor.register_mcp_server("probe", probe)
        stream = executor.stream(ECHO)
        await (await stream.__anext__()).accept()
        assert (await collect(stream))[-1].text == "hi"
