"""Forks the kernel for a branch: a kernel that begins with the variables of this one, and a host's connection of its own.

```text
kernel ── fork ──→ (ends at once) ── fork ──→ branch
```

The branch is no child of the kernel: code that waits for all its children must not wait for it. It leads a session and a
process group of its own, and the host knows it by what the system says of the other end of the connection. Nothing that
would suffer is forked: see `ipybox_obstacles.py`. Standard library only.
"""

import atexit
import gc
import importlib
import logging
import os
import random
import signal
import socket
import sys
import traceback
import warnings
import weakref

import ipybox_obstacles

# Words of the branch to the kernel, and to the host while that finds out which process it is; and the kernel's answer.
HERE = b"1"
GO_ON = b"1"


def answer(kernel, host, request, make_template=None):
    """Fork, or say why not. Return in both processes; in a template, in each kernel that it forks."""
    content = request["content"]
    template = None
    connection, pipe = request.get("descriptors") or (None, None)
    notes, refusals, changes = [], [], {}
    between = None
    # Python seeds anew in each fork.
    content["random"] = random.getstate()
    try:
        if connection is None:
            raise OSError("no connection came with the request")
        if content.get("sleeps"):
            # The host learns which process this is.
            os.write(connection, HERE)
        obstacles = ipybox_obstacles.Obstacles(
            kernel.shell.user_ns,
            {0, host.fileno(), connection, pipe},
            host.output_descriptors()[-1],
            kernel.loop,
            content.get("sleeps", False),
        )
        notes, refusals, changes = (
            obstacles.notes,
            obstacles.refusals,
            obstacles.changes,
        )
        if make_template is not None:
            template = make_template(content)
        elif not content.get("sleeps"):
            imported.look()
        if not refusals:
            between, refusals = fork(obstacles.native_threads)
    except OSError as error:
        refusals = [f"the system refused: {error}"]
    if refusals is IN_BRANCH:
        try:
            # No code has run yet before there is a template.
            is_fresh = template is not None
            become_branch(kernel, host, connection, pipe, changes, content, is_fresh)
            if template:
                template.serve(kernel, host)
        except BaseException:  # noqa: BLE001 - the host sees the end of the connection
            os.write(pipe, traceback.format_exc().encode())
            os._exit(1)
        return
    for descriptor in (connection, pipe):
        if descriptor is not None:
            os.close(descriptor)
    reply = {"refusals": refusals, "notes": notes}
    host.send("branch_reply", reply, request["cell"].encode())
    if not refusals:
        # The branch knows this kernel's token, which is no longer valid.
        following = host.receive()
        if following["type"] == "renewed":
            take_token(following["content"])
        else:
            # The session ends meanwhile.
            kernel.requests.append(following)
    if between is not None:
        # Only now: to free the tables of its memory takes as long as to copy them.
        os.waitpid(between, 0)


IN_BRANCH = object()


def fork(find_native_threads):
    """Fork twice. Return the process between, and `IN_BRANCH` in the branch; in the kernel, why there is none."""
    ours, theirs = socket.socketpair()
    with warnings.catch_warnings():
        # Since 3.12 Python warns of threads: these have been looked at.
        warnings.simplefilter("ignore")
        between = os.fork()
        if between:
            theirs.close()
            # Some libraries end their threads when the kernel forks: now the others are left.
            refusals = find_native_threads()
            if not refusals and not ours.recv(1):
                refusals = ["the system refused to make a process"]
            if not refusals:
                ours.send(GO_ON)
            ours.close()
            return between, refusals
        try:
            ours.close()
            if os.fork():
                os._exit(0)
            theirs.send(HERE)
            goes_on = theirs.recv(1)
            theirs.close()
            if not goes_on:
                os._exit(0)
        except BaseException:  # noqa: BLE001 - no code of the kernel's runs here
            os._exit(1)
    return None, IN_BRANCH


