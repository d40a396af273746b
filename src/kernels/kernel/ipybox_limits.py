"""Limits on what this process and those that it starts may use. Standard library only."""

import os
import resource
import sys

# Threads of a kernel itself; an ipykernel has 12.
OWN_TASKS = 16


def limit(memory_limit, max_processes, max_file_size):
    """Set the limits that are not None, or end this process if that cannot be done."""
    if (memory_limit, max_processes, max_file_size) == (None, None, None):
        return
    if sys.platform != "linux":
        sys.exit(
            "`--kernel-memory-limit`, `--kernel-max-processes` and `--kernel-max-file-size` are available on Linux only"
        )
    if max_file_size is not None:
        # Python ignores the signal that comes with it; a write past the limit fails with EFBIG.
        set_limit("--kernel-max-file-size", resource.RLIMIT_FSIZE, max_file_size)
    if memory_limit is not None:
        # Not RLIMIT_AS: allocators, numpy and memory-mapped files reserve far more address
        # space than memory. RLIMIT_DATA counts all private memory that can be written to.
        set_limit("--kernel-memory-limit", resource.RLIMIT_DATA, memory_limit)
    if max_processes is not None:
        # The system counts processes and threads of a user, not of a process, and may count
        # some that are invisible here (in other containers): then fewer can be added.
        most = count_tasks() + OWN_TASKS + max_processes
        set_limit("--kernel-max-processes", resource.RLIMIT_NPROC, most)


def set_limit(flag, kind, value):
    _, hard = resource.getrlimit(kind)
    # An existing tighter limit stays.
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    try:
        resource.setrlimit(kind, (value, value))
    except (OSError, ValueError) as error:
        sys.exit(f"`{flag}` cannot be set: {error}")


def count_tasks():
    """The number of running processes and threads of this user."""
    user = str(os.getuid())
    tasks = 0
    try:
        processes = [name for name in os.listdir("/proc") if name.isdigit()]
    except PermissionError:
        # A sandbox within another one. The system counts what is in ours: its own few processes.
        return OWN_TASKS
    for process in processes:
        try:
            with open(
                f"/proc/{process}/status", encoding="utf-8", errors="replace"
            ) as file:
                status = dict(line.split(":", 1) for line in file)
        except (OSError, ValueError):
            # The process has ended.
            continue
        if status["Uid"].split()[0] == user:
            tasks += int(status["Threads"])
    return tasks
