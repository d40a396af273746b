"""`ApprovalChannel`: asks for approval over a WebSocket of your own web application."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Protocol
from uuid import uuid4

from ipybox_rs import _checks
from ipybox_rs._errors import Timeout

__all__ = ["ApprovalChannel"]


class WebSocket(Protocol):
    """The methods of a WebSocket that are needed: that of Starlette and FastAPI has them."""

    async def accept(self) -> None: ...
    async def send_text(self, data: str) -> None: ...
    async def receive_text(self) -> str: ...
    async def close(self, code: int = 1000, reason: str | None = None) -> None: ...


class ApprovalChannel:
    """Asks the client of a WebSocket for approval.

    The messages are those of a tool server's approval channel, so an `ApprovalClient` can be the client. A
    `ToolServer` has a channel of its own; this one is for an application that asks for itself.
    """

    def __init__(
        self, approval_required: bool = False, approval_timeout: float | None = 60
    ) -> None:
        """Sets the options.

        Args:
            approval_required: Whether `request` asks; otherwise it returns `True`.
            approval_timeout: How long a request waits for its answer, in seconds; `None`: no limit.
        """
        self.approval_required = approval_required
        self.approval_timeout = _checks.seconds("approval_timeout", approval_timeout)
        self._websocket: WebSocket | None = None
        self._requests: dict[str, asyncio.Future[bool]] = {}
        self._left = asyncio.Event()
        self._left.set()

    @property
    def open(self) -> bool:
        """True if a client is connected."""
        return self._websocket is not None

    async def connect(self, websocket: WebSocket) -> None:
        """Accepts a connection and handles its answers until it ends."""
        await websocket.accept()
        if self._websocket is not None:
            await websocket.close(1008, "another approval client is connected")
            return
        self._websocket = websocket
        self._left.clear()
        try:
            while True:
                self._hear(await websocket.receive_text())
        except Exception as error:
            # Starlette raises an exception of its own at the end, which is not ours to import.
            if type(error).__name__ not in ("WebSocketDisconnect", "RuntimeError"):
                raise
        finally:
            # It may have been closed already, and another one be open.
            if self._websocket is websocket:
                self._leave("the approval client has disconnected")

    async def disconnect(self) -> None:
        """Closes the connection. Open requests fail."""
        websocket = self._websocket
        self._leave("the approval channel was closed")
        if websocket is not None:
            await websocket.close()

    async def join(self, timeout: float = 5) -> None:
        """Waits until the client has left.

        Raises:
            TimeoutError: It has not, after `timeout` seconds.
        """
        try:
            await asyncio.wait_for(self._left.wait(), timeout)
        except asyncio.TimeoutError:
            raise Timeout(
                f"the approval client has not left within {timeout} s"
            ) from None

    async def request(
        self, server_name: str, tool_name: str, tool_args: dict[str, Any]
    ) -> bool:
        """Asks for approval of a tool call.

        Returns:
            Whether it was accepted.

        Raises:
            RuntimeError: No client is connected, or it has left.
            TimeoutError: It did not answer in time.
        """
        if not self.approval_required:
            return True
        websocket = self._websocket
        if websocket is None:
            raise RuntimeError("ask for approval: no approval client is connected")
        number = uuid4().hex
        params = {
            "server_name": server_name,
            "tool_name": tool_name,
            "tool_args": tool_args,
            # The messages have it. What the application does itself has no MCP server.
            "target": "host",
        }
        request = {
            "jsonrpc": "2.0",
            "method": "approve",
            "params": params,
            "id": number,
        }
        answered = asyncio.get_running_loop().create_future()
        self._requests[number] = answered
        try:
            await websocket.send_text(json.dumps(request))
            return bool(await asyncio.wait_for(answered, self.approval_timeout))
        except asyncio.TimeoutError:
            message = f"ask for approval: no answer within {self.approval_timeout} s"
            raise Timeout(message) from None
        finally:
            self._requests.pop(number, None)

    def _hear(self, text: str) -> None:
        try:
            message = json.loads(text)
            number, result = message["id"], message.get("result", False)
            answered = self._requests.get(number)
        except (ValueError, TypeError, KeyError, AttributeError):
            return
        if answered is not None and not answered.done():
            answered.set_result(result in (True, "session", "always"))

    def _leave(self, reason: str) -> None:
        self._websocket = None
        self._left.set()
        for answered in self._requests.values():
            if not answered.done():
                answered.set_exception(RuntimeError(f"ask for approval: {reason}"))
