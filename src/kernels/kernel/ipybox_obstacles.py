"""Finds what a fork of the kernel would take from it or share with it: threads, processes, files, sockets, memory.

Each is either refused, by name and with the variables that hold it, or becomes a change of a descriptor in the fork. Only
Linux has what this reads. Standard library only.
"""

import fcntl
import io
import logging
import os
import select
import socket
import sys
import threading
import types

# The most obstacles, and variables of one, that are named.
NAMED = 5
# Devices that give everybody the same.
HARMLESS_DEVICES = (
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
)
# Devices of graphics processors, whose state no fork has.
GPUS = ("/dev/nvidia", "/dev/kfd", "/dev/dri/")
# Libraries that keep native threads. Those that go on after a fork are not there in the fork, where work would wait for them.
THREADED = (
    *("polars", "duckdb", "torch", "tensorflow", "jax", "sklearn", "numba", "numexpr"),
    *("cv2", "lightgbm", "xgboost", "faiss", "zmq", "grpc", "pymongo", "tokenizers"),
)
# Threads that their libraries can do without.
EXPENDABLE_THREADS = ("tqdm._monitor",)
# Connections to databases in a file, which must not be used by two processes.
DATABASES = ("sqlite3", "duckdb", "apsw", "lmdb", "h5py")


