"""Adaptations that only an ipykernel needs. Standard library and ipykernel only."""

import signal
import sys

import ipybox_shell
import ipybox_tracebacks
from ipykernel.zmqshell import ZMQInteractiveShell

NAMES_OF_SOURCES = ("set_thread_parent", "_parent_header")


class ShellLikeQtConsole(ipybox_shell.WithoutTerminal, ZMQInteractiveShell):
    """A shell whose name shows libraries that its reader has no browser, where rich and tqdm would show widgets.

    rich knows notebooks by the name of ipykernel's own shell, tqdm those without widgets by a name with `qt` in it.
    """

    def showtraceback(self, exc_tuple=None, *args, **kwargs):
        if ipybox_shell.is_success((exc_tuple or sys.exc_info())[1]):
            return
        is_only_message = kwargs.get("exception_only", False)
        if is_only_message or not ipybox_tracebacks.show_group(self, exc_tuple):
            super().showtraceback(exc_tuple, *args, **kwargs)


def configure(shell):
    """Set IPython's options in a running shell."""
    shell.colors = "nocolor"
    # All kernels of a user write to one database, and their errors about that appear in the
    # output of cells.
    shell.history_manager.enabled = False
    # It is too late to set `display_page`.
    from IPython.core import page

    shell.set_hook("show_in_pager", page.as_hook(page.display_page), 90)
    # The shell has this name from here on.
    shell.__class__ = ShellLikeQtConsole


def refuse_input(kernel, refuse):
    """ipykernel forwards input requests to its client, by functions that it installs for each cell."""
    kernel.raw_input = refuse
    kernel.getpass = refuse


def wants_views(kernel):
    """Return a function that says whether the client of the newest cell shows views."""
    return lambda: bool(kernel.get_parent("shell").get("content", {}).get("has_views"))


def wake_loop_by_signals():
    """Make an interrupt end an `await` at once, and not when the event loop happens to wake.

    ipykernel 7.4 handles SIGINT by scheduling a callback, which a loop that sleeps does not notice. A
    loop with any signal handler of its own is woken by every signal; this one is for a signal that is
    ignored by default.
    """
    from tornado.ioloop import IOLoop

    IOLoop.current().asyncio_loop.add_signal_handler(signal.SIGURG, lambda: None)


def in_cell_of_caller(shell):
    """Returns a decorator that binds a function to the cell of the code that calls it.

    ipykernel 7 assigns a thread's output to the cell that happens to run; ipykernel 6 does this itself.
    """
    shown_by = [sys.stdout, sys.stderr, shell.display_pub, shell.displayhook]
    sources = [
        source
        for source in shown_by
        if all(hasattr(source, name) for name in NAMES_OF_SOURCES)
    ]

    def in_this_cell(run):
        parents = [(source._parent_header, source.parent_header) for source in sources]

        def run_in_cell(*args, **kwargs):
            for variable, parent in parents:
                variable.set(parent)
            return run(*args, **kwargs)

        return run_in_cell

    return in_this_cell
