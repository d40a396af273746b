"""Starting, stopping, and what becomes of executors that are not stopped."""

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import threading
import warnings

import pytest
from support import ENDLESS, SECONDS, begun, collect, until

from ipybox_rs import CodeExecutor, HostError, KernelLostError, StartError


async def test_executors_run_side_by_side_in_one_host_process(workspace):
    async with CodeExecutor() as first, CodeExecutor() as second:
        endless = await begun(first.stream(ENDLESS, chunks=True))
        assert (
            await second.execute("'meanwhile'", timeout=SECONDS)
        ).text == "'meanwhile'"
        assert len(workspace.hosts()) == 1
        await endless.aclose()
    assert workspace.hosts() == []


async def test_starting_twice_is_an_error():
    async with CodeExecutor() as executor:
        with pytest.raises(RuntimeError, match="already"):
            await executor.start()
        assert (await executor.execute("1")).text == "1"


async def test_starting_twice_at_once_is_an_error(workspace):
    executor = CodeExecutor()
    started = await asyncio.gather(
        executor.start(), executor.start(), return_exceptions=True
    )
    assert started[0] is None
    assert isinstance(started[1], RuntimeError)
    await executor.stop()


async def test_stopping_twice_does_nothing():
    executor = CodeExecutor()
    await executor.stop()
    await executor.start()
    await asyncio.gather(executor.stop(), executor.stop())
    await executor.stop()


async def test_a_stopped_executor_can_be_started_again():
    executor = CodeExecutor()
    for _ in range(3):
        async with executor:
            assert (await executor.execute("'x' in dir()")).text == "False"
            await executor.execute("x = 1")


@pytest.mark.parametrize("state", ["new", "stopped"])
async def test_an_executor_that_does_not_run_says_so(state):
    executor = CodeExecutor()
    if state == "stopped":
        await executor.start()
        await executor.stop()
    for use in (
        lambda: executor.execute("1"),
        lambda: collect(executor.stream("1")),
        executor.reset,
        lambda: executor.install_package("x"),
        lambda: executor.register_mcp_server("x", {}),
    ):
        with pytest.raises(RuntimeError, match="not running"):
            await use()
    with pytest.raises(RuntimeError, match="not running"):
        _ = executor.working_dir


async def test_stop_waits_until_no_process_is_left(workspace):
    executor = CodeExecutor()
    await executor.start()
    await executor.execute("import subprocess; subprocess.Popen(['sleep', '1000'])")
    assert len(workspace.processes()) >= 3
    await executor.stop()
    assert workspace.processes() == {}


async def test_stop_in_mid_cell_ends_the_cell_with_an_error(workspace):
    executor = CodeExecutor()
    await executor.start()
    stream = await begun(executor.stream(ENDLESS, chunks=True))
    waiting = asyncio.ensure_future(executor.execute("1"))
    await asyncio.sleep(0)
    await executor.stop()
    with pytest.raises(Exception, match="."):
        await collect(stream)
    with pytest.raises(Exception, match="."):
        await waiting
    assert workspace.processes() == {}


@pytest.mark.parametrize("ends_by", ["reset", "stop"])
async def test_an_exit_has_the_time_that_it_was_given(tmp_path, ends_by):
    executor = CodeExecutor(working_dir=tmp_path, kernel_exit_timeout=3600)
    async with executor:
        sleeping = "time.sleep(3), open('uploaded', 'w').close()"
        await executor.execute(
            f"import atexit, time; atexit.register(lambda: ({sleeping}));"
        )
        if ends_by == "reset":
            await executor.reset()
            assert (tmp_path / "uploaded").exists()
    assert (tmp_path / "uploaded").exists()


async def test_a_cancelled_stop_leaves_no_kernel(workspace):
    async with CodeExecutor() as other:
        executor = CodeExecutor()
        await executor.start()
        assert len(workspace.kernels()) == 2
        stopping = asyncio.ensure_future(executor.stop())
        await asyncio.sleep(0)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        await until(lambda: len(workspace.kernels()) == 1)
        assert (await other.execute("1")).text == "1"


