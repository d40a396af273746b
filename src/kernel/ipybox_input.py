"""What asks for input, here where nobody can answer, fails at once and says what to do instead."""

import sys

NOBODY_ANSWERS = (
    "nobody can answer: code in this kernel gets no input. "
    "Write the values into the code instead of asking for them."
)
NOBODY_DEBUGS = (
    "nobody can give commands to a debugger here. "
    "Use `print` to show what you want to know, and the traceback of an exception to find its place."
)


def refuse_input(kernel):
    """Let `input`, `getpass` and debuggers that ask for commands raise an exception."""
    from IPython.core.error import StdinNotImplementedError

    def refuse(*args, **kwargs):
        raise StdinNotImplementedError(NOBODY_ANSWERS)

    kernel.raw_input = refuse
    kernel.getpass = refuse
    # ipykernel's own waits for a debugger to attach, where it could import one.
    sys.breakpointhook = sys.__breakpointhook__
    refuse_debuggers(StdinNotImplementedError)


def refuse_debuggers(error):
    import pdb  # noqa: T100 - to keep it from waiting

    # ipykernel has put IPython's class in the place of this one, which it is derived from.
    base = next((kind for kind in pdb.Pdb.__mro__ if kind.__module__ == "pdb"), pdb.Pdb)
    ask_for_commands = base.cmdloop

    def cmdloop(self, *args, **kwargs):
        # One that is given a file of commands may work.
        if self.use_rawinput and not self.cmdqueue:
            sys.settrace(None)
            raise error(NOBODY_DEBUGS)
        return ask_for_commands(self, *args, **kwargs)

    base.cmdloop = cmdloop
