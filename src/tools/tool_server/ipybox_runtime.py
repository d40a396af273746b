"""Carries tool calls from Python code to ipybox's tool server. Generated packages import it.

Standard library only: it runs in every Python that the kernel or one of its children may start.
"""

import asyncio
import concurrent.futures
import http.client
import importlib.util
import json
import math
import os
import re
import socket
import threading

from ipybox_batch import BatchCall, collected
from ipybox_results import (
    Audio,
    Image,
    Resource,
    ResourceLink,
    ToolResult,
    from_answer,
    json_values,
)

__all__ = [
    "ApprovalRejectedError",
    "ApprovalTimeoutError",
    "Audio",
    "Image",
    "Resource",
    "ResourceLink",
    "ToolResult",
    "ToolRunner",
    "ToolRunnerError",
    "UnexpectedResultError",
    "approve_shell",
    "infer_result",
]

# Set by ipybox in the kernel's environment.
_ADDRESS = "IPYBOX_TOOL_SERVER"
_TOKEN = "IPYBOX_TOOL_SERVER_TOKEN"

# The media type of an answer with binary data behind its JSON.
_WITH_BYTES = "application/vnd.ipybox.answer"

# The most asynchronous calls of one process that wait for their answers at the same time.
_ASYNC_CALLS = 64


class ToolRunnerError(Exception):
    """A tool call failed; the text is the MCP server's, or the reason why the server was not reached."""


class ApprovalRejectedError(ToolRunnerError):
    """The call was not approved."""


class ApprovalTimeoutError(ToolRunnerError):
    """Nobody approved the call in time."""


class UnexpectedResultError(ToolRunnerError):
    """The tool has run, but its result is not of the type that its module declares.

    result: what the tool returned: the structured value if there is one, else the text
    tool_result: the same as a ToolResult, with all its content
    """

    def __init__(self, message, answer=None):
        super().__init__(message)
        self.tool_result = ToolResult.of(answer)
        self.result = self.tool_result.value


_ERRORS = {"rejected": ApprovalRejectedError, "timeout": ApprovalTimeoutError}


class _Bursts:
    """Numbers the calls of this process: one that code makes while it waits for others has their number.

    They reach ipybox in any order.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._number = self._waiting = 0

    def __enter__(self):
        with self._lock:
            self._number += not self._waiting
            self._waiting += 1
            return self._number

    def __exit__(self, *_):
        with self._lock:
            self._waiting -= 1


_bursts = _Bursts()
# A fork has none of the threads that wait.
os.register_at_fork(after_in_child=_bursts.__init__)


class ToolRunner:
    """Calls the tools of one registered MCP server."""

    def __init__(self, server_name):
        self.server_name = server_name

    def run_sync(self, tool_name, tool_args):
        """Call a tool and return its structured value, else its text, or None. Works in any thread or child process."""
        return _value(self.call_sync(tool_name, tool_args))

    async def run(self, tool_name, tool_args):
        """Do the same without blocking the event loop; cancelling the task cancels the call."""
        return _value(await self.call(tool_name, tool_args))

    def call_sync(self, tool_name, tool_args):
        """Call a tool and return its whole result, as a ToolResult; in a batch, a BatchCall."""
        body = self._body({"tool_name": tool_name, "tool_args": tool_args})
        call = collected(self, f"{self.server_name}.{tool_name}", body)
        if call is not None:
            return call
        with _bursts as burst:
            return self._answer_sync("/run", _in_burst(body, burst))

    async def call(self, tool_name, tool_args):
        """Do the same without blocking the event loop."""
        body = self._body({"tool_name": tool_name, "tool_args": tool_args})
        call = collected(self, f"{self.server_name}.{tool_name}", body)
        if call is not None:
            return call
        with _bursts as burst:
            return await self._answer("/run", _in_burst(body, burst))

    def read_resource_sync(self, uri):
        """Read a resource of the server and return its contents, as a ToolResult."""
        return self._request_sync("/read", uri=uri)

    async def read_resource(self, uri):
        """Read a resource of the server without blocking the event loop."""
        return await self._request("/read", uri=uri)

    def list_sync(self, kind):
        """List the server's `resources`, `resource_templates` or `prompts`, as MCP describes them."""
        return self._request_sync("/list", kind=kind).structured

    async def list(self, kind):
        """Do the same without blocking the event loop."""
        return (await self._request("/list", kind=kind)).structured

    def prompt_sync(self, name, arguments):
        """Get a prompt's messages: a ToolResult whose blocks are their contents, in the order of its `roles`."""
        return self._request_sync("/prompt", prompt_name=name, prompt_args=arguments)

    async def prompt(self, name, arguments):
        """Do the same without blocking the event loop."""
        return await self._request("/prompt", prompt_name=name, prompt_args=arguments)

    def _request_sync(self, path, **members):
        return self._answer_sync(path, self._body(members))

    async def _request(self, path, **members):
        return await self._answer(path, self._body(members))

    def _answer_sync(self, path, body):
        return self.result(*_thread_connection().exchange(path, body))

    async def _answer(self, path, body):
        return self.result(*await _exchange(path, body))

    def _body(self, members):
        return _encoded({"server_name": self.server_name, **members})

    def result(self, status, content):
        """Make a result of the status and the content of an answer; for ipybox itself."""
        return from_answer(self, *_parse(status, content))

    def run_batch_sync(self, title, calls):
        """Send the calls of a batch, and finish each when its answer has come; for ipybox itself."""
        _raise_refusal(*_thread_connection().exchange(*_batch(title, calls)))

    async def run_batch(self, title, calls):
        """Do the same without blocking the event loop; for ipybox itself."""
        _raise_refusal(*await _exchange(*_batch(title, calls)))


