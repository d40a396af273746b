"""Answers about code that a person is writing: its completions, and whether it is complete; IPython decides. About the
Python that runs it, and how much that works."""

import contextlib
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
    """The processor time of this process and those that it has started, and how long they have waited for a processor,
    in milliseconds."""
    interval = sys.getswitchinterval()
    # Where threads work, each file would take several of their turns.
    sys.setswitchinterval(1e-5)
    try:
        return measured_effort()
    finally:
        sys.setswitchinterval(interval)


def measured_effort():
    parents = {}
    ticks = {}
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
            ticks[int(name)] = sum(map(int, words[11:15]))
    own = os.getpid()
    spent = sum(os.times()[:4])
    waited = processor_wait(own)
    for process, parent in parents.items():
        ancestor = parent
        while ancestor not in (0, 1, own):
            ancestor = parents.get(ancestor, 0)
        if ancestor == own:
            spent += ticks[process] / os.sysconf("SC_CLK_TCK")
            waited += processor_wait(process)
    return {"spent": round(spent * 1000), "waited": round(waited * 1000)}


def processor_wait(process):
    """The seconds for which the threads of a process could have run and had no processor, if the system says so."""
    nanoseconds = 0
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            with (
                contextlib.suppress(OSError),
                open(f"/proc/{process}/task/{thread}/schedstat") as file,
            ):
                nanoseconds += int(file.read().split()[1])
    return nanoseconds / 1e9


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
        kind="effort_reply", find=effort, nothing=None
    ),
}
