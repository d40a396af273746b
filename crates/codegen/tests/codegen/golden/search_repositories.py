"""Search for repositories.

run(
 query: str, # What to search for
 sort: "stars" | "forks" | "updated-at" = None,
 order: "asc" | "desc" = "desc",
 per_page: int = 30,
 since: str = None, # format: date-time
 cursor: str = None,
) -> Result

Result(total: int, items: list[Item])
Item(full_name: str, stars: float = None, license: str = None)
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from . import CLIENT
from ._base import (
    Float,
    Int,
    Nullable,
    StrEnum,
    ToolModel,
    ToolModule,
    arguments,
    json_default,
    reply,
)


class Params(ToolModel, extra="forbid"):
    query: Annotated[str, Field(min_length=1)]
    """What to search for"""
    sort: Sort | None = None
    """Sort by this"""
    order: Order = json_default("desc")
    per_page: Annotated[Int, Field(ge=1, le=100)] = Field(default=30, alias="per-page")
    since: str | None = None  # format: date-time
    cursor: Nullable[str] = None


class Result(ToolModel):
    total: Int
    items: list[Item]


def run(params: Params | None = None, /, **fields: Any) -> Result:
    """Search for repositories.

    Use qualifiers such as `language:rust`; quote "exact phrases".
    """
    return reply(CLIENT.call_sync(tool_name="search_repositories", tool_args=arguments(Params, params, fields)), Result)


async def run_async(params: Params | None = None, /, **fields: Any) -> Result:
    """Do the same as `run`, asynchronously."""
    return reply(await CLIENT.call(tool_name="search_repositories", tool_args=arguments(Params, params, fields)), Result)


class Sort(StrEnum):
    stars = "stars"
    forks = "forks"
    updated_at = "updated-at"


class Order(StrEnum):
    asc = "asc"
    desc = "desc"


class Item(ToolModel):
    full_name: str
    stars: Float | None = None
    license: Nullable[str] = None


ToolModule.describe(__name__, run, run_async)
