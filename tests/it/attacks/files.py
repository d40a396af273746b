"""Writes outside of what is writable. `outside` is a directory of ours there, with a file `file` in it."""

import fcntl
import os
import stat

from attack import attempt

INSIDE = os.environ.get("ATTACK_INSIDE", os.getcwd())


def write(path):
    def act(*_):
        return os.close(os.open(path, os.O_WRONLY))

    return act


def below(act):
    return lambda outside: act(outside + "/file", outside)


def move_in(file, outside):
    os.rename(file, INSIDE + "/stolen")
    os.rename(INSIDE + "/stolen", file)
    return file


def move_out(file, outside):
    with open(INSIDE + "/mine", "w"):
        pass
    os.rename(INSIDE + "/mine", outside + "/mine")
    return outside


def link_in(file, outside):
    os.link(file, INSIDE + "/linked")
    os.unlink(INSIDE + "/linked")
    return file


def through_link(file, outside):
    link = INSIDE + "/way-out"
    if os.path.islink(link):
        os.unlink(link)
    os.symlink(outside, link)
    with open(link + "/file", "a"):
        return link


def copy_flags(file, outside):
    with open(file) as opened:
        return fcntl.ioctl(
            opened, 0x40086602, b"\x40" + bytes(7)
        )  # FS_IOC_SETFLAGS: not to be dumped


attempt(
    "write_outside", below(lambda file, _: open(file, "a").close() or file), "outside"
)
attempt("truncate_outside", below(lambda file, _: os.truncate(file, 0)), "outside")
attempt(
    "create_outside",
    below(lambda _, out: open(out + "/new", "w").close() or out),
    "outside",
)
attempt(
    "unnamed_file_outside",
    below(lambda _, out: os.open(out, os.O_TMPFILE | os.O_WRONLY)),
    "outside",
)
attempt(
    "directory_outside",
    below(lambda _, out: os.mkdir(out + "/new-directory")),
    "outside",
)
attempt(
    "link_outside",
    below(lambda _, out: os.symlink("/etc/passwd", out + "/new-link")),
    "outside",
)
attempt("pipe_outside", below(lambda _, out: os.mkfifo(out + "/new-pipe")), "outside")
attempt(
    "device_outside",
    below(
        lambda _, out: os.mknod(
            out + "/new-device", stat.S_IFCHR | 0o600, os.makedev(1, 3)
        )
    ),
    "outside",
)
attempt("move_in", below(move_in), "outside")
attempt("move_out", below(move_out), "outside")
attempt("link_in", below(link_in), "outside")
attempt("write_through_link", below(through_link), "outside")
attempt("mode_outside", below(lambda file, _: os.chmod(file, 0o600)), "outside")
attempt(
    "owner_outside", below(lambda file, _: os.chown(file, -1, os.getgid())), "outside"
)
attempt("times_outside", below(lambda file, _: os.utime(file, (0, 0))), "outside")
attempt(
    "attribute_outside",
    below(lambda file, _: os.setxattr(file, "user.attack", b"x")),
    "outside",
)
attempt("flags_outside", below(copy_flags), "outside")
attempt(
    "remove_outside", below(lambda file, out: os.unlink(out + "/expendable")), "outside"
)
for path in (
    "/etc/passwd",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sysrq-trigger",
    "/proc/self/mem",
    "/proc/self/coredump_filter",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/power/state",
    "/dev/mem",
    "/dev/kmsg",
    "/dev/fuse",
    "/sys/fs/cgroup/cgroup.procs",
):
    if os.path.exists(path):
        attempt(f"write {path}", write(path))
        attempt(
            f"mode of {path}",
            lambda path=path: os.chmod(path, stat.S_IMODE(os.stat(path).st_mode)),
        )
attempt(
    "new_device_inside",
    lambda: os.mknod(INSIDE + "/disk", stat.S_IFBLK | 0o600, os.makedev(8, 0)),
)
