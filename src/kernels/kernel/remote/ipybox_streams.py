"""ipykernel's streams, made to lose nothing at the end of a cell.

ipykernel's private names are used if it has them; without them its own streams are unchanged.
"""

import _thread
import codecs
import os
import select
import sys
import threading
import time

from ipykernel.iostream import OutStream

# More than a pipe holds, so that one read empties it.
READ_BYTES = 64 * 1024
# The time between two checks of the sending thread by a waiting one, and the checks in a row that may find it
# idle. These are counted and not timed: a machine that is slow, or has been suspended, delays
# both threads.
FLUSH_POLL_SECONDS = 1
IDLE_FLUSH_POLLS = 10
# The same for the end of a cell, which waits for text from pipes. It takes a millisecond where the machine is not busy.
SETTLE_POLL_SECONDS = 0.0002
IDLE_SETTLE_POLLS = 5000

NAMES_FOR_SENDING = ("_really_send", "schedule", "thread")
NAMES_FOR_WATCHING = ("_fid", "_original_stdstream_copy", "_should_watch")
NAMES_FOR_TAKING_OVER = (
    *NAMES_FOR_WATCHING,
    "_original_stdstream_fd",
    "watch_fd_thread",
)


class FlushingStream(OutStream):
    """stdout or stderr."""

    # True while text is being moved from the pipe to the stream.
    is_busy = False
    _consumed_bytes = 0

    def flush(self):
        """Wait until everything is sent, however slowly the server reads.

        ipykernel gives up after ten seconds and says so in the cell's output. This gives up, in silence, if the thread
        that sends has been idle for as long: code that has broken that thread goes on, slowly.
        """
        sender = getattr(self.pub_thread, "ipybox_sender", None)
        if sender is None or not sender.is_needed():
            return super().flush()
        sent = threading.Event()
        self.pub_thread.schedule(self._flush)
        self.pub_thread.schedule(sent.set)
        idle, count = 0, sender.sent_count
        while idle < IDLE_FLUSH_POLLS and not sent.wait(FLUSH_POLL_SECONDS):
            if not sender.is_needed():
                # The thread has ended: its unsent messages are sent here.
                return self._flush()
            last, count = count, sender.sent_count
            idle = 0 if count != last or sender.is_sending else idle + 1

    def _watch_pipe_fd(self):
        """Write to the stream what programs write to the file descriptor; runs in a thread of its own.

        Unlike ipykernel's, it shows whether it is busy, and cuts no character in two.
        """
        if not has(self, NAMES_FOR_WATCHING):
            return super()._watch_pipe_fd()
        if self._fid is None:
            return None
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        poll = select.poll()
        poll.register(self._fid, select.POLLIN)
        data = b"-"
        try:
            while data and self._should_watch:
                poll.poll()
                self.is_busy = True
                data = os.read(self._fid, READ_BYTES)
                text = decode(data)
                if text and self._should_watch:
                    self.write(text)
                self._consumed_bytes += len(data)
                self.is_busy = False
                os.write(self._original_stdstream_copy, data)
        except Exception:  # noqa: BLE001 - as in ipykernel: `close` reports it
            self.is_busy = False
            self._exc = sys.exc_info()


def has(thing, names):
    return all(hasattr(thing, name) for name in names)


class OutputSender:
    """Lets the publishing thread send at once, and reports whether it is sending.

    ipykernel makes it queue its own messages, behind all that other threads have queued since: nobody can
    wait until a stream is sent, and a thread whose queue is full waits for itself.
    """

    # True while it sends, and waits if the server does not read.
    is_sending = False
    sent_count = 0

    def __init__(self, pub_thread):
        self._thread = pub_thread.thread
        self._schedule = pub_thread.schedule
        self._send = pub_thread._really_send
        pub_thread.schedule = self._schedule_or_call
        pub_thread._really_send = self._send_and_count
        pub_thread.ipybox_sender = self

    def is_needed(self):
        """True if the caller cannot send itself: it is neither that thread nor a process without it, forked by code."""
        return self._thread.is_alive() and not self._is_here()

    def _is_here(self):
        return threading.get_ident() == self._thread.ident

    def _schedule_or_call(self, call):
        if self._is_here():
            call()
        else:
            self._schedule(call)

    def _send_and_count(self, *args, **kwargs):
        self.is_sending = True
        try:
            self._send(*args, **kwargs)
        finally:
            self.is_sending = False
            self.sent_count += 1


def send_directly(pub_thread):
    if has(pub_thread, NAMES_FOR_SENDING):
        OutputSender(pub_thread)


def take_over(app):
    """Replace the streams of a kernel by ours, if they are ipykernel's own."""
    streams = [sys.stdout, sys.stderr]
    if not all(
        type(stream) is OutStream and has(stream, NAMES_FOR_TAKING_OVER)
        for stream in streams
    ):
        return
    for stream in streams:
        if not stream._should_watch:
            return
        stream._should_watch = False
        # Ends the read that the thread is in, as `close` does.
        os.write(stream._original_stdstream_fd, b"\0")
        stream.watch_fd_thread.join()
        stream._should_watch = True
        stream.__class__ = FlushingStream
        # Not by `threading`: ipykernel 6 would assign its output to the cell that runs now.
        _thread.start_new_thread(stream._watch_pipe_fd, ())
    send_directly(app.iopub_thread)
    settle_after_cells(app.kernel, streams)


def settle_after_cells(kernel, streams):
    """Delay the end of each cell of `kernel` until text on file descriptors is in the streams."""
    if not all(
        isinstance(stream, FlushingStream) and has(stream, NAMES_FOR_WATCHING)
        for stream in streams
    ):
        return
    do_execute = kernel.do_execute
    settle = make_settle(streams)

    async def do_execute_and_settle(*args, **kwargs):
        try:
            return await do_execute(*args, **kwargs)
        finally:
            try:
                settle()
            except KeyboardInterrupt:
                # The interrupt was for a cell that has ended.
                pass

    kernel.do_execute = do_execute_and_settle


def make_settle(streams):
    pipes = select.poll()
    for stream in streams:
        pipes.register(stream._fid, select.POLLIN)
    process = os.getpid()

    def unsettled():
        # In this order: text that is no longer in a pipe is in transit or has arrived.
        full = {fd for fd, event in pipes.poll(0) if event & select.POLLIN}
        return [stream for stream in streams if stream._fid in full or stream.is_busy]

    def waits_for_server(stream):
        # A full stream blocks the thread that reads the pipe.
        sender = getattr(stream.pub_thread, "ipybox_sender", None)
        return stream.is_busy and sender is not None and sender.is_sending

    def settle():
        if not unsettled() or os.getpid() != process:
            return
        # After this many bytes all text from before the cell's end has passed: background
        # programs may go on writing.
        enough = {stream: stream._consumed_bytes + 2 * READ_BYTES for stream in streams}
        idle, consumed = 0, None
        while idle < IDLE_SETTLE_POLLS:
            if all(stream._consumed_bytes > enough[stream] for stream in unsettled()):
                return
            last, consumed = consumed, [stream._consumed_bytes for stream in streams]
            is_waiting = any(waits_for_server(stream) for stream in streams)
            idle = 0 if consumed != last or is_waiting else idle + 1
            time.sleep(SETTLE_POLL_SECONDS)

    return settle
