"""The connections to the host: a socket for messages, and one pipe for all text, which also gives the order of both.

The pipe is the process's stdout and stderr: what is printed has left the process when `print` returns, in the order in
which it was written, whether by this code, a library in C, or a program. Marks are put between the text, each
`\\0`, the mark that the host has chosen, and one of

- `b` CELL `\\0`: what follows belongs to this cell, which begins;
- `m` NUMBER `\\0`: the position of the message with that number, which is in the socket by now;
- `t` CELL ` ` LENGTH `\\0`: so many bytes, which follow, belong to another cell.

No write is longer than what a pipe writes atomically, so that other writers cannot split it.

A message is its length in bytes (32 bits, little-endian) and a JSON object of `type`, `cell`, `number` and Jupyter's
`content`. Standard library only.
"""

import _thread
import collections
import contextlib
import contextvars
import fcntl
import io
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time

from ipybox_frames import is_code_of_user

# The cell of the running code. Threads and tasks inherit it from the code that started them.
CELL = contextvars.ContextVar("cell", default=b"")
# True in a library's own thread, as in one that shows the output of other processes. While it runs no code of the user,
# it works for whatever cell runs.
BY_LIBRARY = contextvars.ContextVar("by_library", default=False)
LENGTH = struct.Struct("<I")
# The longest content of a message; the host accepts no longer ones.
MESSAGE_BYTES = 39 * 1024 * 1024
TOO_LONG = "this would take {:,} bytes, and at most 39 MiB can be shown of one object. Save it to a file."
# The longest mark is shorter.
MARK_BYTES = 128
PIECE_BYTES = select.PIPE_BUF
# The most descriptors that come with a message: a socket and a pipe for a branch, and another pipe for a template's kernel.
DESCRIPTORS = 3
# Only Linux can say so when they come; other systems get none.
NOT_INHERITED = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
# The most characters whose encoding always fits in one atomic write behind a mark.
PIECE_CHARS = (PIECE_BYTES - MARK_BYTES) // 4
# The most looks of a thread for the end of the line that another one prints, and the time between two: `print` writes it in
# pieces, and other threads may compute between them.
LINE_LOOKS = 200
LINE_INTERVAL_SECS = 0.0005


