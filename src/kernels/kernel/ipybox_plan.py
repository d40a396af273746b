"""Gathers the calls that a cell is about to make, so that a user can be asked about all of them in one question.

The host trusts none of this: it shows a user what is proposed, and decides about each call when it comes. Standard library
only.
"""

import ast
import json
import re
from contextlib import contextmanager

# The most different calls of a plan, and the most values of a loop that become a call each. A user reads them all.
MOST_CALLS = 20
MOST_VALUES = 10
# The number of calls in a loop whose end is not known.
LOOP_COUNT = 50
# The most calls of one kind. The host has the same limit.
MOST_COUNT = 1000
# A beginning of a name is long enough with so many letters or digits.
LEAST_PREFIX = 3
ANY = {"any": {}}
PLAIN = (str, int, float, bool)
# No constant.
UNKNOWN = object()


class Loop:
    """Code that may run several times: the body of a loop, a comprehension or a function."""

    def __init__(self, name=None, values=None, numbers=None, count=LOOP_COUNT):
        # The variable, and its values: one by one, or the least and the largest number.
        self.name, self.values, self.numbers = name, values, numbers
        self.count = count


class CellPlan:
    """The calls of a cell, as its code says them."""

    def __init__(self, bindings, names):
        self._bindings, self._names = bindings, names
        self._loops = []
        self._calls = {}

    @contextmanager
    def loop(self, target=None, iterable=None):
        """Note calls in code that may run several times."""
        self._loops.append(self._loop(target, iterable))
        yield
        self._loops.pop()

    def note(self, server, module, node):
        """Note a call of a tool by keyword arguments."""
        names = [keyword.arg for keyword in node.keywords]
        if len(self._calls) > MOST_CALLS:
            return
        if node.args or None in names or "params" in names or not module.tool_name:
            return
        given = {
            module.argument(keyword.arg): keyword.value
            for keyword in node.keywords
            # An optional argument that is not sent.
            if not is_none(keyword.value)
        }
        loop = self._listing_loop(given.values())
        count = 1
        for each in self._loops:
            count *= 1 if each is loop else each.count
        # Each value of the list has its own call.
        for value in loop.values if loop else [UNKNOWN]:
            known = {} if loop is None else {loop.name: value}
            arguments = {
                name: self._pattern(argument, known) for name, argument in given.items()
            }
            self._add(server, module.tool_name, arguments, count)

    def _add(self, server, tool, arguments, count):
        key = (server, tool, json.dumps(arguments, sort_keys=True))
        call = self._calls.setdefault(
            key,
            {
                "server_name": server,
                "tool_name": tool,
                "arguments": arguments,
                "count": 0,
                "life": "cell",
            },
        )
        call["count"] = min(call["count"] + count, MOST_COUNT)

    def calls(self):
        """The calls, if they are several, and few enough to be read."""
        calls = [call for call in self._calls.values() if call["count"]]
        is_several = sum(call["count"] for call in calls) > 1
        return calls if is_several and len(calls) <= MOST_CALLS else []

    # Loops

    def _loop(self, target, iterable):
        name = target.id if isinstance(target, ast.Name) else None
        if name is not None and not self._bindings.is_of_loops(name):
            name = None
        numbers = range_of(iterable, self._constant)
        if numbers is not None:
            bounds = (min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1]))
            return Loop(name, None, bounds if numbers else None, len(numbers))
        values = self._constant(iterable) if iterable is not None else UNKNOWN
        if not isinstance(values, list):
            return Loop()
        is_short = name is not None and len(values) <= MOST_VALUES
        return Loop(name, values if is_short else None, None, len(values))

    def _listing_loop(self, arguments):
        """The innermost loop over a list whose variable is in an argument."""
        loops = [loop for loop in reversed(self._loops) if loop.values]
        nodes = (node for each in arguments for node in ast.walk(each) if loops)
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        return next((loop for loop in loops if loop.name in used), None)

    # Arguments

    def _pattern(self, node, known):
        """The values that an argument will have, as a pattern of a grant."""
        value = self._constant(node, known)
        if value is not UNKNOWN:
            return {"equal": value}
        if isinstance(node, ast.Name):
            for loop in reversed(self._loops):
                if loop.name == node.id and loop.numbers:
                    return {
                        "between": dict(zip(("min", "max"), loop.numbers, strict=True))
                    }
        return pattern_of_text(*self._ends(node, known))

    def _constant(self, node, known={}):  # noqa: B006 - never changed
        """The value of an expression, if it is certain to have one; else `UNKNOWN`."""
        if isinstance(node, ast.Constant):
            is_plain = node.value is None or type(node.value) in PLAIN
            return node.value if is_plain else UNKNOWN
        if isinstance(node, ast.Name):
            return known[node.id] if node.id in known else self._variable(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._constant(node.operand, known)
            return -value if type(value) in (int, float) else UNKNOWN
        if isinstance(node, (ast.List, ast.Tuple)):
            items = [self._constant(item, known) for item in node.elts]
            return UNKNOWN if UNKNOWN in items else items
        if isinstance(node, ast.Dict):
            keys = [self._constant(key, known) for key in node.keys]
            values = [self._constant(value, known) for value in node.values]
            is_json = all(type(key) is str for key in keys) and UNKNOWN not in values
            return dict(zip(keys, values, strict=True)) if is_json else UNKNOWN
        begin, end = self._ends(node, known)
        return begin if end is None else UNKNOWN

    def _variable(self, name):
        """The value of a variable that the cell, or an earlier one, has given it once."""
        statement = self._bindings.value(name)
        if statement is not None:
            return self._constant(statement.value)
        # A cell that binds it may bind it anew.
        is_earlier = self._bindings.target(name) is False
        value = self._names.get(name) if is_earlier else None
        return value if type(value) in PLAIN else UNKNOWN

    def _ends(self, node, known):
        """The beginning and the end of a text; the end is None if the beginning is all of it."""
        if isinstance(node, ast.JoinedStr):
            parts = [self._part(part, known) for part in node.values]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = [self._constant(part, known) for part in (node.left, node.right)]
            if not any(type(part) is str for part in parts):
                return "", ""
        else:
            return "", ""
        gaps = [index for index, part in enumerate(parts) if type(part) is not str]
        if not gaps:
            return "".join(parts), None
        return "".join(parts[: gaps[0]]), "".join(parts[gaps[-1] + 1 :])

    def _part(self, part, known):
        """The text of a part of an f-string."""
        if isinstance(part, ast.Constant):
            return part.value
        value = self._constant(part.value, known)
        is_plain = part.conversion == -1 and part.format_spec is None
        return str(value) if is_plain and type(value) in (str, int) else UNKNOWN


def is_none(node):
    return isinstance(node, ast.Constant) and node.value is None


def range_of(node, constant):
    """The numbers of `range(…)`, if they are certain."""
    is_range = (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "range"
        and 1 <= len(node.args) <= 3
        and not node.keywords
    )
    limits = [constant(each) for each in node.args] if is_range else []
    if not limits or any(type(each) is not int for each in limits):
        return None
    numbers = range(*limits) if limits[2:] != [0] else range(0)
    return numbers if numbers else None


def pattern_of_text(begin, end):
    """The narrowest pattern of texts with this beginning and this end."""
    if "@" in end and "@" not in begin:
        return {"domain": end.rpartition("@")[2].lower()}
    origin = re.match(r"https?://[a-z0-9.-]+(:[0-9]+)?(?=/)", begin)
    if origin:
        return {"origin": origin[0]}
    if re.search(r"\s|://", begin + end):
        return ANY
    directory = begin.rpartition("/")[0]
    if directory:
        return {"within": directory}
    prefix = re.match(r"(.*[-_/.:#])?", begin)[0]
    is_long = len(re.findall("[A-Za-z0-9]", prefix)) >= LEAST_PREFIX
    return {"prefix": prefix} if is_long and prefix.isascii() else ANY


class Announcer:
    """Sends plans to the host, unless it takes none."""

    def __init__(self):
        self._is_wanted = True

    def announce(self, plan):
        calls = plan.calls()
        if not calls or not self._is_wanted:
            return
        import ipybox_runtime

        try:
            self._is_wanted = ipybox_runtime.ask_host("/plan", {"calls": calls})
        except ipybox_runtime.ToolRunnerError:
            # The user is asked about each call when it comes.
            return


announce = Announcer().announce
