"""The part of an exported action that is the same for all: connections to its MCP servers, its arguments, and its result."""

import argparse
import asyncio
import concurrent.futures
import contextlib
import importlib
import inspect
import io
import json
import os
import re
import sys
import tempfile
import threading
from pathlib import Path

import httpx
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import ConfigDict, ValidationError, validate_call
from pydantic_core import to_jsonable_python

# Filled in by `ipybox actions export`.
ACTION = {}
SERVERS = {}
FILES = {}

# The time for a server's answer, in seconds; a call may take long.
_ANSWER_SECS = 3600


class UnreachedServerError(Exception):
    """An MCP server cannot be reached."""


def _filled(server, value):
    """A value of a server's parameters, with the variables of the environment that it names."""

    def fill(match):
        name, has_default, default = match[1].partition(":-")
        if name == "workspace":
            return os.getcwd()
        if name in os.environ:
            return os.environ[name]
        if has_default:
            return default
        raise UnreachedServerError(
            f"set the environment variable {name}: the MCP server {server!r} needs it"
        )

    if isinstance(value, str):
        return re.sub(r"\$\{([A-Za-z_][A-Za-z0-9_]*(?::-[^}]*)?)\}", fill, value)
    if isinstance(value, list):
        return [_filled(server, item) for item in value]
    if isinstance(value, dict):
        return {name: _filled(server, item) for name, item in value.items()}
    return value


@contextlib.asynccontextmanager
async def _streams(server):
    """The streams to a server, as its parameters say."""
    given = _filled(server, SERVERS[server])
    if "command" in given:
        parameters = StdioServerParameters(
            command=given["command"],
            args=given.get("args", []),
            env=given.get("env"),
            cwd=given.get("cwd"),
        )
        async with stdio_client(parameters) as streams:
            yield streams
        return
    headers = given.get("headers") or {}
    if given.get("type") == "sse":
        async with sse_client(given["url"], headers=headers) as streams:
            yield streams
        return
    timeout = httpx.Timeout(30, read=_ANSWER_SECS)
    async with (
        httpx.AsyncClient(
            headers=headers, timeout=timeout, follow_redirects=True
        ) as client,
        streamable_http_client(given["url"], http_client=client) as streams,
    ):
        yield streams[:2]


def _reason(error):
    """The first error of a group, in words."""
    while getattr(error, "exceptions", None):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


class _HeldSession:
    """A connection to a server, which a task of its own holds open."""

    def __init__(self, server):
        self.server = server
        self.ready = asyncio.get_running_loop().create_future()
        self.closing = asyncio.Event()
        self.task = asyncio.create_task(self._hold())

    async def _hold(self):
        try:
            async with (
                _streams(self.server) as streams,
                ClientSession(*streams) as session,
            ):
                await session.initialize()
                self.ready.set_result(session)
                await self.closing.wait()
        except BaseException as error:
            if self.ready.done():
                raise
            failed = UnreachedServerError(
                f"the MCP server {self.server!r} cannot be reached: {_reason(error)}"
            )
            self.ready.set_exception(
                error if isinstance(error, UnreachedServerError) else failed
            )


class _ServerThread:
    """The connections, in a thread of their own. Each is opened by its first call."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._open = {}

    def answer(self, path, request):
        """The answer to a request of a generated package, as ipybox gives it."""
        return self._run(self._answer(path, request))

    def close(self):
        """End the connections, with the servers that were started for them."""
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _close(self):
        for connection in self._open.values():
            connection.closing.set()
        tasks = [connection.task for connection in self._open.values()]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _session(self, server):
        if server not in SERVERS:
            raise UnreachedServerError(f"this script has no MCP server {server!r}")
        if server not in self._open:
            self._open[server] = _HeldSession(server)
        return await asyncio.shield(self._open[server].ready)

    async def _answer(self, path, request):
        try:
            session = await self._session(request["server_name"])
            return await _ANSWERS[path](session, request)
        except Exception as error:  # noqa: BLE001 - code gets it as an error of the tool
            return {"error": {"kind": "tool", "message": _reason(error)}}


def _plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def _sent(session, request, result):
    return await session.send_request(types.ClientRequest(request), result)


async def _run_tool(session, request):
    params = types.CallToolRequestParams(
        name=request["tool_name"], arguments=request["tool_args"]
    )
    # The session's own method checks results too, which the generated package does.
    result = await _sent(
        session,
        types.CallToolRequest(method="tools/call", params=params),
        types.CallToolResult,
    )
    content = [_plain(block) for block in result.content]
    if result.isError:
        message = _text(content) or "the tool has failed without a message"
        return {"error": {"kind": "tool", "message": message}}
    return _value(result.structuredContent, content)


async def _read_resource(session, request):
    params = types.ReadResourceRequestParams(uri=request["uri"])
    result = await _sent(
        session,
        types.ReadResourceRequest(method="resources/read", params=params),
        types.ReadResourceResult,
    )
    return _value(
        None,
        [{"type": "resource", "resource": _plain(part)} for part in result.contents],
    )


async def _list(session, request):
    kinds = {
        "resources": (session.list_resources, "resources"),
        "resource_templates": (session.list_resource_templates, "resourceTemplates"),
        "prompts": (session.list_prompts, "prompts"),
    }
    method, member = kinds[request["kind"]]
    listed, cursor = [], None
    while True:
        page = await method(params=types.PaginatedRequestParams(cursor=cursor))
        listed += [_plain(item) for item in getattr(page, member)]
        cursor = page.nextCursor
        if not cursor:
            return {"result": listed, "is_structured": True}


async def _get_prompt(session, request):
    result = await session.get_prompt(request["prompt_name"], request["prompt_args"])
    return {
        "result": {"roles": [message.role for message in result.messages]},
        "is_structured": True,
        "content": [_plain(message.content) for message in result.messages],
    }


_ANSWERS = {
    "/run": _run_tool,
    "/read": _read_resource,
    "/list": _list,
    "/prompt": _get_prompt,
}


def _text(content):
    texts = (
        block.get("text")
        or block.get("uri")
        or block.get("resource", {}).get("text")
        or ""
        for block in content
    )
    return "\n".join(text for text in texts if text)


def _value(structured, content):
    """A result in the form that generated packages read."""
    is_structured = structured is not None
    answer = {"result": structured if is_structured else _text(content) or None}
    if is_structured:
        answer["is_structured"] = True
    is_one_text = [block["type"] for block in content] == ["text"]
    if content and (is_structured or not is_one_text):
        answer["content"] = content
    return answer


def _carrier(servers):
    """A class like the connection to ipybox that the module `ipybox_runtime` has."""

    class ScriptCarrier:
        def __init__(self):
            self.pid = os.getpid()

        def exchange(self, path, body, receive=None):
            request = json.loads(body)
            if path != "/batch":
                return 200, _encoded(servers.answer(path, request))
            calls = request["calls"]
            with concurrent.futures.ThreadPoolExecutor() as pool:
                answers = pool.map(lambda call: servers.answer("/run", call), calls)
                parts = [_encoded(answer) for answer in answers]
            whole = b"".join(b"%d\n%s" % (len(part), part) for part in parts)
            return 200, receive(200, io.BytesIO(whole))

        def close(self):
            """Nothing: calls share the connections to servers."""

    return ScriptCarrier


def _encoded(answer):
    return json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")


def _kinds(schema, root):
    """The types of JSON that a schema allows; empty if it does not say."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _kinds(root.get("$defs", {}).get(name, {}), root)
    kinds = schema.get("type", [])
    kinds = {kinds} if isinstance(kinds, str) else set(kinds)
    for part in schema.get("anyOf", []) + schema.get("oneOf", []):
        kinds |= _kinds(part, root)
    if not kinds and "enum" in schema:
        is_text = all(isinstance(value, str) for value in schema["enum"])
        return {"string"} if is_text else set()
    return kinds


