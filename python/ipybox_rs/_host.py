"""The host process: the program `ipybox`, which has the kernels, the tools and the approval of calls.

All executors of a Python process share one. It is started with the first, ends with the last, and ends by itself if
this process ends in any other way. Requests are lines of JSON-RPC on its stdin, answers come from its stdout. A thread
reads and one writes what is long, so that any event loop, or none, can wait for answers, and no caller waits for a full
pipe.

Destructors use the host too, and the garbage collector runs them anywhere, also in the midst of a function here. So
what they call takes no lock: `HostProcess.post`, `HeldHost.release_soon`.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import io
import itertools
import json
import logging
import os
import select
import signal
import subprocess
import threading
import warnings
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from queue import SimpleQueue
from typing import Any

from ipybox_rs import _program
from ipybox_rs._errors import HostError, error_of
from ipybox_rs._messages import line_of

_LOGGER = logging.getLogger("ipybox_rs")

_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
}
"""Those of the host's log, and Python's."""

_START_SECONDS = 30.0
"""The longest wait for the host's first answer, which takes milliseconds, and seconds on a machine with much to do."""

_END_SECONDS = 10.0
"""The longest wait for the host's end. It kills its kernels first, which takes some milliseconds."""


class HostProcess:
    """A running host process."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._pending: dict[int, Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._level = logging.WARNING
        self._failure = ""
        # `put` is the one way to hand something to another thread that destructors can use.
        self._outgoing: SimpleQueue[bytes | Callable[[], None] | None] = SimpleQueue()
        self._unsent: deque[bytes] = deque()
        self._writing = threading.Lock()
        self.users = 0
        self._program = _program.find()
        self._impatience = threading.Timer(_START_SECONDS, self._is_silent)
        threads: list[threading.Thread] = [self._impatience]
        threads += [threading.Thread(target=work) for work in (self._read, self._write)]
        try:
            for thread in threads:
                thread.name, thread.daemon = "ipybox_rs", True
            self._process = subprocess.Popen(
                [self._program, "json-rpc", "--log-level", "WARNING"],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Ctrl-C in a terminal is for the application, which decides what it ends.
                start_new_session=True,
            )
        except (OSError, RuntimeError) as error:
            # A `RuntimeError`: not in this subinterpreter.
            raise HostError(
                f"cannot start the program `{self._program}`: {error}"
            ) from error
        assert self._process.stdin is not None
        self._stdin = self._process.stdin
        os.set_blocking(self._stdin.fileno(), False)
        self.ended: Future[None] = Future()
        """Done once the process has ended."""
        _living.add(self)
        try:
            for thread in threads:
                thread.start()
        except RuntimeError as error:
            # No more threads are allowed.
            self._give_up(f"cannot start a thread for `{self._program}`: {error}")
            with self._process:
                raise HostError(self._failure) from error
        self.call("initialize", {}).add_done_callback(self._initialized)

    def _initialized(self, answer: Future[Any]) -> None:
        self._impatience.cancel()
        try:
            theirs, ours = answer.result()["version"], _program.version()
        except Exception as error:  # noqa: BLE001
            # After its end, which has a reason of its own, this changes nothing.
            reason = (
                f"does not speak with this package ({type(error).__name__}: {error})"
            )
            self._give_up(f"the program `{self._program}` {reason}")
            return
        if ours is not None and not _program.is_same(ours, theirs):
            reason = f"has version {theirs}, and the package `ipybox-rs` {ours}: install the package anew"
            self._give_up(f"the program `{self._program}` {reason}")

    def _is_silent(self) -> None:
        self._give_up(
            f"the program `{self._program}` has not answered within {_START_SECONDS:g} seconds"
        )

    @property
    def is_usable(self) -> bool:
        """True if it runs, and belongs to this process, not to the one that this was forked from."""
        return self._owner == os.getpid() and not self.ended.done()

    @property
    def is_foreign(self) -> bool:
        """True if it belongs to the process that this one was forked from."""
        return self._owner != os.getpid()

    def call(self, method: str, params: dict[str, Any]) -> Future[Any]:
        """Sends a request. Cancelling the future cancels it in the host too."""
        if self.is_foreign:
            message = "it belongs to the process that this one was forked from: make it in this one"
            raise HostError(message)
        number = next(self._numbers)
        line = line_of(
            {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        )
        future: Future[Any] = Future()
        self._pending[number] = future
        # Looked at after the request is among those that `_fail` ends: one of the two sees the other.
        if self.ended.done():
            self._pending.pop(number, None)
            raise HostError(self._failure)
        future.add_done_callback(lambda future: self._cancel(number, future))
        self._send(line)
        return future

    async def request(self, method: str, **params: Any) -> Any:
        """Sends a request and waits for its answer."""
        loop = running_loop()
        return await asyncio.wrap_future(self.call(method, params), loop=loop)

    async def finish(self, method: str, **params: Any) -> None:
        """As `request`, for what ends something: cancelling the wait does not cancel it, and a host that has ended has
        ended it.
        """
        if self.is_usable:
            with contextlib.suppress(HostError):
                finished = self.call(method, params)
                await _done(finished)
                finished.result()

    def post(self, method: str, **params: Any) -> None:
        """Sends a request for whose answer nobody waits. Does nothing if the host has ended."""
        if self.is_usable:
            with contextlib.suppress(HostError):
                self.call(method, params)

    def soon(self, function: Callable[[], None]) -> None:
        """Calls a function in a thread that holds no lock, after what was sent before."""
        if not self.is_foreign:
            self._outgoing.put(function)

    def want_level(self, name: str) -> None:
        """Lets the host log messages of this level too, if it does not yet."""
        level = logging.getLevelName(name)
        if level < self._level:
            self._level = level
            self.post("log/set_level", level=name)

    def close(self) -> None:
        """Lets the process end after what was sent before; `ended` says when it has."""
        if not self.is_foreign:
            self._outgoing.put(None)

    def kill(self) -> None:
        """Ends a process that does not end when it should."""
        with contextlib.suppress(OSError):
            # It leads its group. Once it was waited for, the number may be another's.
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def forget(self) -> None:
        """In a forked process: leaves the process alone."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        # It is no child of this process: nobody here waits for it.
        self._process.returncode = 0

    def _send(self, line: bytes) -> None:
        """Sends a line at once, if nothing waits and the pipe takes it; else by the thread, which takes longer."""
        is_short = len(line) <= select.PIPE_BUF
        # A destructor may run while this very thread writes.
        if is_short and not self._unsent and self._writing.acquire(blocking=False):
            try:
                # A pipe takes a short line whole or not at all.
                if self._stdin.write(line) is not None:
                    return
            except (OSError, ValueError):
                # The reader sees the end too, and reports it to all that wait.
                return
            finally:
                self._writing.release()
        self._unsent.append(line)
        self._outgoing.put(line)

    def _write(self) -> None:
        room = select.poll()
        room.register(self._stdin, select.POLLOUT)
        while (item := self._outgoing.get()) is not None:
            if not isinstance(item, bytes):
                item()
                continue
            rest = memoryview(item)
            # The reader sees the end too, and reports it to all that wait.
            with self._writing, contextlib.suppress(OSError, ValueError):
                while rest:
                    room.poll()
                    rest = rest[self._stdin.write(rest) or 0 :]
            self._unsent.popleft()
        # Not while another thread writes: its number may then be another file's.
        with self._writing, contextlib.suppress(OSError):
            self._stdin.close()

    def _cancel(self, number: int, future: Future[Any]) -> None:
        if future.cancelled() and self._pending.pop(number, None) is not None:
            self._send(
                line_of(
                    {"jsonrpc": "2.0", "method": "cancel", "params": {"id": number}}
                )
            )

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        reason = ""
        try:
            with io.BufferedReader(stdout, 1 << 16) as lines:  # type: ignore[type-var]
                for line in lines:
                    self._hear(json.loads(line))
        except Exception as error:  # noqa: BLE001
            # It is not the program that belongs to this package. Whatever fails here, those that wait must know.
            reason = f": it does not speak with this package ({type(error).__name__}: {error})"
            self.kill()
        status = self._process.wait()
        self._fail(
            f"the host process `{self._program}` has ended with status {status}{reason}"
        )

    def _hear(self, message: dict[str, Any]) -> None:
        if message.get("method") == "log":
            params = message["params"]
            # A handler of the application's that fails is not the host's failure.
            with contextlib.suppress(Exception):
                _LOGGER.log(
                    _LEVELS.get(params["level"], logging.INFO), "%s", params["text"]
                )
            return
        future = self._pending.pop(message["id"], None)
        if future is None:
            return
        error = error_of(message["error"]) if "error" in message else None
        # It may be cancelled just now.
        with contextlib.suppress(InvalidStateError):
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(message["result"])

    def _give_up(self, failure: str) -> None:
        self._fail(failure)
        self.kill()

    def _fail(self, failure: str) -> None:
        self._failure = self._failure or failure
        _living.discard(self)
        self._impatience.cancel()
        with contextlib.suppress(InvalidStateError):
            self.ended.set_result(None)
        self.close()
        while self._pending:
            with contextlib.suppress(KeyError, InvalidStateError):
                self._pending.popitem()[1].set_exception(HostError(self._failure))


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop that runs here.

    Raises:
        RuntimeError: None of asyncio's does.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        message = (
            "no asyncio event loop runs here (under trio, open one with trio-asyncio)"
        )
        raise RuntimeError(message) from None