class Obstacles:
    """Obstacles to a fork, and the changes that the fork needs."""

    def __init__(self, variables, own, pipe, loop, sleeps):
        # In words, for the agent.
        self.refusals = []
        self.notes = []
        # By descriptor: a function that replaces it in the fork.
        self.changes = {}
        self._variables = variables
        # A state takes the place of its origin, which has ended by then.
        self._stay = "have ended" if sleeps else "go on in the origin only"
        self._connected = "are closed" if sleeps else "are connected in the origin only"
        self._find_threads()
        self._find_processes()
        self._find_shared_memory()
        self._find_files(own, pipe, loop)
        self._find_tasks(loop)

    def _find_threads(self):
        threads = [
            thread
            for thread in threading.enumerate()
            if thread is not threading.main_thread()
        ]
        self.expected_threads = 1 + _arrow_threads()
        for thread in threads:
            if type(thread).__module__ in EXPENDABLE_THREADS:
                self.expected_threads += 1
                continue
            self._refuse(f"the thread `{thread.name}` runs", thread, *_pools(thread))

    def native_threads(self):
        """The native threads that forbid the fork, seen from the kernel after it has forked.

        Libraries that end their threads before a fork, and start them again, have done so by then.
        """
        tasks = os.listdir("/proc/self/task")
        count = len(tasks) - self.expected_threads
        if count <= 0:
            return []
        libraries = [name for name in THREADED if name in sys.modules]
        if not libraries:
            libraries = sorted(
                {_text(f"/proc/self/task/{task}/comm") for task in tasks}
            )
        threads = (
            "a native thread runs" if count == 1 else f"{count} native threads run"
        )
        return [f"{threads}, of {_listed(libraries)}: a copy would not have them"]

    def _find_processes(self):
        for process in _children():
            command = _text(f"/proc/{process}/cmdline").replace("\0", " ").strip()
            if "multiprocessing.resource_tracker" in command:
                continue
            self._refuse(f"the process {process} (`{command[:80]}`) runs", process)

    def _find_shared_memory(self):
        seen = set()
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                fields = line.split(maxsplit=5)
                path = fields[5].strip() if len(fields) > 5 else ""
                if path.startswith(GPUS):
                    self._refuse_gpu(seen, path)
                elif fields[1].startswith("rw") and fields[1].endswith("s"):
                    if _is_ours(fields, path) or path.startswith("/dev/shm/sem."):
                        continue
                    if path not in seen:
                        seen.add(path)
                        words = f"memory is shared with the file `{path}`"
                        self._refuse(words, path.removesuffix(" (deleted)"))

    def _refuse_gpu(self, seen, path):
        if "GPU" not in seen:
            seen.add("GPU")
            self.refusals.append(f"a graphics processor is in use (`{path}`)")

    def _find_files(self, own, pipe, loop):
        of_loop = _descriptors_of(loop)
        output = os.readlink(f"/proc/self/fd/{pipe}")
        disconnected = []
        for name in os.listdir("/proc/self/fd"):
            descriptor = int(name)
            try:
                target = os.readlink(f"/proc/self/fd/{name}")
            except OSError:
                continue  # The listing itself.
            if descriptor in own or target in HARMLESS_DEVICES:
                continue
            if target == output:
                self.changes[descriptor] = None
            elif target.startswith(GPUS):
                self._refuse_gpu(set(), target)
            elif target.startswith("/") and not target.startswith("/dev/"):
                self._find_file(descriptor, target)
            else:
                self.changes[descriptor] = disconnect
                is_own = descriptor in of_loop or not target.startswith("socket:")
                if not is_own and not _has_ended(descriptor):
                    disconnected.append(descriptor)
        if disconnected:
            holders = {
                name
                for descriptor in disconnected
                for name in self._holders(descriptor)
            }
            held = f" ({_listed(sorted(holders))})" if holders else ""
            self.notes.append(
                f"{len(disconnected)} open socket(s){held} {self._connected}"
            )

    def _find_file(self, descriptor, path):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            return
        mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        if mode == os.O_RDONLY:
            self.changes[descriptor] = reopen
            return
        path = path.removesuffix(" (deleted)")
        if not any(f"the file `{path}`" in refusal for refusal in self.refusals):
            self._refuse(f"the file `{path}` is open for writing", descriptor, path)

    def _find_tasks(self, loop):
        if loop is None:
            return
        import asyncio

        tasks = [task for task in asyncio.all_tasks(loop) if not task.done()]
        if tasks:
            names = _listed(sorted(task.get_name() for task in tasks))
            self.notes.append(f"asyncio tasks {self._stay}: {names}")

    def _refuse(self, words, *held):
        holders = sorted({name for thing in held for name in self._holders(thing)})
        self.refusals.append(words + (f" ({_listed(holders)})" if holders else ""))

    def _holders(self, thing):
        """The variables that hold a thread, or what has this descriptor, process or file."""
        for name, value in list(self._variables.items()):
            is_named = isinstance(name, str) and not name.startswith("_")
            if not is_named or isinstance(value, types.ModuleType):
                continue
            if any(_is_about(each, thing) for each in (value, *_parts(value))):
                yield name
        if isinstance(thing, int):
            for reference in logging._handlerList:
                stream = getattr(reference(), "stream", None)
                if _is_about(stream, thing):
                    yield "a handler of logging"


def _is_about(value, thing):
    """True if an object is, or has, a thread, a descriptor, a process or a file. Runs no code of the user's."""
    if value is thing:
        return True
    if isinstance(thing, int):
        if isinstance(value, (io.FileIO, io.BufferedReader, io.BufferedWriter)) or type(
            value
        ) in (io.TextIOWrapper, io.BufferedRandom, socket.socket):
            return not getattr(value, "closed", False) and _number_of(value) == thing
        members = getattr(value, "__dict__", None)
        if type(value).__name__ == "Popen" or hasattr(type(value), "_popen"):
            return isinstance(members, dict) and members.get("pid") == thing
        return False
    if not isinstance(thing, str):
        return False
    if isinstance(value, DATABASES_OF_NAMES):
        return False
    kind = type(value).__module__.partition(".")[0]
    if kind in DATABASES or kind == "_sqlite3":
        return _is_database_in(value, thing)
    return getattr(value, "filename", None) == thing


# Classes that are no connections, though their module is a database's.
DATABASES_OF_NAMES = (type, BaseException)


