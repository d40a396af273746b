"""Uses the generated package `mcptools.demo` in the directory of the first argument as its users would."""

import asyncio
import sys
import types
import warnings

from pydantic import ValidationError

CALLS = []
ANSWER = {"value": "text"}


class ToolRunner:
    def __init__(self, server_name):
        assert server_name == "demo"

    def run_sync(self, tool_name, tool_args):
        CALLS.append((tool_name, tool_args))
        return ANSWER["value"]

    async def run(self, tool_name, tool_args):
        return self.run_sync(tool_name, tool_args)


runtime = types.ModuleType("ipybox_runtime")
runtime.ToolRunner = ToolRunner
for error in (
    "ToolRunnerError",
    "ApprovalRejectedError",
    "ApprovalTimeoutError",
    "UnexpectedResultError",
):
    setattr(runtime, error, type(error, (Exception,), {}))
sys.modules["ipybox_runtime"] = runtime
sys.path.insert(0, sys.argv[1])
warnings.simplefilter("error")

from mcptools.demo import ToolRunnerError, anything, closed, either, patterns, send
from mcptools.demo._base import UnknownArgumentWarning


def sent(run, *args, **fields):
    run(*args, **fields)
    return CALLS[-1][1]


def refused(call, *args, **fields):
    count = len(CALLS)
    try:
        call(*args, **fields)
    except ValidationError as error:
        assert len(CALLS) == count
        return str(error)
    raise AssertionError(f"accepted: {args} {fields}")


# What is sent is what was given: wire names, nothing added, formats untouched.
given = {
    "to": "x",
    "from": "A@B.org",
    "resource-group": "g",
    "when": "2024-05-06T07:08:09.123Z",
    "score": 3,
}
assert sent(send.run, send.Params(**given)) == given
assert sent(send.run, send.Params.model_validate(given)) == given
assert sent(send.run, **given) == given
assert sent(send.run, given) == given
assert type(sent(send.run, to="x", score=3)["score"]) is int
assert type(sent(send.run, to="x", score=3.0)["score"]) is float
assert sent(send.run, to="x", limit=3.0) == {"to": "x", "limit": 3}
assert CALLS[-1][0] == "send"

# Python's names do as well as the wire's.
assert sent(send.run, to="x", from_="a", resource_group="g") == {
    "to": "x",
    "from": "a",
    "resource-group": "g",
}

# Enums by member or by value; fields hold the value.
assert sent(send.run, to="x", sort=send.Sort.forks) == {"to": "x", "sort": "forks"}
assert sent(send.run, to="x", sort="forks") == {"to": "x", "sort": "forks"}
assert send.Params(to="x", sort=send.Sort.forks).sort == "forks" == send.Sort.forks
assert "stars" in refused(send.Params, to="x", sort="size")

# Defaults can be read and are not sent; None is unset where null is not possible, and sent where it is.
params = send.Params(to="x", limit=None, sort=None, note=None)
assert (params.limit, params.sort) == (10, "stars")
assert sent(send.run, params) == {"to": "x", "note": None}
params.limit = 5
params.note = "n"
assert sent(send.run, params) == {"to": "x", "note": "n", "limit": 5}
params.limit = None
assert sent(send.run, params) == {"to": "x", "note": "n"}
params.nested = send.Nested(depth=1)
assert sent(send.run, params)["nested"] == {"depth": 1}
assert refused(send.Params, to=None)

# A field called like the parameter of run.
assert sent(send.run, to="x", params={"a": 1}) == {"to": "x", "params": {"a": 1}}
assert sent(send.run, params=send.Params(to="x")) == {"to": "x"}

# Values are not converted.
for wrong in (
    {"to": 1},
    {"to": "x", "limit": "3"},
    {"to": "x", "limit": 0},
    {"to": "x", "score": True},
    {"to": "x", "when": "1"},
):
    assert refused(send.Params, **wrong)
assert refused(send.run, to="x", score=float("nan"))

# A misspelt argument is told.
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert sent(send.run, to="x", limitt=3, nested={"dept": 1}) == {
        "to": "x",
        "limitt": 3,
        "nested": {"dept": 1},
    }
assert [w.category for w in caught] == [UnknownArgumentWarning] * 2
assert (
    "did you mean 'limit'?" in str(caught[0].message)
    and caught[0].filename == "<string>"
)
assert "extra" in refused(closed.Params, c="x").lower()

# Results.
ANSWER["value"] = {"id": 1, "state": "open", "new": [1], "gone": None}
result = send.run(to="x")
assert (result.id, result.state, result.new, result.gone) == (1, "open", [1], None)
assert result.state == send.State.open
assert result.model_dump(exclude_unset=True) == {"id": 1, "state": "open", "new": [1]}
assert asyncio.run(send.run_async(send.Params(to="x"))).id == 1
ANSWER["value"] = {"id": "no"}
try:
    send.run(to="x")
    raise AssertionError("accepted")
except ValidationError:
    pass
ANSWER["value"] = "text"
assert send.run(to="x") == closed.run() == "text"

# Rules beyond types.
assert "dependentRequired" in refused(closed.Params, a="x")
assert sent(closed.run, a="x", b="y") == {"a": "x", "b": "y"}
assert sent(either.run, path="p") == {"path": "p"}
assert refused(either.Params, text="t") and refused(either.Params, path="p", url="u")
assert sent(anything.run) == {} and sent(anything.run, a=1) == {"a": 1}
for right in (
    {"digits": "x1"},
    {"pair": ["a", 1]},
    {"unique": [1, 2]},
    {"cents": 0.07},
    {"one": True},
    {"one": None},
    {"flag": True},
    {"map": {"x-1": 1, "id": "i"}},
    {"tree": [[], [[]]]},
):
    assert sent(patterns.run, **right) == right, right
for wrong in (
    {"digits": "1\n"},
    {"digits": "\u0661"},
    {"pair": [1, "a"]},
    {"pair": ["a"]},
    {"unique": [1, 1.0]},
    {"cents": 0.075},
    {"one": 3},
    {"map": {"x-1": "s"}},
    {"map": {"y": 1}},
    {"tree": [1]},
):
    assert refused(patterns.Params, **wrong), wrong
assert issubclass(ToolRunnerError, Exception)
