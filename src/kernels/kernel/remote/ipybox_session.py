"""Adapts the messages of an ipykernel for ipybox: counted, cut in pieces, and always encodable."""

import functools
import inspect
import json

import ipybox_messages
import ipybox_views

# The message types with output.
SHOWN = (
    "clear_output",
    "display_data",
    "error",
    "execute_result",
    "stream",
    "update_display_data",
)
# Requests whose messages are counted at the same time.
COUNTED_REQUESTS = 256
# The number of replies that are remembered for repeated requests: ipybox repeats only the newest.
KEPT_REQUESTS = 8


def adapt(session):
    """Make `session` encode and cut messages."""
    session.pack = pack
    session.send = send_in_pieces(session.send)


def run_once(kernel, replies):
    """Answer a repeated request to run code with the earlier reply, without running anything: the host cannot know
    whether the request, or its reply, was lost with a connection. `replies` has the newest replies, by request."""
    execute = kernel.shell_handlers["execute_request"]
    begun = {}

    async def execute_once(stream, ident, parent):
        request = parent["header"]["msg_id"]
        if request in begun:
            if request in replies:
                content, metadata = replies[request]
                kernel.session.send(
                    stream,
                    "execute_reply",
                    content,
                    parent,
                    metadata=metadata,
                    ident=ident,
                )
            return
        begun[request] = True
        forget_oldest(begun, KEPT_REQUESTS)
        result = execute(stream, ident, parent)
        if inspect.isawaitable(result):
            await result

    kernel.shell_handlers["execute_request"] = execute_once


def forget_oldest(entries, most):
    while len(entries) > most:
        del entries[next(iter(entries))]


class OutputCounter:
    """Adds the number of messages with output to the reply, so that lost ones are noticed."""

    def __init__(self, session):
        self._send = session.send
        self._counts = {}
        # The newest replies, by request.
        self.replies = {}
        session.send = self._send_counted

    def _send_counted(
        self, stream, message_or_type, content=None, parent=None, *args, **kwargs
    ):
        if isinstance(message_or_type, dict):
            kind, parent_header = (
                message_or_type["msg_type"],
                message_or_type["parent_header"],
            )
        else:
            kind = message_or_type
            parent_header = (parent or {}).get("header", parent or {})
        request = parent_header.get("msg_id")
        if kind == "execute_reply" and request not in self.replies:
            shown = {"ipybox_shown": self._counts.pop(request, 0)}
            kwargs["metadata"] = {**(kwargs.get("metadata") or {}), **shown}
            self.replies[request] = content, kwargs["metadata"]
            forget_oldest(self.replies, KEPT_REQUESTS)
        sent = self._send(stream, message_or_type, content, parent, *args, **kwargs)
        # A message that could not be sent is not counted.
        if kind in SHOWN:
            self._counts[request] = self._counts.pop(request, 0) + 1
            forget_oldest(self._counts, COUNTED_REQUESTS)
        return sent


def send_in_pieces(send):
    """Send long text of streams as several messages, and cut exceptions that are longer than anyone reads.

    The host reduces each message before it reads the next; one message of a gigabyte would have to be held
    whole.
    """

    def send_pieces(stream, message_or_type, content=None, *args, **kwargs):
        sent = None
        if isinstance(message_or_type, dict):
            message = message_or_type
            for kind, piece in pieces_of(message["msg_type"], message["content"]):
                renamed = {**message, "content": piece}
                if kind != message["msg_type"]:
                    renamed["msg_type"] = kind
                    renamed["header"] = {**message["header"], "msg_type": kind}
                sent = send(stream, renamed, *args, **kwargs)
        else:
            for kind, piece in pieces_of(message_or_type, content):
                sent = send(stream, kind, piece, *args, **kwargs)
        return sent

    return send_pieces


def pieces_of(kind, content):
    if kind == "clear_output":
        ipybox_views.forget_figures()
    if kind in ("display_data", "execute_result", "update_display_data"):
        if ipybox_views.is_repeated(kind, content["data"]):
            return ()
        content = {**content, "data": ipybox_views.with_view(content["data"])}
    return ipybox_messages.pieces(kind, content)


def pack(message):
    """Encode a message as JSON. Lone surrogates, which UTF-8 cannot carry, become question marks.

    jupyter_client's own packer raises on them, and the output is lost.
    """
    clean, default = encoders()
    options = {"default": default, "ensure_ascii": False, "allow_nan": False}
    try:
        text = json.dumps(message, **options)
    except (TypeError, ValueError):
        text = json.dumps(clean(message), **options)
    return text.encode("utf-8", errors="replace")


@functools.cache
def encoders():
    """The function that makes objects and dates JSON encodable: ipykernel's, since jupyter_client 7 its own."""
    from jupyter_client import jsonutil

    if hasattr(jsonutil, "json_clean"):
        return jsonutil.json_clean, jsonutil.json_default
    from ipykernel.jsonutil import json_clean

    return json_clean, jsonutil.date_default
