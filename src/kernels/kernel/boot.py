"""Starts the kernel that ipybox talks to.

The process's stdin is the socket to the host; its stdout and stderr are one pipe, which the host reads. The first message
has settings. Of these, `private_directory` is the host's directory for temporary files; it is removed if the host dies
without being able to do so. Standard library and IPython only.
"""

import gc
import os
import select
import signal
import socket
import sys


def main():
    # The program that started the host may have blocked them.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    leave_terminal()
    here = open_directory()
    import ipybox_host

    connection = take_connection()
    host = ipybox_host.HostChannel(connection)
    settings = host.receive()["content"]
    watch_host(connection, settings["private_directory"])
    import ipybox_limits

    ipybox_limits.limit(**settings["limits"])
    share_huge_pages(settings["tunables"])
    if settings["is_sandboxed"]:
        import ipybox_sandbox
    if not settings["has_workspace"]:
        import ipybox_imports
        import ipybox_runtime
    import ipybox_files
    import ipybox_input
    import ipybox_kernel
    import ipybox_loading
    import ipybox_shell
    import ipybox_threads

    if "IPYBOX_SEED" in os.environ:
        import ipybox_seed

        ipybox_seed.install(int(os.environ.pop("IPYBOX_SEED")))
    if "IPYBOX_CLOCK" in os.environ:
        import ipybox_clock

        ipybox_clock.install(float(os.environ.pop("IPYBOX_CLOCK")))
    # Shell commands are wrapped before any user code runs, or a file of that name can be
    # imported.
    is_free = settings["shell_commands"] == "free"
    if not is_free:
        import ipybox_commands
    if settings["has_checkpoints"]:
        import ipybox_checkpoint

    sys.path.remove(here)
    host.open_output(settings["mark"])
    sys.stdout, sys.__stdout__ = (
        ipybox_host.TextStream(host, 1, "<stdout>") for _ in "12"
    )
    sys.stderr, sys.__stderr__ = (
        ipybox_host.TextStream(host, 2, "<stderr>") for _ in "12"
    )
    # Imported objects stay. A collection that goes through all of it takes longer than all else at the exit.
    gc.freeze()
    kernel = ipybox_kernel.Kernel(host)
    ipybox_shell.adapt(kernel.shell)
    ipybox_threads.install(ipybox_host.in_this_cell, ipybox_host.of_library)
    ipybox_threads.follow_queues(host)
    ipybox_shell.run_scripts_until_they_end(kernel.shell, host.is_own_stream)
    ipybox_shell.start_processes_by_fork(not settings["is_sandboxed"])
    if not is_free:
        is_only_escape = settings["shell_commands"] == "only_escape"
        ipybox_commands.ask_first(kernel.shell, is_only_escape)
    if settings["is_sandboxed"]:
        ipybox_sandbox.install(kernel.shell)
    if settings["has_checkpoints"]:
        ipybox_checkpoint.prepare(kernel.shell, host)
        kernel.save_variables = ipybox_checkpoint.save
    ipybox_input.refuse_input()
    if settings["has_workspace"]:
        ipybox_files.install()
    else:
        ipybox_imports.install(ipybox_runtime.ask_host)
        ipybox_files.install(ipybox_runtime.ask_host)
    ipybox_shell.be_no_terminal()
    # As in an interactive Python, but behind its library, of which no more is imported at the start than is needed: a
    # file of the workspace would hide what IPython and generated code import later.
    sys.path.insert(end_of_library(), "")
    ipybox_loading.prefer_own_tests()
    kernel.serve()


def share_huge_pages(tunables):
    """Have arrays share huge pages, which forks copy fast; programs that code starts get no such setting."""
    if os.environ.get("GLIBC_TUNABLES") == tunables:
        del os.environ["GLIBC_TUNABLES"]
    # The library maps large arrays one by one until it has seen that they come and go.
    bytearray(1 << 22)


def end_of_library():
    """The index after the standard library's entries in `sys.path`."""
    import sysconfig

    library = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    return max(
        index
        for index, place in enumerate(sys.path, 1)
        if place in library or os.path.basename(place) == "lib-dynload"
    )


def take_connection():
    """The socket to the host, moved away from stdin, which is empty from here on."""
    connection = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return connection


def leave_terminal():
    """Give up the terminal that the server may have been started from.

    Programs that ask for a password there would wait for its user, and one that sets its modes would be stopped, the
    kernel with it.
    """
    import fcntl
    import termios

    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        # There is no terminal.
        return
    fcntl.ioctl(terminal, termios.TIOCNOTTY)
    os.close(terminal)


def open_directory():
    """Append the directory of this script to `sys.path`, and return its name."""
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.append(here)
    return here


def watch_host(connection, private_directory):
    """End this process group when the host's end of the connection closes, however that happens.

    A process watches, not a thread: one long C call that holds the GIL would keep a thread
    from running. It is forked twice, so that it is no child of this process: code that waits
    for all its children must not wait for it.
    """
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    if os.fork():
        os._exit(0)
    # The host reads the end of the pipe when the kernel has died.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    try:
        end = select.poll()
        end.register(connection, 0)
        while not end.poll():
            pass
        remove_tree(private_directory)
    finally:
        os.killpg(0, signal.SIGKILL)


def remove_tree(top):
    """Remove the directory as far as possible; the kernel may still be writing."""
    for directory, directories, files in os.walk(top, topdown=False):
        for name in files + directories:
            path = os.path.join(directory, name)
            try:
                os.rmdir(path) if name in directories and not os.path.islink(
                    path
                ) else os.unlink(path)
            except OSError:
                pass
    try:
        os.rmdir(top)
    except OSError:
        pass


main()