async def test_a_cancelled_start_leaves_no_kernel(workspace):
    async with CodeExecutor() as other:
        for turns in range(8):
            executor = CodeExecutor()
            starting = asyncio.ensure_future(executor.start())
            for _ in range(turns):
                await asyncio.sleep(0.03)
            if starting.done():
                await executor.stop()
                break
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            with pytest.raises(RuntimeError, match="not running"):
                await executor.execute("1")
        await until(lambda: len(workspace.kernels()) == 1)
        assert (await other.execute("1")).text == "1"


async def test_an_executor_whose_start_failed_can_be_stopped_and_leaves_nothing(
    workspace,
):
    executor = CodeExecutor(python="/nonexistent/python")
    with pytest.raises(StartError, match="nonexistent"):
        await executor.start()
    await executor.stop()
    workspace.assert_empty()


async def test_a_collected_executor_warns_and_leaves_nothing(workspace):
    executor = CodeExecutor()
    await executor.start()
    with pytest.warns(ResourceWarning, match="unclosed <CodeExecutor"):  # noqa: PT031
        del executor
        gc.collect()
    workspace.assert_empty()


async def test_a_collected_executor_leaves_the_others_alone(workspace):
    async with CodeExecutor() as other:
        executor = CodeExecutor()
        await executor.start()
        with pytest.warns(ResourceWarning):  # noqa: PT031
            del executor
            gc.collect()
        await until(lambda: len(workspace.kernels()) == 1)
        assert (await other.execute("1")).text == "1"


async def test_an_exception_in_the_body_passes_through(workspace):
    with pytest.raises(ZeroDivisionError):
        async with CodeExecutor() as executor:
            await begun(executor.stream(ENDLESS, chunks=True))
            raise ZeroDivisionError
    assert workspace.processes() == {}


async def test_a_killed_host_process_is_a_host_error_and_the_next_executor_works(
    workspace,
):
    executor = CodeExecutor()
    await executor.start()
    stream = await begun(executor.stream(ENDLESS, chunks=True))
    waiting = asyncio.ensure_future(executor.execute("1"))
    await asyncio.sleep(0)
    os.kill(workspace.hosts()[0], signal.SIGKILL)
    for use in (
        lambda: collect(stream),
        lambda: waiting,
        lambda: executor.execute("1"),
    ):
        with pytest.raises(HostError, match="-9"):
            await use()
    workspace.assert_empty()
    async with CodeExecutor() as other:
        assert (await other.execute("1")).text == "1"
        await executor.stop()
        assert (await other.execute("2")).text == "2"
        await executor.start()
        assert (await executor.execute("3")).text == "3"
        await executor.stop()


