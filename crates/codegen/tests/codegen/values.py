"""Uses the generated package `mcptools.demo` with values that are no JSON, and with null.

Arguments: the directory in which `mcptools` is, and the one of the runtime.
"""

import collections
import copy
import dataclasses
import datetime
import decimal
import enum
import json
import math
import pathlib
import pickle
import sys
import uuid

import numpy as np
import pandas as pd
import pydantic

sys.path[:0] = sys.argv[1:3]

import ipybox_runtime
from ipybox_runtime import ToolResult, ToolRunnerError, UnexpectedResultError

CALLS = []
ANSWER = {"value": {"whole": 1, "ratio": 1}}


def call_sync(self, tool_name, tool_args):
    # What goes over the connection.
    CALLS.append(json.loads(self._body({"tool_args": tool_args}))["tool_args"])
    return ANSWER["value"]


ipybox_runtime.ToolRunner.call_sync = call_sync

from mcptools.demo import listed, maybe, nulls, take


def check(expected, run=take.run, **fields):
    run(**fields)
    assert CALLS[-1] == expected, CALLS[-1]
    for name, value in expected.items():
        assert type(CALLS[-1][name]) is type(value), CALLS[-1]


def refused(run=take.run, **fields):
    count = len(CALLS)
    try:
        run(**fields)
    except (pydantic.ValidationError, ToolRunnerError) as error:
        assert len(CALLS) == count
        return str(error)
    raise AssertionError(f"accepted: {fields}")


