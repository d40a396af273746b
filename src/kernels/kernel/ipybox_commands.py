"""Makes shell commands request approval before they run, and optionally blocks other functions that start programs.

The approved text is the one that runs: IPython's variables are expanded first, and only once.
Code in this process can undo or bypass all of this (ctypes): only a sandbox is a boundary.

Standard library and IPython only.
"""

import contextlib
import contextvars
import errno
import functools
import os
import shlex
import sys

# Imported at the start, before the working directory is on `sys.path`.
import ipybox_runtime
from ipybox_shell import refuse_background

BLOCKED = (
    "starting programs from Python is blocked. Use `!command` or `%%bash`, which ask for approval. "
    "`multiprocessing` works with its start method `fork`."
)


class ProcessBlockedError(PermissionError):
    """Code tried to start a program by other means than a shell command.

    An OSError, as if the program could not be run: libraries have an answer to that, and between fork and exec it is
    the one kind that they expect.
    """


class ApprovedCommand(str):
    """A command whose variables are expanded already."""

    __slots__ = ()


def permit(arguments):
    """The context manager for a permitted command line, before anything is blocked: it does nothing."""
    return contextlib.nullcontext()


def ask_first(shell, is_only_escape):
    """Make the shell commands of `shell` request approval; with `is_only_escape`, block other ways to start programs."""
    global permit
    if is_only_escape:
        permit = block_programs()
    shell.var_expand = expand_unless_approved(shell.var_expand)
    run, get_output = shell.system, shell.getoutput

    # `depth` leads to the frame in which IPython looks for the values of `{names}`: the caller's.
    def system(command):
        command = approved(shell.var_expand(command, depth=1))
        with permit(["-c", command]):
            return run(command)

    def getoutput(command, split=True, depth=0):
        command = approved(shell.var_expand(command, depth=depth + 1))
        with permit(["-c", command]):
            return get_output(command, split)

    shell.system = shell.system_piped = shell.system_raw = system
    shell.getoutput = getoutput
    let_scripts_ask(shell, permit)


def approved(command):
    # It would not run, so no approval is needed.
    refuse_background(command)
    ipybox_runtime.approve_shell("shell", command)
    return ApprovedCommand(command)


def expand_unless_approved(var_expand):
    def expand(text, depth=0, *args, **kwargs):
        if isinstance(text, ApprovedCommand):
            return text
        return var_expand(text, depth + 1, *args, **kwargs)

    return expand


def let_scripts_ask(shell, permit):
    """Make `%%script` request approval, and with it `%%bash` and all other magics based on it."""
    from IPython.core.magics.script import ScriptMagics
    from IPython.utils.process import arg_split

    run = ScriptMagics.shebang

    @functools.wraps(run)
    def shebang(self, line, cell):
        _, arguments = run.parser.parse_known_args(arg_split(line, posix=True))
        if arguments:
            ipybox_runtime.approve_shell("shell_magic", shown(arguments, cell))
        with permit(arguments):
            return run(self, line, cell)

    ScriptMagics.shebang = shebang
    # Some versions of IPython have created the magics by now, others create them on first use.
    magics = shell.magics_manager.registry.get("ScriptMagics")
    if magics is not None:
        shell.magics_manager.magics["cell"]["script"] = magics.shebang


def shown(arguments, cell):
    """The text to approve for a cell that is the input of `arguments`: for a plain shell the cell alone."""
    # A cell must not be able to look like one for another program.
    if arguments in (["bash"], ["sh"]) and not cell.startswith("%%"):
        return cell
    return f"%%script {shlex.join(arguments)}\n{cell}"


def block_programs():
    """Make every function that starts programs raise an exception, and return a function that permits one.

    The returned function makes a context manager from the last arguments of a command line. Within it this
    thread (and work that it gives to asyncio) can start programs whose arguments end with these; other
    threads cannot.

    Forking is not blocked: the child is this same program under the same rules, and multiprocessing needs it.
    """
    permitted = contextvars.ContextVar("permitted", default=None)
    # The position of the command line in Python's audit events.
    places = {
        "os.exec": 1,
        "os.posix_spawn": 1,
        "os.spawn": 2,
        "os.system": 0,
        "pty.spawn": 0,
        "subprocess.Popen": 1,
    }

    def check(arguments):
        last = permitted.get()
        if not last or list(arguments)[-len(last) :] != last:
            raise ProcessBlockedError(errno.EPERM, BLOCKED)

    def hook(event, details):
        if event in places:
            check(details[places[event]])

    @contextlib.contextmanager
    def permit(last):
        token = permitted.set(last)
        try:
            yield
        finally:
            permitted.reset(token)

    check_silent_starts(check)
    sys.addaudithook(hook)
    return permit


def check_silent_starts(check):
    """Check in functions that raise no audit event, or only in a child whose events are not seen here."""
    import _posixsubprocess
    import subprocess

    fork_exec, spawn = _posixsubprocess.fork_exec, os._spawnvef

    # multiprocessing starts fresh interpreters with it.
    def checked_fork_exec(arguments, *rest):
        check(arguments)
        return fork_exec(arguments, *rest)

    # For os.spawnv and the like, whose child ends with 127 without a message.
    def checked_spawn(mode, file, arguments, *rest):
        check(arguments)
        return spawn(mode, file, arguments, *rest)

    _posixsubprocess.fork_exec = checked_fork_exec
    if hasattr(subprocess, "_fork_exec"):
        subprocess._fork_exec = checked_fork_exec
    os._spawnvef = checked_spawn