_lock = threading.Lock()
_host: HostProcess | None = None
_living: set[HostProcess] = set()
"""Those whose processes have not ended."""
_names = itertools.count(1)


def number() -> int:
    """A number for something that the host is to open: it can be closed by it even before it is open."""
    return next(_names)


def acquire() -> HostProcess:
    """The host process, started if there is none. `release` it."""
    global _host
    with _lock:
        if _host is None or not _host.is_usable:
            _host = HostProcess()
        _host.users += 1
        return _host


def release(host: HostProcess) -> None:
    """Ends the host process if this was its last user. Not for destructors."""
    global _host
    with _lock:
        host.users -= 1
        if host.users > 0:
            return
        if _host is host:
            _host = None
    host.close()


async def release_and_wait(host: HostProcess) -> None:
    """As `release`; waits until the process has ended, if this was its last user."""
    release(host)
    if host.users == 0 and host.is_usable:
        try:
            await asyncio.wait_for(_done(host.ended), _END_SECONDS)
        except asyncio.TimeoutError:
            host.kill()


async def _done(future: Future[Any]) -> None:
    """Waits until a future is done; cancelling the wait does not cancel it."""
    loop = running_loop()
    waiting: Future[None] = Future()

    def stop_waiting(_: Future[Any]) -> None:
        with contextlib.suppress(InvalidStateError):
            waiting.set_result(None)

    future.add_done_callback(stop_waiting)
    await asyncio.wrap_future(waiting, loop=loop)


