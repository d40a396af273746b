"""Undone cells of executors."""

import sys

import pytest

from ipybox_rs import (
    CodeExecutionError,
    CodeExecutionResult,
    CodeExecutor,
    ExecutionError,
    KernelClient,
    KernelGateway,
    KernelLostError,
    KernelUnavailableError,
)
from ipybox_rs.utils import find_free_port

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has what a fork needs"
)


async def test_the_kernel_is_as_it_was_before_undone_code():
    async with CodeExecutor(undo_memory=2**29) as executor:
        await executor.execute("x = 1")
        await executor.execute("x = 2; open('made', 'w').close()")
        assert await executor.reset(cells=1) == ["new: `made`"]
        assert (await executor.execute("x")).text == "1"
        with pytest.raises(KernelLostError, match=r"`reset\(cells=1\)` brings"):
            await executor.execute("import os; os._exit(1)")
        await executor.reset(cells=1)
        assert (await executor.execute("x")).text == "1"
        assert await executor.reset() == []
        with pytest.raises(KernelUnavailableError, match="there are 0"):
            await executor.reset(cells=1)


async def test_code_is_undone_by_its_id():
    async with CodeExecutor(undo_memory=2**29) as executor:
        await executor.execute("x = 1")
        second = await executor.execute("x = 2; open('made', 'w').close()")
        with pytest.raises(CodeExecutionError) as failed:
            await executor.execute("1 / 0")
        assert failed.value.output and failed.value.output.cell == "cell-3"
        with pytest.raises(
            ValueError, match="`cells` and `to` cannot be used together"
        ):
            await executor.reset(cells=1, to=second.cell)
        with pytest.raises(KernelUnavailableError, match=r"`In\[1\]` is no id"):
            await executor.reset(to="In[1]")
        assert await executor.reset(to=second.cell) == ["new: `made`"]
        assert (await executor.execute("x")).text == "1"
        async for item in executor.stream("x"):
            assert isinstance(item, CodeExecutionResult) and item.cell == "cell-5"
        with pytest.raises(KernelUnavailableError, match="none of the last cells"):
            await executor.reset(to=second.cell)


async def test_a_client_of_a_kernel_undoes_code_too():
    port = find_free_port()
    async with (
        KernelGateway(port=port),
        KernelClient(port=port, undo_memory=2**29) as client,
    ):
        await client.execute("x = 1")
        await client.execute("x = 2")
        third = await client.execute("x = 3")
        assert await client.reset(to=third.cell) == []
        assert await client.reset(cells=1) == []
        assert (await client.execute("x")).text == "1"
        assert await client.reset() == []
        with pytest.raises(ExecutionError, match="there are 0"):
            await client.reset(cells=1)


async def test_a_copy_can_work_in_files_of_its_own(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    options = {"working_dir": tmp_path, "state_dir": tmp_path.parent / "states"}
    async with CodeExecutor(branch_files=True, cold_start=True, **options) as executor:
        async with await executor.copy() as copied:
            await copied.execute("open('a.txt', 'w').write('two')")
            assert (await copied.execute("print(open('a.txt').read())")).text == "two"
        assert (tmp_path / "a.txt").read_text() == "one"


async def test_states_are_kept_if_they_are_asked_for():
    async with CodeExecutor() as executor:
        await executor.execute("x = 1")
        with pytest.raises(KernelUnavailableError, match="`undo_memory=512"):
            await executor.reset(cells=1)
