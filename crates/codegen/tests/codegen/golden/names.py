"""Names that Python or pydantic would not take.

run(
 from_: str,
 list_: list[str],
 str_: str = None,
 field_id: int = None,
 field_2fa: bool = None,
 field_type: "thing" = None,
 schema_: Schema = None,
 a_b_1: str = None,
 a_b: str = None,
 A_b: str = None,
 field_: str = None,
 größe: float = None,
 field_le_name: str = None,
 Message_1: Message = None,
 field: FieldModel = None,
 kind: "" | "1st" | "class" | "mro" | "name" | "count" | "a b" | "a-b" | "A" = None,
 level: 1 | 2 = None,
 mixed: Any = None,
 values: Any = None,
) -> ToolResult

Schema(json_: str = None)
Message(text: str = None)
FieldModel(x: str = None)
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from . import CLIENT
from ._base import (
    Float,
    Int,
    IntEnum,
    Rule,
    StrEnum,
    ToolModel,
    ToolModule,
    ToolResult,
    arguments,
    reply,
)


class Params(ToolModel):
    from_: str = Field(alias="from")
    list_: list[str] = Field(alias="list")
    str_: str | None = Field(default=None, alias="str")
    field_id: Int | None = Field(default=None, alias="_id")
    field_2fa: bool | None = Field(default=None, alias="2fa")
    field_type: Literal["thing"] | None = Field(default=None, alias="@type")
    schema_: Schema | None = Field(default=None, alias="schema")
    a_b_1: str | None = Field(default=None, alias="a-b")
    a_b: str | None = None
    A_b: str | None = Field(default=None, alias="A-b")
    field_: str | None = Field(default=None, alias="")
    größe: Float | None = None
    field_le_name: str | None = Field(default=None, alias="ﬁle/name")
    Message_1: Message | None = Field(default=None, alias="Message")
    field: FieldModel | None = None
    kind: Kind | None = None
    level: Level | None = None
    mixed: Annotated[Any, Rule({"enum": ["on", 1, True, None]})] = None
    values: Annotated[Any, Rule({"enum": [1.5, {"a": 1}]})] | None = None


def run(params: Params | None = None, /, **fields: Any) -> ToolResult:
    """Names that Python or pydantic would not take."""
    return reply(CLIENT.call_sync(tool_name="names", tool_args=arguments(Params, params, fields)))


async def run_async(params: Params | None = None, /, **fields: Any) -> ToolResult:
    """Do the same as `run`, asynchronously."""
    return reply(await CLIENT.call(tool_name="names", tool_args=arguments(Params, params, fields)))


class Schema(ToolModel):
    json_: str | None = Field(default=None, alias="json")


class Message(ToolModel):
    text: str | None = None


class FieldModel(ToolModel):
    x: Annotated[str, Field(max_length=3)] | None = None


class Kind(StrEnum):
    field_ = ""
    field_1st = "1st"
    class_ = "class"
    mro_ = "mro"
    name = "name"  # pyright: ignore
    count = "count"  # pyright: ignore
    a_b = "a b"
    a_b_1 = "a-b"
    A = "A"


class Level(IntEnum):
    integer_1 = 1
    integer_2 = 2


ToolModule.describe(__name__, run, run_async)
