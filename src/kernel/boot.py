"""Starts the ipykernel that ipybox talks to: boot.py SETTINGS, where SETTINGS is an object in JSON.

`private_directory` is the server's directory for temporary files; it is removed if the server dies without being able
to do so. `connection_file` and `journal_file` are made by the server. Standard library and ipykernel only.
"""

import json
import os
import signal
import sys

# How many messages wait to be read before the kernel waits.
QUEUED_MESSAGES = 32


def main():
    settings = json.loads(sys.argv[1])
    leave_terminal()
    watch_lifeline(settings["private_directory"])
    here = open_directory()
    import ipybox_limits

    ipybox_limits.limit(**settings["limits"])
    # Importing the debugger costs 60 ms and 9 MB at every start, and nobody attaches one here.
    sys.modules["debugpy"] = None
    if not settings["has_unix_sockets"]:
        import ipybox_processes

        ipybox_processes.install()
    import ipybox_input
    import ipybox_journal
    import ipybox_messages
    import ipybox_shell
    import ipybox_streams

    # Whether commands ask first is settled before any code of a user, or a file of that name, can be there.
    is_free = settings["shell_commands"] == "free"
    if not is_free:
        import ipybox_commands

    # IPython adds the working directory instead.
    sys.path.remove(here)
    ipybox_streams.Stream.journal = ipybox_journal.Journal(settings["journal_file"])
    app = make_app()
    app.initialize(["-f", settings["connection_file"]])
    # Blocked while ipykernel started, available to the user's code from here on.
    del sys.modules["debugpy"]
    ipybox_messages.adapt(app.session, ipybox_journal.Sent())
    ipybox_streams.send_directly(app.iopub_thread)
    ipybox_streams.settle_after_cells(app.kernel, [sys.stdout, sys.stderr])
    ipybox_shell.adapt(app.shell)
    if not is_free:
        is_only_escape = settings["shell_commands"] == "only_escape"
        ipybox_commands.ask_first(app.shell, is_only_escape)
    ipybox_input.refuse_input(app.kernel)
    ipybox_shell.wake_loop_by_signals()
    ipybox_shell.undo_colors()
    app.start()


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
        # There is none.
        return
    fcntl.ioctl(terminal, termios.TIOCNOTTY)
    os.close(terminal)


def open_directory():
    """Make the directory of this script a place to import from, the last one, and return its name."""
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.append(here)
    return here


def watch_lifeline(private_directory):
    """End this process group when the server's end of our stdin closes, however that happens.

    A process watches, not a thread: one long C call that holds the interpreter's lock would keep a
    thread from running. It is forked twice, so that it is nobody's child here: code that waits for
    all its children must not wait for it.
    """
    lifeline = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    child = os.fork()
    if child:
        os.close(lifeline)
        os.waitpid(child, 0)
        return
    if os.fork():
        os._exit(0)
    # The server waits for the end of our stderr when the kernel has died.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    try:
        while os.read(lifeline, 1):
            pass
        remove_tree(private_directory)
    finally:
        os.killpg(0, signal.SIGKILL)


def remove_tree(top):
    """Remove what can be removed; the kernel may still be writing."""
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


def make_app():
    import ipybox_shell
    import zmq
    from ipykernel.kernelapp import IPKernelApp
    from traitlets.config import Config

    class App(IPKernelApp):
        def _bind_socket(self, s, port):
            if s.type == zmq.XPUB:
                # Slow the kernel down rather than drop output that the server has not read yet.
                s.setsockopt(zmq.XPUB_NODROP, 1)
                # What waits here has to be read before an interrupt of endless output is seen to have worked.
                s.setsockopt(zmq.SNDHWM, QUEUED_MESSAGES)
            return super()._bind_socket(s, port)

    config = Config()
    ipybox_shell.configure(config)
    config.IPKernelApp.outstream_class = "ipybox_streams.Stream"
    config.IPKernelApp.kernel_class = "ipybox_shell.Kernel"
    return App.instance(config=config)


main()
