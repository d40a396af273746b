"""Arrays, unions, maps and references.

run(
 tree: Node,
 shape: Shape | Shape1 = None,
 addresses: list[Address] = None,
 point: tuple[float, float] = None,
 tags: list["a" | "b"] = ["a"],
 labels: dict[str, str] = None,
 headers: dict[str, str] = None,
 limits: Limits = None,
 all: All = None,
 mode: "fast" | "slow" = None,
 code: str = None,
 script: str = None,
 ratio: float = None,
 anything: Any = None,
) -> ToolResult

Node(value: str | list[str | list[str | list[str | list[Json]]]], children: list[Node] = None)
Shape(type: "circle", radius: float)
Shape1(type: "square", side: float)
Address(city: str = None)
Limits(cpu: float = None)
All(name: str, age: int)
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from . import CLIENT
from ._base import (
    Float,
    FromList,
    Int,
    OpenModel,
    Rule,
    StrEnum,
    ToolModel,
    ToolModule,
    ToolResult,
    ToolRoot,
    arguments,
    json_default,
    reply,
)


class Params(ToolModel, rules={"properties": {"never": False}, "dependentRequired": {"code": ["script"]}}):
    tree: Node
    shape: Annotated[Shape | Shape1, Field(discriminator="type")] | None = None
    addresses: Annotated[list[Address], Field(min_length=1)] | None = None
    point: Annotated[tuple[Float, Float], FromList] | None = None
    tags: Annotated[list[Tag], Rule({"uniqueItems": True})] = json_default(["a"])
    labels: dict[str, str] | None = None
    headers: dict[Annotated[str, Field(pattern="^X-")], str] | None = None
    limits: Limits | None = None
    all: All | None = None
    mode: Mode | None = None
    code: Annotated[str, Field(pattern=r"^[0-9]{3}(?P<suffix>[a-z])?\Z")] | None = None
    script: str | None = None  # pattern `^\p{Lu}` is not checked: Python has no Unicode property classes
    ratio: Annotated[Float, Field(gt=0), Rule({"multipleOf": 0.01})] | None = None
    anything: Any = None


def run(params: Params | None = None, /, **fields: Any) -> ToolResult:
    """Arrays, unions, maps and references."""
    return reply(CLIENT.call_sync(tool_name="shapes", tool_args=arguments(Params, params, fields)))


async def run_async(params: Params | None = None, /, **fields: Any) -> ToolResult:
    """Do the same as `run`, asynchronously."""
    return reply(await CLIENT.call(tool_name="shapes", tool_args=arguments(Params, params, fields)))


class Node(ToolModel):
    """A node and all below it."""

    value: Json
    children: list[Node] | None = None


class Json(ToolRoot):
    root: str | list[Json]


class Shape(ToolModel):
    type: Literal["circle"]
    radius: Float


class Shape1(ToolModel):
    type: Literal["square"]
    side: Float


class Address(ToolModel):
    city: str | None = None


class Tag(StrEnum):
    a = "a"
    b = "b"


class Limits(OpenModel):
    __pydantic_extra__: dict[str, Int]
    cpu: Float | None = None


class All(ToolModel):
    name: str
    age: Int


class Mode(StrEnum):
    fast = "fast"
    slow = "slow"


ToolModule.describe(__name__, run, run_async)
