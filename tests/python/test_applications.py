"""Applications of every kind: how they end, what they fork, what loop they run."""

import importlib.util
import re
import subprocess
import sys
import time

import pytest
from support import ENDLESS, SECONDS

RUN = """
import asyncio, os, sys
from ipybox_rs import CodeExecutor

async def main():
    async with CodeExecutor(kernel_exit_timeout=300) as executor:
        print((await executor.execute("6 * 7")).text)
"""
"""Begins applications whose `main` prints 42."""

MID_CELL = f"""
import asyncio, os, signal, sys
from ipybox_rs import CodeExecutor

async def main():
    async with CodeExecutor() as executor:
        async for chunk in executor.stream({ENDLESS!r}, chunks=True):
            print("begun", flush=True)
            end()
"""
"""Begins applications that call `end` in mid-cell."""


def needs(module):
    """Skips a test where a package is missing. Importing it here would change this process: trio-asyncio does."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("sys.exit(3)", 3),
        ("os._exit(4)", 4),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("os.kill(os.getpid(), signal.SIGTERM)", -15),
        ("1 / 0", 1),
        ("os.abort()", -6),
    ],
)
def test_no_process_outlives_an_application_that_ends_in_mid_cell(
    workspace, end, status
):
    done = workspace.run(f"{MID_CELL}\ndef end():\n    {end}\nasyncio.run(main())\n")
    assert done.returncode == status, done.stderr
    workspace.assert_empty()


def test_no_process_outlives_an_application_that_stops_nothing(workspace):
    done = workspace.run("""
        import asyncio
        from ipybox_rs import CodeExecutor, ToolServer
        async def main():
            global executor, server
            executor, server = CodeExecutor(kernel_exit_timeout=300), ToolServer(port=0)
            await executor.start()
            await server.start()
            print((await executor.execute("1")).text)
        asyncio.run(main())
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    # At its end, not only soon after.
    assert workspace.processes() == {}


def test_ctrl_c_in_mid_cell_is_a_keyboard_interrupt(workspace):
    application = workspace.start(f"""
        import asyncio
        from ipybox_rs import CodeExecutor
        async def wake():
            # A signal in the moment when an event loop begins to wait is handled with the next event (CPython).
            while True:
                await asyncio.sleep(0.05)
        async def main():
            waking = asyncio.ensure_future(wake())
            try:
                async with CodeExecutor(kernel_exit_timeout=300) as executor:
                    async for chunk in executor.stream({ENDLESS!r}, chunks=True):
                        print("begun", flush=True)
            finally:
                print("stopped", flush=True)
        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted")
    """)
    application.wait_for("begun")
    application.interrupt()
    status, out, err = application.end()
    assert (status, out, err) == (0, "stopped\ninterrupted\n", "")
    workspace.assert_empty()


def test_ctrl_c_in_a_blocking_tool_call_is_a_keyboard_interrupt(workspace, probe):
    application = workspace.start(f"""
        import asyncio, sys, threading, time
        from ipybox_rs import ToolRunner, ToolServer
        server = ToolServer(port=0)
        asyncio.run(server.start())
        runner = ToolRunner("probe", {probe!r}, port=server.port)
        runner.run_sync("echo", {{"text": "the server is connected"}})
        def functions():
            frame = sys._current_frames()[threading.main_thread().ident]
            while frame:
                yield frame.f_code.co_name
                frame = frame.f_back
        def say_when_it_waits():
            while not {{"run_sync", "wait"}} <= set(functions()):
                time.sleep(0.01)
            print("begun", flush=True)
        threading.Thread(target=say_when_it_waits).start()
        try:
            runner.run_sync("slow", {{"seconds": 100}})
        except KeyboardInterrupt:
            print("interrupted")
        asyncio.run(server.stop())
    """)
    application.wait_for("begun")
    application.interrupt()
    status, out, err = application.end()
    assert (status, out) == (0, "interrupted\n"), err


