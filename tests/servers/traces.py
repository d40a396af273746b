"""A small MCP server of the SDK's 1.x line that reports what came with a call: its `_meta`, and its own environment."""

import json
import os

from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("traces", log_level="CRITICAL")


@server.tool(structured_output=False)
def meta(context: Context, text: str = "") -> str:
    """Gives back the `_meta` of the call, as JSON."""
    sent = context.request_context.meta
    return json.dumps(sent.model_dump() if sent else {})


@server.tool(structured_output=False)
def env() -> str:
    """Gives back the names and values of the environment, as JSON."""
    return json.dumps(dict(os.environ))


@server.tool(structured_output=False)
def fail() -> str:
    """Always fails."""
    raise ValueError("asked to")


@server.resource("traces://one")
def one() -> str:
    """The only resource."""
    return "1"


server.run()
