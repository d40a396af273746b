"""A Python application that uses the library `ipybox_rs`: the process in which the blocks of a page run.

Blocks share their names and one event loop; `await` works at top level, as in a notebook. A block that starts an event
loop of its own is a program, which runs alone. This file is both sides: `Application` is the runner's, `main` is what
runs in the process, by the interpreter that has the kernel's packages.
"""

import ast
import asyncio
import contextlib
import inspect
import io
import itertools
import json
import re
import sys
import traceback
from pathlib import Path

IMPORTS_LIBRARY = re.compile(r"^\s*(?:from|import) ipybox_rs\b", re.MULTILINE)

STARTS_LOOP = re.compile(r"^\s*(?:asyncio|trio|uvloop)\.run\(", re.MULTILINE)
"""Functions that no other loop may run around."""

PROMPT = b"(Y/n): "

ANSWERS = [b"y", b"", b"n"]
"""Of a program's user, in turns: yes, the Enter key alone, no."""

GRACE_SECS = 10
"""The time that the process gets to end its kernels."""

LINE_BYTES = 1 << 24
"""The longest answer: all that a block has printed."""


class BlockError(Exception):
    """The exception of a block, or the last words of its process."""


class Application:
    """The application of one page, started when it is needed first."""

    def __init__(self, python, environment, directory, stderr):
        self.command = [str(python), "-X", "utf8"]
        self.options = {"cwd": directory, "env": environment}
        self.directory, self.stderr = directory, stderr
        self.process = None

    async def run(self, text):
        """The output of a block, which must not raise anything."""
        if STARTS_LOOP.search(text):
            return await self._run_program(text)
        if not self.process:
            self.process = await asyncio.create_subprocess_exec(
                *self.command,
                __file__,
                **self.options,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=self.stderr,
                limit=LINE_BYTES,
            )
        self.process.stdin.write(json.dumps(text).encode() + b"\n")
        line = await self.process.stdout.readline()
        if not line:
            raise BlockError(f"its process ended with {await self.process.wait()}")
        answer = json.loads(line)
        if answer["raised"]:
            raise BlockError(answer["printed"] + answer["raised"])
        return answer["printed"]

    async def _run_program(self, text):
        """Its terminal, with the answers to what it asks."""
        program = self.directory / "program.py"
        program.write_text(text)
        process = await asyncio.create_subprocess_exec(
            *self.command,
            program,
            **self.options,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        answers, printed = itertools.cycle(ANSWERS), b""
        try:
            while piece := await process.stdout.read(1 << 16):
                printed += piece
                if printed.endswith(PROMPT):
                    answer = next(answers) + b"\n"
                    process.stdin.write(answer)
                    printed += answer
            status = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
        if status:
            raise BlockError(f"it ended with {status}:\n{printed.decode()}")
        return printed.decode()

    async def stop(self):
        """Lets the process end, and its kernels with it; kills it if it does not."""
        if not self.process:
            return
        self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), GRACE_SECS)
        except asyncio.TimeoutError:
            self.process.kill()
            await self.process.wait()


async def run_block(text, names):
    """Runs a block; gives what it printed, and the traceback of what it raised."""
    printed, raised = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            code = compile(text, "<block>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            running = eval(code, names)
            if inspect.iscoroutine(running):
                await running
        except Exception:  # noqa: BLE001 - the runner reports it
            raised = traceback.format_exc()
    return {"printed": printed.getvalue(), "raised": raised}


async def main():
    """Runs the blocks that come as JSON, a line each, and answers with a line each."""
    names, answers = {"__name__": "__main__"}, sys.stdout
    # What a block has begun goes on while the next one is awaited.
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(
            json.dumps(await run_block(json.loads(line), names)),
            file=answers,
            flush=True,
        )


if __name__ == "__main__":
    # It finds what the application finds, and none of the runner's modules.
    sys.path[0] = str(Path.cwd())
    asyncio.run(main())
