"""A server over HTTP that speaks MCP 2026-07-28 alone, and wants an argument of its tool in a header as well. Prints its port."""

import json
import socket
from typing import Annotated

import uvicorn
from mcp.server.mcpserver import MCPServer
from pydantic import Field

server = MCPServer("headers")


@server.tool()
def where(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
) -> str:
    return "in " + region


served = server.streamable_http_app()


async def app(scope, receive, send):
    headers = dict(scope.get("headers", []))
    if scope["type"] == "http" and b"mcp-method" not in headers:
        body = json.dumps(
            {"jsonrpc": "2.0", "id": 0, "error": {"code": -32022, "message": "no"}}
        ).encode()
        await send(
            {
                "type": "http.response.start",
                "status": 400,
                "headers": [(b"content-type", b"application/json")],
            }
        )
        return await send({"type": "http.response.body", "body": body})
    await served(scope, receive, send)


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
