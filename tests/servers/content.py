"""A small MCP server of the SDK's 1.x line, on stdio, whose tools return every kind of content, rightly and wrongly.

The low-level server sends what it is given: results need not fit the schemas that the tools declare.
"""

import asyncio
import base64
import zlib

from mcp import types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.stdio import stdio_server

server = Server("content", version="1")

ANY = {"type": "object"}
COUNT = {
    "type": "object",
    "properties": {"count": {"type": "integer"}},
    "required": ["count"],
}


def png(width=1, height=1):
    """A PNG of black pixels."""

    def chunk(kind, data):
        checked = kind + data
        length = len(data).to_bytes(4, "big")
        return length + checked + zlib.crc32(checked).to_bytes(4, "big")

    header = (
        width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 0, 0, 0, 0])
    )
    # Not compressed, so that it is as large as it looks.
    rows = zlib.compress(bytes((width + 1) * height), 0)
    begin = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    return begin + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def text(text):
    return types.TextContent(type="text", text=text)


def image(data):
    return types.ImageContent(
        type="image", data=base64.b64encode(data).decode(), mimeType="image/png"
    )


def sound():
    data = base64.b64encode(b"RIFF").decode()
    return types.AudioContent(type="audio", data=data, mimeType="audio/wav")


def embedded(resource):
    return types.EmbeddedResource(type="resource", resource=resource)


def blob(data, uri):
    encoded = base64.b64encode(data).decode()
    return types.BlobResourceContents(uri=uri, mimeType="application/pdf", blob=encoded)


def link(uri):
    return types.ResourceLink(type="resource_link", uri=uri, name="report", size=6)


NOTE = types.TextResourceContents(uri="note://1", text="a note")

RESULTS = {
    "picture": lambda: ([text("look"), image(png())], None),
    "only_picture": lambda: ([image(png())], None),
    "large_picture": lambda: ([image(png(4000, 3000))], None),
    "sounds": lambda: ([sound()], None),
    "documents": lambda: ([embedded(blob(b"%PDF", "doc://1")), embedded(NOTE)], None),
    "links": lambda: ([link("doc://report"), link("doc://nowhere")], None),
    "prose": lambda: (
        [text("Two:"), text('{"a": 1}'), text('{"a": 2}'), text("Bye")],
        None,
    ),
    "nothing": lambda: ([], None),
    "undeclared": lambda: ([text("seven")], {"number": 7}),
    "undeclared_without_text": lambda: ([], {"number": 7}),
    "count": lambda: ([text("see"), image(png())], {"count": 3}),
    "count_as_text": lambda: ([text('{"count": 4}')], None),
    "miscount": lambda: ([text("x")], {"count": "many"}),
    "miscount_as_text": lambda: ([text("many")], None),
    "for_apps": lambda: ([text("secret")], None),
}


@server.list_tools()
async def list_tools():
    for_apps = {"ui": {"visibility": ["app"]}}
    return [
        types.Tool(
            name=name,
            inputSchema=ANY,
            outputSchema=COUNT if "count" in name else None,
            _meta=for_apps if name == "for_apps" else None,
        )
        for name in RESULTS
    ]


async def call_tool(request):
    content, structured = RESULTS[request.params.name]()
    result = types.CallToolResult(content=content, structuredContent=structured)
    return types.ServerResult(result)


# Not by the decorator, which would check results against their schemas.
server.request_handlers[types.CallToolRequest] = call_tool


async def read_resource(request):
    uri = str(request.params.uri)
    if uri != "doc://report":
        raise ValueError(f"no resource {uri}")
    contents = [blob(b"%PDF-1", uri), NOTE]
    return types.ServerResult(types.ReadResourceResult(contents=contents))


server.request_handlers[types.ReadResourceRequest] = read_resource


async def main():
    options = InitializationOptions(
        server_name="content",
        server_version="1",
        capabilities=server.get_capabilities(NotificationOptions(), {}),
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, options)


asyncio.run(main())
