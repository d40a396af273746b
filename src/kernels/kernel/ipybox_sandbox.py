"""Tells code in a sandbox of the sandbox, where it meets its limits: files that cannot be written, hosts that cannot be
reached, installers that can install nothing.

Standard library and IPython only.
"""

import errno
import os
import re
import socket

import ipybox_hints

# The directory in which the kernel has started.
workspace = ""
# The most exceptions of a chain that are examined.
MOST_CAUSES = 20
# Commands that would install into the kernel's environment. What they are told to put somewhere else, they may.
INSTALLS = re.compile(
    r"(?:^|[;&|(])\s*(?:(?:sudo|env|exec|nohup|time)\s+)*"
    r"""(?:["']?(?:[^;&|()]*/)?python[\d.]*["']?\s+(?:-\w\s+)*-m\s+)?(?:\S*/)?"""
    r"(?:pip[\d.]*\s+install|uv\s+pip\s+install|uv\s+add|(?:conda|mamba)\s+install)\b"
)
ELSEWHERE = re.compile(r"\s(?:--target|-t|--prefix|--root|--dry-run|--help|-h)\b")

UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)
UNREACHABLE = (
    errno.ECONNREFUSED,
    errno.ENETUNREACH,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
)
# Messages of libraries for HTTP about an answer of the sandbox's proxy.
REFUSED = re.compile(r"\b403\b")


def install(shell):
    """Give hints to errors of code in `shell`, and refuse commands that cannot install anything."""
    global workspace
    workspace = os.getcwd()
    ipybox_hints.hint_of_place = hint_for
    # Without a network, further attempts take time and say nothing new.
    for name in ("PIP_RETRIES", "UV_HTTP_RETRIES"):
        os.environ.setdefault(name, "0")
    system, getoutput, var_expand = shell.system, shell.getoutput, shell.var_expand

    def expand(text, depth=0, *args, **kwargs):
        if isinstance(text, ExpandedCommand):
            return text
        return var_expand(text, depth + 1, *args, **kwargs)

    # `depth` leads to the frame in which IPython looks for the values of `{names}`: the caller's.
    def checked_system(command):
        return system(checked(expand(command, depth=1)))

    def checked_getoutput(command, split=True, depth=0):
        return getoutput(checked(expand(command, depth=depth + 1)), split)

    shell.var_expand = expand
    shell.system = shell.system_piped = shell.system_raw = checked_system
    shell.getoutput = checked_getoutput


class ExpandedCommand(str):
    """A command in which IPython has filled the values of names."""


def checked(command):
    """A command that is no installation."""
    if INSTALLS.search(command) and not ELSEWHERE.search(command):
        from IPython.core.error import UsageError

        raise UsageError(
            "code in this sandbox cannot install packages. The tool `install_package` can: it has a sandbox of its own"
        )
    return ExpandedCommand(command)


def hint_for(error):
    """The hint to add to an error that has to do with the sandbox, or None."""
    for cause in causes(error):
        if isinstance(cause, OSError):
            hint = hint_of_files(cause) or hint_of_network(cause)
            if hint:
                return hint
    return None


def causes(error):
    found = []
    while error is not None and error not in found and len(found) < MOST_CAUSES:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def hint_of_files(error):
    if not isinstance(error.filename, (str, bytes)):
        return None
    temporary = os.environ.get("TMPDIR", "")
    path = os.path.realpath(os.fsdecode(error.filename))
    if error.errno == errno.ENOENT:
        return hint_of_home(path, temporary)
    if error.errno not in UNWRITABLE:
        return None
    # A file that can be read and written was to be run.
    if error.errno != errno.EROFS and os.access(path, os.R_OK | os.W_OK):
        return None
    if any(is_below(path, place) for place in (workspace, temporary) if place):
        return (
            "the kernel is in a sandbox, in which files are protected that configure programs or hold secrets: "
            "use another name, or a subdirectory. The user permits a name by an entry of `filesystem.allowWrite` in the "
            "sandbox's policy (`--sandbox-config`)"
        )
    return (
        f"the kernel is in a sandbox: code writes below `{workspace}` and `{temporary}` only, "
        "and does not read files with secrets"
    )


def hint_of_home(path, temporary):
    """The hint for a missing file of the home, if the sandbox hides the home."""
    home = os.path.realpath(os.path.expanduser("~"))
    if not is_below(path, home) or not is_covered(home):
        return None
    if any(is_below(path, place) for place in (workspace, temporary) if place):
        return None
    return (
        "the kernel is in a sandbox, which hides the home directory: have the user copy the file into "
        f"`{workspace}`, or allow its directory by `filesystem.allowRead` of a policy (`--sandbox-config`)"
    )


def is_covered(directory):
    """True if the sandbox has an empty file system in place of a directory."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
            lines = [line.split() for line in mounts]
    except OSError:
        return False
    name = directory.replace("\\", "\\134").replace(" ", "\\040")
    return any(
        fields[4] == name and fields[fields.index("-") + 1] == "tmpfs"
        for fields in lines
    )


def is_below(path, place):
    return os.path.commonpath([path, os.path.realpath(place)]) == os.path.realpath(
        place
    )


def hint_of_network(error):
    is_name = isinstance(error, socket.gaierror)
    is_refused = REFUSED.search(str(error)) and "unnel" in str(error)
    if not (is_name or is_refused or error.errno in UNREACHABLE):
        return None
    return (
        "the kernel is in a sandbox with a network of its own: code reaches only hosts that the user has allowed, and no "
        "service of this machine. Tools of MCP servers run outside"
    )
