"""Shortens tracebacks to the useful parts: frames of the user's code, where a library raised, and the message.

A failed call of a tool shows neither the generated module nor the runtime that sends the call. These frames are
left out of copies of the tracebacks, while these are formatted: the exceptions stay unchanged. `%xmode Verbose`
shows everything.

Standard library only.
"""

import builtins
import contextlib
import functools
import linecache
import re
import sys
import threading
import traceback

import ipybox_hints
from ipybox_frames import (
    LIBRARY,
    MOST_FRAMES,
    TOOL,
    USER,
    entries_of,
    everything,
    is_no_tool_frame,
    is_user_frame_or_raised,
    kinds_of_frames,
    short_path,
    without,
)

# The beginning of a frame in IPython's tracebacks.
FRAME = re.compile(r"File (?P<path>[^\n]+?):(?P<line>\d+), in (?P<name>[^\n(]+)\(")
# A shorter message may occur in another one by chance.
SHORTEST_QUOTATION = 12
# The most exceptions of a chain that are examined: a loop can make a long chain.
MOST_EXCEPTIONS = 1_000


def install(shell):
    """Shorten the tracebacks of `shell`, and those of failed tool calls that Python's own functions print."""
    formatter = shell.InteractiveTB
    format_whole = formatter.structured_traceback

    def structured_traceback(etype, value=None, tb=None, *args, **kwargs):
        if formatter.mode == "Verbose" or not isinstance(value, BaseException):
            return format_whole(etype, value, tb, *args, **kwargs)
        with shortened(value, tb, is_user_frame_or_raised, keeps_head=True) as short:
            lines = format_whole(etype, value, short, *args, **kwargs)
        lines = [without_code(line) for line in lines]
        left_out = sum(1 for _ in entries_of(tb)) - MOST_FRAMES
        if left_out > 0:
            lines.append(f"[{left_out} frames in the middle are left out]")
        return [*lines, *hints(value)]

    formatter.structured_traceback = structured_traceback
    show_syntax = shell.SyntaxTB.structured_traceback

    def structured_syntax_error(etype, value, *args, **kwargs):
        return [*show_syntax(etype, value, *args, **kwargs), *syntax_hints(value)]

    shell.SyntaxTB.structured_traceback = structured_syntax_error
    shorten_native_tracebacks()


def without_code(lines):
    """The lines of a library's frame without its code and the parameters of its function: only where it is."""
    found = FRAME.match(lines)
    if found is None:
        return lines
    place = short_path(found["path"])
    return lines if place is None else f"File {place}:{found['line']}, in {found['name']}\n"  # fmt: skip


def show_group(shell, exc_tuple):
    """Show an exception group as Python does: IPython prints it, and reports the exception before it.

    Return whether there was a group to show.
    """
    try:
        etype, value, tb = shell._get_exc_info(exc_tuple)
    except ValueError:
        return False
    if not any(hasattr(error, "exceptions") for error in chain(value)):
        return False
    keeps = is_user_frame_or_raised
    if shell.InteractiveTB.mode == "Verbose":
        keeps = everything
    with shortened(value, tb, keeps) as short:
        lines = traceback.format_exception(etype, value, short)
    shell._showtraceback(etype, value, ["".join(lines).rstrip(), *hints(value)])
    return True


def hints(value):
    frames = kinds_of_frames(value.__traceback__)
    is_named = frames and (frames[-1][1] in (USER, LIBRARY) or has_own_name(value))
    try:
        hint = ipybox_hints.hint_of_place(value)
        if hint is None and is_named:
            by_library = frames[-1][1] != USER
            hint = ipybox_hints.hint_for(value, by_library=by_library)
    except Exception:  # noqa: BLE001 - what the user's code has made of imports must not hide the exception
        return []
    return [f"hint: {hint}"] if hint else []


def syntax_hints(value):
    """The hint for a cell that is a text with code in it."""
    lines = linecache.getlines(getattr(value, "filename", None) or "")
    if not any(line.lstrip().startswith("```") for line in lines):
        return []
    return ["hint: the cell is Markdown: give the Python code alone"]


