"""An application that uses the Python library, for the tests of the wheel: `application.py TIME_SERVER`.

Prints a time in Tokyo, and whether the kernel runs by the application's own Python.
"""

import asyncio
import sys
from pathlib import Path

from ipybox_rs import ApprovalRequest, CodeExecutor, generate_mcp_sources

CODE = """
import sys
from mcptools.time import convert_time
print(convert_time.run(source_timezone='UTC', time='12:00', target_timezone='Asia/Tokyo'))
print(sys.prefix)
"""


async def main():
    params = {"command": sys.argv[1], "args": ["--local-timezone=UTC"]}
    await generate_mcp_sources("time", params, Path("mcptools"))
    async with CodeExecutor() as executor:
        async for item in executor.stream(CODE):
            if isinstance(item, ApprovalRequest):
                assert item.tool_name == "convert_time", item
                await item.accept()
    print(item.text)
    print(item.text.endswith("\n" + sys.prefix))


asyncio.run(main())
