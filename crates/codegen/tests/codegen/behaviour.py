"""Uses the generated package `mcptools.demo` as its users would.

Arguments: the directory in which `mcptools` is, and the one of the runtime.
"""

import asyncio
import inspect
import pickle
import pydoc
import sys
import warnings

from pydantic import ValidationError

sys.path[:0] = sys.argv[1:3]
warnings.simplefilter("error")

import ipybox_runtime
from ipybox_runtime import Image, ToolResult, UnexpectedResultError

CALLS = []
ANSWER = {"value": {"id": 1}}


def call_sync(self, tool_name, tool_args):
    assert self.server_name == "demo"
    CALLS.append((tool_name, tool_args))
    return ANSWER["value"]


async def call(self, tool_name, tool_args):
    return self.call_sync(tool_name, tool_args)


ipybox_runtime.ToolRunner.call_sync = call_sync
ipybox_runtime.ToolRunner.call = call

from mcptools.demo import (
    ToolRunnerError,
    anything,
    branches,
    closed,
    code,
    either,
    endless,
    patterns,
    send,
    shapes,
    state,
    strict,
    table_row,
)
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

# A default that is in itself ends.
assert sent(endless.run, tree={"size": 1}) == {"tree": {"size": 1}}
assert endless.Params(tree={}).tree.left.size is None

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

# A field called like the parameter for all others.
given = {"table": "t", "fields": {"a": 1}, "fields_1": 2, "other": "x"}
assert sent(table_row.run, **given) == given
assert (
    str(inspect.signature(table_row.run))
    == "(*, table: str, fields: dict[str, Any] = None, fields_1: int = None, **fields_2: str) -> ToolResult"
)

# Names that the code gives to its own things mean nothing to modules, whatever is used first.
Circle = Square = Loose = "the code's own"
assert shapes.Params(shape={"kind": "circle", "radius": 1}).shape.radius == 1

# What an object is, is sent, although the schema calls it a default: servers choose by it.
given = {"shape": {"kind": "square", "side": 2}}
assert sent(shapes.run, shape=shapes.Square(side=2)) == given
assert sent(shapes.run, **given) == given
assert "'circle', 'square'" in refused(shapes.Params, shape={"kind": "oval"})
assert sent(shapes.run, loose={"x": 1}) == {"loose": {"x": 1}}
assert "\nloose.x\n" in refused(shapes.Params, loose={"kind": "a", "x": "no"})

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

# A misspelt argument is reported.
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
assert ".send.run(to: str" in str(caught[0].message), str(caught[0].message)
message = refused(closed.Params, c="x")
assert "; it is called by mcptools.demo.closed.run(a: str" in message, message
assert "Extra inputs are not permitted; the fields are: a, b" in message, message
message = refused(closed.run, aa="x", b="y")
assert "did you mean 'a'?" in message and "https://" not in message, message
message = refused(send.run, tO="x")
assert "Field required; 'tO' is no field" in message, message
# Within other models too.
assert "did you mean 'deep'?" in refused(closed.Params, a="x", b="y", inner={"dep": 1})

# Results.
ANSWER["value"] = {"id": 1, "state": "open", "new": [1], "gone": None}
result = send.run(to="x")
assert (result.id, result.state, result.new, result.gone) == (1, "open", [1], None)
assert result.state == send.State.open
assert result.model_dump(exclude_unset=True) == {"id": 1, "state": "open", "new": [1]}
assert asyncio.run(send.run_async(send.Params(to="x"))).id == 1
assert result == send.Result.model_validate(ANSWER["value"])
assert result.tool_result.structured == ANSWER["value"]
assert pickle.loads(pickle.dumps(result)) == result


def unexpected(value):
    """The error for a result that is not what the tool declares. It has run, and that shows."""
    ANSWER["value"] = value
    for call in (
        lambda: send.run(to="x"),
        lambda: asyncio.run(send.run_async(to="x")),
    ):
        count = len(CALLS)
        try:
            call()
        except UnexpectedResultError as error:
            assert len(CALLS) == count + 1 and "the tool has run" in str(error), error
            assert not isinstance(error, ValidationError)
        else:
            raise AssertionError(f"accepted: {value!r}")
    try:
        send.run(to="x")
    except UnexpectedResultError as error:
        return error


error = unexpected({"id": "no", "extra": 1})
assert error.result == {"id": "no", "extra": 1}
assert "id: Input should be a valid integer" in str(error)
assert "https://" not in str(error)
error = unexpected("text")
assert error.result == "text" and isinstance(error.result, ToolResult)
assert unexpected(None).result is None
assert unexpected([1]).result == [1]
assert unexpected({}).result == {}

# Results that are one of some values.
for tool, values in ((state, ["open", "shut"]), (code, ["a", 1])):
    for value in values:
        ANSWER["value"] = ToolResult("", [], value)
        assert tool.run().root == value
assert state.Result.model_validate(None).root is None

# A declared result that comes as text.
ANSWER["value"] = '{"id": 5}'
assert send.run(to="x").id == 5
ANSWER["value"] = 'Sent:\n{"id": 6}\nBye.'
assert send.run(to="x").id == 6

# A tool that declares nothing returns text, whatever it sends.
for value, text, structured in (
    ("text", "text", None),
    (None, "", None),
    ({"a": "é"}, '{"a": "é"}', {"a": "é"}),
    ([1], "[1]", [1]),
    (ToolResult("x", ["x"], 5), "x", 5),
):
    ANSWER["value"] = value
    result = closed.run()
    assert type(result) is ToolResult and result == text, result
    assert result.structured == structured

