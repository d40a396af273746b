"""What was printed, in a file that survives a process that dies suddenly. Standard library only.

The file is 8 bytes, the number of bytes ever written as an integer in the machine's order, and a ring with the newest
of them. In the ring, text in UTF-8 follows labels: a byte FF, `o` or `e` for stdout and stderr, the number of
characters that this stream has written before for the same request, the request's id, a byte FE. Neither byte occurs
in UTF-8. There is a label at least every PIECE_CHARS characters, so that the loss of old ones costs little.

ipybox reads the file when the kernel has died, and adds what no message brought.
"""

import mmap

# The longest text after a label, in characters.
PIECE_CHARS = 16 * 1024
# The largest number of bytes after a label: a character takes at most 4.
PIECE_BYTES = 4 * PIECE_CHARS
# How many requests to count characters for. ipybox recovers text of the newest 64.
COUNTED_REQUESTS = 256
# Where the ring begins.
HEADER_BYTES = 8


class Journal:
    """The file. Not safe for threads: who writes holds a lock. A signal handler may print in the middle of a write."""

    def __init__(self, path):
        with open(path, "r+b") as file:
            self._ring = mmap.mmap(file.fileno(), 0)
        self._written = memoryview(self._ring)[:HEADER_BYTES].cast("Q")
        self._size = len(self._ring) - HEADER_BYTES
        # What to add to a position in the file for the number of bytes ever written.
        self._lap = -HEADER_BYTES
        self._position = HEADER_BYTES
        # Where the next label is due at the latest.
        self._limit = HEADER_BYTES
        # The text at the end of the ring belongs to it.
        self._run = None

    def add(self, run, text):
        """Add text that belongs to `run`."""
        if run is not self._run or len(text) > PIECE_CHARS:
            return self._add_labelled(run, text)
        data = text.encode("utf-8", "replace")
        start = self._position
        stop = start + len(data)
        if stop > self._limit:
            return self._add_labelled(run, text)
        self._ring[start:stop] = data
        if self._position != start:
            # A signal handler has printed, and its text lies where ours should.
            return self._add_labelled(run, text)
        self._position = stop
        # What is not counted is not there: dying before this line loses what was not printed yet.
        self._written[0] = self._lap + stop
        run.chars += len(text)

    def _add_labelled(self, run, text):
        if run.request is None or not text:
            return
        # The ring holds no more characters than bytes.
        skipped = max(0, len(text) - self._size)
        run.chars += skipped
        for start in range(skipped, len(text), PIECE_CHARS):
            piece = text[start : start + PIECE_CHARS]
            data = piece.encode("utf-8", "replace")
            self._put(
                b"\xff%b %d %b\xfe%b" % (run.stream, run.chars, run.request, data)
            )
            run.chars += len(piece)
        self._run = run
        self._limit = min(self._position + PIECE_BYTES, len(self._ring))

    def _put(self, data):
        is_put = False
        end = len(self._ring)
        while not is_put:
            start = self._position
            stop = start + len(data)
            if stop < end:
                self._ring[start:stop] = data
            else:
                self._ring[start:end] = data[: end - start]
                self._ring[HEADER_BYTES : stop - self._size] = data[end - start :]
            # As in `add`.
            is_put = self._position == start
        if stop >= end:
            stop -= self._size
            self._lap += self._size
        self._position = stop
        self._written[0] = self._lap + stop


class Run:
    """What one request has written to one stream."""

    __slots__ = ("chars", "key", "parent", "request", "stream")

    def __init__(self, stream, parent):
        self.parent = parent
        # What ipykernel's buffers are named by.
        self.key = frozenset(parent.items())
        self.stream = b"e" if stream == "stderr" else b"o"
        request = parent.get("msg_id")
        is_ours = isinstance(request, str) and request.isascii() and len(request) < 100
        self.request = request.encode() if is_ours else None
        self.chars = 0


class Runs:
    """The newest runs of one stream."""

    def __init__(self, stream):
        self._stream = stream
        self._by_request = {}

    def find(self, parent):
        """The run that text with this parent header belongs to."""
        request = parent.get("msg_id")
        known = self._by_request.get(request)
        run = Run(self._stream, parent)
        if known is not None:
            run.chars = known.chars
        self._by_request.pop(request, None)
        self._by_request[request] = run
        if len(self._by_request) > COUNTED_REQUESTS:
            del self._by_request[next(iter(self._by_request))]
        return run


class Sent:
    """How many characters of each run were sent."""

    def __init__(self):
        self._chars = {}

    def count(self, parent, stream, text):
        """Count a text, and return how many characters have been sent with it."""
        key = parent.get("msg_id"), stream
        chars = self._chars.pop(key, 0) + len(text)
        self._chars[key] = chars
        if len(self._chars) > 2 * COUNTED_REQUESTS:
            del self._chars[next(iter(self._chars))]
        return chars
