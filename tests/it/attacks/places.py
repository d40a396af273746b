"""Writes to what ipybox, the sandbox and the machine rely on. Nothing is lost where a write gets through."""

import os
import stat

from attack import TARGETS, attempt


def create(path):
    name = f"{path}/attack-{os.getpid()}"
    with open(name, "w"):
        return name


def directory(path):
    name = f"{path}/attack-directory-{os.getpid()}"
    os.mkdir(name)
    return name


def move(path):
    os.rename(path, path + ".moved")
    os.rename(path + ".moved", path)
    return path


def replace(path):
    with open("mine", "w"):
        pass
    os.link(path, "kept")
    os.rename("mine", path)
    os.rename("kept", path)
    return path


def write(path):
    os.close(os.open(path, os.O_WRONLY | os.O_APPEND))
    return path


def mode(path):
    os.chmod(path, stat.S_IMODE(os.stat(path).st_mode))
    return path


def owner(path):
    found = os.stat(path)
    os.chown(path, found.st_uid, found.st_gid)
    return path


def times(path):
    found = os.stat(path)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    return path


def attribute(path):
    os.setxattr(path, "user.attack", b"x")
    return path


OF_FILES = (write, move, replace, mode, owner, times, attribute)
OF_DIRECTORIES = (create, directory, move, mode, owner, times, attribute)
for place in TARGETS["places"]:
    for act in OF_DIRECTORIES if os.path.isdir(place) else OF_FILES:
        # Every failure counts: the place is there for the host, though it may be out of sight here.
        attempt(
            f"{act.__name__} {place}",
            lambda act=act, place=place: act(place),
            needs_denial=False,
        )
