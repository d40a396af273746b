"""The examples of the original's guide and reference, with `ipybox_rs` for `ipybox` and a server that needs no network."""

import tempfile
from pathlib import Path

import pytest
from support import TOOLS

from ipybox_rs import (
    ApprovalRequest,
    CodeExecutionChunk,
    CodeExecutionError,
    CodeExecutionResult,
    CodeExecutor,
    generate_mcp_sources,
)
from ipybox_rs.kernel_mgr.client import ExecutionResult, KernelClient
from ipybox_rs.kernel_mgr.server import KernelGateway
from ipybox_rs.tool_exec.approval.client import ApprovalClient
from ipybox_rs.tool_exec.client import ToolRunner, ToolRunnerError
from ipybox_rs.tool_exec.server import ToolServer
from ipybox_rs.utils import arun, find_free_port


async def test_quickstart(probe, monkeypatch):
    monkeypatch.setenv("BRAVE_API_KEY", "key")
    server_params = {**probe, "env": {"BRAVE_API_KEY": "${BRAVE_API_KEY}"}}
    code = """
from mcptools.probe.add import Params, Result, run

result: Result = run(Params(a=1, b=2))

print(f"- [{result.total}]({result.terms})")
"""
    printed = None
    await generate_mcp_sources(
        server_name="probe", server_params=server_params, root_dir=Path("mcptools")
    )
    async with CodeExecutor() as executor:
        async for item in executor.stream(code):
            match item:
                case ApprovalRequest() as req:
                    prompt = f"Tool call: [{req}]\nApprove? (Y/n): "
                    if await arun(lambda text: "y" if text else "", prompt) in [
                        "y",
                        "",
                    ]:
                        await req.accept()
                    else:
                        await req.reject()
                case CodeExecutionResult(text=text):
                    printed = text
    assert printed == "- [3]([1, 2])"


async def test_generated_package_structure(probe):
    names = await generate_mcp_sources("probe", probe, Path("mcptools"))
    for name in ["__init__", *names]:
        assert Path("mcptools/probe", f"{name}.py").is_file()
    assert "add" in names


async def test_generating_again_replaces_the_package(probe):
    await generate_mcp_sources("probe", probe, Path("mcptools"))
    stale = Path("mcptools/probe/stale.py")
    stale.write_text("")
    await generate_mcp_sources("probe", probe, Path("mcptools"))
    assert not stale.exists()


async def test_basic_execution():
    async with CodeExecutor() as executor:
        result = await executor.execute("print('hello world')")
        assert result.text == "hello world"


async def test_tool_call_approval(probe):
    await generate_mcp_sources("probe", probe, Path("mcptools"))
    code = """
from mcptools.probe.add import Params, Result, run
result: Result = run(Params(a=2, b=3))
print(f"total = {result.total}")
"""
    asked = 0
    async with CodeExecutor() as executor:
        async for item in executor.stream(code):
            match item:
                case ApprovalRequest():
                    asked += 1
                    assert item.server_name == "probe"
                    assert item.tool_name == "add"
                    assert item.tool_args["a"] == 2
                    assert item.tool_args["b"] == 3
                    await item.accept()
                case CodeExecutionResult():
                    assert item.text == "total = 5"
    assert asked == 1


async def test_rejecting_raises_a_code_execution_error(probe):
    await generate_mcp_sources("probe", probe, Path("mcptools"))
    code = "from mcptools.probe import echo; echo.run(echo.Params(text='x'))"
    async with CodeExecutor() as executor:
        with pytest.raises(CodeExecutionError, match="ApprovalRejectedError"):
            async for item in executor.stream(code):
                await item.reject()


async def test_stream_output_chunks():
    code = """
from time import sleep
print("chunk 1")
sleep(0.5)
print("chunk 2")
"""
    chunks = []
    async with CodeExecutor() as executor:
        async for item in executor.stream(code, chunks=True):
            match item:
                case CodeExecutionChunk():
                    chunks.append(item.text)
                case CodeExecutionResult():
                    assert item.text == "chunk 1\nchunk 2"
    # A line and its end may come apart.
    assert "".join(chunks) == "chunk 1\nchunk 2\n"


