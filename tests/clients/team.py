"""A client of a team server: begins, lists, runs cells, answers a question and ends, over the official SDK's 1.x or 2.x line.

URL=… TOKEN=… team.py legacy|auto
"""

import asyncio
import contextlib
import os
import sys

import mcp
from mcp import types
from session import IS_SDK_2, Session

if IS_SDK_2:
    import httpx2 as httpx
    from mcp.client.streamable_http import streamable_http_client
else:
    import httpx
    from mcp.client.streamable_http import streamable_http_client

asked = []


async def decline(_context, params):
    asked.append(params.message)
    return types.ElicitResult(action="decline")


@contextlib.asynccontextmanager
async def connect(mode):
    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}"}
    async with httpx.AsyncClient(headers=headers, timeout=300) as http:
        transport = streamable_http_client(os.environ["URL"], http_client=http)
        if IS_SDK_2:
            async with mcp.Client(
                transport, mode=mode, cache=None, elicitation_callback=decline
            ) as client:
                expected = {"legacy": "2025-11-25", "auto": "2026-07-28"}[mode]
                assert client.protocol_version == expected, client.protocol_version
                yield Session(client, expected)
        else:
            async with (
                transport as (read, write, _),
                mcp.ClientSession(
                    read, write, elicitation_callback=decline
                ) as connection,
            ):
                begun = await connection.initialize()
                yield Session(connection, begun.protocolVersion)


async def main(mode):
    async with connect(mode) as session:
        names = {tool["name"] for tool in await session.tools()}
        assert "execute_ipython_cell" in names, names
        for code, shown in [("x = 6; x", "6"), ("x * 7", "42")]:
            outcome = await session.cell(code)
            assert not outcome.is_error, outcome
            assert outcome.text.endswith(shown), outcome
        outcome = await session.call(
            "install_package", {"package_name": "nothing-of-this-name"}
        )
        assert asked, f"no question came: {outcome}"
        assert "rejected" in outcome.text, outcome


asyncio.run(main(sys.argv[1]))
