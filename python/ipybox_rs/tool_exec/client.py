"""`ToolRunner`: calls tools through a tool server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipybox_rs import _checks, _host
from ipybox_rs._errors import (
    ApprovalRejectedError,
    ApprovalTimeoutError,
    ToolRunnerError,
)
from ipybox_rs.tool_exec import _tokens

__all__ = [
    "ApprovalRejectedError",
    "ApprovalTimeoutError",
    "ToolRunner",
    "ToolRunnerError",
    "reset",
]


class ToolRunner:
    """Calls the tools of one MCP server through a `ToolServer`, in this process or another.

    ```python
    async with ToolServer(port=8900):
        runner = ToolRunner(
            server_name="fetch",
            server_params={"command": "uvx", "args": ["mcp-server-fetch"]},
            port=8900,
        )
        result = await runner.run("fetch", {"url": "https://example.com"})
    ```
    """

    def __init__(
        self,
        server_name: str,
        server_params: Mapping[str, Any] | None = None,
        host: str = "localhost",
        port: int = 8900,
        *,
        token: str | None = None,
        host_token: str | None = None,
    ) -> None:
        """Sets what to call.

        Args:
            server_name: The server's name.
            server_params: How the tool server reaches the MCP server. The first call registers it, which needs the host
                token. `None` if it is registered there already.
            host: The host of the tool server.
            port: The port of the tool server.
            token: The tool server's caller token. Default: that of the server of this process on the port, else the
                variable `IPYBOX_TOOL_SERVER_TOKEN`.
            host_token: The tool server's host token. Default: as for `token`, `IPYBOX_TOOL_SERVER_HOST_TOKEN`.
        """
        self.server_name = _checks.text("server_name", server_name)
        self.server_params = (
            None
            if server_params is None
            else _checks.mapping("server_params", server_params)
        )
        self.host = _checks.text("host", host)
        self.port = port
        _checks.port("port", port)
        self._token = _checks.optional_text("token", token)
        self._host_token = _checks.optional_text("host_token", host_token)
        self._held: _host.HeldHost | None = None
        self._registered_at: str | None = None

    async def run(self, tool_name: str, tool_args: Mapping[str, Any]) -> Any:
        """Calls a tool. Cancelling the task cancels the call.

        There is no timeout: the call waits for approval and for the tool.

        Args:
            tool_name: The tool's name.
            tool_args: Its arguments.

        Returns:
            A dict if the tool has structured output, otherwise its text, and `None` if it returns nothing. Images and
            other binary data are named in the text.

        Raises:
            ApprovalRejectedError: The call was rejected, or nobody could be asked.
            ApprovalTimeoutError: Nobody answered in time.
            ToolRunnerError: The tool failed, or the tool server cannot be reached or refuses the request.
        """
        host = self._open()
        if self._is_new():
            await host.request("tool_runner/register", **self._registration())
            self._registered_at = self._at()["host_token"]
        return (
            await host.request("tool_runner/run", **self._call(tool_name, tool_args))
        )["value"]

    def run_sync(self, tool_name: str, tool_args: Mapping[str, Any]) -> Any:
        """As `run`, and blocks until the tool has returned. Not for code of an event loop that answers approvals."""
        host = self._open()
        if self._is_new():
            host.call("tool_runner/register", self._registration()).result()
            self._registered_at = self._at()["host_token"]
        running = host.call("tool_runner/run", self._call(tool_name, tool_args))
        try:
            return running.result()["value"]
        except BaseException:
            running.cancel()
            raise
        finally:
            # Its exception refers to this frame, and would keep the runner, and with it the host process.
            del running

    async def reset(self) -> None:
        """Closes the tool server's connections to all MCP servers; the next calls open them again.

        Raises:
            ToolRunnerError: The tool server cannot be reached, or refuses the host token.
        """
        await self._open().request("tool_runner/reset", **self._at())

    def _open(self) -> _host.HostProcess:
        if self._held is None or not self._held.host.is_usable:
            self._held = _host.HeldHost()
        return self._held.host

    def _at(self) -> dict[str, Any]:
        return {
            "server_name": self.server_name,
            "host": self.host,
            "port": self.port,
            "token": _tokens.token(self.port, self._token),
            "host_token": _tokens.host_token(self.port, self._host_token),
        }

    def _is_new(self) -> bool:
        token = self._at()["host_token"]
        return (
            self.server_params is not None
            and token is not None
            and token != self._registered_at
        )

    def _registration(self) -> dict[str, Any]:
        return {"at": self._at(), "server_params": self.server_params}

    def _call(self, tool_name: str, tool_args: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "at": self._at(),
            "tool_name": _checks.text("tool_name", tool_name),
            "tool_args": _jsonable(_checks.mapping("tool_args", tool_args)),
        }


async def reset(
    host: str = "localhost", port: int = 8900, *, host_token: str | None = None
) -> None:
    """Closes a tool server's connections to all MCP servers; the next calls open them again."""
    await ToolRunner("reset", None, host, port, host_token=host_token).reset()


def _jsonable(arguments: Mapping[str, Any]) -> Any:
    """Arguments as JSON has them: models, dates, paths and the like are written as pydantic writes them."""
    try:
        from pydantic_core import to_jsonable_python
    except ImportError:
        return arguments
    return to_jsonable_python(arguments)
