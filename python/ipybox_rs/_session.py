"""A session of the host: what `CodeExecutor` and `KernelClient` have in common."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar

from ipybox_rs import _checks, _host
from ipybox_rs._errors import Cancelled
from ipybox_rs._results import CodeExecutionChunk, CodeExecutionResult
from ipybox_rs.tool_exec.approval.client import ApprovalRequest

Event = TypeVar("Event")


class RunningSession:
    """A session that runs."""

    def __init__(self) -> None:
        self._held = _host.HeldHost()
        self.host = self._held.host
        self.number = _host.number()
        self.working_dir = Path()
        self.notebook: Path | None = None
        self._is_stopped = False

    @classmethod
    async def start(cls, options: dict[str, Any], log_level: str) -> RunningSession:
        """Starts it, and waits until it runs code."""
        session = cls()
        session.host.want_level(log_level)
        options = {"environment": _host.environment(), **options}
        try:
            started = await session.host.request(
                "session/start", session=session.number, options=options
            )
        except BaseException:
            session.abandon()
            raise
        session._take(started)
        return session

    async def reset(self, cells: int | None, to: str | None) -> list[str]:
        """Replaces the kernel, or undoes the last pieces of code. Returns lines about what was not taken back."""
        cells = _checks.count("cells", cells)
        to = _checks.optional_text("to", to)
        return list(await self.request("reset", cells=cells, to=to) or [])

    async def copy(self) -> RunningSession:
        """Starts a session with the variables of this one."""
        session = RunningSession()
        try:
            started = await self.request("copy", copy=session.number)
        except BaseException:
            session.abandon()
            raise
        session._take(started)
        return session

    def _take(self, started: Any) -> None:
        self.working_dir = Path(started["working_dir"])
        if started["notebook"] is not None:
            self.notebook = Path(started["notebook"])

    async def request(self, method: str, **params: Any) -> Any:
        return await self.host.request(
            f"session/{method}", session=self.number, **params
        )

    async def execute(
        self, code: str, timeout: float | None, max_output_chars: int | None
    ) -> CodeExecutionResult:
        options = {
            "code": code,
            "timeout": timeout,
            "max_output_chars": max_output_chars,
            "context": _trace_context(),
        }
        try:
            return CodeExecutionResult.of(await self.request("execute", **options))
        except Cancelled as cancelled:
            return _of_cancelled(cancelled)

    def cancel(self) -> None:
        self.host.post("session/cancel", session=self.number)

    async def stop(self) -> None:
        if self._is_stopped:
            return
        self._is_stopped = True
        try:
            await self.host.finish("session/stop", session=self.number)
        finally:
            await self._held.release()

    def abandon(self) -> None:
        """Stops it without waiting."""
        if not self._is_stopped:
            self._is_stopped = True
            self.host.post("session/stop", session=self.number)
            self._held.release_soon()

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped


class CodeExecution(AsyncIterator[Event], Generic[Event]):
    """Running code: an async iterator over its events, which ends with the result.

    It does nothing before its first event is asked for. Closing it (`aclose`, cancelling the task that waits for an
    event, leaving it to the garbage collector) cancels the code: at once if it waits for other code, by an interrupt
    if it runs. It may be read slowly: approval requests wait then, and code that prints much waits too.
    """

    def __init__(
        self,
        owner: object,
        session: RunningSession,
        params: dict[str, Any],
        convert: Callable[[Any], Event],
    ) -> None:
        # Collecting it stops the session.
        self._owner = owner
        self._session = session
        self._params: dict[str, Any] | None = params
        self._convert = convert
        self._number = _host.number()
        self._is_done = False
        self._is_read = False
        self._waiting: Future[Any] | None = None

    def __aiter__(self) -> CodeExecution[Event]:
        return self

    async def __anext__(self) -> Event:
        if self._is_done:
            raise StopAsyncIteration
        if self._is_read:
            raise RuntimeError("another task waits for the next event of this stream")
        self._is_read = True
        try:
            return self._convert(await self._next())
        except BaseException as error:
            # Another task has closed it while this one waited.
            is_closed = self._is_done and isinstance(error, asyncio.CancelledError)
            self._close()
            if is_closed:
                raise StopAsyncIteration from None
            raise
        finally:
            self._is_read, self._waiting = False, None

    async def _next(self) -> Any:
        host, params, loop = self._session.host, self._params, _host.running_loop()
        numbers = {"stream": self._number}
        if params is None:
            self._waiting = host.call("stream/next", numbers)
        else:
            self._params = None
            numbers["session"] = self._session.number
            params = {**params, "context": _trace_context()}
            self._waiting = host.call("session/stream", {**numbers, **params})
        try:
            event = await asyncio.wrap_future(self._waiting, loop=loop)
        except Cancelled as cancelled:
            self._is_done = True
            return _of_cancelled(cancelled)
        if event["type"] == "approval_request":
            return ApprovalRequest.of(host, event)
        if event["type"] == "chunk":
            return CodeExecutionChunk(event["text"])
        self._is_done = True
        return CodeExecutionResult.of(event)

    async def aclose(self) -> None:
        """Cancels the code, if it has not ended. Does not wait until it has."""
        self._close()
        if self._waiting is not None:
            self._waiting.cancel()
        # As other calls that wait do.
        await asyncio.sleep(0)

    def _close(self) -> None:
        if not self._is_done:
            self._is_done = True
            if self._params is None:
                self._session.host.post("stream/close", stream=self._number)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._close()


def _trace_context() -> dict[str, str]:
    """The current span of OpenTelemetry, if the application uses that: spans of the code are its children."""
    context: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:
        # Importing it fails if it is configured wrongly, which is for the application to notice.
        with contextlib.suppress(Exception):
            import_module("opentelemetry.propagate").inject(context)
    names = ("traceparent", "tracestate")
    return {name: context[name] for name in names if name in context}


def _of_cancelled(cancelled: Cancelled) -> CodeExecutionResult:
    """Cancelling is what the application wanted: no error."""
    cancelled.output.notes.append(str(cancelled))
    return cancelled.output
