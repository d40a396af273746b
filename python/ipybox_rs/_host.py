"""The host process: the program `ipybox`, which has the kernels, the tools and the approval of calls.

All executors of a Python process share one. It is started with the first, ends with the last, and ends by itself if
this process ends in any other way. Requests are lines of JSON-RPC on its stdin, answers come from its stdout; a thread
reads them, so that any event loop, or none, can wait for them.
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
import subprocess
import threading
import warnings
from concurrent.futures import Future, InvalidStateError
from typing import Any

from ipybox_rs import _program
from ipybox_rs._errors import HostError, error_of

_LOGGER = logging.getLogger("ipybox_rs")

_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
}
"""Those of the host's log, and Python's."""

_END_SECONDS = 10.0
"""How long the host may take to end. It kills its kernels first, which takes some milliseconds."""


class Host:
    """A running host process."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._pending: dict[int, Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._level = logging.WARNING
        self.users = 0
        program = _program.find()
        try:
            self._process = subprocess.Popen(
                [program, "json-rpc", "--log-level", "WARNING"],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Ctrl-C in a terminal is for the application, which decides what it ends.
                start_new_session=True,
            )
        except OSError as error:
            raise HostError(f"cannot start the program `{program}`: {error}") from error
        self.ended: Future[None] = Future()
        """Done once the process has ended."""
        reader = threading.Thread(target=self._read, name="ipybox_rs", daemon=True)
        reader.start()
        initialized = self.call("initialize", {})
        initialized.add_done_callback(self._initialized)

    def _initialized(self, answer: Future[Any]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            return
        theirs, ours = answer.result()["version"], _program.version()
        if ours not in (None, theirs):
            program = _program.find()
            reason = (
                f"`{program}` has version {theirs}, and the package `ipybox-rs` {ours}"
            )
            self._fail(HostError(f"{reason}: install the package anew"))

    @property
    def is_usable(self) -> bool:
        """Whether it runs, and belongs to this process, not to the one that this was forked from."""
        return not self.ended.done() and self._owner == os.getpid()

    def call(self, method: str, params: dict[str, Any]) -> Future[Any]:
        """Sends a request. Cancelling the future cancels it in the host too."""
        if self._owner != os.getpid():
            message = "it belongs to the process that this one was forked from: make it in this one"
            raise HostError(message)
        number = next(self._numbers)
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        line = json.dumps(request, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        future: Future[Any] = Future()
        with self._lock:
            if self.ended.done():
                raise HostError("the host process has ended: start a new executor")
            self._pending[number] = future
        self._send(line)
        future.add_done_callback(lambda future: self._cancel(number, future))
        return future

    async def request(self, method: str, **params: Any) -> Any:
        """Sends a request and waits for its answer."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            message = "no asyncio event loop runs here (under trio, open one with trio-asyncio)"
            raise RuntimeError(message) from None
        return await asyncio.wrap_future(self.call(method, params), loop=loop)

    def tell(self, method: str, **params: Any) -> None:
        """Sends a request for whose answer nobody waits. Does nothing if the host has ended."""
        if self.is_usable:
            with contextlib.suppress(HostError):
                self.call(method, params)

    def want_level(self, name: str) -> None:
        """Lets the host log messages of this level too, if it does not yet."""
        level = logging.getLevelName(name)
        if level < self._level:
            self._level = level
            self.tell("log/set_level", level=name)

    def close(self) -> None:
        """Lets the process end; `ended` tells when it has."""
        if self._owner == os.getpid() and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def forget(self) -> None:
        """In a forked process: leaves the process alone."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        # It is no child of this process: nobody here waits for it.
        self._process.returncode = 0

    def _send(self, line: bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        rest = memoryview(line)
        try:
            with self._lock:
                while rest:
                    rest = rest[stdin.write(rest) :]
        except (OSError, ValueError):
            # The reader sees the end too, and tells all that wait.
            pass

    def _cancel(self, number: int, future: Future[Any]) -> None:
        if not future.cancelled():
            return
        with self._lock:
            is_pending = self._pending.pop(number, None) is not None
        if is_pending and self.is_usable:
            message = {"jsonrpc": "2.0", "method": "cancel", "params": {"id": number}}
            self._send(json.dumps(message).encode() + b"\n")

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        reason = ""
        try:
            with io.BufferedReader(stdout, 1 << 16) as lines:  # type: ignore[type-var]
                for line in lines:
                    self._hear(json.loads(line))
        except (OSError, ValueError) as error:
            # It is not the program that belongs to this package.
            reason = f": it does not speak with this package ({error})"
            self._process.kill()
        status = self._process.wait()
        self._fail(
            HostError(f"the host process has ended with status {status}{reason}")
        )

    def _hear(self, message: dict[str, Any]) -> None:
        if message.get("method") == "log":
            params = message["params"]
            _LOGGER.log(
                _LEVELS.get(params["level"], logging.INFO), "%s", params["text"]
            )
            return
        with self._lock:
            future = self._pending.pop(message["id"], None)
        if future is None:
            return
        # It may be cancelled just now.
        with contextlib.suppress(InvalidStateError):
            if "error" in message:
                future.set_exception(error_of(message["error"]))
            else:
                future.set_result(message["result"])

    def _fail(self, error: HostError) -> None:
        with self._lock:
            pending, self._pending = self._pending, {}
            with contextlib.suppress(InvalidStateError):
                self.ended.set_result(None)
        self.close()
        for future in pending.values():
            with contextlib.suppress(InvalidStateError):
                future.set_exception(error)


_lock = threading.Lock()
_host: Host | None = None
_names = itertools.count(1)


def number() -> int:
    """A number for something that the host is to open: it can be closed by it even before it is open."""
    return next(_names)


def acquire() -> Host:
    """The host process, started if there is none. `release` it."""
    global _host
    with _lock:
        if _host is None or not _host.is_usable:
            _host = Host()
        _host.users += 1
        return _host


def release(host: Host) -> None:
    """Ends the host process if this was its last user."""
    global _host
    with _lock:
        host.users -= 1
        if host.users > 0:
            return
        if _host is host:
            _host = None
    host.close()


async def release_and_wait(host: Host) -> None:
    """As `release`; waits until the process has ended, if this was its last user."""
    release(host)
    if host.users == 0 and host.is_usable:
        ended: Future[None] = Future()
        # Cancelling the wait must not cancel `host.ended`.
        host.ended.add_done_callback(lambda _: ended.done() or ended.set_result(None))
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(ended), _END_SECONDS)


class Held:
    """Holds the host for an object, until it is closed or collected."""

    def __init__(self) -> None:
        self.host = acquire()
        self._is_released = False

    async def release(self) -> None:
        if not self._is_released:
            self._is_released = True
            await release_and_wait(self.host)

    def release_now(self) -> None:
        if not self._is_released:
            self._is_released = True
            release(self.host)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.release_now()


def unclosed(what: object) -> None:
    """Warns of an object that was collected before it was closed."""
    with contextlib.suppress(Exception):
        warnings.warn(f"unclosed {what!r}", ResourceWarning, stacklevel=3, source=what)


def place(
    connect_timeout: float | None = None, state_dir: str | None = None
) -> dict[str, Any]:
    """Where this process is, for the host."""
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
    host = _host
    if host is not None and host.is_usable:
        host.close()
        with contextlib.suppress(Exception):
            host.ended.result(_END_SECONDS)


def _forked() -> None:
    """In the new process: the parent's host is the parent's."""
    global _lock, _host
    _lock = threading.Lock()
    if _host is not None:
        _host.forget()
        _host = None


os.register_at_fork(after_in_child=_forked)
