"""Runs a program and has one of its changes to files fail, or ends it there.

The changes are counted in the order in which they happen, over all threads of the program. A filter (seccomp) has the kernel
ask this process before each system call that may change a file; those of the program's children, and those on other files
than the named ones, go on uncounted. `strace -e inject` counts for each thread and for all files together.
"""

from __future__ import annotations

import array  # noqa: F401  (what `socket.send_fds` imports: once there is a filter, nothing can be opened before it is answered)
import ctypes
import errno
import fcntl
import os
import platform
import select
import signal
import socket
import struct
import sys
from dataclasses import dataclass, field

# The numbers of system calls, and of the machine: `linux/audit.h`, `asm/unistd.h`.
X86_64 = {
    "write": 1, "open": 2, "pwrite64": 18, "writev": 20, "sendfile": 40, "fsync": 74, "fdatasync": 75, "ftruncate": 77,
    "rename": 82, "mkdir": 83, "rmdir": 84, "creat": 85, "link": 86, "unlink": 87, "symlink": 88, "fchmod": 91,
    "openat": 257, "mkdirat": 258, "unlinkat": 263, "renameat": 264, "linkat": 265, "symlinkat": 266, "renameat2": 316,
    "copy_file_range": 326, "openat2": 437,
}  # fmt: skip
AARCH64 = {
    "mkdirat": 34, "unlinkat": 35, "symlinkat": 36, "linkat": 37, "renameat": 38, "ftruncate": 46, "fchmod": 52,
    "openat": 56, "write": 64, "writev": 66, "pwrite64": 68, "sendfile": 71, "fsync": 82, "fdatasync": 83,
    "renameat2": 276, "copy_file_range": 285, "openat2": 437,
}  # fmt: skip
MACHINES = {"x86_64": (0xC000003E, X86_64), "aarch64": (0xC00000B7, AARCH64)}
SECCOMP = {"x86_64": 317, "aarch64": 277}

# The argument that is a descriptor of the changed file; of others, that which is a path, after a directory if there is one.
BY_DESCRIPTOR = {
    "write": 0, "pwrite64": 0, "writev": 0, "sendfile": 0, "fsync": 0, "fdatasync": 0, "ftruncate": 0, "fchmod": 0,
    "copy_file_range": 2,
}  # fmt: skip
BY_PATH = {
    "open": 0,
    "rename": 0,
    "mkdir": 0,
    "rmdir": 0,
    "creat": 0,
    "unlink": 0,
    "link": 1,
    "symlink": 1,
}
BELOW = {
    "openat": (0, 1), "openat2": (0, 1), "mkdirat": (0, 1), "unlinkat": (0, 1), "renameat": (0, 1), "renameat2": (0, 1),
    "linkat": (2, 3), "symlinkat": (1, 2),
}  # fmt: skip

SECCOMP_SET_MODE_FILTER, NEW_LISTENER, PR_SET_NO_NEW_PRIVS = 1, 1 << 3, 38
NOTIF_RECV, NOTIF_SEND = 0xC0502100, 0xC0182101
USER_NOTIF_FLAG_CONTINUE = 1
RET_USER_NOTIF, RET_ALLOW = 0x7FC00000, 0x7FFF0000
NOTIF, RESPONSE = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
MASK = (1 << 64) - 1


@dataclass
class FaultRun:
    """The outcome of a run."""

    status: int
    """As of `subprocess`; negative for a signal."""
    output: str
    changes: list[str] = field(default_factory=list)
    """The changes to files, in order."""
    was_hit: bool = False


def is_possible() -> bool:
    return sys.platform == "linux" and platform.machine() in MACHINES