class HostChannel:
    """The connection to the host, for the kernel's process and its forks."""

    def __init__(self, stream):
        self._socket = stream
        self._mark = b""
        self._pipe = 1
        # The cell that text without a mark belongs to. Unknown in a forked process, since both
        # go on writing.
        self._current = b""
        self._numbers = 0
        # Reentrant: a signal handler may write while the lock is held.
        self._lock = threading.RLock()
        self._owner = None
        # Messages that a signal handler sends while another one is being sent.
        self._waiting = collections.deque()
        self.is_fork = False
        self._begin_line()
        os.register_at_fork(after_in_child=self._forked)

    def _begin_line(self):
        # The thread that has begun a line and not ended it. No lock: one for each piece would cost more than writing it.
        self._line_owner = None
        self._waiting_threads = set()
        # Those that have left a line open, as for a row of dots: nobody waits for them again in this cell.
        self._leaving_open = set()
        # The line that a forked process has begun: it cannot wait for lines of other processes.
        self._begun = ""

    def _forked(self):
        self.is_fork = True
        self._current = None
        self._begin_line()

    def begin_branch(self, mark):
        """Be the connection of a kernel that has just been forked. Its descriptors are in place."""
        self._mark = b"\0" + mark.encode()
        self._current = b""
        self._numbers = 0
        self._owner = None
        self._waiting.clear()
        self.is_fork = False
        self._begin_line()

    def open_output(self, mark):
        """From here on text is written to the pipe, with this mark."""
        self._mark = b"\0" + mark.encode()
        # A duplicate: code may replace its stdout.
        self._pipe = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)

    def output_descriptors(self):
        """The descriptors by which this process writes to the pipe."""
        return (1, 2, self._pipe)

    def is_own_stream(self, stream):
        """True if a stream writes to the pipe, as child processes do, and not to something else that code has put there."""
        return type(stream) is TextStream and not self.is_fork

    def begin(self, cell):
        """From here on, running code belongs to this cell."""
        CELL.set(cell)
        self._current = cell
        self._leaving_open.clear()
        self._put(b"%bb%b\0" % (self._mark, cell))

    def write(self, text):
        """Write a text to the pipe before returning, lines of several threads and of forked processes whole."""
        # The count of threads beside the main one: mostly 0.
        if _thread._count() or self.is_fork:
            self._write_in_turn(text)
        else:
            self._write(text)

    def _write_in_turn(self, text):
        thread = threading.get_ident()
        owner = self._line_owner
        if owner != thread:
            if owner is not None:
                self._await_line(owner, thread)
            if thread not in self._leaving_open:
                self._line_owner = thread
        if self.is_fork:
            self._write_lines(text)
        else:
            self._write(text)
        if text[-1:] == "\n" and self._line_owner == thread:
            self._line_owner = None

    def _await_line(self, owner, thread):
        """Wait for the end of another thread's line: in vain if it stays open."""
        if thread in self._waiting_threads or thread in self._leaving_open:
            # The first is a signal handler, which would be interrupted by the next one while it waits.
            return
        self._waiting_threads.add(thread)
        try:
            for _ in range(LINE_LOOKS):
                if self._line_owner is None:
                    return
                time.sleep(LINE_INTERVAL_SECS)
            self._leaving_open.add(owner)
        finally:
            self._waiting_threads.discard(thread)

    def _write_lines(self, text):
        text = self._begun + text
        end = text.rfind("\n") + 1 if len(text) <= PIECE_CHARS else len(text)
        text, self._begun = text[:end], text[end:]
        self._write(text)

    def flush(self):
        """Take the line for whole: progress bars do so. A forked process writes what it has of it."""
        text, self._begun = self._begun, ""
        self._write(text)
        if self._line_owner == threading.get_ident():
            self._line_owner = None

    def _write(self, text):
        if not text:
            return
        cell = self._other_cell()
        if cell is None:
            if len(text) <= PIECE_CHARS:
                self._put(text.encode("utf-8", "replace"))
            else:
                self._put_pieces(text.encode("utf-8", "replace"))
            return
        for start in range(0, len(text), PIECE_CHARS):
            self._put_for(
                cell, text[start : start + PIECE_CHARS].encode("utf-8", "replace")
            )

    def _other_cell(self):
        """The cell that output belongs to, if it is not the current one."""
        cell = CELL.get()
        # Threads that Python did not start belong to no cell.
        if not cell or cell == self._current:
            return None
        is_for_current = self._current and BY_LIBRARY.get() and not runs_code_of_user()
        return None if is_for_current else cell

    def cell(self):
        """The cell of the running code."""
        return CELL.get()

    def work_for(self, cell):
        """Have this thread, or task, work for a cell, if that is the current one."""
        if cell == self._current != CELL.get():
            CELL.set(cell)

    def write_bytes(self, data):
        """Write bytes to the pipe before returning."""
        self.flush()
        cell = self._other_cell()
        if cell is None:
            self._put_pieces(data)
            return
        step = PIECE_BYTES - MARK_BYTES
        for start in range(0, len(data), step):
            self._put_for(cell, data[start : start + step])

    def _put_pieces(self, data):
        start = 0
        while start < len(data):
            stop = start + PIECE_BYTES
            # Not within a character.
            while (
                stop < len(data)
                and stop > start + PIECE_BYTES - 4
                and data[stop] & 0xC0 == 0x80
            ):
                stop -= 1
            self._put(data[start:stop])
            start = stop

    def _put_for(self, cell, piece):
        self._put(b"%bt%b %d\0%b" % (self._mark, cell, len(piece), piece))

    def _put(self, piece):
        """Write a piece atomically."""
        while piece:
            try:
                os.write(self._pipe, piece)
                return
            except BlockingIOError:
                # Another program has made the shared pipe non-blocking.
                select.select([], [self._pipe], [])

    def send(self, kind, content, cell=None):
        """Send a message, positioned after the output printed so far."""
        cell = cell or CELL.get() or self._current or b""
        if self._owner == threading.get_ident():
            self._waiting.append((kind, content, cell))
            return
        # Lone surrogates, which UTF-8 cannot carry, become question marks.
        text = json.dumps(content, default=str, ensure_ascii=False)
        content = text.encode("utf-8", "replace")
        if len(content) > MESSAGE_BYTES:
            raise ValueError(TOO_LONG.format(len(content)))
        with interrupted_afterwards(), self._lock:
            self._owner = threading.get_ident()
            try:
                self._send(kind, content, cell)
                while self._waiting:
                    kind, content, cell = self._waiting.popleft()
                    self._send(kind, json.dumps(content, default=str).encode(), cell)
            finally:
                self._owner = None

    def _send(self, kind, content, cell):
        self._numbers += 1
        data = b'{"type":%b,"cell":%b,"number":%d,"content":%b}' % (
            json.dumps(kind, default=str).encode(),
            json.dumps(cell.decode()).encode(),
            self._numbers,
            content,
        )
        rest = memoryview(LENGTH.pack(len(data)) + data)
        while rest:
            rest = rest[self._socket.send(rest) :]
        self._put(b"%bm%d\0" % (self._mark, self._numbers))

    def wait(self):
        """Wait for a message or the end. Here an exception of a signal handler costs no part of a message."""
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        waiting.poll()

    def receive(self, is_waiting=True):
        """The next message of the host; `None` if there is none yet. Ends the process if the connection is closed."""
        flags = NOT_INHERITED | (0 if is_waiting else socket.MSG_DONTWAIT)
        try:
            head, descriptors, _, _ = socket.recv_fds(
                self._socket, LENGTH.size, DESCRIPTORS, flags
            )
        except BlockingIOError:
            return None
        head += self._fill(LENGTH.size - len(head)) if head else b""
        if not head:
            os._exit(0)
        request = json.loads(self._fill(LENGTH.unpack(head)[0]))
        if descriptors:
            request["descriptors"] = descriptors
        return request

    def _fill(self, size):
        data = bytearray()
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                os._exit(0)
            data += more
        return bytes(data)

    def fileno(self):
        return self._socket.fileno()