async def test_capturing_plots():
    code = """
import matplotlib.pyplot as plt
plt.plot([1, 2, 3], [1, 4, 9])
plt.show()
"""
    with tempfile.TemporaryDirectory() as images_dir:
        # Another interpreter only because ours has no matplotlib.
        options = {
            "images_dir": Path(images_dir),
            "python": TOOLS / "kernel/bin/python",
        }
        async with CodeExecutor(**options) as executor:
            result = await executor.execute(code)
            assert len(result.images) == 1
            assert result.images[0].exists()
            assert result.images[0].suffix == ".png"


async def test_custom_timeouts():
    async with CodeExecutor(approval_timeout=10) as executor:
        async for item in executor.stream("...", timeout=10):
            assert item.text == "Ellipsis"


async def test_kernel_environment():
    async with CodeExecutor(kernel_env={"TEST_VAR": "test_val"}) as executor:
        result = await executor.execute("import os; print(os.environ['TEST_VAR'])")
        assert result.text == "test_val"


async def test_kernel_reset():
    async with CodeExecutor() as executor:
        await executor.execute("x = 42")
        result = await executor.execute("print(x)")
        assert result.text == "42"
        await executor.reset()
        code = """
try:
    print(x)
except NameError:
    print("x not defined")
"""
        result = await executor.execute(code)
        assert result.text == "x not defined"


async def test_working_directory():
    async with CodeExecutor() as executor:
        import os

        result = await executor.execute("import os; print(os.getcwd())")
        assert result.text == os.getcwd()


async def test_code_executor_of_the_reference(probe, capsys):
    await generate_mcp_sources("probe", probe, Path("mcptools"))
    code = """
from mcptools.probe import echo
result = echo.run(echo.Params(text="https://example.com"))
print(result)
"""
    async with CodeExecutor() as executor:
        async for item in executor.stream(code):
            match item:
                case ApprovalRequest():
                    print(f"Tool call: {item}")
                    await item.accept()
                case CodeExecutionResult():
                    print(item.text)
    assert capsys.readouterr().out == (
        "Tool call: probe.echo(text='https://example.com')\nhttps://example.com\n"
    )


async def test_tool_server_and_approval_client_of_the_reference(probe):
    requests, port = [], find_free_port()

    async def on_approval_request(request: ApprovalRequest):
        requests.append(f"Approval request: {request}")
        if request.tool_name == "fail":
            await request.reject()
        else:
            await request.accept()

    # As it is written there.
    async with ToolServer(approval_required=True, port=port):  # noqa: SIM117
        async with ApprovalClient(callback=on_approval_request, port=port):
            runner = ToolRunner(server_name="probe", server_params=probe, port=port)
            assert (
                await runner.run("echo", {"text": "https://example.com"})
                == "https://example.com"
            )
            with pytest.raises(ToolRunnerError):
                await runner.run("fail", {})
    assert requests == [
        "Approval request: probe.echo(text='https://example.com')",
        "Approval request: probe.fail()",
    ]


async def test_kernel_gateway_and_client_of_the_reference():
    port, seen = find_free_port(), []
    async with KernelGateway(host="localhost", port=port):  # noqa: SIM117
        async with KernelClient(host="localhost", port=port) as client:
            result = await client.execute("print('hello')")
            assert result.text == "hello"
            async for item in client.stream("print('hello')"):
                match item:
                    case str():
                        seen.append(f"Chunk: {item}")
                    case ExecutionResult():
                        seen.append(f"Result: {item.text}")
    assert seen[0].startswith("Chunk: hello")
    assert seen[-1] == "Result: hello"


async def test_default_sandbox():
    code = """
import urllib.request
try:
    urllib.request.urlopen('https://example.org')
except Exception as e:
    print(e)
"""
    async with CodeExecutor(sandbox=True, sandbox_backend="bwrap") as executor:
        result = await executor.execute("print('hello world')")
        assert result.text == "hello world"
        result = await executor.execute(code)
        assert "error" in result.text
