"""Reads what must not be read, by every way around its name. Each secret file holds a word of the test's."""

import ctypes
import errno
import glob
import json
import os
import subprocess

from attack import TARGETS, syscall

# Backwards, so that the attack does not find itself.
WORDS = [word[::-1].encode() for word in TARGETS["words_backwards"]]
AT_FDCWD = -100


def read(path):
    with open(path, "rb") as opened:
        return opened.read()


def reopened(path):
    pinned = os.open(path, os.O_PATH)
    return read(f"/proc/self/fd/{pinned}")


def linked(path):
    os.link(path, "linked")
    return read("linked")


def moved(path):
    os.rename(path, "moved")
    return read("moved")


def symbolic(path):
    if os.path.islink("symbolic"):
        os.unlink("symbolic")
    os.symlink(path, "symbolic")
    return read("symbolic")


def from_directory(path):
    directory = os.open(os.path.dirname(path), os.O_RDONLY)
    opened = os.open(os.path.basename(path), os.O_RDONLY, dir_fd=directory)
    return os.read(opened, 1 << 16)


def another_program(path):
    return subprocess.run(["cat", path], capture_output=True, check=False).stdout


def shell(path):
    return subprocess.run(
        ["sh", "-c", f". '{path}'; cat < '{path}'; set"],
        capture_output=True,
        check=False,
    ).stdout


def copied(path):
    subprocess.run(["cp", "-a", path, "copied"], capture_output=True, check=False)
    return read("copied")


def sent(path):
    with open(path, "rb") as source, open("sent", "wb") as target:
        os.sendfile(target.fileno(), source.fileno(), 0, 1 << 16)
    return read("sent")


def mode_first(path):
    os.chmod(path, 0o777)
    return read(path)


def by_handle(path):
    handle, mount = (ctypes.c_uint32 * 34)(128), ctypes.c_int()
    syscall(
        "name_to_handle_at", AT_FDCWD, path.encode(), handle, ctypes.byref(mount), 0
    )
    root = os.open("/", os.O_RDONLY)
    return os.read(syscall("open_by_handle_at", root, handle, 0), 1 << 16)


def unmounted(path):
    syscall("umount2", path.encode(), 2)
    return read(path)


def mounted(path):
    os.makedirs("mounted", exist_ok=True)
    syscall("mount", os.path.dirname(path).encode(), b"mounted", None, 0x1000, None)
    return read("mounted/" + os.path.basename(path))


def below(prefix):
    def act(path):
        return read(prefix + path)

    act.__name__ = "below " + prefix
    return act


def beside(directory):
    def act(path):
        return read(
            directory + "/" + os.path.relpath(path, os.path.realpath(directory))
        )

    act.__name__ = "from " + directory
    return act


def in_other_letters(path):
    return read(os.path.dirname(path) + "/" + os.path.basename(path).upper())


def around(path):
    return read(
        os.path.dirname(path)
        + "/./../"
        + os.path.basename(os.path.dirname(path))
        + "//"
        + os.path.basename(path)
    )


ROUTES = [
    read,
    reopened,
    linked,
    moved,
    symbolic,
    from_directory,
    another_program,
    shell,
    copied,
    sent,
    mode_first,
    by_handle,
    unmounted,
    mounted,
    in_other_letters,
    around,
]
ROUTES += [
    below(prefix)
    for prefix in [
        *glob.glob("/proc/[0-9]*/root"),
        "/proc/self/root",
        "/oldroot",
        "/newroot",
    ]
]
ROUTES += [
    beside(directory)
    for directory in [*glob.glob("/proc/[0-9]*/cwd"), "/proc/self/cwd"]
]


def report(name, got):
    held = not any(word in got for word in WORDS)
    print(
        json.dumps(
            {"attack": name, "held": held, "detail": "" if held else repr(got)[:100]}
        ),
        flush=True,
    )


for secret in TARGETS["secrets"]:
    for route in ROUTES:
        try:
            got = route(secret)
        except OSError as error:
            got = errno.errorcode.get(error.errno, "").encode()
        report(f"{route.__name__} {secret}", got)

for place in TARGETS["searched"]:
    for root, _, names in os.walk(place):
        for name in names:
            path = os.path.join(root, name)
            try:
                got = read(path) if os.path.isfile(path) else b""
            except OSError:
                continue
            if any(word in got for word in WORDS):
                report(f"search {path}", got)
report("search", b"")

for pattern in (
    "environ",
    "cmdline",
    "task/*/environ",
    "maps",
    "auxv",
    "status",
    "mountinfo",
):
    for path in glob.glob(f"/proc/[0-9]*/{pattern}"):
        try:
            got = read(path)
        except OSError:
            continue
        report(path, got)
report("environment", repr(os.environ).encode())
