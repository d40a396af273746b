"""Run in one user's cell: tries to reach what another user has."""

import ctypes
import os
import socket
from multiprocessing import shared_memory

reached = []


def attempt(name, action):
    try:
        found = action()
    except (OSError, ValueError):
        return
    if found:
        reached.append(f"{name}: {found!r:.200}")


def read(path):
    if os.path.isdir(path):
        return os.listdir(path)
    with open(path) as file:
        return file.read()


def owner(process):
    try:
        return os.stat(f"/proc/{process}").st_uid
    except OSError:
        # It has ended meanwhile.
        return os.getuid()


def leave(path):
    with open(path, "w") as file:
        file.write("x")
    os.unlink(path)
    return path


def connected(family, address):
    with socket.socket(family) as client:
        client.settimeout(5)
        client.connect(address)
        return address


def attack(aims):
    directory = aims["directory"]
    for part in (
        "",
        "workspace",
        "workspace/bait.txt",
        "home",
        "state",
        "audit/log.jsonl",
    ):
        attempt(f"read {part}", lambda part=part: read(os.path.join(directory, part)))
        attempt(
            f"write {part}", lambda part=part: leave(os.path.join(directory, part, "x"))
        )
    for path in aims["closed"]:
        attempt("the server's files", lambda path=path: read(path))
    for path in (
        aims["left"],
        *aims["outside"],
        "/tmp/bait-of-bob",
        "/dev/shm/bait-of-bob",
        "/var/tmp/bait-of-bob",
    ):
        attempt("shared names", lambda path=path: read(path))
    attempt(
        "shared memory",
        lambda: (
            shared_memory.SharedMemory("bait-of-bob", track=False)
            if "track" in shared_memory.SharedMemory.__init__.__code__.co_varnames
            else shared_memory.SharedMemory("bait-of-bob")
        ),
    )
    attempt("an abstract socket", lambda: connected(socket.AF_UNIX, "\0bait-of-bob"))
    for port in aims["ports"]:
        attempt(
            "a port", lambda port=port: connected(socket.AF_INET, ("127.0.0.1", port))
        )
    with open("/proc/net/unix") as sockets:
        for line in sockets.read().splitlines()[1:]:
            path = line.split(" ")[-1]
            if path.startswith("/") and aims["directory"] in path:
                reached.append(f"a keeper's socket is seen: {path}")

    own = {os.getpid(), os.getppid(), 1}
    libc = ctypes.CDLL(None, use_errno=True)
    for process in (aims["process"], aims["server"]):
        if process in own:
            continue
        # Numbers inside are others than outside: a process of that number here would be our own.
        if not os.path.exists(f"/proc/{process}"):
            attempt("a signal", lambda process=process: os.kill(process, 0) is None)
            attempt(
                "ptrace",
                lambda process=process: libc.ptrace(16, process, None, None) == 0,
            )
            attempt(
                "a file of a process",
                lambda process=process: read(f"/proc/{process}/environ"),
            )
    attempt(
        "another user id",
        lambda: (
            os.setuid(aims["id"] or 0) is None
            and aims["id"] != os.getuid()
            and "changed"
        ),
    )
    attempt(
        "all processes",
        lambda: [
            entry
            for entry in os.listdir("/proc")
            if entry.isdigit() and owner(entry) not in (os.getuid(), 65534)
        ],
    )
    attempt(
        "a control group",
        lambda: [
            root
            for root, _, files in os.walk("/sys/fs/cgroup")
            for file in files
            if file == "cgroup.procs" and os.access(os.path.join(root, file), os.W_OK)
        ],
    )
    return reached
