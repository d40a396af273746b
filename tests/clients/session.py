"""One MCP session with the server under test, the same over the official SDK's 1.x and 2.x lines.

Knows how the two lines connect, negotiate and cancel; knows nothing of what is asserted.
"""

import asyncio
import contextlib
import os
from dataclasses import dataclass, field
from datetime import timedelta

import mcp
from mcp import StdioServerParameters, types
from mcp.client.stdio import stdio_client

IS_SDK_2 = hasattr(mcp, "Client")
RequestError = mcp.MCPError if IS_SDK_2 else mcp.McpError

PROTOCOLS = {
    "initialize": "the handshake of the revisions up to 2025-11-25",
    "discover": "`server/discover` of revision 2026-07-28 (SDK 2.x only)",
}
"""The ways to open a session."""

DISCOVERED_REVISION = "2026-07-28"


@dataclass
class Outcome:
    """The outcome of a tool call."""

    text: str
    is_error: bool
    is_refused: bool = False
    """The request itself was answered with a protocol error; then `text` is its message."""
    content: list[dict] = field(default_factory=list)


@dataclass
class Progress:
    """A progress notification."""

    progress: float
    message: str


class Session:
    """The server's tools, as calls that never raise for what the server answers."""

    def __init__(self, connection, protocol_version):
        self._connection = connection
        self.protocol_version = protocol_version

    async def tools(self):
        """The server's tools as they are on the wire."""
        listed = await self._connection.list_tools()
        return [tool.model_dump(by_alias=True, mode="json") for tool in listed.tools]

    async def call(
        self, tool, arguments=None, *, on_progress=None, limit_secs=None, meta=None
    ):
        """Calls a tool; `on_progress` gets each `Progress` as it arrives, `meta` is the request's `_meta`.

        `limit_secs` is for how long the client waits; exceeding it is an outcome that `is_refused`.
        """

        async def report(progress, _total, message):
            on_progress(Progress(progress, message or ""))

        try:
            result = await self._connection.call_tool(
                tool,
                arguments or {},
                progress_callback=report if on_progress else None,
                read_timeout_seconds=limit_secs and limit(limit_secs),
                meta=meta,
            )
        except RequestError as error:
            return Outcome(error.error.message, is_error=True, is_refused=True)
        wire = result.model_dump(by_alias=True, mode="json")
        texts = [part["text"] for part in wire["content"] if part["type"] == "text"]
        return Outcome("\n".join(texts), wire["isError"], content=wire["content"])

    async def resources(self):
        """The server's first page of resources as they are on the wire."""
        listed = await self._connection.list_resources()
        return [
            each.model_dump(by_alias=True, mode="json") for each in listed.resources
        ]

    async def read(self, uri):
        """The contents of a resource as they are on the wire; an error's message if it is refused."""
        try:
            result = await self._connection.read_resource(uri)
        except RequestError as error:
            return error.error.message
        return [each.model_dump(by_alias=True, mode="json") for each in result.contents]

    async def cell(self, code, **arguments):
        """Calls `execute_ipython_cell`."""
        return await self.call("execute_ipython_cell", {"code": code, **arguments})

    async def give_up_on(self, tool, arguments, *, after_secs):
        """Calls a tool with a time limit, which has to be exceeded; gives what the SDK says of that."""
        try:
            result = await self._connection.call_tool(
                tool, arguments, read_timeout_seconds=limit(after_secs)
            )
        except RequestError as error:
            return error.error.message
        raise AssertionError(f"the call ended before: {result}")

    async def has_begun_what_was_asked(self):
        """Returns when the server has begun with the calls of tasks that were just made.

        The first answer shows that the tasks have sent their requests, which may be behind this one; the others,
        that the server, which handles requests side by side, has come to them.
        """
        for _ in range(5):
            await self.tools()

    async def cancel_call(self, tool, arguments, *, once):
        """Calls a tool and cancels the request when the awaitable `once` is done."""
        # Only the 1.x line leaves the notification to its user, and hides the request's number: it is
        # the one that the session gives out next.
        request = None if IS_SDK_2 else self._connection._request_id
        call = asyncio.create_task(self.call(tool, arguments))
        await once
        if call.done():
            raise AssertionError(
                f"the call ended before its cancellation: {call.result()}"
            )
        if not IS_SDK_2:
            from mcp.types import (
                CancelledNotification,
                CancelledNotificationParams,
                ClientNotification,
            )

            params = CancelledNotificationParams(
                requestId=request, reason="the test says so"
            )
            cancelled = CancelledNotification(
                method="notifications/cancelled", params=params
            )
            await self._connection.send_notification(ClientNotification(cancelled))
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call


def limit(seconds):
    """A time limit as the SDK takes it."""
    return seconds if IS_SDK_2 else timedelta(seconds=seconds)


@contextlib.asynccontextmanager
async def connect(command, *, protocol="initialize", log=None, on_question=None):
    """Starts `command` with this process's environment and opens a session; `log` gets its standard error.

    `on_question` is a coroutine function that is given the message and the schema of each elicitation and returns the
    result, `{"action": …, "content": …}`; without it the client has no elicitation.
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol must be one of {list(PROTOCOLS)}, not {protocol!r}")
    parameters = StdioServerParameters(
        command=command[0], args=command[1:], env=dict(os.environ)
    )
    options = {}
    if on_question:

        async def answer(_context, params):
            schema = params.requested_schema if IS_SDK_2 else params.requestedSchema
            return types.ElicitResult(**await on_question(params.message, schema))

        options["elicitation_callback"] = answer
    transport = (
        stdio_client(parameters, errlog=log) if log else stdio_client(parameters)
    )
    if IS_SDK_2:
        # "auto" asks `server/discover` and falls back, hence the check.
        mode = {"initialize": "legacy", "discover": "auto"}[protocol]
        async with mcp.Client(transport, mode=mode, cache=None, **options) as client:
            version = client.protocol_version
            if (version == DISCOVERED_REVISION) != (protocol == "discover"):
                raise AssertionError(f"asked for {protocol}, negotiated {version}")
            yield Session(client, version)
    else:
        if protocol != "initialize":
            raise ValueError(f"the SDK's 1.x line has no {protocol!r}")
        async with (
            transport as (read, write),
            mcp.ClientSession(read, write, **options) as session,
        ):
            initialized = await session.initialize()
            yield Session(session, initialized.protocolVersion)
