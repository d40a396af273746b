"""The end of a kernel that is asked to end: what Python does for a script, so that nothing that was written is lost.

Tasks are cancelled, threads are waited for, `atexit` functions run, and what code has left is finalized. Only the modules
of libraries are not taken apart, which would take longer than all the rest. What takes too long is interrupted, so that
the next step has its turn. Standard library only.
"""

import atexit
import contextlib
import gc
import io
import os
import signal
import sys
import threading
import types

from ipybox_frames import is_library

# The part of the time after which code is interrupted for the first time, and between further interrupts.
FIRST_PART, NEXT_PART = 0.7, 0.1
# Files that keep what was written to them in a buffer: text first, since it is written to a file of bytes.
BUFFERED = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
# Values that code refers to by name (functions, classes and modules), and values that do nothing at their end.
NEEDED = (
    types.BuiltinFunctionType,
    types.FunctionType,
    types.ModuleType,
    type,
    bytes,
    complex,
    float,
    int,
    str,
    type(None),
)


class ExitTookTooLongError(BaseException):
    """Ends code that runs at the kernel's exit for too long."""


def end(shell, loop, seconds, inherited=None):
    """Do what is done at the exit of Python, in so many seconds. Return whether nothing was interrupted.

    What a branch has `inherited` is its origin's: it is not finalized.
    """
    alarm = Alarm(seconds)
    # IPython would delete variables in any order, and collect garbage once more, which takes a while.
    atexit.unregister(shell.atexit_operations)
    shell.displayhook.flush = lambda: None
    if loop is not None and not loop.is_closed():
        alarm.limit(lambda: end_tasks(loop))
    alarm.limit(threading._shutdown)
    alarm.limit(atexit._run_exitfuncs)
    alarm.limit(lambda: finalize(shell, inherited))
    alarm.limit(flush_files)
    alarm.limit(end_resource_tracker)
    alarm.stop()
    return not alarm.has_rung


class Alarm:
    """Interrupts code of the main thread, again and again."""

    def __init__(self, seconds):
        self.has_rung = False
        self._is_set = False
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, seconds * FIRST_PART, seconds * NEXT_PART)

    def stop(self):
        signal.setitimer(signal.ITIMER_REAL, 0)

    def limit(self, step):
        """Run a step of the exit until it has ended, or is interrupted."""
        try:
            self._is_set = True
            step()
        except ExitTookTooLongError:
            pass
        except BaseException:  # noqa: BLE001 - code's own, such as a `__del__` that is called directly
            sys.excepthook(*sys.exc_info())
        finally:
            self._is_set = False

    def _ring(self, number, frame):
        self.has_rung = True
        if self._is_set:
            raise ExitTookTooLongError("it took too long at the exit of the kernel")


def end_tasks(loop):
    """Cancel the tasks, as `asyncio.run` does at its end, so that they clean up."""
    import asyncio

    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))
    loop.run_until_complete(loop.shutdown_asyncgens())


def finalize(shell, inherited):
    """Let go of what code has made, so that Python finalizes it."""
    ids = inherited.ids if inherited else {}
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        with contextlib.suppress(AttributeError):
            delattr(sys, name)
    shell.last_execution_result = None
    names = shell.user_global_ns
    if not inherited:
        names.get("_oh", {}).clear()
        shell.user_ns_hidden.clear()
    # Values that a `__del__` needs come last.
    forget(names, ids, lambda value: not isinstance(value, NEEDED))
    gc.collect()
    forget(names, ids, lambda value: True)
    forget_modules_of_code(inherited.modules if inherited else ())
    # IPython looks at the working directory, which may have been removed.
    with contextlib.suppress(OSError):
        # It forgets all variables, and removes temporary files.
        if not inherited:
            shell.atexit_operations()
    gc.collect()


def forget(names, ids, is_meant):
    for name in names.keys() - {"__builtin__", "__builtins__", "__name__"}:
        value = names.get(name)
        if ids.get(name) != id(value) and is_meant(value):
            del value
            names.pop(name, None)


def forget_modules_of_code(inherited):
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        is_of_code = isinstance(path, str) and not is_library(path)
        if is_of_code and name not in inherited:
            del sys.modules[name]


def flush_files():
    """Write what is in buffers of files that something else than code's own variables refers to."""
    files = [thing for thing in gc.get_objects() if type(thing) in BUFFERED]
    for file in sorted(files, key=lambda file: BUFFERED.index(type(file))):
        # It may be closed, or its other end.
        with contextlib.suppress(Exception):
            file.flush()


def end_resource_tracker():
    """Let the process that removes shared memory do so: it would be killed with this one's group."""
    tracker = sys.modules.get("multiprocessing.resource_tracker")
    stop = getattr(getattr(tracker, "_resource_tracker", None), "_stop", None)
    if stop is not None:
        stop()


def leave():
    """End this process. The C library writes what is in buffers of its own."""
    # Only ctypes makes this quick.
    ctypes = sys.modules.get("ctypes")
    if ctypes is not None:
        with contextlib.suppress(Exception):
            # Without other threads: they would find their libraries gone.
            ctypes.PyDLL(None).exit(0)
    os._exit(0)
