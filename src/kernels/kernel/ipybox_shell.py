"""IPython's shell, adapted for a client without a terminal that only runs cells and reads their output."""

import functools
import importlib
import os
import signal
import sys
import threading
import types
import warnings

import ipybox_tracebacks
from ipybox_loading import after_import

# The prefix of a command that gives it an empty stdin.
NO_INPUT = "exec </dev/null; "
# Where code finds ipybox's own functions.
OWN = ("mcptools.search", "mcptools.batch")


def configuration():
    """IPython's own options."""
    from traitlets.config import Config

    config = Config()
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.banner1 = ""
    # The text of `len?` and `%page` is output of the cell.
    config.InteractiveShell.display_page = True
    config.HistoryManager.enabled = False
    # It takes seconds at times, and has no say in what `InteractiveShell.complete` returns.
    config.Completer.use_jedi = False
    # Loads `%store`, as ipykernel does at its start.
    config.MagicsManager.lazy_magics = {"store": "IPython.extensions.storemagic"}
    return config


def adapt(shell, in_this_cell):
    """Patch what has no option. `in_this_cell` binds a function's output to the cell of the code that calls it."""
    shell.ask_exit = refuse_to_exit
    shell.system = types.MethodType(system, shell)
    shell.getoutput = interruptible(shell.getoutput)
    ipybox_tracebacks.install(shell)
    # URLs below each line of an error are useless in text. pydantic reads this variable on
    # first use.
    os.environ.setdefault("PYDANTIC_ERRORS_INCLUDE_URL", "0")
    warnings.filterwarnings("ignore", message="To exit: use")
    # As in an interactive Python: our own arguments are private, and `argparse` would read
    # them.
    sys.argv = [""]
    give_threads_their_cell(in_this_cell)


def undo_colors():
    """The output is no terminal, though IPython has just set variables that say so."""
    for name in ("CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR"):
        os.environ.pop(name, None)
    os.environ.update(TERM="dumb", NO_COLOR="1")


def refresh_imports(package=None):
    """Make newly installed or generated packages importable; `package` was generated again."""
    importlib.invalidate_caches()
    # The new package may be that of a server which is called like ipybox's own function.
    for name in OWN:
        if callable(sys.modules.get(name)):
            forget(name)
    if package is not None:
        forget(package)


def forget(package):
    """Make the next import load a package, or a module, anew."""
    for name in list(sys.modules):
        if f"{name}.".startswith(f"{package}."):
            del sys.modules[name]
    root, _, child = package.partition(".")
    # `from mcptools import github` takes the attribute if there is one.
    if root in sys.modules:
        vars(sys.modules[root]).pop(child, None)


def refuse_to_exit():
    print(
        "`exit` does not end the kernel: reset it for a fresh one.",
        file=sys.stderr,
    )


def system(self, command):
    """Run the command of a `!` line.

    IPython lets it wait for input from a terminal where nobody types, and goes on with the cell after an interrupt of
    the command: a loop could not be interrupted.
    """
    from IPython.utils.process import system as run_command

    refuse_background(command)
    with Interruption() as interruption:
        status = run_command(NO_INPUT + self.var_expand(command, depth=1))
    self.user_ns["_exit_code"] = status
    if interruption.is_noticed:
        raise KeyboardInterrupt
    # Older versions of IPython do not have it.
    if getattr(self, "system_raise_on_error", False) and status != 0:
        from subprocess import CalledProcessError

        raise CalledProcessError(status, command)


def refuse_background(command):
    """As IPython reports it for `lines = !command`."""
    if command.rstrip().endswith("&"):
        raise OSError("Background processes not supported.")


def interruptible(getoutput):
    """Make an interrupt of `lines = !command` interrupt the cell, as with `!command`."""

    # IPython looks for the values of `{names}` in the frames of its callers.
    def getoutput_or_raise(command, split=True, depth=0):
        with Interruption() as interruption:
            output = getoutput(command, split, depth + 1)
        if interruption.is_noticed:
            raise KeyboardInterrupt
        return output

    return getoutput_or_raise


class Interruption:
    """Records a SIGINT whose KeyboardInterrupt other code catches."""

    is_noticed = False

    def __enter__(self):
        # Only the main thread handles signals and may set handlers.
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


def give_threads_their_cell(in_this_cell):
    """Assign the output of a thread to the cell that started it, or that submitted work to it."""
    start_thread = threading.Thread.start

    @functools.wraps(start_thread)
    def start(self):
        run = in_this_cell(self.run)

        def run_and_forget():
            # A thread that refers to itself would live until the garbage is collected.
            vars(self).pop("run", None)
            run()

        # Not by assignment: a class may override `__setattr__`.
        vars(self)["run"] = run_and_forget
        start_thread(self)

    threading.Thread.start = start
    after_import(
        "concurrent.futures.thread",
        lambda module: give_work_its_cell(module.ThreadPoolExecutor, in_this_cell),
    )


def give_work_its_cell(executor, in_this_cell):
    submit_work = executor.submit

    @functools.wraps(submit_work)
    def submit(self, fn, /, *args, **kwargs):
        return submit_work(self, in_this_cell(fn), *args, **kwargs)

    executor.submit = submit
