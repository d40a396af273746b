"""`KernelClient`: a kernel without tools."""

from __future__ import annotations

import asyncio
import os
from typing import Any
from uuid import uuid4

from ipybox_rs import _checks, _host
from ipybox_rs._contexts import Connectable
from ipybox_rs._errors import CodeExecutionError as ExecutionError
from ipybox_rs._errors import StartError
from ipybox_rs._options import gateway_options, interpreter
from ipybox_rs._results import CodeExecutionChunk
from ipybox_rs._results import CodeExecutionResult as ExecutionResult
from ipybox_rs._session import CodeExecution, RunningSession
from ipybox_rs.kernel_mgr import server

__all__ = ["ExecutionError", "ExecutionResult", "KernelClient"]


class KernelClient(Connectable):
    """Runs Python code in an IPython kernel of its own that has no tools.

    If this process has a `KernelGateway` with this port, its options say how the kernel is started. Otherwise, a
    Jupyter Server, Kernel Gateway or Enterprise Gateway must listen on the port, and runs the kernel.

    ```python
    async with KernelGateway(port=8888):
        async with KernelClient(port=8888) as client:
            async for item in client.stream("print('hello')"):
                match item:
                    case str():
                        print(f"Chunk: {item}")
                    case ExecutionResult():
                        print(f"Result: {item.text}")
    ```
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int = 8888,
        images_dir: str | os.PathLike[str] | None = None,
        ping_interval: float = 10,
        *,
        kernel_init_timeout: float = 60,
        python: str | os.PathLike[str] | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        token: str | None = None,
        kernel_name: str | None = None,
        undo_memory: int | None = None,
    ) -> None:
        """Sets the options.

        Args:
            host: The host of the gateway.
            port: The port of the gateway.
            images_dir: Where images are saved; default: `images` in the current directory.
            ping_interval: Has no effect.
            kernel_init_timeout: How long the kernel may take to start, in seconds.
            python: As for `CodeExecutor`. Has no effect on a server of Jupyter's.
            state_dir: As for `CodeExecutor`.
            token: The token of a server of Jupyter's.
            kernel_name: The kernel spec on a server of Jupyter's.
            undo_memory: As for `CodeExecutor`. Has no effect on a server of Jupyter's.
        """
        self.host = _checks.text("host", host)
        self.port = port
        _checks.port("port", port)
        self.images_dir = images_dir
        self.ping_interval = _checks.seconds("ping_interval", ping_interval)
        self.kernel_init_timeout = kernel_init_timeout
        self._python = python
        self._options: dict[str, Any] = {
            "has_tools": False,
            "images_dir": _checks.path("images_dir", images_dir),
            "kernel_init_timeout": _checks.duration(
                "kernel_init_timeout", kernel_init_timeout
            ),
            "state_dir": _checks.path("state_dir", state_dir),
            "undo_memory": _checks.count("undo_memory", undo_memory),
        }
        self._access = (
            _checks.optional_text("token", token),
            _checks.optional_text("kernel_name", kernel_name),
        )
        self._session: RunningSession | None = None
        self._is_connecting = False
        self._gateway: server.KernelGateway | None = None
        self._kernel_id: str | None = None

    def __del__(self) -> None:
        session = getattr(self, "_session", None)
        if session is not None and not session.is_stopped:
            _host.unclosed(self)
            session.abandon()

    @property
    def kernel_id(self) -> str:
        """A name of the running kernel."""
        if self._kernel_id is None:
            raise RuntimeError("not connected to a kernel")
        return self._kernel_id

    async def connect(self, retries: int = 10, retry_interval: float = 1.0) -> None:
        """Starts a kernel, and waits until it runs code.

        Args:
            retries: How often to try, if a server of Jupyter's cannot be reached.
            retry_interval: How long to wait between two tries, in seconds.

        Raises:
            RuntimeError: It is connected already, or no kernel starts (`StartError`).
        """
        interval = _checks.duration("retry_interval", retry_interval)
        if self._session is not None or self._is_connecting:
            raise RuntimeError("the kernel client is connected already")
        self._is_connecting = True
        try:
            await self._connect(retries, interval)
        finally:
            self._is_connecting = False

    async def _connect(self, retries: int, retry_interval: float) -> None:
        gateway = server.find(self.port)
        options = {**self._options, "working_dir": os.getcwd()}
        level, tries = "WARNING", max(1, retries)
        if gateway is None:
            host = f"[{self.host}]" if ":" in self.host else self.host
            options |= gateway_options(
                f"http://{host}:{self.port}", *self._gateway_access()
            )
        else:
            level, tries = gateway.log_level, 1
            options |= {
                "working_dir": gateway.working_dir or os.getcwd(),
                "python": interpreter(self._python),
                "kernel_env": gateway.env,
                "sandbox": gateway.sandbox,
                "sandbox_config": gateway.sandbox_config,
            }
        for attempt in range(tries):
            try:
                self._session = await RunningSession.start(options, level)
                break
            except StartError:
                if attempt + 1 == tries:
                    raise
                await asyncio.sleep(retry_interval)
        self._kernel_id = str(uuid4())
        self._gateway = gateway
        if gateway is not None:
            gateway._clients.add(self)

    def _gateway_access(self) -> tuple[str | None, None, str | None]:
        token, kernel_name = self._access
        return token, None, kernel_name

    async def disconnect(self) -> None:
        """Ends the kernel."""
        session, self._session = self._session, None
        self._kernel_id = None
        if self._gateway is not None:
            self._gateway._clients.discard(self)
            self._gateway = None
        if session is not None:
            await session.stop()

    async def reset(
        self, *, cells: int | None = None, to: str | None = None
    ) -> list[str]:
        """Replaces the kernel by a fresh one, or undoes the last cells, as `CodeExecutor.reset` does.

        Raises:
            ExecutionError: No fresh kernel starts: the next code tries again. Or the state before these cells was not kept.
        """
        remains = await self._running().reset(cells, to)
        if cells is None and to is None:
            self._kernel_id = str(uuid4())
        return remains

    def cancel(self) -> None:
        """Interrupts the running code and cancels code that waits, as `CodeExecutor.cancel` does."""
        if self._session is not None:
            self._session.cancel()

    def _running(self) -> RunningSession:
        if self._session is None:
            raise RuntimeError(
                "not connected to a kernel: use `async with`, or `await connect()`"
            )
        return self._session

    async def execute(self, code: str, timeout: float | None = 120) -> ExecutionResult:
        """Runs code to its end, as `CodeExecutor.execute` does.

        Raises:
            ExecutionError: The code raised an exception, or its kernel was lost.
            TimeoutError: The code exceeded its timeout.
        """
        seconds = _checks.seconds("timeout", timeout)
        return await self._running().execute(_checks.text("code", code), seconds, None)

    def stream(
        self, code: str, timeout: float | None = 120
    ) -> CodeExecution[str | ExecutionResult]:
        """Runs code, and yields its output as it is produced, and its result. Otherwise as `execute`."""
        params = {
            "code": _checks.text("code", code),
            "timeout": _checks.seconds("timeout", timeout),
            "chunks": True,
        }
        return CodeExecution(self, self._running(), params, _text_of)


def _text_of(event: Any) -> str | ExecutionResult:
    return event.text if isinstance(event, CodeExecutionChunk) else event
