"""Names for the code of cells: a file name for Python and libraries, `Cell In[3]` for people.

Each code has a name of its own, by which its text is found. It has the form of ipykernel's names, by which numba, joblib and
line_profiler recognise cells, and does not change between kernels, so that they find what they have stored. Standard library
only.
"""

import functools
import hashlib
import linecache
import os
import re
import sys
import tempfile
import traceback
import warnings

from ipybox_loading import after_import

DIRECTORY = "ipykernel_0"
# The most cells that keep their source. A loop can run code without end.
MOST_CELLS = 10_000

# The numbers of cells, by file name; IPython's compiler fills it.
_numbers = {}


def file_name(code):
    """The file name for the code of a cell."""
    digest = hashlib.sha1(code.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    number = int.from_bytes(digest.digest()[:8], "big")
    return os.path.join(directory(), f"{number}.py")


@functools.cache
def directory():
    try:
        return os.path.join(tempfile.gettempdir(), DIRECTORY)
    except OSError:
        # No directory can be written.
        return os.path.join(os.sep, "tmp", DIRECTORY)


def forget_oldest(numbers):
    while len(numbers) > MOST_CELLS:
        name = next(iter(numbers))
        del numbers[name]
        linecache.cache.pop(name, None)


def shown_name(file):
    """The name of a cell's file for people; another file's as it is."""
    return f"Cell In[{_numbers[file]}]" if file in _numbers else file


def shown_text(error):
    """The text of an exception: a syntax error has the name of its file in it."""
    text = str(error)
    file = getattr(error, "filename", None)
    if isinstance(error, SyntaxError) and file in _numbers:
        return text.replace(f"({os.path.basename(file)},", f"({shown_name(file)},")
    return text


def install(compiler):
    """Show people the numbers of cells in whatever Python itself prints, and let `inspect` find classes of cells."""
    global _numbers
    _numbers = getattr(compiler, "_filename_map", _numbers)
    traceback.StackSummary.format = name_frames(traceback.StackSummary.format)
    # Python 3.14 has moved it, but looks it up here.
    if hasattr(warnings, "_formatwarnmsg_impl"):
        warnings._formatwarnmsg_impl = name_warning(warnings._formatwarnmsg_impl)
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = show_unraisable
    after_import("asyncio.coroutines", name_coroutines)
    find_classes()


def name_frames(format_stack):
    @functools.wraps(format_stack)
    def format_with_names(self, *args, **kwargs):
        renamed = [
            (frame, frame.filename) for frame in self if frame.filename in _numbers
        ]
        try:
            for frame, file in renamed:
                # Found by the file's name, and kept once it is found.
                _ = frame.line
                frame.filename = shown_name(file)
            return format_stack(self, *args, **kwargs)
        finally:
            for frame, file in renamed:
                frame.filename = file

    return format_with_names


def name_warning(format_warning):
    @functools.wraps(format_warning)
    def format_with_name(message):
        text = format_warning(message)
        file = message.filename
        if file in _numbers and text.startswith(file):
            return shown_name(file) + text[len(file) :]
        return text

    return format_with_name


def name_coroutines(module):
    """Show the cell that has defined a coroutine in the text of its task."""
    format_coroutine = getattr(module, "_format_coroutine", None)
    if format_coroutine is None:
        return

    @functools.wraps(format_coroutine)
    def format_with_name(coroutine):
        text = format_coroutine(coroutine)
        code = getattr(coroutine, "cr_code", getattr(coroutine, "gi_code", None))
        file = getattr(code, "co_filename", None)
        return text.replace(f" {file}:", f" {shown_name(file)}:")

    module._format_coroutine = format_with_name


def show_unraisable(unraisable):
    """As Python's own hook, but by `traceback`: Python's own shows no lines of cells."""
    message = unraisable.err_msg or "Exception ignored in"
    error = unraisable.exc_value
    print(f"{message}: {unraisable.object!r}", file=sys.stderr)
    traceback.print_exception(unraisable.exc_type, error, unraisable.exc_traceback)


def find_classes():
    """Let `inspect` find classes of cells: it looks for the file of their module, which is none."""
    import inspect

    find_file = inspect.getfile

    @functools.wraps(find_file)
    def getfile(thing):
        try:
            return find_file(thing)
        except (OSError, TypeError):
            file = None
            if isinstance(thing, type) and thing.__module__ == "__main__":
                file = file_of_class(thing)
            if file is None:
                raise
            return file

    inspect.getfile = getfile


def file_of_class(cls):
    """The cell that has made a class: that of its methods, or else the newest one with a class of this name."""
    for member in vars(cls).values():
        member = getattr(member, "fget", getattr(member, "__func__", member))
        file = getattr(getattr(member, "__code__", None), "co_filename", None)
        if file in _numbers:
            return file
    begin = re.compile(rf"^\s*class\s+{re.escape(cls.__name__)}\b", re.MULTILINE)
    for file in reversed(_numbers):
        if begin.search("".join(linecache.getlines(file))):
            return file
    return None
