"""Signals, traces and looks into every process that can be found, but for those of the kernel's own group."""

import ctypes
import errno
import json
import os
import signal

from attack import TARGETS, in_child, syscall

OWN = os.getpgid(0)


def is_own(process):
    try:
        return os.getpgid(process) == OWN
    except OSError as error:
        return error.errno == errno.ESRCH


def limit(process):
    return syscall("prlimit64", process, 7, None, (ctypes.c_uint64 * 2)())


def take(process):
    return syscall("pidfd_getfd", os.pidfd_open(process), 0, 0)


def peek(process):
    local = (ctypes.c_uint64 * 2)(ctypes.addressof(ctypes.create_string_buffer(1)), 1)
    return syscall(
        "process_vm_readv", process, local, 1, (ctypes.c_uint64 * 2)(0x1000, 1), 1, 0
    )


ACTS = {
    "signal": lambda process: os.kill(process, 0),
    "signal by descriptor": lambda process: signal.pidfd_send_signal(
        os.pidfd_open(process), 0
    ),
    "trace": lambda process: in_child(lambda: syscall("ptrace", 0x4206, process, 0, 0)),
    "peek": peek,
    "take descriptor": take,
    "limit": limit,
}
found = 0
for process in [*range(1, 300), *TARGETS["host_processes"]]:
    if is_own(process):
        continue
    found += 1
    for name, act in ACTS.items():
        try:
            held, detail = False, repr(act(process))
        except OSError as error:
            held, detail = True, errno.errorcode.get(error.errno, "")
        print(
            json.dumps({"attack": f"{name} {process}", "held": held, "detail": detail}),
            flush=True,
        )
for process in [1, *range(2, 20), *TARGETS["host_processes"][:1]]:
    if is_own(process):
        continue
    for number in (signal.SIGSTOP, signal.SIGKILL):
        try:
            os.kill(process, number)
            held = False
        except OSError as error:
            held, detail = True, errno.errorcode.get(error.errno, "")
        print(
            json.dumps(
                {"attack": f"{number.name} {process}", "held": held, "detail": detail}
            ),
            flush=True,
        )
