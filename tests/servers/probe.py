"""A small MCP server of the SDK's 1.x line whose tools answer, fail, stall and die on demand.

`probe.py [--transport stdio|streamable-http|sse] [--port PORT] [--bearer TOKEN]`; over HTTP it prints its URL as the
only line on standard output once it listens. With `--bearer` every request without that token is answered 401.
"""

import argparse
import asyncio
import os
import socket
import sys

import uvicorn
from mcp.server.fastmcp import FastMCP
from mcp.types import ToolAnnotations
from pydantic import BaseModel

server = FastMCP("probe", log_level="CRITICAL")


class Sum(BaseModel):
    """The result of `add`."""

    total: int
    terms: list[int]


class Environment(BaseModel):
    """The result of `env`."""

    values: dict[str, str]


@server.tool(structured_output=False, annotations=ToolAnnotations(readOnlyHint=True))
def echo(text: str) -> str:
    """Gives the text back."""
    return text


@server.tool()
def add(a: int, b: int = 5) -> Sum:
    """Adds two numbers."""
    return Sum(total=a + b, terms=[a, b])


@server.tool(structured_output=False)
def fail(reason: str = "asked to") -> str:
    """Always fails, for the reason given."""
    raise ValueError(f"failed: {reason}")


@server.tool(structured_output=False)
async def slow(seconds: float) -> str:
    """Answers after some seconds."""
    await asyncio.sleep(seconds)
    return f"slept {seconds} s"


@server.tool(structured_output=False)
def crash(code: int = 3) -> str:
    """Ends the server's process without an answer."""
    print("probe: crashing as asked", file=sys.stderr, flush=True)
    os._exit(code)


@server.tool(structured_output=False)
def pid() -> str:
    """The server's process id."""
    return str(os.getpid())


@server.tool()
def env() -> Environment:
    """The server's environment variables."""
    return Environment(values=dict(os.environ))


@server.tool(structured_output=False)
def big(characters: int) -> str:
    """As many characters as asked for."""
    return "x" * characters


def guarded(application, bearer):
    """The ASGI application behind a bearer token."""
    expected = f"Bearer {bearer}".encode()

    async def guard(scope, receive, send):
        if (
            scope["type"] == "http"
            and dict(scope["headers"]).get(b"authorization") != expected
        ):
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"no valid token"})
            return
        await application(scope, receive, send)

    return guard


def serve_http(transport, port, bearer):
    """Serves on loopback until the process ends."""
    # Bound here, because uvicorn does not say which port it was given.
    listener = socket.create_server(("127.0.0.1", port))
    port = listener.getsockname()[1]
    if transport == "sse":
        application, path = server.sse_app(), server.settings.sse_path
    else:
        application, path = (
            server.streamable_http_app(),
            server.settings.streamable_http_path,
        )
    if bearer:
        application = guarded(application, bearer)
    print(f"http://127.0.0.1:{port}{path}", flush=True)
    uvicorn.Server(uvicorn.Config(application, log_level="critical")).run(
        sockets=[listener]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--transport", choices=["stdio", "streamable-http", "sse"], default="stdio"
    )
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--bearer", metavar="TOKEN", help="ask for this token")
    options = parser.parse_args()
    if options.transport == "stdio":
        server.run()
    else:
        serve_http(options.transport, options.port, options.bearer)


if __name__ == "__main__":
    main()
