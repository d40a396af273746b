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


async def test_a_kernel_that_nobody_uses_comes_back_with_its_variables(tmp_path):
    options = {
        "checkpoint": True,
        "kernel_idle_timeout": 1,
        "kernel_exit_timeout": 3600,
        "working_dir": tmp_path,
    }
    async with CodeExecutor(state_dir=tmp_path / "states", **options) as executor:
        ended = "atexit.register(lambda: open('ended', 'w').close())"
        await executor.execute(f"import atexit\na = 1\n{ended}")
        while not (tmp_path / "ended").exists():
            await asyncio.sleep(0.05)
        # The second one waits already when the first one ends: the kernel ends no sooner than a second later.
        back, after = await asyncio.gather(
            executor.execute("a + 1"), executor.execute("a + 1")
        )
        assert back.text == after.text == "2"
        assert "another one has started" in back.notes[0]
        assert after.notes == []


async def test_a_kernel_that_ends_needs_a_checkpoint():
    with pytest.raises(ValueError, match="`kernel_idle_timeout`.*\n.*`checkpoint`"):
        await CodeExecutor(kernel_idle_timeout=60).start()