class Colour(enum.Enum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


@dataclasses.dataclass
class Point:
    x: int
    y: str | None = None


class Model(pydantic.BaseModel):
    x_: int = pydantic.Field(1, alias="x")
    y: str = "d"


Pair = collections.namedtuple("Pair", "left right")

# The standard library.
moment = datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
check({"text": "2024-01-02T03:04:05Z"}, text=moment)
check({"text": "2024-01-02"}, text=datetime.date(2024, 1, 2))
check({"text": "PT1H"}, text=datetime.timedelta(hours=1))
identity = uuid.uuid4()
check({"text": str(identity)}, text=identity)
check({"text": "/a/b"}, text=pathlib.PurePosixPath("/a/b"))
check({"text": "é"}, text="é".encode())
check({"anything": "é"}, anything="é".encode())
assert "Base64" in refused(anything=b"\xff")
check({"text": "red", "colour": "red"}, text=Colour.RED, colour=Colour.RED)
check({"whole": 1, "ratio": 1}, whole=Number.ONE, ratio=Number.ONE)
# A decimal is the text that pydantic makes of it, and a number where no text belongs.
check({"text": "1.50"}, text=decimal.Decimal("1.50"))
check({"anything": ["1.50"]}, anything=[decimal.Decimal("1.50")])
check(
    {"whole": 3, "ratio": 1.5, "ratios": [2, 0.25]},
    whole=decimal.Decimal(3),
    ratio=decimal.Decimal("1.5"),
    ratios=[decimal.Decimal("2.0"), decimal.Decimal("0.25")],
)

# Arrays, of whatever holds items.
for items in (
    (1, 2),
    range(1, 3),
    {1: "", 2: ""}.keys(),
    iter([1, 2]),
    (n for n in (1, 2)),
):
    check({"numbers": [1, 2]}, numbers=items)
check({"numbers": [7]}, numbers={7})
check({"numbers": [7]}, numbers=frozenset({7}))
check({"numbers": [1, 2]}, numbers=collections.deque([1, 2]))
check(
    {"pair": [1, "a"], "anything": [1, "a"]}, pair=Pair(1, "a"), anything=Pair(1, "a")
)

# Objects, of whatever has members.
check({"point": {"x": 1}}, point=Point(1))
check(
    {"points": [{"x": 1, "y": "a"}, {"x": 2}]}, points=(Point(1, "a"), take.Point(x=2))
)
check({"point": {"x": 1, "y": "d"}}, point=Model())
check({"members": {"x": 1, "y": "d"}}, members=Model())
check({"anything": {"x": 1, "y": "d"}}, anything=Model())
check({"members": {"1": [{"x": 1, "y": None}]}}, members={1: (Point(1),)})

# The results of tools: of this package or another, declared or not.
ANSWER["value"] = {"whole": 7, "ratio": 0.5, "note": "n"}
result = take.run()
check(
    {"members": ANSWER["value"], "anything": ANSWER["value"]},
    members=result,
    anything=result,
)
text = ToolResult('{"x": 1}')
check(
    {"point": {"x": 1}, "members": {"x": 1}, "text": '{"x": 1}'},
    point=text,
    members=text,
    text=text,
)
check({"numbers": [1, 2]}, numbers=ToolResult("[1, 2]"))
check(
    {"members": {"a": 1}, "text": "Done."},
    members=ToolResult("Done.", ["Done."], {"a": 1}),
    text=ToolResult("Done."),
)

# numpy and pandas.
check(
    {"whole": 1, "ratio": 0.5, "text": "a", "flag": True, "either": 3},
    whole=np.int64(1),
    ratio=np.float32(0.5),
    text=np.str_("a"),
    flag=np.bool_(True),
    either=np.uint8(3),
)
check({"whole": 3, "ratio": 3}, whole=np.float64(3.0), ratio=np.int32(3))
check(
    {"numbers": [1, 2], "ratios": [0.5]},
    numbers=np.array([1, 2]),
    ratios=np.array([0.5]),
)
check({"numbers": [1, 2]}, numbers=[np.int64(1), np.int16(2)])
check({"point": {"x": 1}}, point={"x": np.int64(1)})
check({"anything": {"a": [1, [2]]}}, anything={"a": [np.int64(1), np.array([2])]})
check({"members": {"1": 2}}, members={np.int64(1): np.int64(2)})
check({"unique": [1, 2]}, unique=[np.int64(1), np.int64(2)])
assert "uniqueItems" in refused(unique=[np.int64(1), np.int64(1)])
check({"text": "2024-01-01T00:00:00"}, text=np.datetime64("2024-01-01T00:00:00", "ns"))
check({"text": "2024-01-01T00:00:00"}, text=pd.Timestamp("2024-01-01"))
check(
    {"numbers": [1, 2], "texts": ["a"]},
    numbers=pd.Series([1, 2]),
    texts=pd.Index(["a"]),
)
check({"texts": ["a", "b"]}, texts=pd.Series(["a", "b"], dtype="category"))
frame = pd.DataFrame(
    {"a": [1, 2], "b": [0.5, math.nan], "c": pd.to_datetime(["2024-01-01", None])}
)
rows = [{"a": 1, "b": 0.5, "c": "2024-01-01T00:00:00"}, {"a": 2, "b": None, "c": None}]
check({"rows": rows, "anything": rows}, rows=frame, anything=frame)
check({"anything": [None, None]}, anything=[pd.NaT, pd.NA])
assert take.Params(whole=np.int64(1)).whole == 1

# What was wrong still is, and says what of it.
assert "numbers.0\n  Input should be a valid integer" in refused(
    numbers=np.array(["a"])
)
for wrong in (
    {"whole": "3"},
    {"text": 3},
    {"numbers": "12"},
    {"whole": decimal.Decimal("1.5")},
    {"flag": np.int64(1)},
    {"ratio": np.float64("nan")},
    {"text": b"\xff"},
    {"point": object()},
    {"anything": object()},
    {"anything": math.nan},
):
    assert refused(**wrong), wrong
assert "`anything`" in refused(anything=object()) and "builtins.object" in refused(
    anything=object()
)

# By name and without a generated module.
runner = ipybox_runtime.ToolRunner("demo")
runner.call_sync(
    "take", {"a": np.int64(1), "b": {pathlib.PurePosixPath("/x")}, 1: Point(2)}
)
assert CALLS[-1] == {"a": 1, "b": ["/x"], "1": {"x": 2, "y": None}}

# Numbers that JSON does not have, as they arrive.
for whole, ratio, expected in (
    ("123456789012345678901", None, (123456789012345678901, math.nan)),
    ("-123456789012345678901", "-Infinity", (-123456789012345678901, -math.inf)),
    (5.0, "NaN", (5, math.nan)),
    (1e30, "123456789012345678901", (10**30 + 19884624838656, 123456789012345678901)),
):
    ANSWER["value"] = {"whole": whole, "ratio": ratio, "maybe": None, "ratios": [None]}
    result = take.run()
    assert result.whole == expected[0] and type(result.whole) is int
    assert (
        result.ratio == expected[1]
        or math.isnan(result.ratio)
        and math.isnan(expected[1])
    )
    assert result.maybe is None and math.isnan(result.ratios[0])
ANSWER["value"] = (
    '{"whole": 123456789012345678901, "ratio": NaN, "ratios": [-Infinity]}'
)
result = take.run()
assert result.whole == 123456789012345678901 and math.isnan(result.ratio)
assert result.ratios == [-math.inf]
for wrong in (
    {"whole": "12", "ratio": 1},
    {"whole": 1, "ratio": "x"},
    {"whole": None, "ratio": 1},
):
    ANSWER["value"] = wrong
    try:
        take.run()
    except UnexpectedResultError as error:
        assert error.result == wrong
    else:
        raise AssertionError(f"accepted: {wrong}")

# A result has its declared fields, and what the tool returned does not get lost.
ANSWER["value"] = {"whole": 1, "ratio": 2}
result = take.run()
fields = {"whole": 1, "ratio": 2, "ratios": None, "maybe": None, "note": None}
assert dict(result) == vars(result) == fields, vars(result)
for same in (
    result,
    copy.copy(result),
    copy.deepcopy(result),
    result.model_copy(),
    pickle.loads(pickle.dumps(result)),
):
    assert same == result and same.tool_result.structured == ANSWER["value"]

# null, where OpenAPI's `nullable` admits it.
ANSWER["value"] = None
for right in (
    {"text": None},
    {"text": "ab"},
    {
        "old": None,
        "colour": None,
        "person": None,
        "other": None,
        "point": None,
        "one": None,
        "branch": None,
    },
    {
        "old": 1,
        "colour": "red",
        "other": {"x": 1},
        "point": {"x": 1},
        "one": True,
        "branch": "a",
    },
    {"person": {"parent": {"parent": None}}},
    {"items": [1, None], "map": {"a": None, "b": "x"}},
):
    check(right, nulls.run, **right)
for wrong in (
    {"text": "a"},
    {"old": "1"},
    {"colour": "blue"},
    {"person": {}},
    {"point": {}},
    {"items": ["a"]},
):
    assert refused(nulls.run, **wrong), wrong
check({}, nulls.run, strict=None)
assert "-> Result | None" in nulls.__doc__ and "-> Result | None" in maybe.__doc__

# Results that are null, or hold it.
assert nulls.run() is None and maybe.run() is None
ANSWER["value"] = "null"
assert nulls.run() is None and maybe.run() is None
ANSWER["value"] = {"name": None, "owner": None}
result = nulls.run()
assert (result.name, result.owner) == (None, None)
ANSWER["value"] = {"name": "n", "owner": {"id": 1}}
assert nulls.run().owner.id == 1
ANSWER["value"] = ToolResult("", [], "text")
assert maybe.run().root == "text"
ANSWER["value"] = "Sorry."
try:
    nulls.run()
except UnexpectedResultError as error:
    assert error.result == "Sorry."
else:
    raise AssertionError

# A listed value is meant, whatever type stands beside it.
for right in (
    {"number": "1"},
    {"version": 2},
    {"mixed": None},
    {"mixed": 1},
    {"several": "x"},
    {"several": None},
    {"size": 3},
):
    check(right, listed.run, **right)
for wrong in (
    {"number": 1},
    {"version": "2"},
    {"mixed": "b"},
    {"several": 1},
    {"kind": "c"},
):
    assert refused(listed.run, **wrong), wrong
params = listed.Params()
assert (params.size, params.kind) == ("ten", "c")
check({}, lambda **fields: listed.run(params))
