"""Saves the variables of the kernel while its code goes on: in processes that are forked from it.

```text
kernel ── fork ──→ supervisor ── fork ──→ worker: pickles one variable after the other
                       ↑ └── HTTP ──→ host        │
                       └──────── pipe ────────────┘
```

Both have the memory of the kernel as it was between two cells. Pickling runs the user's code (`__reduce__`,
`__getstate__`), which may raise, print, change what it is called on, crash, or never end: the worker has no connection
but the pipe, and the supervisor, which runs none of that code, replaces a worker that is stuck or has crashed.
"""

import gc
import hashlib
import itertools
import mmap
import os
import select
import signal
import struct
import sys
import time
import warnings

import ipybox_pickling

MIB = 1024 * 1024
# The largest pickled variable, and all of them together. The host has the same limits.
VARIABLE_BYTES = 128 * MIB
TOTAL_BYTES = 512 * MIB
# The longest time for one variable, and for all of them together.
VARIABLE_SECONDS = 10
TOTAL_SECONDS = 30
# The time after which a supervisor that hangs ends: the host does not wait longer either.
LAST_SECONDS = 45
# The most variables that are saved.
VARIABLES = 2000
# The most memory that a worker takes beside the kernel's: no other process shall suffer from a lack of it.
SPARE_BYTES = 512 * MIB
PIECE_BYTES = MIB

# The variables that have taken too long or ended their process: written by supervisors, read by later ones.
STUCK_BYTES = 64 * 1024
stuck = mmap.mmap(-1, STUCK_BYTES)
STUCK = struct.Struct("<q")

# The head of a worker's report: the kind, the position of the variable, and the length of what follows.
HEAD = struct.Struct("<BIQ")
BEGIN, PIECE, SAVED, FAILED = range(4)


class TooLargeError(Exception):
    pass


def save(names, output, deliver):
    """Fork a process that pickles the variables `names` and calls `deliver` with a `SavedVariables`.

    `output` are the descriptors of the kernel's output. It is no child of this process: code that waits for all its
    children must not wait for it.
    """
    with warnings.catch_warnings():
        # Since 3.12 Python warns of threads, which the new process does not have.
        warnings.simplefilter("ignore")
        child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        withdraw(output)
        if not os.fork():
            signal.alarm(LAST_SECONDS)
            deliver(SavedVariables(names(), output))
    finally:
        os._exit(0)


