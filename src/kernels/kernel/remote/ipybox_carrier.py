"""Carries the calls of this kernel's code over the connection that ipybox holds to the kernel.

A call is published as `comm_open` messages: the one kind that Jupyter servers never drop, however much is published. Its
answer comes over the control channel, which is read while a cell runs. Both are cut in parts, because servers limit
the length of messages. Parts that a broken connection may have lost are sent again: a call that has waited for long
reports that, and the host sends its answer again or requests the call again; the host runs no call twice.
"""

import io
import os
import sys
import threading
import time
import uuid

import ipybox_runtime

TARGET = "ipybox"
# The longest text in one message, in characters.
PART_CHARS = 256 * 1024
# The time after which a call reports that it waits for its answer, in seconds: at first,
# and at most.
FIRST_REMINDER = 2
LAST_REMINDER = 15
# The program that replaces an abandoned kernel.
DO_NOTHING = "import signal\nwhile True: signal.pause()"
# The time between two checks for signs of life from ipybox, in seconds.
LEASE_POLL = 60


class CarriedCall:
    """A call that waits for its answer."""

    def __init__(self, path, text):
        self.id = uuid.uuid4().hex
        self.path = path
        self.parts = cut(text)
        self.answer = {}
        self.status = None
        self.is_over = threading.Event()


class Carrier:
    """The kernel side of tool calls over the kernel's connection."""

    def __init__(self, kernel, lease_seconds):
        self._kernel = kernel
        self._pid = os.getpid()
        self._calls = {}
        self._heard = time.monotonic()
        handlers = {
            "ipybox_answer": self._take_answer,
            "ipybox_again": self._say_again,
            "ipybox_alive": self._take_notice,
        }
        kernel.control_handlers.update(handlers)
        send_no_status_of(kernel, handlers)
        threading.Thread(
            target=self._watch_lease,
            args=(lease_seconds,),
            daemon=True,
            name="ipybox-lease",
        ).start()

    def connect(self):
        """Make the connection object for `ipybox_runtime`."""
        return CarrierConnection(self)

    def ask(self, call):
        """Send a call and wait for the status and the content of its answer."""
        if os.getpid() != self._pid:
            raise ipybox_runtime.ToolRunnerError(
                "tools can be called in the kernel's own process only, since this kernel is not on ipybox's machine: "
                "make the call in the cell, and pass its result to the child process"
            )
        self._calls[call.id] = call
        try:
            self._send_parts(call)
            pause = FIRST_REMINDER
            while not call.is_over.wait(pause):
                self._publish(call, {"is_waiting": True})
                pause = min(2 * pause, LAST_REMINDER)
        except BaseException:
            self._publish(call, {"is_cancelled": True})
            raise
        finally:
            del self._calls[call.id]
        if call.status is None:
            self._publish(call, {"is_cancelled": True})
            raise ipybox_runtime.ToolRunnerError("the call was cancelled")
        text = "".join(call.answer[part] for part in range(len(call.answer)))
        return call.status, text.encode()

    def _send_parts(self, call):
        for number, text in enumerate(call.parts):
            part = {"part": number, "parts": len(call.parts), "text": text}
            self._publish(call, {"path": call.path, **part})

    def _publish(self, call, data):
        content = {"comm_id": call.id, "target_name": TARGET, "data": data}
        self._kernel.session.send(self._kernel.iopub_socket, "comm_open", content)

    # The methods below run in the thread of the control channel.

    def _take_answer(self, stream, ident, message):
        content = message["content"]
        call = self._calls.get(content["call"])
        if call is not None:
            call.answer[content["part"]] = content["text"]
            if len(call.answer) == content["parts"]:
                call.status = content["status"]
                call.is_over.set()
        received = {"call": content["call"], "part": content["part"]}
        self._reply(stream, ident, message, received)

    def _say_again(self, stream, ident, message):
        call = self._calls.get(message["content"]["call"])
        if call is not None:
            self._send_parts(call)
        self._reply(stream, ident, message, {})

    def _take_notice(self, stream, ident, message):
        self._reply(stream, ident, message, {})

    def _reply(self, stream, ident, message, content):
        self._heard = time.monotonic()
        kind = message["header"]["msg_type"] + "_reply"
        self._kernel.session.send(stream, kind, content, message, ident=ident)

    def _watch_lease(self, lease_seconds):
        while time.monotonic() - self._heard < lease_seconds:
            time.sleep(min(LEASE_POLL, lease_seconds / 2))
        # The kernel is abandoned. The server would restart a process that ended: an idle
        # program replaces it, until the server ends idle kernels.
        os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", DO_NOTHING])


class CarrierConnection:
    """The connection object of `ipybox_runtime`, one for each thread and each asynchronous call."""

    def __init__(self, carrier):
        self.pid = os.getpid()
        self._carrier = carrier
        self._call = None
        self._is_closed = False

    def exchange(self, path, body, receive=None):
        call = self._call = CarriedCall(path, body.decode())
        if self._is_closed:
            call.is_over.set()
        status, content = self._carrier.ask(call)
        if receive is not None:
            content = receive(status, io.BytesIO(content))
        return status, content

    def close(self):
        self._is_closed = True
        if self._call is not None:
            self._call.is_over.set()


def send_no_status_of(kernel, requests):
    """Keep `kernel` from publishing busy and idle for these requests on its control channel.

    Jupyter servers use the last state of any channel as the kernel's: one that ends idle kernels would end
    the kernel while the cell that has called a tool runs on. Nobody waits for these states.
    """
    # A private name, which another ipykernel may not have.
    publish = getattr(kernel, "_publish_status", None)
    if publish is None:
        return

    def publish_status(status, channel, parent=None):
        request = parent or kernel.get_parent(channel)
        if request.get("header", {}).get("msg_type") not in requests:
            publish(status, channel, parent)

    kernel._publish_status = publish_status


def cut(text):
    starts = range(0, max(len(text), 1), PART_CHARS)
    return [text[start : start + PART_CHARS] for start in starts]
