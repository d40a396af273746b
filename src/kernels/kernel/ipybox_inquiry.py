"""What a person who writes code asks: how it could go on, and whether it is complete. IPython decides."""

import types

# How many completions are sent, and how long one may be, in characters.
MATCHES = 200
MATCH_CHARS = 200


def complete(shell, code, cursor_pos):
    """How the code could go on at the position, in characters."""
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
    """Whether the code is complete."""
    status, _indent = shell.input_transformer_manager.check_complete(code)
    return {"status": status}


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
}
