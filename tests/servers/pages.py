"""An MCP server whose tools come in pages: `pages.py [--tools 25] [--page-size 10]`, over stdio.

Tool `tool_07` answers with its own name. Page cursors are opaque words, so that a client cannot guess them.
"""

import argparse
import asyncio

from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server


def server_of(count, page_size):
    """A server of that many tools."""
    server = Server("pages")
    names = [f"tool_{number:02}" for number in range(count)]
    starts = {
        f"after-{names[start - 1]}": start
        for start in range(page_size, count, page_size)
    }
    cursors = {start: cursor for cursor, start in starts.items()}

    @server.list_tools()
    async def page(request: types.ListToolsRequest) -> types.ListToolsResult:
        # The SDK recognises the annotation and nothing wider, and yet calls with None when it looks a tool up itself.
        cursor = request.params.cursor if request and request.params else None
        start = starts[cursor] if cursor else 0
        end = start + page_size
        tools = [
            types.Tool(name=name, inputSchema={"type": "object"})
            for name in names[start:end]
        ]
        return types.ListToolsResult(tools=tools, nextCursor=cursors.get(end))

    @server.call_tool()
    async def answer(name: str, _arguments: dict) -> list[types.TextContent]:
        return [types.TextContent(type="text", text=f"this is {name}")]

    return server


async def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, default=25)
    parser.add_argument("--page-size", type=int, default=10)
    options = parser.parse_args()
    server = server_of(options.tools, options.page_size)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
