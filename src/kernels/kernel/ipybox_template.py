"""A template: a fork of a kernel that has run no code, which forks kernels that begin as a fresh one does.

```text
kernel ── fork ──→ (ends at once) ── fork ──→ template ── fork ──→ kernel, after a reset or for another session
```

The template runs no code. It is the parent of its kernels, and tells the host how each of them has ended. Standard
library only.
"""

import contextlib
import importlib
import os
import select
import signal
import struct
import sys
import time
import traceback

import ipybox_branch

# The ends of processes, as the system says them.
STATUS = struct.Struct("=i")


class KernelTemplate:
    """A template. It is made before the fork that becomes it: there, less memory would be written to, and so copied."""

    def __init__(self, content):
        self._files = LoadedFiles(content["private_directory"])
        if self._files.newest() >= time.time() - content["age_secs"]:
            raise OSError("what has been loaded may be older than its files")

    def serve(self, kernel, host):
        """Fork kernels, as the host asks for them. Return in each; the template ends with its connection."""
        ends = KernelEnds()
        host.send("ready", {})
        waiting = select.poll()
        waiting.register(host.fileno(), select.POLLIN)
        waiting.register(ends.fileno(), select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in waiting.poll()}
            ends.report()
            request = host.receive() if host.fileno() in ready else {}
            # It has no tokens that could be renewed after a fork.
            if request.get("type") == "kernel":
                *connections, status = request["descriptors"]
                if self._fork(host, request, ends, status):
                    ends.forget()
                    private = self._files.private
                    begin(kernel, host, connections, private, request["content"])
                    return
                for descriptor in connections:
                    os.close(descriptor)

    def _fork(self, host, request, ends, status):
        """Fork, unless a fresh kernel would be another one, and answer the host. Return whether this is the fork."""
        refusals = []
        try:
            if self._files.have_changed():
                raise OSError("files of the Python environment have changed")
            process = os.fork()
            if not process:
                os.close(status)
                return True
            ends.await_end(process, status)
        except OSError as error:
            refusals.append(str(error))
            os.close(status)
        reply = {"refusals": refusals, "notes": []}
        host.send("branch_reply", reply, request["cell"].encode())
        return False


def begin(kernel, host, connections, private, content):
    """Make this process a kernel of its own, with its variables and in its directory."""
    try:
        os.environ.update(content["variables"])
        os.chdir(content["directory"])
        move(kernel.shell, private, content["private_directory"])
        # Modules may have come that are not part of the environment.
        importlib.invalidate_caches()
        changes = dict.fromkeys(host.output_descriptors())
        ipybox_branch.become_branch(kernel, host, *connections, changes, content, True)
    except BaseException:  # noqa: BLE001 - the host sees the end of the connection
        os.write(connections[-1], traceback.format_exc().encode())
        os._exit(1)


def move(shell, old, new):
    """Take modules and IPython's own files from the private directory of another session."""
    if new == old:
        return
    sys.path[:] = [
        new + place.removeprefix(old) if place.startswith(old + os.sep) else place
        for place in sys.path
    ]
    sys.path_importer_cache.clear()
    shell.init_ipython_dir(None)
    shell.init_profile_dir(None)
    if "db" in vars(shell):
        from IPython.core.interactiveshell import PickleShareDB

        shell.db = PickleShareDB(os.path.join(shell.profile_dir.location, "db"))


class KernelEnds:
    """The ends of a template's kernels, which the host is told."""

    def __init__(self):
        # By process: where the host reads it.
        self._descriptors = {}
        self._reader, self._writer = os.pipe()
        for descriptor in (self._reader, self._writer):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._writer)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def fileno(self):
        return self._reader

    def await_end(self, process, descriptor):
        self._descriptors[process] = descriptor

    def report(self):
        """Report those that have ended since the last time."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, select.PIPE_BUF)
        for process, descriptor in list(self._descriptors.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                # The host may have lost interest.
                with contextlib.suppress(OSError):
                    os.write(descriptor, STATUS.pack(status))
                os.close(descriptor)
                del self._descriptors[process]

    def forget(self):
        """Leave them to the template, in a fork of it."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (self._reader, self._writer, *self._descriptors.values()):
            os.close(descriptor)


class LoadedFiles:
    """The files that have been loaded, and the directories in which modules are found: fresh kernels load the same."""

    def __init__(self, private):
        # The host writes it anew for each kernel.
        self.private = private
        loaded = (
            getattr(module, "__file__", None) for module in list(sys.modules.values())
        )
        places = {sys.executable, *sys.path, *filter(None, loaded)}
        self._states = {
            place: state_of(place)
            for place in places
            if place and not place.startswith(private + os.sep)
        }

    def newest(self):
        """The time at which the newest of them was written."""
        return max(state[2] for state in self._states.values() if state) / 1e9

    def have_changed(self):
        return any(state_of(place) != state for place, state in self._states.items())


def state_of(place):
    try:
        status = os.stat(place)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
