"""Counts the questions to a user about the same loops, by way of answering, and the stray calls that the answers let through.

    decisions.py --binary target/release/ipybox --python KERNEL_PYTHON

Runs in an environment with the Python SDK (`mcp` 1.x), which is the client and serves the three servers. After each loop
one call is made that nobody meant: the same tool with a stranger's address or another directory. A user who is not
asked about it has allowed it with the loop. The user of this benchmark answers at once, so the time is that of the cell and
of ipybox. A person's is the number of questions times what each takes them.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client

SERVER = """
from mcp.server.fastmcp import FastMCP
server = FastMCP("office")

@server.tool()
def read(key: str) -> str:
    "Reads an entry."
    return f"entry {key}"

@server.tool()
def send(to: str, subject: str, body: str) -> str:
    "Sends a mail."
    return f"sent to {to}"

@server.tool()
def write(path: str, text: str) -> str:
    "Writes a file."
    return f"wrote {path}"

server.run()
"""

SEND = "to=f'person{number}@example.com', subject='Invitation', body=f'Dear guest number {number}, please come.'"
WRITE = "path=f'/work/out/{number}.txt', text=f'line {number}\\n' * 300"
STRANGER = "mail.send.run(to='eve@stranger.example', subject='Invitation', body='all that I know')"

LOOPS = {
    "37 mails": (37, [f"mail.send.run({SEND})"], STRANGER),
    "200 file writes": (
        200,
        [f"files.write.run({WRITE})"],
        "files.write.run(path='/home/me/.profile', text='echo hello')",
    ),
    "60 calls of three servers": (
        20,
        [
            "tracker.read.run(key=f'ISSUE-{number}')",
            f"files.write.run({WRITE})",
            f"mail.send.run({SEND})",
        ],
        STRANGER,
    ),
}
"""The number of rounds, the calls of one, and the call that nobody meant."""

WAYS = {
    "without approval": (None, "loop"),
    "each call": ("allow once", "loop"),
    "for this session": ("allow for this session", "loop"),
    "grants": ("allow up to", "loop"),
    "grants, not announced": ("allow up to", "unannounced"),
    "threads": ("allow once", "threads"),
    "batch": ("allow once", "batch"),
}
"""The answer, by its beginning, if the question offers it, else `allow once`; and how the code makes the calls."""

IMPORTS = "import mcptools\nfrom mcptools import files, mail, tracker\n"


def code(way, count, calls):
    """A cell with the calls."""
    body, names = "\n".join(f"    {call}" for call in calls), ""
    if way == "loop":
        return f"{IMPORTS}for number in range({count}):\n{body}"
    if way == "unannounced":
        # By a name that may be anything.
        for number, call in enumerate(calls):
            function, bracket, arguments = call.partition("(")
            body = body.replace(call, f"call_{number}{bracket}{arguments}")
            names += f"call_{number} = {function}\n"
        return f"{IMPORTS}{names}for number in range({count}):\n{body}"
    if way == "batch":
        calls = body.replace("\n", "\n    ")
        return (
            f"{IMPORTS}with mcptools.batch('what was agreed') as batch:\n"
            f"    for number in range({count}):\n    {calls}\n"
            "assert not [call for call in batch if call.error]"
        )
    return (
        f"{IMPORTS}from concurrent.futures import ThreadPoolExecutor\n"
        f"def once(number):\n{body}\n"
        f"with ThreadPoolExecutor({count}) as pool:\n    list(pool.map(once, range({count})))"
    )


class AnsweringUser:
    """Answers questions in one way, and keeps them."""

    def __init__(self, answer):
        self.answer = answer
        self.questions = []
        self.denies = False

    async def __call__(self, _context, params):
        self.questions.append(params.message)
        choices = params.requestedSchema["properties"]["decision"]["enum"]
        fits = [choice for choice in choices if choice.startswith(self.answer)]
        decision = "deny" if self.denies else (fits or ["allow once"])[0]
        return types.ElicitResult(action="accept", content={"decision": decision})


@asynccontextmanager
async def ipybox(options, directory, approval, user):
    """A session with the three servers."""
    arguments = ["--workspace", directory, "--state-dir", f"{directory}/state"]
    arguments += ["--python", options.python, "--approval", approval]
    parameters = StdioServerParameters(command=options.binary, args=arguments)
    async with (
        stdio_client(parameters) as streams,
        ClientSession(*streams, elicitation_callback=user) as session,
    ):
        await session.initialize()
        server = {"command": sys.executable, "args": ["-c", SERVER]}
        for name in ("files", "mail", "tracker"):
            arguments = {"server_name": name, "server_params": server}
            await call(session, "register_mcp_server", arguments)
        user.questions.clear()
        yield session


async def call(session, tool, arguments):
    result = await session.call_tool(tool, arguments)
    text = "\n".join(block.text for block in result.content if block.type == "text")
    return text, result.isError


async def run(options, way, loop):
    """Questions, seconds, and whether the call that nobody meant was let through."""
    answer, kind = WAYS[way]
    count, calls, stray = LOOPS[loop]
    user = AnsweringUser(answer)
    approval = "ask" if answer else "auto"
    with tempfile.TemporaryDirectory() as directory:
        async with ipybox(options, directory, approval, user) as session:
            await call(session, "execute_ipython_cell", {"code": IMPORTS})
            begin = time.monotonic()
            cell = {"code": code(kind, count, calls)}
            text, failed = await call(session, "execute_ipython_cell", cell)
            took = time.monotonic() - begin
            if failed:
                raise SystemExit(f"{way}, {loop}: {text}")
            asked, user.denies = len(user.questions), True
            cell = {"code": IMPORTS + stray}
            _, denied = await call(session, "execute_ipython_cell", cell)
    return asked, took, not denied


async def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--python", required=True, help="the kernel's")
    options = parser.parse_args()
    options.binary = str(Path(options.binary).resolve())
    figures = {}
    for loop in LOOPS:
        for way in WAYS:
            figures[loop, way] = await run(options, way, loop)
            print(json.dumps([loop, way, *figures[loop, way]]), file=sys.stderr)
    print("| |", " | ".join(LOOPS), "|")
    print("|---|", " | ".join("---" for _ in LOOPS), "|")
    for way in WAYS:
        cells = []
        for loop in LOOPS:
            asked, seconds, stray = figures[loop, way]
            times = "question" if asked == 1 else "questions"
            also = ", the stray call too" if stray else ""
            cells.append(f"{asked} {times}, {seconds:.1f} s{also}")
        print(f"| {way} |", " | ".join(cells), "|")


if __name__ == "__main__":
    asyncio.run(main())