class HeldHost:
    """Holds the host for an object, until it is closed or collected."""

    def __init__(self) -> None:
        self._is_released = True
        self.host = acquire()
        self._is_released = False

    async def release(self) -> None:
        if not self._is_released:
            self._is_released = True
            await release_and_wait(self.host)

    def release_soon(self) -> None:
        """Does not wait. For destructors too."""
        if not self._is_released:
            self._is_released = True
            host = self.host
            host.soon(lambda: release(host))

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.release_soon()


def unclosed(what: object) -> None:
    """Warns of an object that was collected before it was closed."""
    with contextlib.suppress(Exception):
        warnings.warn(f"unclosed {what!r}", ResourceWarning, stacklevel=3, source=what)


def place(
    connect_timeout: float | None = None, state_dir: str | None = None
) -> dict[str, Any]:
    """The directory and the environment of this process, for the host."""
    place: dict[str, Any] = {"directory": os.getcwd(), "environment": environment()}
    if connect_timeout is not None:
        place["connect_timeout"] = connect_timeout
    if state_dir is not None:
        place["state_dir"] = state_dir
    return place


def environment() -> dict[str, str]:
    """The variables of this process as they are now, without those that are no Unicode."""
    return {
        name: value
        for name, value in os.environ.items()
        if _is_text(name) and _is_text(value)
    }


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@atexit.register
def _end() -> None:
    for host in list(_living):
        host.close()
        try:
            host.ended.result(_END_SECONDS)
        except FutureTimeoutError:
            host.kill()


def _forked() -> None:
    """In the new process: the parent's host is the parent's."""
    global _lock, _host
    _lock = threading.Lock()
    _host = None
    for host in list(_living):
        host.forget()
    _living.clear()


os.register_at_fork(after_in_child=_forked)
