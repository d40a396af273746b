"""IPython's shell, adapted for a client without a terminal that only runs cells and reads their output."""

import codecs
import fcntl
import functools
import importlib
import os
import select
import signal
import struct
import sys
import termios
import threading
import types
import warnings

import ipybox_sources
import ipybox_tracebacks
from ipybox_loading import after_import, later

# Modules that few sessions need.
script_module = later("ipybox_scripts")
process_module = later("ipybox_processes")
check_module = later("ipybox_check")
bindings_module = later("ipybox_bindings")
plan_module = later("ipybox_plan")
# What the check imports.
later("ipybox_generated")
# The size of the terminal that programs are told.
ROWS_AND_COLUMNS = (24, 80)
# The time between two looks whether a command has ended whose output another program still holds open, in milliseconds.
END_CHECK_MILLIS = 50
# More than a terminal holds. Another program may write to it after the command's end, and without end.
MOST_READS_AFTER_END = 100
# The time that an interrupted command gets to end, as IPython gives it, in seconds.
GRACE_SECS = 0.2
# The matplotlib backend that shows images.
INLINE_BACKEND = "module://matplotlib_inline.backend_inline"
# Those of interactive plots, by all their names.
OF_NOTEBOOKS = (
    "ipympl",
    "module://ipympl.backend_nbagg",
    "module://matplotlib.backends.backend_nbagg",
    "nbagg",
    "notebook",
    "widget",
)
# The modules in which code finds ipybox's own functions.
OWN = ("mcptools.search", "mcptools.batch", "mcptools.save")


class NoComms:
    """The manager of comms that libraries look for, to speak to a notebook: there is none."""

    def __init__(self):
        self.comms = {}
        self.targets = {}

    def register_target(self, target_name, f):
        self.targets[target_name] = f

    def unregister_target(self, target_name, f):
        self.targets.pop(target_name, None)

    def register_comm(self, comm):
        self.comms[comm.comm_id] = comm
        return comm.comm_id

    def unregister_comm(self, comm):
        self.comms.pop(comm.comm_id, None)

    def get_comm(self, comm_id):
        return self.comms.get(comm_id)


class WithoutTerminal:
    """Changes IPython's shells for a reader who has neither a terminal nor a notebook."""

    def set_next_input(self, text, replace=False):
        """Print what `%load` and `%recall` put in front of a user."""
        print(text)

    async def run_code(self, code_obj, result=None, **options):
        has_raised = await super().run_code(code_obj, result, **options)
        if result is not None and is_success(result.error_in_exec):
            # The rest of the cell does not run all the same.
            result.error_in_exec = None
        return has_raised


def is_success(error):
    """True if an exception ends a program as it should, as that of `sys.exit(0)` does."""
    return isinstance(error, SystemExit) and not error.code


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


class CallCheck:
    """Refuses a cell that calls tools wrongly, as `ipybox_check.py` finds, and announces the calls of others, before anything runs."""

    def __init__(self, shell):
        self._shell = shell

    def visit(self, tree):
        from IPython.core.error import InputRejected

        try:
            names = self._shell.user_ns
            bindings = bindings_module().Bindings(tree)
            if not bindings.is_dynamic and bindings.reach_tools(names):
                plan = check_module().check(tree, bindings, names)
                plan_module().announce(plan)
        except InputRejected:
            raise
        except Exception:  # noqa: BLE001 - what cannot be read or is nested too deeply is not judged
            return tree
        return tree


def adapt(shell):
    """Patch what has no option."""
    shell.ask_exit = refuse_to_exit
    shell.system = types.MethodType(system, shell)
    shell.getoutput = interruptible(shell.getoutput)
    ipybox_sources.install(shell.compile)
    ipybox_tracebacks.install(shell)
    shell.ast_transformers.append(CallCheck(shell))
    strip_prompts_of_pasted_code_only(shell)
    # URLs below each line of an error are useless in text. pydantic reads this variable on
    # first use.
    os.environ.setdefault("PYDANTIC_ERRORS_INCLUDE_URL", "0")
    warnings.filterwarnings("ignore", message="To exit: use")
    # As in an interactive Python: our own arguments are private, and `argparse` would read
    # them.
    sys.argv = [""]
    show_plots_inline(shell)


def run_scripts_until_they_end(shell, is_own_stream):
    """As `ipybox_scripts.py` does it."""
    from IPython.core import interactiveshell

    interactiveshell.getoutput = lambda command: script_module().output_of(command)
    after_import(
        "IPython.core.magics.script",
        lambda module: script_module().install(module, shell, is_own_stream),
    )


