"""Running code: results, output, errors, timeouts, cancellation."""

import asyncio
import builtins
import contextlib
import os
import signal
from pathlib import Path

import pytest
from support import ENDLESS, PNG, SECONDS, begun, collect

from ipybox_rs import (
    CodeExecutionChunk,
    CodeExecutionError,
    CodeExecutionResult,
    CodeExecutionTimeout,
    CodeExecutor,
    KernelLostError,
)


async def test_result_without_output_has_no_text():
    async with CodeExecutor() as executor:
        assert await executor.execute("x = 1") == CodeExecutionResult(
            text=None, images=[]
        )


async def test_result_has_the_last_expression_and_what_was_printed():
    async with CodeExecutor() as executor:
        assert (await executor.execute("print('a')\n'b'")).text == "a\n'b'"


async def test_state_survives_between_cells():
    async with CodeExecutor() as executor:
        await executor.execute("x = 20")
        assert (await executor.execute("x + 1")).text == "21"


async def test_top_level_await_magics_and_shell_commands_work():
    async with CodeExecutor() as executor:
        code = (
            "import asyncio\nprint(await asyncio.sleep(0, 'slept'))\n!echo shell\n%pwd"
        )
        assert (await executor.execute(code)).text.split()[:2] == ["slept", "shell"]


async def test_chunks_come_before_the_code_has_ended(workspace):
    code = "import os, time\nprint('begun', flush=True)\nwhile not os.path.exists('go'): time.sleep(.01)\nprint('ended')"
    async with CodeExecutor() as executor:
        stream = await begun(executor.stream(code, chunks=True))
        workspace.write("go", "")
        rest = await collect(stream)
    assert {type(one) for one in rest[:-1]} == {CodeExecutionChunk}
    assert type(rest[-1]) is CodeExecutionResult
    assert rest[-1].text == "begun\nended"


async def test_without_chunks_only_the_result_comes():
    async with CodeExecutor() as executor:
        assert [
            one.text for one in await collect(executor.stream("print(1)\nprint(2)"))
        ] == ["1\n2"]


async def test_images_are_saved_in_the_default_directory(workspace):
    async with CodeExecutor() as executor:
        result = await executor.execute(PNG)
    assert result.images[0].parent == workspace.directory / "images"
    assert result.images[0].read_bytes().startswith(b"\x89PNG")


async def test_a_relative_images_dir_is_one_of_the_current_directory(workspace):
    async with CodeExecutor(images_dir=Path("plots/here")) as executor:
        result = await executor.execute(PNG)
    assert result.images[0].parent == workspace.directory / "plots/here"


async def test_an_absolute_images_dir_is_used_as_it_is(tmp_path):
    async with CodeExecutor(images_dir=str(tmp_path / "plots")) as executor:
        result = await executor.execute(PNG)
    assert result.images[0].parent == tmp_path / "plots"


async def test_an_error_has_its_class_its_text_the_traceback_and_the_output():
    async with CodeExecutor() as executor:
        with pytest.raises(CodeExecutionError) as raised:
            await executor.execute("print('before')\n1/0")
    assert (raised.value.name, raised.value.value) == (
        "ZeroDivisionError",
        "division by zero",
    )
    assert "1/0" in str(raised.value)
    assert raised.value.output.text == "before"


async def test_a_syntax_error_is_an_error_of_the_code():
    async with CodeExecutor() as executor:
        with pytest.raises(CodeExecutionError, match="SyntaxError"):
            await executor.execute("def")
        assert (await executor.execute("1")).text == "1"


async def test_an_error_of_a_stream_follows_its_chunks():
    async with CodeExecutor() as executor:
        stream = executor.stream("print('before', flush=True)\n1/0", chunks=True)
        chunks = []
        with pytest.raises(CodeExecutionError):
            async for chunk in stream:
                chunks.append(chunk.text)
        assert "".join(chunks) == "before\n"
        with pytest.raises(StopAsyncIteration):
            await stream.__anext__()


async def test_a_timeout_can_be_caught_by_either_class():
    async with CodeExecutor() as executor:
        with pytest.raises(CodeExecutionTimeout) as raised:
            await executor.execute(ENDLESS, timeout=20)
        assert isinstance(raised.value, builtins.TimeoutError)
        assert isinstance(raised.value, asyncio.TimeoutError)
        assert raised.value.output.text == "begun"
        assert raised.value.variables_kept


