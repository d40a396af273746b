"""Words that several test files share."""

import asyncio
import os
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(os.environ.get("IPYBOX_TEST_TOOLS", ROOT / "target/test-tools"))

ECHO = "from mcptools.probe import echo\nprint(echo.run(echo.Params(text='hi')))"
"""Code that calls a tool which returns its argument."""

ENDLESS = "print('begun', flush=True)\nwhile True: pass"
"""Code that runs until it is interrupted."""

PNG = """
from base64 import b64decode
from IPython.display import Image, display
pixel = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
display(Image(b64decode(pixel)))
"""
"""Code that shows an image."""


SECONDS = 300
"""The longest wait of a test: only something that hangs takes longer, on the slowest machine."""


async def until(condition):
    """Waits until a function says that something is so."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it did not come to be so"
        await asyncio.sleep(0.01)


async def collect(stream):
    """All events of a stream."""
    return [event async for event in stream]


async def begun(stream):
    """Waits until code has begun that prints when it does; its stream."""
    async for chunk in stream:
        if "begun" in str(getattr(chunk, "text", chunk)):
            return stream
    raise AssertionError("the code ended before it began")
