"""Classifies the frames of a traceback, and copies tracebacks without some of them.

Standard library only.
"""

import functools
import os
import sys
import sysconfig
import types

# The file names of ipybox's modules in a kernel, with their directory.
OWN_MODULES = __file__.rpartition("ipybox_")[0] + "ipybox_"
# The modules that carry tool calls.
RUNTIME = (
    "ipybox_actions",
    "ipybox_arguments",
    "ipybox_batch",
    "ipybox_gathering",
    "ipybox_literals",
    "ipybox_modules",
    "ipybox_resources",
    "ipybox_results",
    "ipybox_runtime",
    "ipybox_search",
    "ipybox_templates",
)
LIBRARIES = tuple(
    {
        os.path.join(sysconfig.get_path(name), "")
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
)
PACKAGE_DIRECTORIES = (
    f"{os.sep}site-packages{os.sep}",
    f"{os.sep}dist-packages{os.sep}",
)
# The kinds of frames: the user's, a library's, part of a tool call, or ipybox's and IPython's
# own.
USER, LIBRARY, TOOL, HIDDEN = "user", "library", "tool", "hidden"
# The most frames of a traceback that are looked at: Python's own limit for recursion. IPython takes half a millisecond
# for each.
MOST_FRAMES = 1_000


def everything(kinds):
    return range(len(kinds))


def is_no_tool_frame(kinds):
    """All frames but those of a tool call, and of ipybox's wrappers of the user's code."""
    return [index for index, kind in enumerate(kinds) if kind not in (TOOL, HIDDEN)]


def is_user_frame_or_raised(kinds):
    """The user's frames, and the last one of a library if it raised."""
    kept = [index for index, kind in enumerate(kinds) if kind == USER]
    shown = [index for index, kind in enumerate(kinds) if kind != HIDDEN]
    if shown and kinds[shown[-1]] == LIBRARY:
        kept.append(shown[-1])
    return kept


def without(tb, keeps, keeps_head=False):
    """A copy of a traceback with those frames that `keeps` chooses by the kinds of all.

    With `keeps_head` also those of IPython that it begins with, which IPython's formatter leaves out itself.
    """
    frames = kinds_of_frames(tb)
    if not frames:
        return tb
    head = 0
    while keeps_head and head < len(frames) and is_ipython(frames[head][0].tb_frame):
        head += 1
    kinds = [kind for _, kind in frames[head:]]
    # Without frames of the user's code, the tool's frames show what was called.
    kept = list(keeps(kinds)) or [
        kinds.index(TOOL) if TOOL in kinds else len(kinds) - 1
    ]
    entries = frames[:head] + (
        [frames[head + index] for index in kept] if kinds else []
    )
    copy = None
    for entry, _ in reversed(entries):
        copy = types.TracebackType(
            copy, entry.tb_frame, entry.tb_lasti, entry.tb_lineno
        )
    return copy


def kinds_of_frames(tb):
    """The entries of a traceback, with their kinds; of a very long one, without its middle.

    Frames below a tool call belong to it, except the user's code.
    """
    frames = []
    is_in_tool = False
    entries = list(entries_of(tb))
    if len(entries) > MOST_FRAMES:
        del entries[MOST_FRAMES // 2 : -MOST_FRAMES // 2]
    for entry in entries:
        kind = kind_of(entry.tb_frame)
        if kind == LIBRARY and is_in_tool:
            kind = TOOL
        is_in_tool = kind == TOOL or (is_in_tool and kind == HIDDEN)
        frames.append((entry, kind))
    return frames


def entries_of(tb):
    while tb is not None:
        yield tb
        tb = tb.tb_next


def kind_of(frame):
    variables = frame.f_globals
    path = frame.f_code.co_filename
    name = variables.get("__name__") or ""
    package = variables.get("__package__") or ""
    if name in RUNTIME or is_generated(package):
        return TOOL
    if path.startswith(OWN_MODULES):
        return HIDDEN
    if not os.path.isabs(path) and name != "__main__":
        # Compiled code, or code that a library made from text.
        path = variables.get("__file__") or path
    if not is_library(path):
        return USER
    if name.startswith("pydantic.") and validates_for_tool(frame):
        return TOOL
    # Libraries mark uninformative frames by this name.
    return HIDDEN if frame.f_locals.get("__tracebackhide__") else LIBRARY


def is_library(path):
    is_package = any(directory in path for directory in PACKAGE_DIRECTORIES)
    return is_package or path.startswith((*LIBRARIES, "<frozen "))


def short_path(path):
    """The path of a library's file below the directory of libraries; None for another file."""
    path = os.path.expanduser(path)
    if not is_library(path):
        return None
    for directory in (*PACKAGE_DIRECTORIES, *LIBRARIES):
        _, found, rest = path.partition(directory)
        if found:
            return rest
    return path


@functools.lru_cache(maxsize=1024)
def is_code_of_user(path):
    """True if a file of code is neither a library's nor ours."""
    return not is_library(path) and not path.startswith(OWN_MODULES)


def is_generated(package):
    """True if a package was generated for an MCP server."""
    if package.startswith("mcptools."):
        return True
    client = getattr(sys.modules.get(package), "__dict__", {}).get("CLIENT")
    is_client = type(client).__module__ == "ipybox_runtime"
    return is_client and client.server_name == package.rpartition(".")[2]


def validates_for_tool(frame):
    """True if a function of pydantic handles a class of a generated package."""
    owner = frame.f_locals.get("self", frame.f_locals.get("cls"))
    module = getattr(
        owner if isinstance(owner, type) else type(owner), "__module__", None
    )
    return isinstance(module, str) and is_generated(module.rpartition(".")[0])


def is_ipython(frame):
    name = frame.f_globals.get("__name__") or ""
    return name.partition(".")[0] in ("IPython", "ipykernel")
