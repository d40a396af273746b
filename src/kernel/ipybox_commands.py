"""Shell commands that ask for approval before they run, and nothing else that starts programs if that is wanted.

What is asked is what runs: IPython's variables are put in first, and only once. It is a rule for code that keeps it.
Code in this process can undo all that is done here, or go around it (ctypes): only a sandbox is a boundary.

Standard library and IPython only.
"""

import contextlib
import contextvars
import errno
import functools
import os
import shlex
import sys

# Imported at the start, when the working directory is not yet a place to import from.
import ipybox_runtime
from ipybox_shell import NO_INPUT, refuse_background

BLOCKED = (
    "starting programs from Python is blocked. Use `!command` or `%%bash`, which ask for approval. "
    "`multiprocessing` works with its start method `fork`."
)


class ProcessBlockedError(PermissionError):
    """Code wanted to start a program by other means than a shell command.

    An OSError, as if the program could not be run: libraries have an answer to that, and between fork and exec it is
    the one kind that they expect.
    """


class Approved(str):
    """A command in which no variables are to be expanded any more."""

    __slots__ = ()


def permit(arguments):
    """Let what ends with these arguments start within the context that is returned: nothing is blocked yet."""
    return contextlib.nullcontext()


def ask_first(shell, is_only_escape):
    """Let the shell commands of `shell` ask first; with `is_only_escape`, let nothing else start programs."""
    global permit
    if is_only_escape:
        permit = block_programs()
    shell.var_expand = expand_unless_approved(shell.var_expand)
    run, get_output = shell.system, shell.getoutput

    # `depth` leads to the frame in which IPython looks for the values of `{names}`: the caller's.
    def system(command):
        command = approved(shell.var_expand(command, depth=1))
        with permit(["-c", NO_INPUT + command]):
            return run(command)

    def getoutput(command, split=True, depth=0):
        command = approved(shell.var_expand(command, depth=depth + 1))
        with permit(["-c", command]):
            return get_output(command, split)

    shell.system = shell.system_piped = shell.system_raw = system
    shell.getoutput = getoutput
    let_scripts_ask(shell, permit)


def approved(command):
    # It would not run, so nobody need be asked.
    refuse_background(command)
    ipybox_runtime.approve_shell("shell", command)
    return Approved(command)


def expand_unless_approved(var_expand):
    def expand(text, depth=0, *args, **kwargs):
        if isinstance(text, Approved):
            return text
        return var_expand(text, depth + 1, *args, **kwargs)

    return expand


def let_scripts_ask(shell, permit):
    """Let `%%script` ask, and with it `%%bash` and all the others that are made of it."""
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
    # Some IPythons have made the magics by now, others make them when they are used.
    magics = shell.magics_manager.registry.get("ScriptMagics")
    if magics is not None:
        shell.magics_manager.magics["cell"]["script"] = magics.shebang


def shown(arguments, cell):
    """What is asked for a cell that `arguments` gets as its input: for a plain shell the cell alone."""
    # A cell must not be able to look as if it were for another program.
    if arguments in (["bash"], ["sh"]) and not cell.startswith("%%"):
        return cell
    return f"%%script {shlex.join(arguments)}\n{cell}"


def block_programs():
    """Let whatever starts programs raise an exception, for good, and return how to permit one.

    What is returned makes a context manager of the last arguments of a command line. Within it the thread (and what
    it gives to asyncio) can start what ends with these arguments, and no other thread can.

    Forking is not blocked: the child is this same program under the same rules, and multiprocessing needs it.
    """
    permitted = contextvars.ContextVar("permitted", default=None)
    # Where the audit events of Python have the command line.
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
    """Let the functions check that tell the audit hooks nothing, or only those of a child that cannot be heard."""
    import _posixsubprocess
    import subprocess

    fork_exec, spawn = _posixsubprocess.fork_exec, os._spawnvef

    # For multiprocessing, which starts fresh interpreters by it.
    def checked_fork_exec(arguments, *rest):
        check(arguments)
        return fork_exec(arguments, *rest)

    # For os.spawnv and its like, whose child ends with 127 and no word.
    def checked_spawn(mode, file, arguments, *rest):
        check(arguments)
        return spawn(mode, file, arguments, *rest)

    _posixsubprocess.fork_exec = checked_fork_exec
    if hasattr(subprocess, "_fork_exec"):
        subprocess._fork_exec = checked_fork_exec
    os._spawnvef = checked_spawn