def _in_burst(body, burst):
    return b'%s,"burst":%d}' % (body[:-1], burst)


def _value(answer):
    return answer.then(_value) if isinstance(answer, BatchCall) else answer.value


async def _exchange(*request):
    """Send a request without blocking the event loop."""
    connection = _connect()
    work = asyncio.get_running_loop().run_in_executor(
        _async_pool(), connection.exchange, *request
    )
    try:
        return await work
    finally:
        # On cancellation this ends the request that the thread waits for.
        connection.close()


def _batch(title, calls):
    body = b'{"title":%s,"calls":[%s]}' % (
        _encoded(title),
        b",".join(call.body for call in calls),
    )

    def receive(status, stream):
        if status != 200:
            return stream.read()
        try:
            for call in calls:
                length = int(stream.readline())
                content = stream.read(length)
                if len(content) != length:
                    raise EOFError
                call.finish(status, content)
        except (http.client.HTTPException, OSError, ValueError, EOFError) as error:
            # It must not be sent again: some of the calls have run.
            message = "the tool server has not answered all calls of the batch: the first without a result may have run"
            raise ToolRunnerError(message) from error
        # The end of the answer, so that the connection can be used again.
        return stream.read()

    return "/batch", body, receive


def _raise_refusal(status, content):
    if status != 200:
        _parse(status, content)


def approve_shell(tool_name, cmd):
    """Ask whether a shell command may run: return if it may, raise an exception if not.

    `tool_name` is `shell` or `shell_magic`. The host only decides; the caller runs the command.
    """
    request = {"tool_name": tool_name, "tool_args": {"cmd": cmd}}
    if ask_host("/approve", request) is not True:
        raise ApprovalRejectedError("the tool server did not say that it may run")


def infer_result(tool, *results):
    """Infer the type of a tool's results from results that `run` has returned.

    `tool` is the tool's module, such as `mcptools.github.list_commits`. It is written again, with `ParseResult` and
    `run_parsed`, and loaded again. More results, now or later, only widen the type. Returns the classes as Python text.
    """
    try:
        server_name = tool.CLIENT.server_name
    except AttributeError:
        message = f"the first argument must be a tool's module, like mcptools.github.list_commits, not {tool!r}"
        raise TypeError(message) from None
    request = {
        "server_name": server_name,
        "module": tool.__name__.rpartition(".")[2],
        "results": [_as_json(result) for result in results],
    }
    source = ask_host("/infer", request)
    # Its time and size may equal those of the earlier source.
    try:
        os.unlink(importlib.util.cache_from_source(tool.__file__))
    except OSError:
        pass  # There is no cached bytecode, and in a sandbox there cannot be any.
    # A class of the earlier source would be taken for one that is defined further down.
    for name in [name for name in vars(tool) if not name.startswith("__")]:
        delattr(tool, name)
    importlib.reload(tool)
    return source


def ask_host(path, request):
    """Send a request to ipybox itself and return its answer's result; for ipybox itself."""
    answer, _ = _parse(*_thread_connection().exchange(path, _encoded(request)))
    return answer["result"]


def _as_json(result):
    if hasattr(result, "model_dump"):
        return result.model_dump(mode="json", by_alias=True, exclude_unset=True)
    values = json_values(result)
    if not values:
        return ToolResult.of(result)
    # As one text, though it may have been several, with prose between them.
    texts = (
        json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in values
    )
    return "\n".join(texts)


class _Connection:
    """One HTTP connection to the tool server, opened when first used."""

    def __init__(self):
        self.http = None
        self.pid = os.getpid()
        self.is_used = False
        self.is_closed = False

    def open(self):
        if self.http is None:
            host, _, port = _setting(_ADDRESS).rpartition(":")
            self.http = http.client.HTTPConnection(host.strip("[]"), int(port))
            self.http.connect()
            self.http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.http

    def exchange(self, path, body, receive=None):
        """Send a request and return the status and the content of its answer.

        receive: takes the status and the stream of the content, and returns what is left of it; by default all
        """
        headers = {
            "Accept": _WITH_BYTES,
            "Content-Type": "application/json",
            "Authorization": f"Bearer {_setting(_TOKEN)}",
        }
        while True:
            was_used = self.is_used
            try:
                if self.is_closed:
                    raise ConnectionError
                channel = self.open()
                response = _answered(channel, path, body, headers)
                self.is_used = True
                if receive is not None:
                    return response.status, receive(response.status, response)
                return response.status, response.read()
            except (http.client.HTTPException, OSError) as error:
                if self.is_closed:
                    raise ToolRunnerError("the call was cancelled") from None
                if self.http is not None:
                    self.reopen()
                # A kept connection may have been closed since the last call: retry once on a
                # new one.
                if not (
                    was_used
                    and isinstance(
                        error, (http.client.RemoteDisconnected, ConnectionError)
                    )
                ):
                    raise ToolRunnerError(
                        f"the tool server cannot be reached: {error}"
                    ) from error
            except BaseException:
                # Interrupted: the next call must not read this answer.
                if self.http is not None:
                    self.reopen()
                raise

    def reopen(self):
        self.http.close()
        self.http = None
        self.is_used = False

    def close(self):
        self.is_closed = True
        if self.http is not None:
            if self.http.sock is not None:
                try:
                    self.http.sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # It is closed already.
            self.http.close()