def test_a_forked_child_uses_an_executor_of_its_own_and_the_parent_goes_on(workspace):
    done = workspace.run("""
        import asyncio, os, sys
        from ipybox_rs import CodeExecutor, HostError

        async def use_own():
            async with CodeExecutor() as executor:
                return (await executor.execute("'own'")).text

        executor = CodeExecutor()
        asyncio.run(executor.start())
        asyncio.run(executor.execute("x = 'kept'"))
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(executor.execute("x"))
            except HostError as error:
                print(error)
            print("child", asyncio.run(use_own()), flush=True)
            grandchild = os.fork()
            if grandchild == 0:
                print("grandchild", asyncio.run(use_own()), flush=True)
                os._exit(0)
            os.waitpid(grandchild, 0)
            asyncio.run(executor.stop())
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        print("parent", status, asyncio.run(executor.execute("x")).text)
        asyncio.run(executor.stop())
    """)
    assert done.stdout.splitlines() == [
        "it belongs to the process that this one was forked from: make it in this one",
        "child 'own'",
        "grandchild 'own'",
        "parent 0 'kept'",
    ], done.stderr


def test_a_child_that_was_forked_does_not_keep_the_host_of_a_parent_that_ends(
    workspace,
):
    application = workspace.start("""
        import asyncio, os, signal, time
        from ipybox_rs import CodeExecutor
        executor = CodeExecutor()
        asyncio.run(executor.start())
        print("started", flush=True)
        if os.fork() == 0:
            os.close(1); os.close(2)
            while True: time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    application.wait_for("started")
    application.end()
    until = time.monotonic() + SECONDS
    while workspace.hosts() and time.monotonic() < until:
        time.sleep(0.02)
    assert workspace.hosts() == []
    application.interrupt()


def test_a_child_of_multiprocessing_uses_an_executor_of_its_own(workspace):
    done = workspace.run("""
        import asyncio, multiprocessing
        from ipybox_rs import CodeExecutor

        async def use(number):
            async with CodeExecutor() as executor:
                return (await executor.execute(f"{number} + 1")).text

        def work(number):
            return asyncio.run(use(number))

        async def main():
            async with CodeExecutor() as executor:
                context = multiprocessing.get_context("fork")
                with context.Pool(2) as pool:
                    print(pool.map(work, [1, 2]))
                print((await executor.execute("'parent'")).text)

        if __name__ == "__main__":
            asyncio.run(main())
    """)
    assert done.stdout == "['2', '3']\n'parent'\n", done.stderr


def test_uvloop_runs_it(workspace):
    needs("uvloop")
    done = workspace.run(f"""
        {RUN.replace(chr(10), chr(10) + " " * 8)}
        import uvloop
        uvloop.install()
        asyncio.run(main())
    """)
    assert done.stdout == "42\n", done.stderr


def test_trio_asyncio_runs_it(workspace):
    needs("trio_asyncio")
    done = workspace.run(
        f"{RUN}\nimport trio_asyncio\nasync def outer():\n"
        "    await trio_asyncio.aio_as_trio(main)()\ntrio_asyncio.run(outer)\n"
    )
    assert done.stdout == "42\n", done.stderr


def test_trio_alone_is_a_clear_error(workspace):
    needs("trio")
    done = workspace.run(f"{RUN}\nimport trio\ntrio.run(main)\n")
    assert "RuntimeError: no asyncio event loop runs here" in done.stderr
    assert "trio-asyncio" in done.stderr
    workspace.assert_empty()


def test_nested_event_loops_run_it(workspace):
    needs("nest_asyncio")
    done = workspace.run(
        f"{RUN}\nimport nest_asyncio\nnest_asyncio.apply()\nasync def outer():\n"
        "    asyncio.run(main())\n    asyncio.get_running_loop().run_until_complete(main())\n"
        "asyncio.run(outer())\n"
    )
    assert done.stdout == "42\n42\n", done.stderr


@pytest.mark.parametrize(
    "options", [["-X", "dev", "-W", "error"], ["-O"], ["-OO"], ["-I"], ["-B", "-s"]]
)
def test_options_of_the_interpreter_change_nothing(workspace, options):
    from support import ROOT

    path = f"import sys; sys.path.insert(0, {str(ROOT / 'python')!r})\n"
    done = workspace.run(f"{path}{RUN}\nasyncio.run(main())\n", *options)
    # In its own debug mode, asyncio tells of callbacks that took long: on a busy machine, any may.
    said = [
        line
        for line in done.stderr.splitlines()
        if not re.fullmatch(r"Executing <.* took \S+ seconds", line)
    ]
    assert (done.stdout, said) == ("42\n", [])


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_change_nothing(workspace, closed):
    code = f"""{RUN}
async def result():
    async with CodeExecutor() as executor:
        open("result", "w").write((await executor.execute("print(6 * 7)")).text)
asyncio.run(result())
"""
    command = " ".join([*workspace.command(code), closed])
    subprocess.run(command, shell=True, timeout=SECONDS, check=True)
    assert workspace.directory.joinpath("result").read_text() == "42"


def test_streams_that_are_closed_later_change_nothing(workspace):
    code = f"{RUN}\nos.close(0)\nos.close(1)\nos.close(2)\n" + (
        "async def result():\n"
        "    async with CodeExecutor() as executor:\n"
        "        open('result', 'w').write((await executor.execute('print(6 * 7)')).text)\n"
        "asyncio.run(result())\n"
    )
    workspace.run(code)
    assert workspace.directory.joinpath("result").read_text() == "42"


def test_nothing_is_written_to_the_output_of_the_application(workspace):
    done = workspace.run("""
        import asyncio
        from ipybox_rs import CodeExecutor, CodeExecutionError
        async def main():
            async with CodeExecutor(log_level="DEBUG", kernel_exit_timeout=300) as executor:
                await executor.execute("print('x'); import sys; print('y', file=sys.stderr)")
                await executor.execute("import os; os.write(1, b'one'); os.write(2, b'two'); os.system('echo three')")
                try:
                    await executor.execute("1/0")
                except CodeExecutionError:
                    pass
        asyncio.run(main())
    """)
    assert done.stdout == ""
    assert done.stderr == ""


def test_few_file_descriptors_are_enough_or_a_clear_error(workspace):
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {0}))\n"
    done = workspace.run(f"{limit.format(64)}{RUN}\nasyncio.run(main())\n")
    assert done.stdout == "42\n", done.stderr
    done = workspace.run(f"{RUN}\n{limit.format(8)}\nasyncio.run(main())\n")
    assert done.returncode == 1
    assert "Too many open files" in done.stderr


def test_an_application_that_blocks_signals_works(workspace):
    done = workspace.run(
        "import signal\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
        f"signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n{RUN}\n"
        "async def interrupted():\n"
        "    async with CodeExecutor() as executor:\n"
        "        try:\n"
        "            await executor.execute('while True: pass', timeout=.3)\n"
        "        except asyncio.TimeoutError as error:\n"
        "            print(error.variables_kept)\n"
        "asyncio.run(main())\nasyncio.run(interrupted())\n"
    )
    assert done.stdout == "42\nTrue\n", done.stderr


def test_an_application_that_ignores_its_children_works(workspace):
    ignore = "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    done = workspace.run(f"{ignore}{RUN}\nasyncio.run(main())\n")
    assert done.stdout == "42\n", done.stderr


def test_a_host_process_that_hangs_is_killed_at_the_end(workspace):
    done = workspace.run(f"""{RUN}
import signal
from ipybox_rs import _host
_host._END_SECONDS = 0.2
executor = CodeExecutor()
asyncio.run(executor.start())
os.kill(_host._host._process.pid, signal.SIGSTOP)
""")
    assert done.returncode == 0, done.stderr
    workspace.assert_empty()


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="interpreters with a lock of their own"
)
def test_a_subinterpreter_runs_it_or_says_why_not(workspace):
    done = workspace.run(f"""
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        interpreter = interpreters.create()
        code = {RUN + "asyncio.run(main())"!r}
        try:
            failed = interpreters.run_string(interpreter, code)
        except Exception as error:
            failed = error
        if failed:
            print(getattr(failed, "formatted", failed), flush=True)
    """)
    # Not its status: asyncio alone makes CPython 3.12.1 crash at the end of a subinterpreter.
    assert done.stdout == "42\n" or "HostError" in done.stdout, (
        done.stdout,
        done.stderr,
    )


@pytest.mark.parametrize("kind", ["thread", "atexit"])
def test_an_executor_can_be_used_while_the_application_ends(workspace, kind):
    uses = {
        "thread": "import threading\nthreading.Thread(target=asyncio.run, args=[main()]).start()\n",
        "atexit": "import atexit\natexit.register(lambda: asyncio.run(main()))\n",
    }
    done = workspace.run(f"{RUN}\n{uses[kind]}")
    # Python 3.12.0 and 3.12.1 start no thread at that time.
    is_refused = (
        sys.version_info[:2] == (3, 12) and "can't create new thread" in done.stderr
    )
    assert done.stdout == "42\n" or is_refused, done.stderr
