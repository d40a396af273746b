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
# The longest text in a message, in characters.
PIECE_CHARS = 64 * 1024


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
    app.session.pack = pack
    app.session.send = send_in_pieces(app.session.send, ipybox_journal.Sent())
    ipybox_streams.send_directly(app.iopub_thread)
    ipybox_streams.settle_after_cells(app.kernel, [sys.stdout, sys.stderr])
    ipybox_shell.adapt(app.shell)
    if not is_free:
        is_only_escape = settings["shell_commands"] == "only_escape"
        ipybox_commands.ask_first(app.shell, is_only_escape)
    ipybox_input.refuse_input(app.kernel)
    wake_loop_by_signals()
    undo_colors()
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


def send_in_pieces(send, counts):
    """Send long text of streams as several messages, and cut exceptions that are longer than anyone reads.

    The server keeps what it needs of each message before it takes the next; one message of a gigabyte would have
    to be held whole. Each piece of what this process printed tells how much was printed with it, so that the server
    can tell what is missing if the kernel dies.
    """
    process = os.getpid()

    def send_pieces(stream, message_or_type, content=None, *args, **kwargs):
        if isinstance(message_or_type, dict):
            message = message_or_type
            is_counted = message["msg_type"] == "stream" and os.getpid() == process
            for kind, piece in pieces(message["msg_type"], message["content"]):
                if is_counted:
                    parent = message["parent_header"]
                    end = counts.count(parent, piece["name"], piece["text"])
                    piece = {**piece, "end": end}
                renamed = {**message, "content": piece}
                if kind != message["msg_type"]:
                    renamed["msg_type"] = kind
                    renamed["header"] = {**message["header"], "msg_type": kind}
                sent = send(stream, renamed, *args, **kwargs)
        else:
            for kind, piece in pieces(message_or_type, content):
                sent = send(stream, kind, piece, *args, **kwargs)
        return sent

    return send_pieces


def pieces(kind, content):
    """The type and content of each of the messages that carry one message's content."""
    if kind == "stream" and is_long(content.get("text")):
        for text in cut(content["text"]):
            yield kind, {**content, "text": text}
    elif kind in ("display_data", "execute_result", "update_display_data"):
        data, long_text = split_bundle(content["data"])
        if data or long_text is None:
            yield kind, {**content, "data": data}
        if long_text is None:
            return
        # The server shows the object's text and what is streamed after it as one.
        first, *rest = cut(long_text)
        metadata = {**content["metadata"], "ipybox_begun": True}
        yield (
            "display_data",
            {**content, "data": {"text/plain": first}, "metadata": metadata},
        )
        for text in rest:
            yield "stream", {"name": "object", "text": text}
        yield "stream", {"name": "object", "text": "\n"}
    elif kind in ("error", "execute_reply") and content and "traceback" in content:
        traceback = [shortened(line) for line in content["traceback"]]
        yield (
            kind,
            {
                **content,
                "evalue": shortened(content["evalue"]),
                "traceback": traceback,
            },
        )
    else:
        yield kind, content


def cut(text):
    return [text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS)]


# The representations that are texts, the most telling first.
TEXTS = ("text/markdown", "text/plain", "text/latex", "application/json", "text/html")


def split_bundle(data):
    """What of an object fits in a message, and its text if that does not."""
    if isinstance(data.get("application/json"), (dict, list)):
        # As text, because the server reads what is nested deep as little as anyone.
        data = {**data, "application/json": to_json(data["application/json"])}
    texts = [kind for kind in TEXTS if isinstance(data.get(kind), str)]
    long = [kind for kind in texts if is_long(data[kind])]
    if not long:
        return data, None
    short = {kind: value for kind, value in data.items() if kind not in long}
    # HTML of that length is for browsers: an interactive plot, a sound.
    if texts[0] != long[0] or long[0] == "text/html":
        return short, None
    others = {kind: value for kind, value in short.items() if kind not in TEXTS}
    return others, data[long[0]]


def is_long(text):
    return isinstance(text, str) and len(text) > PIECE_CHARS


def to_json(value):
    return json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":"))


def shortened(text):
    if len(text) <= PIECE_CHARS:
        return text
    half = PIECE_CHARS // 2
    return f"{text[:half]}\n[...]\n{text[-half:]}"


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
