"""Objects that processes share by number rather than by file: memory, queues, keys."""

import ctypes
import os

from attack import attempt, syscall

IPC_CREAT = 0o1000

attempt(
    "sysv_memory_of_host", lambda number: syscall("shmat", number, 0, 0), "sysv_memory"
)
attempt(
    "sysv_queue_of_host",
    lambda number: syscall("msgsnd", number, (ctypes.c_long * 2)(1, 0), 8, 0o4000),
    "sysv_queue",
)
attempt("sysv_memory", lambda: syscall("shmget", 0x1B0, 4096, IPC_CREAT | 0o600))
attempt("sysv_semaphore", lambda: syscall("semget", 0x1B1, 1, IPC_CREAT | 0o600))
attempt("sysv_queue", lambda: syscall("msgget", 0x1B2, IPC_CREAT | 0o600))
attempt(
    "posix_queue",
    lambda: syscall("mq_open", b"attack", os.O_RDWR | os.O_CREAT, 0o600, None),
)
attempt("add_key", lambda: syscall("add_key", b"user", b"attack", b"x", 1, -4))
attempt("request_key", lambda: syscall("request_key", b"user", b"attack", None, -4))
attempt("keyctl", lambda: syscall("keyctl", 0, -4, 0))