def test_one_executor_can_be_used_by_the_loops_of_two_threads():
    executor, results = CodeExecutor(), []
    asyncio.run(executor.start())

    async def use(number):
        results.append((await executor.execute(f"{number} * 2")).text)
        results.append((await collect(executor.stream(f"{number} * 3")))[-1].text)

    threads = [
        threading.Thread(target=asyncio.run, args=[use(number)]) for number in (1, 10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(executor.stop())
    assert sorted(results) == ["2", "20", "3", "30"]


def test_threads_with_a_loop_each_have_executors_of_their_own(workspace):
    results = []

    async def use(number):
        async with CodeExecutor() as executor:
            results.append((await executor.execute(f"{number}")).text)

    threads = [
        threading.Thread(target=asyncio.run, args=[use(number)]) for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["0", "1", "2", "3"]


def test_an_executor_can_be_stopped_by_another_loop(workspace):
    executor = CodeExecutor()
    asyncio.run(executor.start())
    asyncio.run(executor.stop())
    assert workspace.processes() == {}


async def test_cancel_may_be_called_by_another_thread():
    async with CodeExecutor() as executor:
        stream = await begun(executor.stream(ENDLESS, chunks=True))
        thread = threading.Thread(target=executor.cancel)
        thread.start()
        assert (await collect(stream))[-1].text == "begun"
        thread.join()


async def test_asyncio_debug_mode_has_no_complaints(caplog):
    asyncio.get_running_loop().set_debug(True)
    asyncio.get_running_loop().slow_callback_duration = 10
    async with CodeExecutor(kernel_exit_timeout=300) as executor:
        await executor.execute("1")
        async for _ in executor.stream(ENDLESS, chunks=True):
            break
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(executor.execute(ENDLESS), 0.3)
    assert [record.message for record in caplog.records] == []


async def test_no_warnings_are_given():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with CodeExecutor(kernel_exit_timeout=300) as executor:
            await executor.execute("1")
            await collect(executor.stream("1"))
        del executor
        gc.collect()


async def test_log_messages_go_to_the_logger(caplog):
    with caplog.at_level("DEBUG", logger="ipybox_rs"):
        async with CodeExecutor(log_level="DEBUG") as executor:
            await executor.execute("1")
    assert {record.name for record in caplog.records} == {"ipybox_rs"}


async def test_a_log_handler_that_fails_breaks_nothing():
    import logging

    class Failing(logging.Handler):
        def handle(self, record):
            raise ValueError("failing")

    logger, handler = logging.getLogger("ipybox_rs"), Failing()
    logger.addHandler(handler)
    try:
        async with CodeExecutor(log_level="DEBUG") as executor:
            assert (await executor.execute("1")).text == "1"
    finally:
        logger.removeHandler(handler)


async def test_the_kernel_of_a_reset_executor_leaves_nothing(workspace):
    async with CodeExecutor() as executor:
        kernel = int((await executor.execute("import os; os.getpid()")).text)
        stream = await begun(executor.stream(ENDLESS, chunks=True))
        await executor.reset()
        with pytest.raises(KernelLostError):
            await collect(stream)
        new = int((await executor.execute("import os; os.getpid()")).text)
        # The first one's states of undo end with it, a moment later.
        await until(lambda: not group(kernel) & set(workspace.processes()))
        assert new in workspace.processes()


def group(leader: int) -> set[int]:
    """The processes of a process group."""
    lines = subprocess.check_output(["ps", "-eo", "pid=,pgid="], text=True).splitlines()
    return {int(pid) for pid, group in map(str.split, lines) if int(group) == leader}


def test_garbage_can_be_collected_at_any_line_of_the_library(workspace):
    """Destructors of executors, streams and requests use the host, also in the midst of what uses it already."""
    done = workspace.run(f"""
        import asyncio, faulthandler, gc, sys, threading, warnings
        from ipybox_rs import CodeExecutor, HostError
        from ipybox_rs import _host

        # A destructor that waits for what it interrupts waits for ever: this says where.
        faulthandler.dump_traceback_later({SECONDS}, exit=True)
        warnings.simplefilter("ignore")
        garbage = []

        class Dropped:
            # What the destructors of streams, requests and executors do.
            def __init__(self, host):
                self.host, self.held, self.me = host, _host.HeldHost(), self
            def __del__(self):
                self.host.post("stream/close", stream=10**6)

        def tracer(frame, event, argument):
            if not frame.f_code.co_filename.endswith("_host.py"):
                return None
            if garbage:
                garbage.pop()
                gc.collect()
            return tracer

        async def main():
            async with CodeExecutor() as executor:
                for _ in range(5):
                    garbage.extend(Dropped(_host._host) for _ in range(200))
                    threading.settrace(tracer)
                    sys.settrace(tracer)
                    async with CodeExecutor() as other:
                        await other.execute("1")
                        async for item in other.stream("print(1)", chunks=True):
                            pass
                    sys.settrace(None)
                    threading.settrace(None)
                print((await executor.execute("'alive'")).text)
        gc.disable()
        asyncio.run(main())
    """)
    assert done.stdout == "'alive'\n", done.stderr[-3000:]
