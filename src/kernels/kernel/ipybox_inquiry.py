"""Answers about code that a person is writing: its completions, and whether it is complete; IPython decides. About the
Python that runs it, and how much that works."""

import os
import sys
import types

# The most completions that are sent, and the longest one, in characters.
MATCHES = 200
MATCH_CHARS = 200


def complete(shell, code, cursor_pos):
    """The completions of the code at the position, in characters."""
    code = code[:cursor_pos]
    line = code[code.rfind("\n") + 1 :]
    text, matches = shell.complete("", line, len(line))
    matches = [match for match in map(str, matches) if len(match) <= MATCH_CHARS]
    return {
        "matches": matches[:MATCHES],
        "cursor_start": cursor_pos - len(text),
        "cursor_end": cursor_pos,
    }


def is_complete(shell, code):
    """The status of the code: complete, incomplete or invalid."""
    status, _indent = shell.input_transformer_manager.check_complete(code)
    return {"status": status}


def environment(shell):
    """The versions of Python and of the packages."""
    import importlib.metadata
    import platform

    found = importlib.metadata.distributions()
    names = [(dist.metadata["Name"], dist.version) for dist in found]
    return {
        "python": platform.python_version(),
        "platform": f"{sys.platform}-{platform.machine()}",
        "packages": {str(name): str(version) for name, version in names if name},
    }


def effort(shell):
    """The processor time of this process and those that it has started, in milliseconds."""
    seconds = sum(os.times()[:4])
    ticks = os.sysconf("SC_CLK_TCK")
    parents = {}
    times = {}
    # Without `/proc` there are no others.
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The program's name, in parentheses, may have anything in it.
                    words = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            parents[int(name)] = int(words[1])
            times[int(name)] = (int(words[11]) + int(words[12])) / ticks
    own = os.getpid()
    for process, parent in parents.items():
        ancestor = parent
        while ancestor not in (0, 1, own):
            ancestor = parents.get(ancestor, 0)
        if ancestor == own:
            seconds += times[process]
    return {"milliseconds": round(seconds * 1000)}


# By the request's type: the type of the answer, the function that finds it, and what is answered if that fails.
ANSWERS = {
    "complete_request": types.SimpleNamespace(
        kind="complete_reply",
        find=complete,
        nothing={"matches": [], "cursor_start": 0, "cursor_end": 0},
    ),
    "is_complete_request": types.SimpleNamespace(
        kind="is_complete_reply", find=is_complete, nothing={"status": "unknown"}
    ),
    "environment_request": types.SimpleNamespace(
        kind="environment_reply",
        find=environment,
        nothing={"python": "", "platform": "", "packages": {}},
    ),
    "effort_request": types.SimpleNamespace(
        kind="effort_reply", find=effort, nothing={"milliseconds": 0}
    ),
}
