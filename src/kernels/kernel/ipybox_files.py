"""`show_file(path)` gives the client a copy of a file of the workspace, or of a table; `uploaded_file(name)` finds one that
the client has put into `uploads/`.

The kernel reads the file, since it can read no more than its own code. Standard library and IPython only.
"""

import base64
import builtins
import os
import re
import stat

# The representation of a file: its name, a line break, and its bytes in Base64.
KIND = "application/vnd.ipybox.file"
# The longest file: in Base64 it fits in a message.
FILE_BYTES = 24 * 1024 * 1024

# The directory in which clients put files.
UPLOADS = "uploads"

_workspace = ""
# Asks the host, if the kernel has no access to its files.
_ask = None


def install(ask=None):
    """Let all code find the functions; the current directory is the workspace, or in its place if the host is asked."""
    global _workspace, _ask
    _workspace = os.path.realpath(os.getcwd())
    _ask = ask
    builtins.show_file = show_file
    builtins.uploaded_file = uploaded_file


def show_file(source, name=None):
    """Give the client a copy of a file, beside the output of the cell.

    source: the path of a file in the workspace, a table with `to_csv` or `write_csv` (of pandas or polars, say), or bytes
    name: how the client sees it; `table.csv` for a table, and for bytes it must be given
    """
    if isinstance(source, (str, os.PathLike)):
        data, default = read_file(os.fspath(source))
    elif isinstance(source, (bytes, bytearray, memoryview)):
        data, default = bytes(source), None
    else:
        data, default = as_csv(source), "table.csv"
    name = name if name is not None else default
    if not isinstance(name, str) or not name.strip():
        raise TypeError(
            "show_file() needs a name for bytes, as in show_file(data, 'data.bin')"
        )
    if len(data) > FILE_BYTES:
        raise too_long(name, len(data))
    from IPython.display import publish_display_data

    # The host makes a file name of it.
    name = re.sub(r"\s", " ", os.path.basename(name))
    encoded = base64.b64encode(data).decode()
    publish_display_data({KIND: f"{name}\n{encoded}", "text/plain": f"<file {name}>"})


def uploaded_file(name):
    """The path of a file that the client has put into `uploads/` of the workspace.

    A kernel on another machine gets a copy, each time anew.
    """
    if not isinstance(name, str) or os.path.basename(name) != name or not name:
        raise ValueError(f"{name!r} is not the name of a file in `{UPLOADS}/`")
    path = os.path.join(_workspace, UPLOADS, name)
    if _ask is not None:
        fetch(name, path)
    elif not os.path.isfile(path):
        raise FileNotFoundError(f"there is no `{UPLOADS}/{name}` in the workspace")
    return path


def fetch(name, path):
    """Copy a file of the host."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    unfinished = f"{path}.{os.getpid()}.part"
    try:
        with open(unfinished, "wb") as file:
            size = None
            while size is None or file.tell() < size:
                part = _ask("/upload", {"name": name, "from": file.tell()})
                if "missing" in part:
                    raise FileNotFoundError(part["missing"])
                data = base64.b64decode(part["data"])
                size = part["size"]
                file.write(data)
                if not data:
                    break
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise


def read_file(path):
    """The content of a file and its name."""
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    real = os.path.realpath(path)
    if os.path.commonpath([real, _workspace]) != _workspace:
        raise ValueError(
            f"`{path}` is outside of the workspace `{_workspace}`: copy it there first"
        )
    # Opening a FIFO would wait for a writer.
    descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"`{path}` is not a regular file")
        if status.st_size > FILE_BYTES:
            raise too_long(path, status.st_size)
        return file.read(FILE_BYTES + 1), os.path.basename(path)


def as_csv(table):
    for method in ("to_csv", "write_csv"):
        write = getattr(table, method, None)
        text = write() if callable(write) else None
        if isinstance(text, str):
            return text.encode("utf-8", "replace")
    raise TypeError(
        f"show_file() takes the path of a file, a table with `to_csv` or `write_csv`, or bytes, not {type(table).__name__}"
    )


def too_long(name, size):
    return ValueError(
        f"`{name}` has {size:,} bytes, and at most {FILE_BYTES:,} can be shown: compress it, or show a part"
    )