async def test_variables_survive_a_timeout():
    async with CodeExecutor() as executor:
        await executor.execute("x = 1")
        with pytest.raises(TimeoutError):
            await collect(executor.stream(ENDLESS, timeout=0.5))
        assert (await executor.execute("x")).text == "1"


@pytest.mark.parametrize("forever", [None, float("inf"), 10**400])
async def test_a_timeout_can_be_endless(forever):
    async with CodeExecutor() as executor:
        assert (await executor.execute("1", timeout=forever)).text == "1"


async def test_a_timeout_of_zero_stops_the_code_at_once():
    async with CodeExecutor() as executor:
        with pytest.raises(TimeoutError):
            await executor.execute(ENDLESS, timeout=0)


async def test_cancelling_the_task_of_execute_interrupts_the_code():
    async with CodeExecutor() as executor:
        running = asyncio.ensure_future(executor.execute(ENDLESS))
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(executor.execute("'next'"))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await waiting).text == "'next'"


async def test_wait_for_interrupts_the_code():
    async with CodeExecutor() as executor:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(executor.execute(ENDLESS, timeout=None), 0.5)
        assert (await executor.execute("'next'", timeout=SECONDS)).text == "'next'"


async def test_cancelling_the_task_that_reads_a_stream_interrupts_the_code():
    async with CodeExecutor() as executor:
        stream = await begun(executor.stream(ENDLESS, chunks=True))
        reading = asyncio.ensure_future(collect(stream))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert (await executor.execute("'next'", timeout=SECONDS)).text == "'next'"


async def test_leaving_the_loop_over_a_stream_interrupts_the_code():
    async with CodeExecutor() as executor:
        async for _chunk in executor.stream(ENDLESS, chunks=True):
            break
        assert (await executor.execute("'next'", timeout=SECONDS)).text == "'next'"


async def test_aclose_interrupts_the_code():
    async with CodeExecutor() as executor:
        async with contextlib.aclosing(executor.stream(ENDLESS, chunks=True)) as stream:
            await begun(stream)
        with pytest.raises(StopAsyncIteration):
            await stream.__anext__()
        await stream.aclose()
        assert (await executor.execute("'next'", timeout=SECONDS)).text == "'next'"


async def test_aclose_by_another_task_ends_the_loop_of_the_reader():
    async with CodeExecutor() as executor:
        stream = await begun(executor.stream(ENDLESS, chunks=True))
        reading = asyncio.ensure_future(collect(stream))
        await asyncio.sleep(0)
        await stream.aclose()
        # A chunk may have come just then, but no result.
        assert all(isinstance(event, CodeExecutionChunk) for event in await reading)
        assert (await executor.execute("'next'", timeout=SECONDS)).text == "'next'"


async def test_a_stream_that_is_never_read_does_nothing():
    async with CodeExecutor() as executor:
        stream = executor.stream("x = 1")
        with pytest.raises(CodeExecutionError, match="NameError"):
            await executor.execute("x")
        await stream.aclose()
        assert await collect(stream) == []


async def test_a_stream_has_one_reader_at_a_time():
    async with CodeExecutor() as executor:
        stream = executor.stream("input" and "import time; time.sleep(.2); 'done'")
        first = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task"):
            await stream.__anext__()
        assert (await first).text == "'done'"


async def test_a_stream_keeps_its_executor():
    async def made():
        executor = CodeExecutor()
        await executor.start()
        return executor.stream("'kept'")

    stream = await made()
    assert [one.text for one in await collect(stream)] == ["'kept'"]
    await stream._owner.stop()


async def test_many_cells_at_once_run_in_the_order_of_the_calls():
    async with CodeExecutor() as executor:
        await executor.execute("seen = []")
        codes = [f"seen.append({number}); len(seen)" for number in range(50)]
        results = await asyncio.gather(*map(executor.execute, codes))
        assert [result.text for result in results] == [
            str(number + 1) for number in range(50)
        ]
        assert (await executor.execute("seen == list(range(50))")).text == "True"


async def test_cancel_ends_running_and_waiting_code_without_an_exception():
    async with CodeExecutor() as executor:
        await executor.execute("x = 1")
        stream = await begun(executor.stream(ENDLESS, chunks=True))
        waiting = asyncio.ensure_future(executor.execute("x = 2"))
        await asyncio.sleep(0)
        executor.cancel()
        *_, result = await collect(stream)
        assert result.text == "begun"
        assert result.notes
        assert (await waiting).text is None
        assert (await executor.execute("x")).text == "1"


