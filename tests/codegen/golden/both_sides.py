from __future__ import annotations

from typing import Any

from . import CLIENT
from ._base import Int, ToolModel, ToolRoot, arguments, reply


class Params(ToolModel):
    item: Item | None = None
    owner: Owner | None = None
    result: ResultModel | None = None


class Result(ToolRoot):
    root: ResultParams | Result1


def run(params: Params | None = None, /, **fields: Any) -> Result:
    """Ends in a quote: "so\""""
    return reply(CLIENT.run_sync(tool_name="both_sides", tool_args=arguments(Params, params, fields)), Result)


async def run_async(params: Params | None = None, /, **fields: Any) -> Result:
    """Do the same as `run`, asynchronously."""
    return reply(await CLIENT.run(tool_name="both_sides", tool_args=arguments(Params, params, fields)), Result)


class Item(ToolModel):
    id: Int | None = None


class Owner(ToolModel):
    name: str | None = None


class ResultModel(ToolModel):
    x: Int | None = None


class ResultParams(ToolModel):
    item: ResultItem


class ResultItem(ToolModel):
    id: str | None = None


class Result1(ToolModel):
    owner: Owner
