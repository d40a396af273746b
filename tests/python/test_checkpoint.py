"""Variables that come back in the next executor."""

import asyncio

import pytest

from ipybox_rs import CodeExecutor

RESTORE = "import ipybox_checkpoint; ipybox_checkpoint.restore()"


async def test_variables_come_back_in_the_next_executor(tmp_path):
    async with CodeExecutor(state_dir=tmp_path, checkpoint=True) as executor:
        await executor.execute("a = 1")
        while not list(tmp_path.glob("workspaces/*/checkpoints/*/manifest.json")):
            await asyncio.sleep(0.05)
    async with CodeExecutor(state_dir=tmp_path, checkpoint=True) as executor:
        assert (await executor.execute(f"{RESTORE}\na")).text.endswith("\n1")


async def test_a_jupyter_server_excludes_it():
    with pytest.raises(ValueError, match="checkpoint"):
        await CodeExecutor(
            kernel_gateway_url="http://localhost:1", checkpoint=True
        ).start()
