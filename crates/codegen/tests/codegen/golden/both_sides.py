"""Ends in a quote: "so"

run(item: Item = None, owner: Owner = None, result: ResultModel = None) -> Result

Item(id: int = None)
Owner(name: str = None)
ResultModel(x: int = None)
Result = ParamsModel | Result1
ParamsModel(item: ResultItem)
Result1(owner: Owner)
ResultItem(id: str = None)
"""

from __future__ import annotations

from typing import Any

from . import CLIENT
from ._base import Int, ToolModel, ToolModule, ToolRoot, arguments, reply


class Params(ToolModel):
    item: Item | None = None
    owner: Owner | None = None
    result: ResultModel | None = None


class Result(ToolRoot):
    root: ParamsModel | Result1


def run(params: Params | None = None, /, **fields: Any) -> Result:
    """Ends in a quote: "so\""""
    return reply(CLIENT.call_sync(tool_name="both_sides", tool_args=arguments(Params, params, fields)), Result)


async def run_async(params: Params | None = None, /, **fields: Any) -> Result:
    """Do the same as `run`, asynchronously."""
    return reply(await CLIENT.call(tool_name="both_sides", tool_args=arguments(Params, params, fields)), Result)


class Item(ToolModel):
    id: Int | None = None


class Owner(ToolModel):
    name: str | None = None


class ResultModel(ToolModel):
    x: Int | None = None


class ParamsModel(ToolModel):
    item: ResultItem


class ResultItem(ToolModel):
    id: str | None = None


class Result1(ToolModel):
    owner: Owner


ToolModule.describe(__name__, run, run_async)