def _reader(kinds):
    """Reads the text of a flag: as it is if it can only be text, else as JSON where it is that."""

    def read(text):
        if kinds - {"null"} == {"string"}:
            return text
        try:
            return json.loads(text)
        except ValueError:
            if not kinds or "string" in kinds:
                return text
            raise argparse.ArgumentTypeError(f"{text!r} is no JSON") from None

    return read


def _help(schema):
    parts = [schema.get("description", "")]
    if "enum" in schema:
        parts.append("one of " + ", ".join(map(str, schema["enum"])))
    if "default" in schema:
        parts.append(f"[default: {json.dumps(schema['default'], ensure_ascii=False)}]")
    return " ".join(filter(None, parts)).replace("%", "%%")


def _parser():
    parser = argparse.ArgumentParser(
        description=ACTION["description"],
        epilog=f"{ACTION['name']}{ACTION['signature']}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--json",
        dest=" json",
        metavar="OBJECT",
        type=json.loads,
        help="all arguments, as a JSON object",
    )
    root = ACTION["input_schema"]
    required = root.get("required", [])
    for name, schema in root.get("properties", {}).items():
        kinds = _kinds(schema, root)
        flag = name.replace("_", "-")
        flag = f"--{flag}-argument" if flag in ("json", "help") else f"--{flag}"
        help_text = _help(schema) + ("" if name not in required else " (required)")
        how = {"dest": name, "help": help_text.strip(), "default": argparse.SUPPRESS}
        if kinds - {"null"} == {"boolean"}:
            how["action"] = argparse.BooleanOptionalAction
        else:
            how["type"] = _reader(kinds)
            how["metavar"] = "|".join(sorted(kinds - {"null"})).upper() or "JSON"
        parser.add_argument(flag, **how)
    return parser


def _arguments():
    parser = _parser()
    given = vars(parser.parse_args())
    arguments = given.pop(" json")
    if arguments is not None and (given or not isinstance(arguments, dict)):
        parser.error("--json takes one object, and no other flags beside it")
    return given if arguments is None else arguments


def _call(arguments):
    module = importlib.import_module(ACTION["module"])
    config = ConfigDict(arbitrary_types_allowed=True)
    function = getattr(module, ACTION["function"])
    checked = validate_call(config=config, validate_return=True)(function)
    if inspect.iscoroutinefunction(function):

        async def run():
            return await checked(**arguments)

        value = asyncio.run(run())
    else:
        value = checked(**arguments)
    return to_jsonable_python(value, by_alias=True, inf_nan_mode="null")


def _main():
    arguments = _arguments()
    sys.dont_write_bytecode = True
    with tempfile.TemporaryDirectory(prefix="action-") as directory:
        for name, text in FILES.items():
            file = Path(directory, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        sys.path.insert(0, directory)
        runtime = importlib.import_module("ipybox_runtime")
        servers = _ServerThread()
        runtime.carry_by(_carrier(servers))
        try:
            # Only the result goes to stdout.
            with contextlib.redirect_stdout(sys.stderr):
                value = _call(arguments)
        except (ValidationError, runtime.ToolRunnerError) as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return 1
        finally:
            servers.close()
    print(json.dumps(value, ensure_ascii=False, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(_main())
