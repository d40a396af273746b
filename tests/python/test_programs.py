"""Programs that are not the one of this package."""

import asyncio
import os
import stat
import sys

import pytest

from ipybox_rs import CodeExecutor, HostError, _host, _program, generate_mcp_sources

INITIALIZED = '{"jsonrpc":"2.0","id":1,"result":{"version":"0.0.0"}}'


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Makes a script the program."""

    def make(text, mode=0o755):
        path = tmp_path / "ipybox"
        path.write_text(text)
        path.chmod(mode)
        monkeypatch.setenv("IPYBOX_PROGRAM", str(path))
        return str(path)

    return make


async def fails():
    """The error of an executor's start, which must come soon."""
    with pytest.raises(HostError) as failed:
        await asyncio.wait_for(CodeExecutor().start(), 20)
    return str(failed.value)


async def test_a_missing_program_is_named(monkeypatch):
    monkeypatch.setenv("IPYBOX_PROGRAM", "/nonexistent/ipybox")
    assert "`/nonexistent/ipybox`" in await fails()


async def test_a_program_that_is_not_executable_is_named(program):
    path = program("#!/bin/sh\n", 0o644)
    assert f"`{path}`" in await fails()


async def test_a_file_that_is_no_program_is_named(program):
    path = program("no program")
    assert f"`{path}`" in await fails()


async def test_a_program_that_ends_is_named_with_its_status(program):
    path = program("#!/bin/sh\necho 'usage: ipybox' >&2\nexit 2\n")
    message = await fails()
    assert f"`{path}`" in message
    assert "status 2" in message


@pytest.mark.parametrize(
    "line",
    ["rubbish", "1", "null", "[]", "{}", '"x"', '{"id": 1}', '{"id": 1, "result": 5}', "\\377\\376",
     '{"id": 1, "error": {}}', '{"method": "log"}', "[" * 5000],
)  # fmt: skip
async def test_a_program_that_prints_something_else_is_named(
    program, line, monkeypatch
):
    monkeypatch.setattr(_host, "_START_SECONDS", 2)
    path = program(f"#!/bin/sh\nread line\nprintf '{line}\\n'\nread line\nread line\n")
    assert f"`{path}`" in await fails()


async def test_a_program_that_hangs_is_named(program, monkeypatch, workspace):
    monkeypatch.setattr(_host, "_START_SECONDS", 0.3)
    path = program("#!/bin/sh\nsleep 1000\n")
    message = await fails()
    assert f"`{path}`" in message
    assert "0.3 seconds" in message
    workspace.assert_empty()


async def test_a_program_that_closes_its_output_and_stays_is_named(
    program, monkeypatch, workspace
):
    monkeypatch.setattr(_host, "_START_SECONDS", 0.3)
    path = program("#!/bin/sh\nexec >&-\nsleep 1000\n")
    assert f"`{path}`" in await fails()
    workspace.assert_empty()


async def test_a_program_of_another_version_is_named(program, monkeypatch):
    path = program(f"#!/bin/sh\nread line\necho '{INITIALIZED}'\ncat >/dev/null\n")
    monkeypatch.setattr(_program, "version", lambda: "9.9.9")
    message = await fails()
    assert f"`{path}`" in message
    assert "0.0.0" in message
    assert "9.9.9" in message


async def test_other_functions_fail_in_the_same_way(program, probe):
    program("#!/bin/sh\nexit 2\n")
    with pytest.raises(HostError, match="status 2"):
        await generate_mcp_sources("probe", probe, "mcptools")


async def test_the_next_executor_tries_again(program, monkeypatch):
    right = os.environ["IPYBOX_PROGRAM"]
    program("#!/bin/sh\nexit 2\n")
    await fails()
    monkeypatch.setenv("IPYBOX_PROGRAM", right)
    async with CodeExecutor() as executor:
        assert (await executor.execute("1")).text == "1"


def test_the_script_of_the_original_package_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.delenv("IPYBOX_PROGRAM")
    scripts = tmp_path / "bin"
    scripts.mkdir()
    script = scripts / "ipybox"
    script.write_text(f"#!{sys.executable}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(_program.sysconfig, "get_path", lambda *_: str(scripts))
    with pytest.raises(HostError, match="`ipybox-rs`") as failed:
        _program.find()
    assert str(scripts) in str(failed.value)