def start_processes_by_fork(has_unix_sockets):
    """As `ipybox_processes.py` does it."""
    for name, adjust in (
        ("context", "start_by_fork"),
        ("reduction", "refuse_code_of_cells"),
        ("pool", "check_tasks"),
        *(() if has_unix_sockets else [("connection", "meet_on_loopback")]),
    ):
        after_import(
            f"multiprocessing.{name}",
            lambda module, adjust=adjust: getattr(process_module(), adjust)(module),
        )


def show_plots_inline(shell):
    """Have interactive plots of notebooks, which nobody could use here, come as images."""
    enable_matplotlib = shell.enable_matplotlib

    def enable(gui=None):
        return enable_matplotlib("inline" if is_replaced(gui) else gui)

    def adjust(pyplot):
        switch_backend = pyplot.switch_backend

        @functools.wraps(switch_backend)
        def switch(newbackend):
            switch_backend(INLINE_BACKEND if is_replaced(newbackend) else newbackend)

        pyplot.switch_backend = switch

    shell.enable_matplotlib = enable
    after_import("matplotlib.pyplot", adjust)


def is_replaced(backend):
    is_of_notebook = isinstance(backend, str) and backend.lower() in OF_NOTEBOOKS
    if is_of_notebook:
        print(
            f"the matplotlib backend `{backend}` needs a notebook in a browser: plots are shown inline, as images",
            file=sys.stderr,
        )
    return is_of_notebook


def strip_prompts_of_pasted_code_only(shell):
    """Leave `>>> ` and `In [1]: ` alone in a cell that does not begin with one.

    IPython looks for them in other lines too, and changes the text of strings and files.
    """
    from IPython.core.inputtransformer2 import PromptStripper

    transforms = shell.input_transformer_manager.cleanup_transforms
    transforms[:] = [
        if_first_has_one(transform)
        if isinstance(transform, PromptStripper)
        else transform
        for transform in transforms
    ]


def if_first_has_one(strip):
    def strip_all(lines):
        has_one = lines and strip.initial_re.match(lines[0].lstrip(" \t"))
        return strip(lines) if has_one else lines

    return strip_all


def be_no_terminal():
    """Nobody reads colors or turns pages, though IPython has just set variables that say so."""
    for name in ("CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR"):
        os.environ.pop(name, None)
    os.environ.update(TERM="dumb", NO_COLOR="1", PAGER="cat", GIT_PAGER="cat")
    # Workers that outlive their cell, as those of joblib do, would keep what they print.
    os.environ.setdefault("PYTHONUNBUFFERED", "1")


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
    refuse_background(command)
    with Interruption() as interruption:
        status = run_command(self.var_expand(command, depth=1))
    self.user_ns["_exit_code"] = status
    if interruption.is_noticed:
        raise KeyboardInterrupt
    # Older versions of IPython do not have it.
    if getattr(self, "system_raise_on_error", False) and status != 0:
        from subprocess import CalledProcessError

        raise CalledProcessError(status, command)


def run_command(command):
    """Run a command in the user's shell, print its output as it comes, and return its status as IPython does.

    The output is a terminal, so that programs write line by line. It does not control the command: `/dev/tty` cannot be
    opened, and a prompt for a password there ends at once instead of waiting.
    """
    from subprocess import DEVNULL, Popen

    shell = os.environ.get("SHELL", "sh")
    ours, theirs = os.openpty()
    with open(ours, "rb", buffering=0) as terminal:
        with open(theirs, "wb", buffering=0) as output:
            fcntl.ioctl(
                output, termios.TIOCSWINSZ, struct.pack("4H", *ROWS_AND_COLUMNS, 0, 0)
            )
            process = Popen(
                [shell, "-c", command], stdin=DEVNULL, stdout=output, stderr=output
            )
        try:
            show_output(terminal, process)
            process.wait()
        except KeyboardInterrupt:
            end(process)
            show_output(terminal, process)
    status = process.wait()
    return 128 - status if status > 128 else status


def show_output(terminal, process):
    """Print what comes from `terminal` until nobody holds its other end, or the process has ended."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    # Not `select`, which takes no descriptor above 1023.
    poll = select.poll()
    poll.register(terminal, select.POLLIN)
    reads_left = MOST_READS_AFTER_END
    while reads_left:
        has_ended = process.poll() is not None
        reads_left -= has_ended
        if poll.poll(0 if has_ended else END_CHECK_MILLIS):
            try:
                data = terminal.read(1 << 16)
            except OSError:
                # As Linux reports the end.
                data = b""
            print(decoder.decode(data, final=not data), end="", flush=True)
            if not data:
                return
        elif has_ended:
            return


def end(process):
    """End an interrupted command: it has got the signal too, unless the kernel is a remote one."""
    from subprocess import TimeoutExpired

    process.send_signal(signal.SIGINT)
    try:
        process.wait(GRACE_SECS)
    except (KeyboardInterrupt, TimeoutExpired):
        process.kill()


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