def in_this_cell(run):
    """A function that does the same as `run`, for the caller's cell."""
    cell = CELL.get()

    def run_in_cell(*args, **kwargs):
        CELL.set(cell)
        BY_LIBRARY.set(False)
        return run(*args, **kwargs)

    return run_in_cell


def of_library(run):
    """As `in_this_cell`, for the main function of a library's thread."""
    cell = CELL.get()

    def run_in_cell(*args, **kwargs):
        CELL.set(cell)
        BY_LIBRARY.set(True)
        return run(*args, **kwargs)

    return run_in_cell


def runs_code_of_user():
    frame = sys._getframe(1)
    while frame is not None and not is_code_of_user(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None


@contextlib.contextmanager
def interrupted_afterwards():
    """Within the context, an interrupt is delayed: half a message would break the connection."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting = []
    handler = signal.signal(signal.SIGINT, lambda *signalled: waiting.append(signalled))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if waiting and callable(handler):
        handler(*waiting[0])


class ByteStream(io.BufferedIOBase):
    """`sys.stdout.buffer`."""

    def __init__(self, host, descriptor):
        self._host = host
        self._descriptor = descriptor

    def writable(self):
        return True

    def fileno(self):
        return self._descriptor

    def close(self):
        """Does nothing: the stream stays open as long as the process, even if a wrapper is closed."""

    def write(self, data):
        data = memoryview(data).tobytes()
        self._host.write_bytes(data)
        return len(data)


class TextStream(io.TextIOWrapper):
    """`sys.stdout` or `sys.stderr`, without buffering."""

    def __init__(self, host, descriptor, name):
        super().__init__(
            ByteStream(host, descriptor), encoding="utf-8", errors="replace"
        )
        self._host = host
        self._write = host.write
        self.name_of_stream = name

    @property
    def name(self):
        return self.name_of_stream

    def write(self, text):
        if type(text) is not str:
            if not isinstance(text, str):
                raise TypeError(
                    f"write() argument must be str, not {type(text).__name__}"
                )
            text = str.__str__(text)
        self._write(text)
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def flush(self):
        self._host.flush()

    def detach(self):
        return ByteStream(self._host, self.fileno())

    def close(self):
        """Does nothing, as in `ByteStream`."""
