"""Programs for the original that need no change but the import."""

import pytest

from ipybox_rs import (
    ApprovalRequest,
    CodeExecutionResult,
    CodeExecutor,
    generate_mcp_sources,
)


@pytest.mark.parametrize(
    ("path", "module"),
    [("tools", "probe"), ("", "tools.probe"), ("", "mcptools.probe")],
)
async def test_a_package_is_called_by_whichever_path_it_is_imported(
    probe, tmp_path, path, module
):
    root = tmp_path / ("mcptools" if module.startswith("mcptools") else "tools")
    await generate_mcp_sources("probe", probe, root)
    kernel_env = {"PYTHONPATH": str(tmp_path / path)}
    code = f"from {module}.echo import Params, run\nprint(run(Params(text='hi')))"
    async with CodeExecutor(kernel_env=kernel_env) as executor:
        assert (await executor.execute(code)).text == "hi"
        asked = []
        async for item in executor.stream(code):
            match item:
                case ApprovalRequest():
                    asked.append((item.server_name, item.tool_name))
                    await item.accept()
                case CodeExecutionResult():
                    assert item.text == "hi"
        assert asked == [("probe", "echo")]


async def test_a_package_of_the_root_is_of_the_newest_registration(probe, tmp_path):
    await generate_mcp_sources("probe", {**probe, "env": {"WHICH": "first"}}, tmp_path)
    await generate_mcp_sources("probe", {**probe, "env": {"WHICH": "second"}}, tmp_path)
    async with CodeExecutor(kernel_env={"PYTHONPATH": str(tmp_path)}) as executor:
        code = "from probe import env\nprint(env.run().values['WHICH'])"
        assert (await executor.execute(code)).text == "second"


async def test_servers_beside_the_root_are_not_for_its_kernels(probe, tmp_path):
    await generate_mcp_sources("probe", probe, tmp_path / "one")
    await generate_mcp_sources("other", probe, tmp_path / "two")
    async with CodeExecutor(
        kernel_env={"PYTHONPATH": str(tmp_path / "one")}
    ) as executor:
        code = "import ipybox_runtime\nipybox_runtime.ToolRunner('other').call_sync('pid', {})"
        with pytest.raises(Exception, match="no MCP server|not registered|`other`"):
            await executor.execute(code)