def _is_database_in(value, path):
    sqlite = sys.modules.get("sqlite3")
    if sqlite is None or type(value) is not sqlite.Connection:
        return type(value).__name__.endswith(("Connection", "File"))
    try:
        files = [row[2] for row in value.execute("PRAGMA database_list")]
    except Exception:  # noqa: BLE001 - it is closed, or another thread's
        return False
    # Its journal has a longer name.
    return any(file and path.startswith(file) for file in files)


def _number_of(value):
    try:
        return value.fileno()
    except Exception:  # noqa: BLE001 - it has none, or is closed
        return None


def _parts(value):
    """The items of a container, or the objects that an object refers to: one level."""
    if type(value) in (list, tuple, set, frozenset):
        return list(value)[:100]
    if type(value) is dict:
        return list(value.values())[:100]
    members = getattr(value, "__dict__", None)
    return list(members.values())[:100] if type(members) is dict else ()


def _pools(thread):
    """The pool that a thread works for: its queue is all that the thread knows of it."""
    target = getattr(thread, "_target", None)
    arguments = getattr(thread, "_args", None) or ()
    owner = getattr(target, "__self__", None)
    pools = [
        each() if type(each).__name__ == "ReferenceType" else each
        for each in arguments[:1]
    ]
    return [each for each in (owner, *pools) if each is not None]


def _arrow_threads():
    """The threads that pyarrow may have: it starts them again in a fork."""
    arrow = sys.modules.get("pyarrow")
    try:
        return arrow.cpu_count() + arrow.io_thread_count() if arrow else 0
    except Exception:  # noqa: BLE001 - half an import
        return 0


def _descriptors_of(loop):
    if loop is None:
        return ()
    own = (getattr(loop, name, None) for name in ("_selector", "_ssock", "_csock"))
    return {_number_of(each) for each in own}


def _children():
    """The living processes that this one has started."""
    try:
        # To look at all processes of the system takes longer.
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return
    # The id as `/proc` has it: that may be of a namespace further out.
    own = os.readlink("/proc/self")
    for name in filter(str.isdigit, os.listdir("/proc")):
        # The name of a program may have blanks and parentheses.
        state = _text(f"/proc/{name}/stat").rpartition(")")[2].split()
        if len(state) > 1 and state[1] == own and state[0] not in "ZX":
            yield int(name)


def _is_ours(fields, path):
    """True if it is the memory that `ipybox_saving` shares with its own forks."""
    saving = sys.modules.get("ipybox_saving")
    if saving is None or not path.startswith("/dev/zero"):
        return False
    start, _, end = fields[0].partition("-")
    return int(end, 16) - int(start, 16) == len(saving.stuck)


def _text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""  # The process has ended.


def _listed(names):
    names = list(names)
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(f"`{name}`" for name in names[:NAMED]) + more


def _has_ended(descriptor):
    """Return whether nothing is at the other end of a socket, as in a fork of a fork."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as other:
            return not other.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:
        return False


def disconnect(descriptor):
    """Put something without another end in the place of a descriptor, whose number must stay taken."""
    if os.readlink(f"/proc/self/fd/{descriptor}") == "anon_inode:[eventpoll]":
        fresh = select.epoll()
        os.dup2(fresh.fileno(), descriptor, inheritable=False)
        fresh.close()
        return
    ours, theirs = socket.socketpair()
    theirs.close()
    os.dup2(ours.fileno(), descriptor, inheritable=False)
    ours.close()


def reopen(descriptor):
    """Give a file that is read a position of its own, at the same place."""
    inheritable = os.get_inheritable(descriptor)
    try:
        fresh = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        # The file may be read no more: its position would be shared.
        disconnect(descriptor)
        return
    try:
        os.lseek(fresh, os.lseek(descriptor, 0, os.SEEK_CUR), os.SEEK_SET)
    except OSError:
        pass  # It has no position.
    os.dup2(fresh, descriptor, inheritable=inheritable)
    os.close(fresh)