# Attachments come with either.
picture = Image(b"abc", "image/png")
ANSWER["value"] = ToolResult("see", ["see", picture])
result = closed.run()
assert result == "see" and result.attachments == (picture,)
assert str(result) == "see\n<Image image/png, 3 bytes>" == f"{result}"
assert repr(result) == "<ToolResult 'see' with <Image image/png, 3 bytes>>"
copy = pickle.loads(pickle.dumps(result))
assert copy == "see" and copy.attachments[0].data == b"abc"
ANSWER["value"] = ToolResult("", [picture], {"id": 1})
result = send.run(to="x")
assert result.id == 1 and result.tool_result.attachments == (picture,)
assert "<Image image/png, 3 bytes>" in repr(result)
assert result == send.Result(id=1) and result.model_dump(exclude_unset=True) == {
    "id": 1
}
assert send.Result(id=1).tool_result is None
ANSWER["value"] = "text"

# Defaults are what the field is declared as, are not sent, and are sent when they were changed.
params = closed.Params()
assert params.inner == closed.Inner(deep=3) and params.inner.deep == 3
assert params.many[0].deep == 4 and params.wrong == ["as", 1]
assert sent(closed.run, params) == {}
params.inner.deep = 7
assert sent(closed.run, params) == {"inner": {"deep": 7}}
assert patterns.Params().named[0].name == "2" and patterns.Params().digit == "1"
params = closed.Params()
params.many.append(closed.Inner(deep=5))
assert sent(closed.run, params) == {"many": [{"deep": 4}, {"deep": 5}]}

# A module says how its tool is called.
expected = """Send.

run(
 to: str, # The receiver, in full
 from_: str = None, # format: email
 resource_group: str = None,
 sort: "stars" | "forks" = "stars",
 limit: int = 10,
 score: float = None,
 when: str = None, # format: date-time
 note: str = None,
 nested: Nested = None,
 params: dict[str, int] = None,
) -> Result

Nested(depth: int = None)
Result(id: int, state: "open" | "closed" = None, gone: str = None)"""
assert send.__doc__.strip() == expected, send.__doc__
assert str(send) == f"mcptools.demo.send\n\n{expected}"
signature = inspect.signature(send.run)
assert str(signature).startswith("(*, to: str, from_: str = None,"), signature
assert (
    str(signature).endswith(") -> Result")
    and inspect.signature(send.run_async) == signature
)
assert str(inspect.signature(anything.run)) == "(**fields: Any) -> ToolResult"
help_text = pydoc.render_doc(send.Params, renderer=pydoc.plaintext)
assert "The receiver, in full." in help_text and len(help_text) < 3_000, help_text
assert "The receiver, in full." in send.Params.__doc__
assert set(dir(send.Params)) == {*send.Params.model_fields, "tool_result"}
assert "forks" in pydoc.render_doc(send.Sort, renderer=pydoc.plaintext)

# So does the package of its tools, which are imported when they are wanted.
import mcptools.demo

del sys.modules["mcptools.demo.either"], mcptools.demo.either
assert mcptools.demo.either.run is sys.modules["mcptools.demo.either"].run
assert "send: Send." in str(mcptools.demo) and "send" in dir(mcptools.demo)
try:
    closed.run(a=mcptools.demo.sent)
except AttributeError as wrong:
    assert "no tool 'sent'; did you mean 'send'?" in str(wrong)
    assert "print(mcptools.demo)" in str(wrong)
assert not hasattr(mcptools.demo, "_base_") and not hasattr(
    mcptools.demo, "__wrapped__"
)

# Rules beyond types.
assert "dependentRequired" in refused(closed.Params, a="x")
assert sent(closed.run, a="x", b="y") == {"a": "x", "b": "y"}
assert sent(either.run, path="p") == {"path": "p"}
assert refused(either.Params, text="t") and refused(either.Params, path="p", url="u")
assert sent(anything.run) == {} and sent(anything.run, a=1) == {"a": 1}
assert sent(anything.run, root={"a": 1}) == {"root": {"a": 1}}
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
for right in (
    {"": "x"},
    {"big": 9223372036854775808},
    {"short": "a"},
    {"picked": "b"},
    {"state": None},
    {"empty": []},
    {"row": ["ab", 1]},
    {"some": 1},
    {"half": None},
    {"none": None},
    {"whole": {"a": "x"}},
    {"circle": "x"},
):
    assert sent(strict.run, **right) == right, right
for wrong in (
    {"big": 2},
    {"short": "bb"},
    {"three": 3},
    {"picked": "a"},
    {"picked": "c"},
    {"state": "off"},
    {"empty": [1]},
    {"row": ["ab", "c"]},
    {"row": ["a"]},
    {"some": None},
    {"none": 1},
    {"whole": {"b": "x"}},
):
    assert refused(strict.Params, **wrong), wrong
assert sent(strict.run, **{"": None}) == {}
# Arguments that are a union: what holds for all of them, and which go together.
for right in ({"kind": "a", "x": "p"}, {"kind": "b", "b": {}}):
    assert sent(branches.run, **right) == right, right
for wrong in (
    {"kind": "a"},
    {"kind": "a", "x": "r"},
    {"kind": "b", "b": "text"},
    {"kind": "a", "x": "p", "b": {}, "y": 1},
):
    assert refused(branches.Params, **wrong), wrong
assert issubclass(ToolRunnerError, Exception)