async def test_cancel_without_code_does_nothing():
    executor = CodeExecutor()
    executor.cancel()
    async with executor:
        executor.cancel()
        assert (await executor.execute("1")).text == "1"
    executor.cancel()


async def test_reset_in_mid_cell_ends_the_cell():
    async with CodeExecutor() as executor:
        stream = await begun(executor.stream(ENDLESS, chunks=True))
        await executor.reset()
        with pytest.raises(KernelLostError) as lost:
            await collect(stream)
        assert lost.value.output.text == "begun"
        assert (await executor.execute("1")).text == "1"


async def test_a_kernel_that_dies_is_replaced():
    async with CodeExecutor() as executor:
        with pytest.raises(KernelLostError) as lost:
            await executor.execute(
                "x = 1; import os; print('last', flush=True); os._exit(1)"
            )
        assert not lost.value.variables_kept
        assert lost.value.output.text == "last"
        result = await executor.execute("'x' in dir()")
        assert result.text == "False"


async def test_a_kernel_that_is_killed_between_cells_is_replaced():
    async with CodeExecutor() as executor:
        kernel = int((await executor.execute("import os; os.getpid()")).text)
        os.kill(kernel, signal.SIGKILL)
        for _ in range(2):
            # The cell may have been sent before anybody knew.
            with contextlib.suppress(KernelLostError):
                result = await executor.execute("import os; os.getpid()")
        assert int(result.text) != kernel


@pytest.mark.parametrize("method", ["execute", "stream"])
@pytest.mark.parametrize("code", [None, 1, b"1", ["1"]])
async def test_code_must_be_text(method, code):
    async with CodeExecutor() as executor:
        with pytest.raises(TypeError, match="code"):
            made = getattr(executor, method)(code)
            await made


async def test_code_with_lone_surrogates_is_refused():
    async with CodeExecutor() as executor:
        with pytest.raises(ValueError, match="code"):
            await executor.execute("'\ud800'")
        with pytest.raises(ValueError, match="code"):
            await collect(executor.stream("'\ud800'"))
        assert (await executor.execute("'\U0001f600'")).text == "'\U0001f600'"


async def test_output_with_lone_surrogates_does_not_end_anything():
    async with CodeExecutor() as executor:
        with contextlib.suppress(CodeExecutionError):
            await executor.execute("print('\\ud800')")
        with contextlib.suppress(CodeExecutionError):
            await executor.execute("raise ValueError('\\udcff')")
        assert (await executor.execute("1")).text == "1"


async def test_five_megabytes_of_code_run():
    async with CodeExecutor() as executor:
        assert (await executor.execute(f"len('{'x' * 5_000_000}')")).text == "5000000"


async def test_a_hundred_megabytes_of_output_are_cut_and_saved():
    async with CodeExecutor() as executor:
        code = "print('x' * 100_000_000)"
        result = await executor.execute(code, timeout=SECONDS)
        assert len(result.text) < 1_001_000
        assert result.truncated.chars == 100_000_001
        assert Path(result.truncated.file).stat().st_size == 100_000_001


async def test_much_output_in_chunks_is_complete():
    async with CodeExecutor() as executor:
        code = "for i in range(200_000): print('x' * 99)"
        *chunks, result = await collect(
            executor.stream(code, chunks=True, timeout=SECONDS)
        )
    assert sum(len(chunk.text) for chunk in chunks) == 20_000_000
    assert result.truncated.chars == 20_000_000


async def test_max_output_chars_limits_the_result():
    async with CodeExecutor() as executor:
        result = await executor.execute("print('x' * 5000)", max_output_chars=1000)
        assert result.truncated.chars == 5001
        assert len(result.text) < 1500


async def test_nul_bytes_in_output_are_kept():
    async with CodeExecutor() as executor:
        assert (await executor.execute("print('a\\0b')")).text == "a\0b"


async def test_nul_bytes_in_code_are_an_error_of_the_code():
    async with CodeExecutor() as executor:
        with pytest.raises(CodeExecutionError):
            await executor.execute("a = 1\0")
        assert (await executor.execute("1")).text == "1"


async def test_empty_code_has_an_empty_result():
    async with CodeExecutor() as executor:
        assert await executor.execute("") == CodeExecutionResult(text=None, images=[])


async def test_install_package_reports_what_cannot_be_installed():
    from ipybox_rs import InstallError

    async with CodeExecutor() as executor:
        with pytest.raises((InstallError, ValueError)):
            await executor.install_package("/nonexistent/package.whl")
