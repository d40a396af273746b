"""The common part of the attacks: system calls by name, and one line of JSON for each attempt.

An attempt is a function that returns what it got hold of, or raises OSError when it was stopped. The targets of an
attack are in the environment variable ATTACK_TARGETS, as JSON; an attempt that lacks its target is left out.
"""

import ctypes
import errno
import json
import os
import platform
import sys

_NUMBERS = {  # x86-64, aarch64
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clone": (56, 220),
    "clone3": (435, 435),
    "fanotify_init": (300, 262),
    "fsopen": (430, 430),
    "init_module": (175, 105),
    "io_uring_setup": (425, 425),
    "kcmp": (312, 272),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "move_mount": (429, 429),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pivot_root": (155, 41),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "semget": (64, 190),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "shmat": (30, 196),
    "shmget": (29, 194),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vmsplice": (278, 75),
}
_COLUMN = 0 if platform.machine() == "x86_64" else 1
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
TARGETS = json.loads(os.environ.get("ATTACK_TARGETS", "{}"))


def syscall(call, *arguments):
    """Calls the system by a call's name or number; OSError if it refuses."""
    number = _NUMBERS[call][_COLUMN] if isinstance(call, str) else call
    result = libc.syscall(
        ctypes.c_long(number), *(_argument(each) for each in arguments)
    )
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _argument(value):
    return ctypes.c_long(value) if isinstance(value, int) else value


def attempt(name, act, *targets, needs_denial=True):
    """Runs one attempt and says whether it was stopped.

    With `needs_denial`, only a refusal counts: an error that comes from wrong arguments says that the call was there.
    """
    missing = [target for target in targets if target not in TARGETS]
    if missing:
        return
    try:
        got = act(*(TARGETS[target] for target in targets))
        held, detail = False, f"got {got!r}"[:200]
    except OSError as error:
        refusals = (
            errno.EPERM,
            errno.EACCES,
            errno.ENOSYS,
            errno.EROFS,
            errno.EXDEV,
            errno.EAFNOSUPPORT,
        )
        held = not needs_denial or error.errno in refusals
        detail = errno.errorcode.get(error.errno, str(error.errno))
    print(json.dumps({"attack": name, "held": held, "detail": detail}), flush=True)


def in_child(act):
    """Does something that would change this process, in a child; what the child raises is raised here."""
    child = os.fork()
    if child == 0:
        try:
            act()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 255)
        except BaseException as error:  # noqa: BLE001 (the child must never return)
            print(error, file=sys.stderr)
            os._exit(254)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise OSError(errno.EPERM, f"ended by signal {os.WTERMSIG(status)}")
    if os.WEXITSTATUS(status):
        code = os.WEXITSTATUS(status)
        raise OSError(code, os.strerror(code))
    return "done"
