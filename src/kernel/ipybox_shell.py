"""IPython's shell, made for someone who sees nothing but what cells show and types nothing but cells."""

import functools
import importlib
import os
import signal
import sys
import threading
import types
import warnings
from concurrent.futures import ThreadPoolExecutor

import ipybox_tracebacks
from ipykernel.ipkernel import IPythonKernel
from ipykernel.zmqshell import ZMQInteractiveShell
from IPython.utils.process import system as run_command
from traitlets import Type

# What a command begins with, so that it reads nothing.
NO_INPUT = "exec </dev/null; "


class ShellLikeQtConsole(ZMQInteractiveShell):
    """A shell whose name tells libraries that its reader has no browser, where rich and tqdm would show widgets.

    rich knows notebooks by the name of ipykernel's own shell, tqdm those without widgets by a name with `qt` in it.
    """

    def showtraceback(self, exc_tuple=None, *args, **kwargs):
        is_only_message = kwargs.get("exception_only", False)
        if is_only_message or not ipybox_tracebacks.show_group(self, exc_tuple):
            super().showtraceback(exc_tuple, *args, **kwargs)


class Kernel(IPythonKernel):
    """A kernel with that shell."""

    shell_class = Type(ShellLikeQtConsole)


def configure(config):
    """Set what IPython offers to be set."""
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.banner1 = ""
    # What `len?` and `%page` show is output of the cell.
    config.InteractiveShell.display_page = True
    config.HistoryManager.enabled = False


def configure_running(shell):
    """Set it in a shell that runs already."""
    shell.colors = "nocolor"
    # Setting `display_page` is too late.
    from IPython.core import page

    shell.set_hook("show_in_pager", page.as_hook(page.display_page), 90)
    # So named from here on.
    shell.__class__ = ShellLikeQtConsole


def adapt(shell):
    """Change what cannot be set."""
    shell.ask_exit = refuse_to_exit
    shell.system = types.MethodType(system, shell)
    shell.getoutput = interruptible(shell.getoutput)
    ipybox_tracebacks.install(shell)
    # Links below each line of an error help nobody who reads no pages. pydantic looks when it is first needed.
    os.environ.setdefault("PYDANTIC_ERRORS_INCLUDE_URL", "0")
    warnings.filterwarnings("ignore", message="To exit: use")
    # As in an interactive Python: ours are nobody's business, and `argparse` reads them.
    sys.argv = [""]
    give_threads_their_cell(
        [sys.stdout, sys.stderr, shell.display_pub, shell.displayhook]
    )


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


def refresh_imports(package=None):
    """Let code find what was installed or generated since it has looked; `package` was generated anew."""
    importlib.invalidate_caches()
    if package is None:
        return
    for name in list(sys.modules):
        if f"{name}.".startswith(f"{package}."):
            del sys.modules[name]
    root, _, child = package.partition(".")
    # `from mcptools import github` takes the attribute if there is one.
    if root in sys.modules:
        vars(sys.modules[root]).pop(child, None)


def refuse_to_exit():
    # ipykernel would stop a moment later, in the middle of the next cell.
    print(
        "`exit` does not end the kernel: reset it for a fresh one.",
        file=sys.stderr,
    )


def system(self, command):
    """Run the command of a `!` line.

    IPython lets it wait for input from a terminal where nobody types, and goes on with the cell after an interrupt of
    the command: a loop could not be interrupted.
    """
    refuse_background(command)
    with Interruption() as interruption:
        status = run_command(NO_INPUT + self.var_expand(command, depth=1))
    self.user_ns["_exit_code"] = status
    if interruption.is_noticed:
        raise KeyboardInterrupt
    # Older IPythons do not have it.
    if getattr(self, "system_raise_on_error", False) and status != 0:
        from subprocess import CalledProcessError

        raise CalledProcessError(status, command)


def refuse_background(command):
    """As IPython does, which says so itself for `lines = !command`."""
    if command.rstrip().endswith("&"):
        raise OSError("Background processes not supported.")


def interruptible(getoutput):
    """Let an interrupt of `lines = !command` be one of the cell, as with `!command`."""

    # IPython looks for the values of `{names}` in the frames of its callers.
    def getoutput_or_raise(command, split=True, depth=0):
        with Interruption() as interruption:
            output = getoutput(command, split, depth + 1)
        if interruption.is_noticed:
            raise KeyboardInterrupt
        return output

    return getoutput_or_raise


class Interruption:
    """Notices a SIGINT whose KeyboardInterrupt somebody else catches."""

    is_noticed = False

    def __enter__(self):
        # Signals are handled by the main thread, and only it may ask for them.
        self.handler = None
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):
                self.handler = handler
                signal.signal(signal.SIGINT, self.notice)
        return self

    def __exit__(self, *_):
        if self.handler is not None:
            signal.signal(signal.SIGINT, self.handler)

    def notice(self, number, frame):
        self.is_noticed = True
        self.handler(number, frame)


def give_threads_their_cell(sources):
    """Let what a thread shows belong to the cell that started it, or that gave work to it.

    ipykernel 7 lets it belong to the cell that happens to run; ipykernel 6 does this itself.
    """
    sources = [source for source in sources if hasattr(source, "set_thread_parent")]
    sources = [source for source in sources if hasattr(source, "_parent_header")]
    if not sources:
        return

    def in_this_cell(run):
        parents = [(source._parent_header, source.parent_header) for source in sources]

        def run_in_cell(*args, **kwargs):
            for variable, parent in parents:
                variable.set(parent)
            return run(*args, **kwargs)

        return run_in_cell

    start_thread = threading.Thread.start
    submit_work = ThreadPoolExecutor.submit

    @functools.wraps(start_thread)
    def start(self):
        run = in_this_cell(self.run)

        def run_and_forget():
            # A thread that refers to itself would live until the garbage is collected.
            vars(self).pop("run", None)
            run()

        # Not by assignment: a class may have its own ideas of that.
        vars(self)["run"] = run_and_forget
        start_thread(self)

    @functools.wraps(submit_work)
    def submit(self, fn, /, *args, **kwargs):
        return submit_work(self, in_this_cell(fn), *args, **kwargs)

    threading.Thread.start = start
    ThreadPoolExecutor.submit = submit
