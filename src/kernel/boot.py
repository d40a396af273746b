"""Starts the ipykernel that ipybox talks to: boot.py PRIVATE_DIRECTORY CONNECTION_FILE.

PRIVATE_DIRECTORY is the server's directory for temporary files; it is removed if the server dies
without being able to do so. Standard library and ipykernel only.
"""

import json
import os
import signal
import sys


def main():
    private_directory, connection_file = sys.argv[1:3]
    watch_lifeline(private_directory)
    # The directory of this script is no place to import from; IPython adds the working directory.
    del sys.path[0]
    app = make_app()
    app.initialize(["-f", connection_file])
    # Blocked while ipykernel started, available to the user's code from here on.
    del sys.modules["debugpy"]
    app.session.pack = pack
    wake_loop_by_signals()
    undo_colors()
    app.start()


def wake_loop_by_signals():
    """Let an interrupt end an `await` at once, and not when the event loop happens to wake.

    ipykernel 7.4 handles SIGINT by scheduling a callback, which a loop that sleeps does not notice. A
    loop with any signal handler of its own is woken by every signal; this one is for a signal that is
    ignored by default.
    """
    from tornado.ioloop import IOLoop

    IOLoop.current().asyncio_loop.add_signal_handler(signal.SIGURG, lambda: None)


def undo_colors():
    """Our reader is no terminal; ipykernel has just told every program to colour its output."""
    for name in ("CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR"):
        os.environ.pop(name, None)
    os.environ.update(TERM="dumb", NO_COLOR="1")


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
    # Importing the debugger costs 60 ms and 9 MB at every start, and nobody attaches one here.
    sys.modules["debugpy"] = None
    import zmq
    from ipykernel.kernelapp import IPKernelApp
    from traitlets.config import Config

    class App(IPKernelApp):
        def _bind_socket(self, s, port):
            if s.type == zmq.XPUB:
                # Slow the kernel down rather than drop output that the server has not read yet.
                s.setsockopt(zmq.XPUB_NODROP, 1)
            return super()._bind_socket(s, port)

    config = Config()
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.banner1 = ""
    config.HistoryManager.enabled = False
    return App.instance(config=config)


def pack(message):
    """Encode a message as JSON. Lone surrogates, which UTF-8 cannot carry, become question marks.

    jupyter_client's own packer raises on them, and the output is lost.
    """
    from jupyter_client.jsonutil import json_clean, json_default

    options = {"default": json_default, "ensure_ascii": False, "allow_nan": False}
    try:
        text = json.dumps(message, **options)
    except (TypeError, ValueError):
        text = json.dumps(json_clean(message), **options)
    return text.encode("utf-8", errors="replace")


main()