def has_own_name(value):
    """True if an exception says itself which name is missing."""
    return isinstance(value, (ImportError, AttributeError))


def shorten_native_tracebacks():
    """Let the module `traceback`, which `logging` and `asyncio` use, and threads leave out the frames of tool calls."""
    format_exception = traceback.TracebackException.__init__

    @functools.wraps(format_exception)
    def __init__(self, exc_type, exc_value, exc_traceback, *args, **kwargs):
        is_nested = kwargs.get("_seen") is not None
        if is_nested or not isinstance(exc_value, BaseException):
            format_exception(self, exc_type, exc_value, exc_traceback, *args, **kwargs)
            return
        with shortened(exc_value, exc_traceback, is_no_tool_frame) as short:
            format_exception(self, exc_type, exc_value, short, *args, **kwargs)

    traceback.TracebackException.__init__ = __init__
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = show_exception_in_thread


def show_exception_in_thread(arguments):
    """As Python's own hook, but by `traceback`: Python's own shows no lines of cells."""
    if arguments.exc_type is SystemExit:
        return
    thread = arguments.thread
    name = thread.name if thread is not None else threading.get_ident()
    print(f"Exception in thread {name}:", file=sys.stderr)
    value, tb = arguments.exc_value, arguments.exc_traceback
    with shortened(value, tb, is_user_frame_or_raised) as short:
        traceback.print_exception(arguments.exc_type, value, short)


@contextlib.contextmanager
def shortened(value, tb, keeps, keeps_head=False):
    """Within the context, `value` and the exceptions that it is linked to have short tracebacks and no repetitions.

    The context is a short copy of the traceback `tb`.
    """
    before = []
    try:
        short = [(error, *shortened_parts(error, keeps)) for error in chain(value)]
        tb = without(tb, keeps, keeps_head)
        before = [(error, *parts_of(error)) for error, *_ in short]
    except Exception:  # noqa: BLE001 - exceptions run the user's code, as in `__str__`: then all is shown
        short = []
    try:
        set_parts(short)
        yield tb
    finally:
        set_parts(before)


PARTS = ("__traceback__", "__cause__", "__context__", "__suppress_context__")


def parts_of(error):
    return [getattr(error, name) for name in PARTS]


def shortened_parts(error, keeps):
    tb, cause, *context = parts_of(error)
    tb = without(tb, keeps)
    if keeps is everything or (cause is not None and not repeats(cause, error)):
        return tb, cause, *context
    context = cause
    if cause is None and not error.__suppress_context__:
        context = error.__context__
    seen = set()
    while context is not None and repeats(context, error) and id(context) not in seen:
        seen.add(id(context))
        context = following(context)
    return tb, None, context, context is None


def set_parts(parts):
    for error, *values in parts:
        # In this order: setting a cause sets `__suppress_context__` too. Not by assignment,
        # which a class may refuse.
        for name, value in zip(PARTS, values, strict=True):
            object.__setattr__(error, name, value)


def following(error):
    if error.__cause__ is not None:
        return error.__cause__
    return None if error.__suppress_context__ else error.__context__


def chain(value):
    """`value`, and the exceptions that are shown with it."""
    found = {}
    waiting = [value]
    while waiting and len(found) < MOST_EXCEPTIONS:
        error = waiting.pop()
        if isinstance(error, BaseException) and id(error) not in found:
            found[id(error)] = error
            waiting += [error.__cause__, error.__context__, *members(error)]
    return list(found.values())


def members(error):
    group = getattr(builtins, "BaseExceptionGroup", ())
    return error.exceptions if isinstance(error, group) else ()


def repeats(earlier, later):
    """True if `earlier`, the cause of `later`, adds nothing to the text of `later`."""
    kinds = [kind for _, kind in kinds_of_frames(earlier.__traceback__)]
    if not kinds or USER in kinds:
        return False
    # A library that wants another one says so itself.
    wants = isinstance(earlier, ModuleNotFoundError) and isinstance(later, ImportError)
    if TOOL in kinds or wants:
        return True
    says, said = str(earlier), str(later)
    is_quoted = len(says) >= SHORTEST_QUOTATION and says in said
    return is_quoted or (type(earlier) is type(later) and says == said)
