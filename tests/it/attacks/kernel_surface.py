"""System calls that make up a sandbox, steer the machine, or reach deep into the system's kernel."""

import ctypes
import errno
import fcntl
import os
import pty

from attack import attempt, in_child, syscall

AT_FDCWD = -100
SIGCHLD = 17


def clone_with(flag):
    def act():
        child = syscall("clone", flag | SIGCHLD, 0, 0, 0, 0)
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        return child

    return act


def clone3():
    arguments = (ctypes.c_uint64 * 8)(
        0x10000000, 0, 0, 0, SIGCHLD, 0, 0, 0
    )  # CLONE_NEWUSER
    child = syscall("clone3", ctypes.byref(arguments), ctypes.sizeof(arguments))
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return child


def unshare(flag):
    return lambda: in_child(lambda: syscall("unshare", flag))


def set_namespace():
    with open("/proc/self/ns/uts", "rb") as namespace:
        return syscall("setns", namespace.fileno(), 0)


def type_into_terminal(request):
    def act():
        master, slave = pty.openpty()
        try:
            return fcntl.ioctl(slave, request, b"x\0\0\0")
        finally:
            os.close(master)
            os.close(slave)

    return act


def splice_memory():
    reader, writer = os.pipe()
    try:
        data = ctypes.create_string_buffer(b"attack")
        vector = (ctypes.c_uint64 * 2)(ctypes.addressof(data), 6)
        return syscall("vmsplice", writer, ctypes.byref(vector), 1, 0)
    finally:
        os.close(reader)
        os.close(writer)


def hold_capability():
    with open("/proc/self/status") as status:
        held = [
            line.split()
            for line in status
            if line.startswith(("CapEff", "CapPrm", "CapInh", "CapAmb"))
        ]
    held = {name: bits for name, bits in held if int(bits, 16)}
    if not held:
        raise PermissionError(errno.EPERM, "none")
    return held


NAMESPACES = {
    "user": 0x10000000,
    "mount": 0x20000,
    "pid": 0x20000000,
    "net": 0x40000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "cgroup": 0x02000000,
}
for name, flag in NAMESPACES.items():
    attempt(f"clone_{name}_namespace", clone_with(flag))
    attempt(f"unshare_{name}_namespace", unshare(flag))
attempt("clone_user_and_mount_namespaces", clone_with(0x10020000))
attempt("unshare_user_and_mount_namespaces", unshare(0x10020000))
attempt("unshare_time_namespace", unshare(0x80))
attempt("clone_as_sibling", clone_with(0x8000))  # CLONE_PARENT
attempt("clone3_user_namespace", clone3)
attempt("setns", set_namespace)
attempt("mount", lambda: syscall("mount", b"none", b"/nonexistent", b"tmpfs", 0, None))
attempt("umount", lambda: syscall("umount2", b"/nonexistent", 2))
attempt("pivot_root", lambda: syscall("pivot_root", b"/nonexistent", b"/nonexistent"))
attempt("chroot", lambda: in_child(lambda: syscall("chroot", b"/tmp")))
attempt("fsopen", lambda: syscall("fsopen", b"tmpfs", 0))
attempt("open_tree", lambda: syscall("open_tree", AT_FDCWD, b"/", 0))
attempt(
    "move_mount",
    lambda: syscall(
        "move_mount", AT_FDCWD, b"/nonexistent", AT_FDCWD, b"/nonexistent", 0
    ),
)
attempt("open_tree_attr", lambda: syscall(467, AT_FDCWD, b"/", 0, None, 0))
attempt(
    "io_uring", lambda: syscall("io_uring_setup", 4, ctypes.create_string_buffer(120))
)
attempt("bpf", lambda: syscall("bpf", 0, ctypes.create_string_buffer(128), 128))
attempt(
    "perf_event_open",
    lambda: syscall("perf_event_open", ctypes.create_string_buffer(128), 0, -1, -1, 0),
)
attempt("userfaultfd", lambda: syscall("userfaultfd", 1))
attempt("vmsplice", splice_memory)
attempt("fanotify", lambda: syscall("fanotify_init", 0x200, 0))
attempt(
    "name_to_handle_at",
    lambda: syscall(
        "name_to_handle_at",
        AT_FDCWD,
        b"/",
        (ctypes.c_uint32 * 34)(128),
        ctypes.byref(ctypes.c_int()),
        0,
    ),
)
attempt(
    "open_by_handle_at",
    lambda: syscall("open_by_handle_at", AT_FDCWD, (ctypes.c_uint32 * 34)(8), 0),
)
attempt("personality", lambda: in_child(lambda: syscall("personality", 0x0400000)))
attempt("tiocsti", type_into_terminal(0x5412))
attempt("tioclinux", type_into_terminal(0x541C))
attempt("line_discipline", type_into_terminal(0x5423))
attempt(
    "kernel_log", lambda: syscall("syslog", 3, ctypes.create_string_buffer(4096), 4096)
)
attempt("adjtimex", lambda: syscall("adjtimex", ctypes.create_string_buffer(256)))
# Below, arguments are wrong on purpose: nothing happens even where the call is let through.
attempt(
    "settimeofday", lambda: syscall("settimeofday", (ctypes.c_int64 * 2)(-1, -1), None)
)
attempt("sethostname", lambda: syscall("sethostname", b"x", -1))
attempt("swapon", lambda: syscall("swapon", b"/nonexistent", 0))
attempt("acct", lambda: syscall("acct", b"/nonexistent"))
attempt("quotactl", lambda: syscall("quotactl", 0x7FFFFFFF, None, 0, None))
attempt("reboot", lambda: syscall("reboot", 0, 0, 0, None))
attempt("kexec_load", lambda: syscall("kexec_load", 0, 99999, None, 0))
attempt("init_module", lambda: syscall("init_module", None, 0, b""))
attempt("a_call_of_the_future", lambda: syscall(500))
attempt("capability", hold_capability)
