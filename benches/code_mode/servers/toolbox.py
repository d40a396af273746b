"""Serves the tools of a foreign suite over Streamable HTTP, so that every arm works on the same state.

Beside `/mcp` there is `/task`, which is no part of MCP: what is sent there ends a task, and answers with its end state.
"""

import contextlib
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route


@dataclass(frozen=True)
class Tool:
    """A tool: its description for a model, and the function that answers."""

    description: str
    schema: dict
    function: Callable[..., object]
    result: dict | None = None
    """The schema of what it returns, if it is more than a text."""

    def definition(self, name):
        """For the list of tools."""
        output = self.result is not None and {
            "type": "object",
            "properties": {"result": self.result},
            "required": ["result"],
        }
        return types.Tool(
            name=name,
            description=self.description,
            inputSchema=self.schema,
            outputSchema=output or None,
        )

    def answer(self, arguments):
        """The result of a call."""
        value = self.function(**arguments)
        text = [types.TextContent(type="text", text=str(value))]
        return text if self.result is None else (text, {"result": value})


def server_of(name, tools):
    """An MCP server with these tools."""
    server = Server(name)

    @server.list_tools()
    async def list_tools():
        return [tool.definition(name) for name, tool in tools().items()]

    # The suites' tools check their arguments themselves, and their messages are part of the suite.
    @server.call_tool(validate_input=False)
    async def call_tool(name, arguments):
        return tools()[name].answer(arguments)

    return server


def serve(name, tools, task, announcement):
    """Serves until it is ended. `tools` gives the tools of the present task; the port goes to a file."""
    manager = StreamableHTTPSessionManager(server_of(name, tools), stateless=True)

    @contextlib.asynccontextmanager
    async def lifespan(_application):
        async with manager.run():
            yield

    async def answer(request):
        return JSONResponse(task(await request.json()))

    routes = [
        Route("/task", answer, methods=["POST"]),
        Mount("/mcp", app=manager.handle_request),
    ]
    listener = socket.create_server(("127.0.0.1", 0))
    ready = Path(announcement)
    unfinished = ready.with_suffix(".part")
    unfinished.write_text(json.dumps({"port": listener.getsockname()[1]}))
    unfinished.rename(ready)
    application = Starlette(routes=routes, lifespan=lifespan)
    # A connection that rests is not closed: a call could meet the end of it.
    configuration = uvicorn.Config(
        application, log_level="warning", timeout_keep_alive=3600
    )
    uvicorn.Server(configuration).run(sockets=[listener])