def _answered(channel, path, body, headers):
    """Send a request and return the beginning of its answer."""
    try:
        channel.request("POST", path, body, headers)
    except (BrokenPipeError, ConnectionResetError) as error:
        # A request that is too large is answered before it is sent completely.
        try:
            return channel.getresponse()
        except (http.client.HTTPException, OSError):
            raise error from None
    return channel.getresponse()


def _parse(status, content):
    if status != 200:
        text = content.decode("utf-8", errors="replace")
        raise ToolRunnerError(f"the tool server refused the call ({status}): {text}")
    # JSON on the first line, followed by the binary data that it describes.
    end = content.find(b"\n")
    has_data = end >= 0
    answer = json.loads(content[:end] if has_data else content)
    if "error" in answer:
        error = answer["error"]
        raise _ERRORS.get(error["kind"], ToolRunnerError)(error["message"])
    return answer, memoryview(content)[end + 1 :] if has_data else b""


# Numbers of fewer digits have at most 64 bits.
_LONG_NUMBER = re.compile("[0-9]{19}")


def _encoded(request):
    try:
        text = _to_json(request)
        if _LONG_NUMBER.search(text):
            _refuse_odd_values(request, "")
        return text.encode()
    except UnicodeEncodeError as error:
        # Lone surrogates: `os.listdir` returns them for file names that are no UTF-8.
        wrong = error.object[error.start : error.end]
        message = f"the call holds text that is no Unicode ({wrong!r}): it cannot be sent as JSON"
        raise ToolRunnerError(message) from None
    except (TypeError, ValueError):
        _refuse_odd_values(_plain(request), "")
        raise


def _to_json(request):
    try:
        return json.dumps(request, allow_nan=False, ensure_ascii=False)
    except TypeError:
        return json.dumps(_plain(request), allow_nan=False, ensure_ascii=False)


def _plain(request):
    # Rarely needed, and every kernel imports this module.
    from ipybox_arguments import plain

    return plain(request)


def _refuse_odd_values(value, path):
    """Refuse what JSON does not have, such as NaN, and what would be another number on the host, which has 64 bits."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ToolRunnerError(
            f"`{path}` is {value!r}, a number that JSON does not have"
        )
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ToolRunnerError(
            f"`{path}` has more than 64 bits: it would arrive as another number. Send it as text, if the server takes that"
        )
    if isinstance(value, dict):
        for name, item in value.items():
            # Arguments are called by their own names.
            is_ours = not path and name == "tool_args"
            _refuse_odd_values(item, "" if is_ours else f"{path}.{name}".lstrip("."))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _refuse_odd_values(item, f"{path}[{index}]")
    elif value is not None and not isinstance(value, (str, int, float)):
        kind = type(value)
        hint = (
            ": these bytes are no UTF-8. Send them in the encoding that the tool takes, such as Base64"
            if isinstance(value, (bytes, bytearray))
            else ""
        )
        raise ToolRunnerError(
            f"`{path}` is of type {kind.__module__}.{kind.__qualname__}, which cannot be sent as JSON{hint}"
        )


def _setting(name):
    try:
        return os.environ[name]
    except KeyError:
        message = (
            f"{name} is not set: tools can only be called from code that ipybox runs"
        )
        raise ToolRunnerError(message) from None


_local = threading.local()


def _thread_connection():
    """This thread's kept connection; a forked child must not share its parent's."""
    connection = getattr(_local, "connection", None)
    if connection is None or connection.pid != os.getpid():
        connection = _local.connection = _connect()
    return connection


# Makes a connection to the tool server.
_connect = _Connection


def carry_by(connect):
    """Send calls over another connection. `connect` makes an object like `_Connection`; for ipybox itself."""
    global _connect
    _connect = connect


_pool = None
_pool_pid = None


def _async_pool():
    """The threads in which asynchronous calls wait; a forked child does not inherit its parent's."""
    global _pool, _pool_pid
    if _pool is None or _pool_pid != os.getpid():
        _pool = concurrent.futures.ThreadPoolExecutor(
            _ASYNC_CALLS, thread_name_prefix="ipybox-call"
        )
        _pool_pid = os.getpid()
    return _pool