def run(
    command,
    roots,
    *,
    program=None,
    at=None,
    how="kill",
    env=None,
    cwd=None,
    limit=300.0,
) -> FaultRun:
    """Runs a command, and has the change number `at` (from 1) of a file below `roots` fail: `kill`, or a name of `errno`.

    Changes are those of processes that run `program`, by default that of the command.
    """
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    given = os.open(os.devnull, os.O_RDONLY)
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            for number, source in enumerate((given, writer, writer)):
                os.dup2(source, number)
            if cwd:
                os.chdir(cwd)
            listener = install_filter()
            socket.send_fds(theirs, [b"f"], [listener])
            os.closerange(3, 256)
            os.execve(command[0], command, env if env is not None else dict(os.environ))
        except OSError as error:
            os.write(2, f"could not run {command[0]}: {error!r}\n".encode())
        os._exit(127)
    for descriptor in (writer, given):
        os.close(descriptor)
    theirs.close()
    listener = socket.recv_fds(ours, 1, 1)[1][0]
    ours.close()
    try:
        roots = [os.path.realpath(root) for root in roots]
        program = os.path.realpath(program or command[0])
        return Supervisor(child, listener, reader, program, roots, at, how).follow(
            limit
        )
    finally:
        os.close(listener)
        os.close(reader)
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Supervisor:
    def __init__(self, child, listener, output, program, roots, at, how):
        self.child, self.listener, self.output, self.program, self.roots = (
            child,
            listener,
            output,
            program,
            roots,
        )
        self.at, self.how = at, how
        self.names = {
            number: name for name, number in MACHINES[platform.machine()][1].items()
        }
        self.run = FaultRun(status=0, output="")

    def follow(self, limit: float) -> FaultRun:
        pidfd = os.pidfd_open(self.child)
        text, outputs = b"", [self.output]
        try:
            while True:
                ready, _, _ = select.select(
                    [self.listener, pidfd, *outputs], [], [], limit
                )
                if not ready:
                    os.kill(self.child, signal.SIGKILL)
                    seen = text.decode(errors="replace")
                    raise TimeoutError(f"nothing has happened for {limit} s: {seen}")
                if self.listener in ready and self.answer():
                    continue
                if self.output in ready and (chunk := os.read(self.output, 65536)):
                    text += chunk
                elif pidfd in ready:
                    break
                elif self.output in ready:
                    # All have closed it, and the process lives on for a moment.
                    outputs.clear()
            _, status = os.waitpid(self.child, 0)
        finally:
            os.close(pidfd)
        self.run.status, self.run.output = (
            os.waitstatus_to_exitcode(status),
            text.decode(errors="replace"),
        )
        return self.run

    def answer(self) -> bool:
        """Answers the kernel's next question; false if there is none."""
        buffer = bytearray(NOTIF.size + 8)
        try:
            fcntl.ioctl(self.listener, NOTIF_RECV, buffer)
        except OSError as error:
            # The thread has ended, or all have.
            if error.errno == errno.ENOENT:
                return False
            raise
        identity, thread, _, number, _, _, *arguments = NOTIF.unpack_from(buffer)
        change = self.change(thread, self.names.get(number, ""), arguments)
        value = 0
        if change:
            self.run.changes.append(change)
            if len(self.run.changes) == self.at:
                self.run.was_hit = True
                if self.how == "kill":
                    os.kill(thread, signal.SIGKILL)
                    return True
                value = -getattr(errno, self.how)
        response = RESPONSE.pack(
            identity, 0, value, 0 if value else USER_NOTIF_FLAG_CONTINUE
        )
        try:
            fcntl.ioctl(self.listener, NOTIF_SEND, response)
        except OSError as error:
            # The thread has ended meanwhile.
            if error.errno != errno.ENOENT:
                raise
        return True

    def change(self, thread: int, name: str, arguments: list[int]) -> str:
        """The file below the roots that a system call is about to change; else nothing."""
        try:
            if os.readlink(f"/proc/{thread}/exe") != self.program:
                return ""
            if name in ("open", "openat", "creat", "openat2") and not self.creates(
                thread, name, arguments
            ):
                return ""
            path = self.path(thread, name, arguments)
        except (FileNotFoundError, ProcessLookupError):
            return ""
        for root in self.roots:
            if path.startswith(root + "/") or path == root:
                return f"{name} {path[len(root) - len(os.path.basename(root)) :]}"
        return ""

    def creates(self, thread, name, arguments) -> bool:
        if name == "creat":
            return True
        if name == "openat2":
            flags = struct.unpack("=Q", self.memory(thread, arguments[2], 8))[0]
        else:
            flags = arguments[1 if name == "open" else 2]
        return bool(flags & (os.O_CREAT | os.O_TRUNC))

    def path(self, thread, name, arguments) -> str:
        if name in BY_DESCRIPTOR:
            return os.readlink(f"/proc/{thread}/fd/{arguments[BY_DESCRIPTOR[name]]}")
        if name in BY_PATH:
            base, text = (
                os.readlink(f"/proc/{thread}/cwd"),
                self.text(thread, arguments[BY_PATH[name]]),
            )
        else:
            directory, place = BELOW[name]
            number = ctypes.c_int(arguments[directory] & 0xFFFFFFFF).value
            base = os.readlink(
                f"/proc/{thread}/cwd" if number < 0 else f"/proc/{thread}/fd/{number}"
            )
            text = self.text(thread, arguments[place])
        parent, last = os.path.split(os.path.join(base, text))
        return os.path.join(os.path.realpath(parent), last)

    def text(self, thread: int, address: int) -> str:
        """A string of the program. It may end before the page does."""
        whole = b""
        while b"\0" not in whole and len(whole) < 4096:
            start = address + len(whole)
            whole += self.memory(thread, start, 4096 - start % 4096)
        return os.fsdecode(whole.split(b"\0")[0])

    @staticmethod
    def memory(thread: int, address: int, length: int) -> bytes:
        with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(length)


def install_filter() -> int:
    """Has the kernel ask about the system calls of this process; returns where it asks."""
    machine, numbers = MACHINES[platform.machine()]
    statement = struct.Struct("=HBBI")
    asked = sorted(set(numbers.values()))
    load, equal, ret = 0x20, 0x15, 0x06
    program = [
        statement.pack(load, 0, 0, 4),
        statement.pack(equal, 0, len(asked) + 1, machine),
        statement.pack(load, 0, 0, 0),
    ]
    program += [
        statement.pack(equal, len(asked) - place, 0, number)
        for place, number in enumerate(asked)
    ]
    program += [
        statement.pack(ret, 0, 0, RET_ALLOW),
        statement.pack(ret, 0, 0, RET_USER_NOTIF),
    ]
    code = ctypes.create_string_buffer(b"".join(program))

    class FilterProgram(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no new privileges")
    given = FilterProgram(len(program), ctypes.cast(code, ctypes.c_void_p))
    listener = libc.syscall(
        SECCOMP[platform.machine()],
        SECCOMP_SET_MODE_FILTER,
        ctypes.c_ulong(NEW_LISTENER),
        ctypes.byref(given),
    )
    if listener < 0:
        raise OSError(ctypes.get_errno(), "the filter of system calls")
    return listener
