"""An MCP server that has more than tools: `library.py [--failing | --changed]`, over stdio.

Resources come in pages. With `--failing` it declares resources and prompts and lists neither templates nor prompts; with
`--changed` a prompt has another description.
"""

import asyncio
import base64
import sys

from mcp import McpError, types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

FAILING = "--failing" in sys.argv
CHANGED = "--changed" in sys.argv
HOSTILE = '"""\nraise SystemExit("escaped")\n"""\\'

server = Server("library", version="1")


@server.list_tools()
async def list_tools():
    # A tool that has the name of a module for something else.
    return [types.Tool(name="prompts", inputSchema={"type": "object"})]


@server.call_tool()
async def call_tool(name, arguments):
    return [types.TextContent(type="text", text="a tool")]


def resource(number):
    return types.Resource(
        uri=f"note://{number}",
        name=f"note {number}",
        title=f"Note {number}",
        mimeType="text/plain",
        size=number,
        icons=[types.Icon(src="data:image/png;base64,AAAA")],
    )


async def list_resources(request):
    cursor = request.params.cursor if request.params else None
    start = int(cursor or 0)
    page = [resource(number) for number in range(start, start + 2)]
    result = types.ListResourcesResult(
        resources=page, nextCursor=None if start == 4 else str(start + 2)
    )
    return types.ServerResult(result)


async def read_resource(request):
    uri = str(request.params.uri)
    if uri.startswith("none:"):
        raise McpError(types.ErrorData(code=-32002, message=f"no resource {uri}"))
    text = types.TextResourceContents(uri=uri, text=f"contents of {uri}")
    return types.ServerResult(types.ReadResourceResult(contents=[text]))


async def list_templates(request):
    templates = [
        types.ResourceTemplate(
            name="File Contents",
            uriTemplate="file:///{+path}{?lines,q*}",
            description="Reads a file.\n\nOr a part of it.",
        ),
        types.ResourceTemplate(name="broken", uriTemplate="x://{"),
        types.ResourceTemplate(
            name="hostile", uriTemplate="x://{a}" + HOSTILE, description=HOSTILE
        ),
    ]
    return types.ServerResult(
        types.ListResourceTemplatesResult(resourceTemplates=templates)
    )


def argument(name, required=False):
    return types.PromptArgument(name=name, description=f"The {name}", required=required)


async def list_prompts(request):
    if FAILING:
        raise McpError(types.ErrorData(code=-32603, message="the prompts are lost"))
    prompts = [
        types.Prompt(
            name="greet-user",
            description="Greets rudely." if CHANGED else "Greets a user.",
            arguments=[argument("style"), argument("class", required=True)],
        ),
        types.Prompt(name="everything"),
        types.Prompt(name=HOSTILE, description=HOSTILE, arguments=[argument(HOSTILE)]),
    ]
    return types.ServerResult(types.ListPromptsResult(prompts=prompts))


async def get_prompt(request):
    arguments = request.params.arguments or {}
    if request.params.name == "everything":
        data = base64.b64encode(b"\x89PNG").decode()
        note = types.TextResourceContents(uri="note://1", text="a note")
        contents = [
            types.TextContent(type="text", text="look"),
            types.ImageContent(type="image", data=data, mimeType="image/png"),
            types.EmbeddedResource(type="resource", resource=note),
            types.ResourceLink(type="resource_link", uri="note://2", name="note 2"),
        ]
    else:
        contents = [types.TextContent(type="text", text=str(sorted(arguments.items())))]
    messages = [
        types.PromptMessage(role=role, content=content)
        for role, content in zip(["user", "assistant"] * 2, contents)
    ]
    return types.ServerResult(types.GetPromptResult(messages=messages))


HANDLERS = {
    types.ListResourcesRequest: list_resources,
    types.ReadResourceRequest: read_resource,
    types.ListResourceTemplatesRequest: list_templates,
    types.ListPromptsRequest: list_prompts,
    types.GetPromptRequest: get_prompt,
}
if FAILING:
    del HANDLERS[types.ListResourceTemplatesRequest]
server.request_handlers.update(HANDLERS)


async def main():
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


asyncio.run(main())
