"""Copies of executors: forks of their kernels."""

import sys

import pytest

from ipybox_rs import CodeExecutor, KernelUnavailableError

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has what a fork needs"
)


async def test_a_copy_begins_with_the_variables_and_is_apart_from_then_on():
    async with CodeExecutor() as executor:
        await executor.execute("x = [1]")
        async with await executor.copy() as copied:
            assert copied.working_dir == executor.working_dir
            assert (await copied.execute("x.append(2)\nx")).text == "[1, 2]"
            assert (await executor.execute("x")).text == "[1]"
            second = await copied.copy()
        assert (await second.execute("x")).text == "[1, 2]"
        await second.reset()
        assert (await second.execute("'x' in globals()")).text == "False"
        await second.stop()
        with pytest.raises(RuntimeError):
            await second.execute("1")
        assert (await executor.execute("x")).text == "[1]"


async def test_what_cannot_be_copied_is_named():
    async with CodeExecutor() as executor:
        await executor.execute("log = open('log', 'w')")
        with pytest.raises(KernelUnavailableError, match="open for writing .`log`"):
            await executor.copy()
        await executor.execute("log.close()")
        await (await executor.copy()).stop()
