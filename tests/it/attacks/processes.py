"""Attacks on the process that started us: the gateway."""

import ctypes
import errno
import os
import signal
import sys

from attack import attempt, in_child, syscall

# The kernel's parent, by its number in our own namespace, and as `/proc` has it, which may be from further out.
GATEWAY, SHOWN = int(sys.argv[1]), int(sys.argv[2])


def read(path):
    def act():
        with open(f"/proc/{SHOWN}/{path}", "rb") as opened:
            return opened.read(1)

    return act


def write_memory():
    with open(f"/proc/{SHOWN}/mem", "r+b", buffering=0) as memory:
        return memory.fileno()


def read_memory():
    buffer = ctypes.create_string_buffer(1)
    local = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 1)
    remote = (ctypes.c_uint64 * 2)(0x1000, 1)
    return syscall("process_vm_readv", GATEWAY, local, 1, remote, 1, 0)


def trace():
    return in_child(lambda: syscall("ptrace", 0x4206, GATEWAY, 0, 0))  # PTRACE_SEIZE


def take_descriptor():
    descriptor = os.pidfd_open(GATEWAY)
    return syscall("pidfd_getfd", descriptor, 0, 0)


def signal_by_descriptor():
    return signal.pidfd_send_signal(os.pidfd_open(GATEWAY), 0)


def stop():
    """SIGSTOP, undone at once if it arrives."""
    os.kill(GATEWAY, signal.SIGSTOP)
    os.kill(GATEWAY, signal.SIGCONT)
    return "stopped"


def set_limit():
    limit = (ctypes.c_uint64 * 2)()
    syscall("prlimit64", GATEWAY, 7, None, limit)
    syscall("prlimit64", GATEWAY, 7, limit, None)
    return list(limit)


def become_precious():
    with open("/proc/self/oom_score_adj") as score:
        before = int(score.read())
    with open("/proc/self/oom_score_adj", "w") as score:
        score.write(str(max(before - 1, 0)))
    return before


def is_precious():
    """True if memory pressure would end others before us."""
    with open("/proc/self/oom_score_adj") as score:
        adjustment = int(score.read())
    if adjustment >= 800:
        raise PermissionError(errno.EPERM, str(adjustment))
    return adjustment


def speak():
    with open(f"/proc/{SHOWN}/fd/0", "r+b", buffering=0) as opened:
        return opened.fileno()


def end_of_gateway():
    """True if something above ended it."""
    if os.path.exists(f"/proc/{SHOWN}"):
        raise PermissionError(errno.EPERM, "it runs")
    return "gone"


attempt("signal_gateway", lambda: os.kill(GATEWAY, 0))
attempt("stop_gateway", stop)
attempt("signal_gateway_by_descriptor", signal_by_descriptor)
attempt("take_descriptor_of_gateway", take_descriptor)
attempt("trace_gateway", trace)
attempt("read_memory_of_gateway", read_memory)
attempt("write_memory_of_gateway", write_memory)
attempt("limit_gateway", set_limit)
attempt("environment_of_gateway", read("environ"))
attempt("memory_map_of_gateway", read("maps"))
attempt("descriptor_link_of_gateway", lambda: os.readlink(f"/proc/{SHOWN}/fd/0"))
attempt("root_of_gateway", lambda: os.listdir(f"/proc/{SHOWN}/root"))
attempt("directory_of_gateway", lambda: os.listdir(f"/proc/{SHOWN}/cwd"))
attempt("compare_with_gateway", lambda: syscall("kcmp", os.getpid(), GATEWAY, 2, 0, 0))
attempt("become_precious", become_precious)
attempt("is_precious", is_precious)
attempt("speak_at_descriptor_0_of_gateway", speak)
attempt("gateway_is_gone", end_of_gateway)