def become_branch(kernel, host, connection, pipe, changes, content, is_fresh):
    """Make this process a kernel of its own, a template, or a sleeping state of this one, whose place it takes if it is awoken.

    is_fresh: whether it has run no code, as a template and its kernels
    """
    # A collection would write to, and so copy, all memory with objects.
    if content.get("sleeps"):
        content["collects"] = gc.isenabled()
        gc.disable()
    else:
        gc.freeze()
    if is_fresh:
        # In the session of the first kernel, as one from scratch.
        os.setpgid(0, 0)
    else:
        os.setsid()
    signal.set_wakeup_fd(-1)
    for descriptor, change in changes.items():
        # Some libraries close their files in a fork.
        if not os.path.lexists(f"/proc/self/fd/{descriptor}"):
            continue
        if change is None:
            os.dup2(pipe, descriptor, inheritable=descriptor in (1, 2))
        else:
            change(descriptor)
    os.dup2(connection, host.fileno(), inheritable=False)
    os.close(connection)
    os.close(pipe)
    host.begin_branch(content["mark"])
    if not is_fresh:
        forget_resource_tracker()
    if content.get("sleeps"):
        kernel.begin_branch(None)
        random.setstate(content["random"])
        sleeping.update(content)
    else:
        user_ns = kernel.shell.user_ns
        kernel.begin_branch(None if is_fresh else InheritedVariables(user_ns))
        take_token(content)
        saving = sys.modules.get("ipybox_saving")
        if saving is not None:
            saving.share_anew()
        for move in content.get("moves", ()):
            use_directory(move["from"], move["to"])
        if not is_fresh:
            forget_exit_functions()
        seed()
    greet(host.fileno())


# The request by which this process began to sleep.
sleeping = {}


def awaken(host):
    """Take the place of the kernel that this state is of, which ends."""
    if sleeping.get("collects"):
        gc.enable()
    sleeping.clear()
    host.send("ready", {})


class InheritedVariables:
    """The variables and modules that a branch has of its origin, by their ids and names: they are not kept alive."""

    def __init__(self, variables):
        self.ids = {name: id(value) for name, value in variables.items()}
        self.modules = imported.names


class ImportedNames:
    """The names of the imported modules, as a kernel knows them before it forks.

    To look at them writes to the memory of each: branches would copy it, 1 MB each.
    """

    def __init__(self):
        self.names = frozenset()
        self._seen = None

    def look(self):
        """Take the names, if modules have come since the last look."""
        seen = len(sys.modules), next(reversed(sys.modules), None)
        if seen != self._seen:
            self._seen = seen
            self.names = frozenset(sys.modules)


imported = ImportedNames()


def forget_exit_functions():
    """Leave to the origin what it has registered for its exit, such as removing temporary directories."""
    atexit._clear()
    for finalizer in weakref.finalize._registry.values():
        finalizer.atexit = False
    # The next one registers itself anew.
    weakref.finalize._registered_with_atexit = False
    atexit.register(logging.shutdown)


def greet(connection):
    """Show the host which process this is: twice, so that it is certain that it has not been replaced meanwhile."""
    os.write(connection, HERE)
    if not os.read(connection, 1):
        os._exit(1)
    os.write(connection, HERE)


def take_token(content):
    """Call tools with this token from now on, at this address if there is one."""
    names = {"address": "IPYBOX_TOOL_SERVER", "token": "IPYBOX_TOOL_SERVER_TOKEN"}
    checkpoint = sys.modules.get("ipybox_checkpoint")
    for name, variable in names.items():
        if content.get(name) is not None:
            os.environ[variable] = content[name]
            if checkpoint is not None:
                setattr(checkpoint, f"_{name}", content[name])


def use_directory(old, new):
    """Work in another directory, and find modules there."""

    def moved(path):
        if path == old or isinstance(path, str) and path.startswith(old + os.sep):
            return new + path[len(old) :]
        return path

    try:
        working = os.getcwd()
    except OSError:
        # Code has removed it.
        working = old
    if moved(working) != working:
        place = moved(working)
        os.chdir(place if os.path.isdir(place) else new)
    for name in ("PYTHONPATH", "PWD"):
        if name in os.environ:
            paths = os.environ[name].split(os.pathsep)
            os.environ[name] = os.pathsep.join(map(moved, paths))
    sys.path[:] = map(moved, sys.path)
    for module in list(sys.modules.values()):
        # Those without a file find their parts by the path.
        paths = getattr(module, "__path__", None)
        if isinstance(paths, list) and any(moved(path) != path for path in paths):
            paths[:] = map(moved, paths)
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()


def forget_resource_tracker():
    """The process that removes shared memory is the origin's: the first use starts another one."""
    tracker = sys.modules.get("multiprocessing.resource_tracker")
    tracker = getattr(tracker, "_resource_tracker", None)
    if tracker is not None:
        tracker._fd = tracker._pid = None


def seed():
    """Let random numbers differ from those of the origin."""
    random.seed()
    # Not by `numpy.random`, which would import it.
    numpy_random = sys.modules.get("numpy.random")
    try:
        numpy_random.seed()
    except Exception:  # noqa: BLE001, S110 - it is not imported
        pass
