"""Makes functions that ask for input fail at once, since nobody can answer, with a hint on what to do instead."""

import builtins
import sys

from ipybox_loading import after_import

NOBODY_ANSWERS = (
    "nobody can answer: code in this kernel gets no input. "
    "Write the values into the code instead of asking for them."
)
NOBODY_DEBUGS = (
    "nobody can give commands to a debugger here. "
    "Use `print` to show what you want to know, and the traceback of an exception to find its place."
)

NOBODY_TYPES = (
    "nobody can type into a shell here. Look at the variables by `print`, or in a cell."
)


def refuse_input():
    """Make `input`, `getpass` and interactive debuggers raise an exception."""
    sys.breakpointhook = sys.__breakpointhook__
    builtins.input = refuse
    after_import("getpass", refuse_passwords)
    after_import("pdb", refuse_debuggers)
    refuse_debugger_of_exceptions()
    after_import("IPython.terminal.embed", refuse_shells)


def refuse(*args, **kwargs):
    from IPython.core.error import StdinNotImplementedError

    raise StdinNotImplementedError(NOBODY_ANSWERS)


def refuse_passwords(getpass):
    getpass.getpass = refuse


def refuse_debuggers(pdb):
    from IPython.core.error import StdinNotImplementedError

    # ipykernel has replaced this class by IPython's, which is derived from it.
    base = next((kind for kind in pdb.Pdb.__mro__ if kind.__module__ == "pdb"), pdb.Pdb)
    ask_for_commands = base.cmdloop

    def cmdloop(self, *args, **kwargs):
        # A debugger with a file of commands may work. Python 3.13 queues one of its own, to print the frame.
        commands = [name for name in self.cmdqueue if not name.startswith("_pdbcmd_")]
        if self.use_rawinput and not commands:
            sys.settrace(None)
            raise StdinNotImplementedError(NOBODY_DEBUGS)
        return ask_for_commands(self, *args, **kwargs)

    base.cmdloop = cmdloop


def refuse_shells(embed):
    """Refuse IPython's shells before they put themselves in the place of the kernel's."""
    import IPython

    IPython.embed = IPython.start_ipython = embed.embed = refuse_shell
    embed.InteractiveShellEmbed.__init__ = refuse_shell


def refuse_shell(*args, **kwargs):
    from IPython.core.error import StdinNotImplementedError

    raise StdinNotImplementedError(NOBODY_TYPES)


def refuse_debugger_of_exceptions():
    """Make `%pdb on` raise an exception: each later exception would be shown with several of the debugger's own."""
    from IPython.core.error import StdinNotImplementedError
    from IPython.core.interactiveshell import InteractiveShell

    def set_call_pdb(shell, is_wanted):
        if is_wanted:
            raise StdinNotImplementedError(NOBODY_DEBUGS)
        InteractiveShell._set_call_pdb(shell, is_wanted)

    InteractiveShell.call_pdb = property(InteractiveShell._get_call_pdb, set_call_pdb)