def withdraw(output):
    """Give up what belongs to the kernel: signals, its output, and all other files.

    The other end of a connection that the kernel closes must not wait for this process.
    """
    # Finalizers of the kernel's objects act on the world.
    gc.disable()
    # It is the number of another file soon.
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(ignored, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    kept = {0, 1, 2, *output}
    for descriptor in kept:
        os.dup2(null, descriptor)
    close_all_but(kept)
    os.nice(10)
    try:
        # The first to be killed if memory runs out.
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")
    except OSError:
        pass  # Only Linux has it.


def mark_of(name):
    """A number for this variable with this object."""
    value = ipybox_pickling.namespace[name]
    return hash((name, id(value), id(type(value)))) or 1


def share_anew():
    """Share the memory with no other kernel, in one that has just been forked."""
    global stuck
    stuck.close()
    stuck = mmap.mmap(-1, STUCK_BYTES)


def is_stuck(name):
    marks = (mark for (mark,) in STUCK.iter_unpack(stuck))
    return mark_of(name) in itertools.takewhile(bool, marks)


def remember_stuck(name):
    """Have later supervisors leave out this variable, as long as it is this object. If there are too many, forget this one."""
    for start in range(0, len(stuck), STUCK.size):
        if STUCK.unpack_from(stuck, start) == (0,):
            STUCK.pack_into(stuck, start, mark_of(name))
            return


def close_all_but(kept):
    for descriptor in [int(name) for name in os.listdir("/dev/fd")]:
        if descriptor not in kept:
            try:
                os.close(descriptor)
            except OSError:
                pass  # The listing itself.


class SavedVariables:
    """The variables, and how far they have been saved."""

    def __init__(self, names, output):
        self._output = output
        left_out = [name for name in names[:VARIABLES] if is_stuck(name)]
        self.names = [name for name in names[:VARIABLES] if name not in left_out]
        self.deadline = time.monotonic() + TOTAL_SECONDS
        self.room = TOTAL_BYTES
        self.saved = []
        why = "pickling it took too long, or ended its process, after an earlier cell"
        self.missing = [(name, why) for name in left_out]
        self.missing += [
            (name, f"there are more than {VARIABLES:,} variables")
            for name in names[VARIABLES:]
        ]

    def run(self, keep):
        """Pickle all variables. `keep` gets the digest and the bytes of each, and returns why it was not kept, if so."""
        first = 0
        while first < len(self.names):
            if time.monotonic() >= self.deadline:
                why = f"the time for all variables ran out ({TOTAL_SECONDS} s)"
                self.missing += [(name, why) for name in self.names[first:]]
                return
            first = self._run_worker(first, keep)

    def _run_worker(self, first, keep):
        """Read what one worker reports. Return the position of the variable that the next one begins with."""
        reader, writer = os.pipe()
        worker = os.fork()
        if not worker:
            try:
                # The supervisor may be gone by then.
                signal.alarm(LAST_SECONDS)
                # The user's code does not get at the connection to the host.
                close_all_but({0, 1, 2, *self._output, writer})
                work(self.names, first, writer, self.room)
            finally:
                os._exit(0)
        os.close(writer)
        try:
            return self._follow(ReportReader(reader), first, keep)
        finally:
            os.close(reader)
            os.kill(worker, signal.SIGKILL)
            os.waitpid(worker, 0)

    def _follow(self, reader, at, keep):
        while at < len(self.names):
            name = self.names[at]
            until = min(time.monotonic() + VARIABLE_SECONDS, self.deadline)
            try:
                data, why = reader.variable(at, until)
            except TimeoutError:
                why = f"pickling it took longer than {VARIABLE_SECONDS} s"
                if time.monotonic() >= self.deadline:
                    why = f"the time for all variables ran out ({TOTAL_SECONDS} s)"
                else:
                    remember_stuck(name)
                self.missing.append((name, why))
                return at + 1
            except (EOFError, ValueError):
                remember_stuck(name)
                self.missing.append((name, "pickling it ended its process"))
                return at + 1
            if why is None:
                digest = hashlib.sha256(data).hexdigest()
                why = keep(digest, data)
            if why is None:
                self.saved.append((name, digest, len(data)))
                self.room -= len(data)
            else:
                self.missing.append((name, why))
            at += 1
        return at


class ReportReader:
    """Reads what a worker reports. Code of the user's runs there: it may write anything."""

    def __init__(self, descriptor):
        self._descriptor = descriptor
        self._data = bytearray()
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def variable(self, position, until):
        """The bytes of a variable, or why there are none."""
        data = bytearray()
        while True:
            kind, of, length = HEAD.unpack(self._take(HEAD.size, until))
            if of != position or length > VARIABLE_BYTES - len(data):
                raise ValueError
            text = self._take(length, until)
            if kind == PIECE:
                data += text
            elif kind == SAVED:
                return data, None
            elif kind == FAILED:
                return None, text.decode(errors="replace")

    def _take(self, size, until):
        while len(self._data) < size:
            left = until - time.monotonic()
            if left <= 0 or not self._poll.poll(left * 1000):
                raise TimeoutError
            more = os.read(self._descriptor, PIECE_BYTES)
            if not more:
                raise EOFError
            self._data += more
        taken = bytes(self._data[:size])
        del self._data[:size]
        return taken


class PickledVariable:
    """The file that a variable is pickled to. It is sent as it comes, as far as there is room."""

    def __init__(self, descriptor, position, room):
        self._descriptor = descriptor
        self._position = position
        self._total = room
        self.left = min(room, VARIABLE_BYTES)
        self.is_full = False

    def write(self, data):
        data = memoryview(data).cast("B")
        self.is_full |= len(data) > self.left
        if self.is_full:
            raise TooLargeError
        self.left -= len(data)
        for start in range(0, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            report(self._descriptor, PIECE, self._position, piece)
        return len(data)

    def excess(self):
        if self._total < VARIABLE_BYTES:
            return f"all variables together take more than {TOTAL_BYTES // MIB} MiB"
        return f"it takes more than {VARIABLE_BYTES // MIB} MiB"


def work(names, first, descriptor, room):
    """Pickle the variables from the position `first` on."""
    limit_memory()
    for position in range(first, len(names)):
        report(descriptor, BEGIN, position)
        pieces = PickledVariable(descriptor, position, room)
        why = None
        try:
            ipybox_pickling.VariablePickler(pieces, names[position]).dump(
                ipybox_pickling.namespace[names[position]]
            )
        except MemoryError:
            why = "pickling it takes too much memory"
        except BaseException as error:  # noqa: BLE001 - the user's code raises it
            why = ipybox_pickling.reason(error)
        # The user's code may have gone on after the exception.
        if pieces.is_full:
            why = pieces.excess()
        if why is None:
            room -= min(room, VARIABLE_BYTES) - pieces.left
            report(descriptor, SAVED, position)
        else:
            report(descriptor, FAILED, position, why.encode(errors="replace"))


def report(descriptor, kind, position, data=b""):
    for rest in (HEAD.pack(kind, position, len(data)), data):
        rest = memoryview(rest)
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def limit_memory():
    """Let a variable that needs too much memory fail here, before the system kills a process of its choice."""
    if not sys.platform.startswith("linux"):
        return
    import resource

    try:
        with open("/proc/self/statm") as sizes:
            size = int(sizes.read().split()[5]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limits = [size + SPARE_BYTES, soft, hard]
        least = min(limit for limit in limits if limit != resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_DATA, (least, hard))
    except (OSError, ValueError):
        pass  # The system's limits hold all the same.
