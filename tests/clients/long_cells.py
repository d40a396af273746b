"""Lasting sessions and long cells, by a client whose time limit is shorter than its cells.

The server's command needs `--keep-session` and `--long-cells`. The Python SDK has no limit by default, the TypeScript
SDK one of 60 seconds: here every client has one of a few seconds, and the cell takes a multiple of it.
"""

import asyncio
import json
import re
import subprocess
import time

from steps import Scenario, expect, expect_success

LIMIT_SECS = 10
"""Of the client, for each call."""

SCENARIO = Scenario(__doc__.splitlines()[0])
step = SCENARIO.step


def waiting(bench, name):
    """A cell that says that it has begun, and ends when the file `name` is there; and that file.

    Each of its lines is one piece: an answer may end between two.
    """
    code = (
        f"import pathlib, time\nprint('begun {name}', flush=True)\n"
        f"pathlib.Path('begun-{name}').touch()\n"
        f"while not pathlib.Path({name!r}).exists(): time.sleep(0.01)\n"
        f"print('at the end of {name}')"
    )
    return code, bench.workspace / name


def cell_in(outcome):
    """The id of the cell that an answer names."""
    found = re.search(r"`(cell-\d+)`", outcome.text)
    expect(found, "no cell is named", outcome)
    return found[1]


@step("a kernel is there")
async def begin(bench):
    names = {tool["name"] for tool in await bench.server.tools()}
    expect("wait_for_cell" in names, f"the tools are {names}")
    expect_success(await bench.server.cell("x = 6 * 7"))


@step("with `wait`, a cell takes several times as long as the client waits")
async def in_parts(bench):
    code, go = waiting(bench, "long")
    limit = {"limit_secs": LIMIT_SECS}
    begun, answers, waits = time.monotonic(), [], 0
    arguments = {"code": code, "timeout": 600, "wait": 1}
    outcome = await bench.server.call("execute_ipython_cell", arguments, **limit)
    while "still runs" in outcome.text:
        answers.append(expect_success(outcome))
        if time.monotonic() - begun > 2 * LIMIT_SECS:
            go.touch()
        arguments = {"cell": cell_in(outcome), "timeout": 1}
        outcome = await bench.server.call("wait_for_cell", arguments, **limit)
        waits += 1
    answers.append(expect_success(outcome))
    expect(waits > 1 and go.exists(), "the cell was not long enough", outcome)
    for words in ("begun long", "at the end of long"):
        count = "\n".join(answers).count(words)
        expect(count == 1, f"{words!r} comes {count} times: {answers}")


@step("without `wait`, the client gives up, and the next answer reports it")
async def given_up(bench):
    code, go = waiting(bench, "lost")
    arguments = {"code": code, "timeout": 600}
    said = await bench.server.give_up_on(
        "execute_ipython_cell", arguments, after_secs=LIMIT_SECS
    )
    expect("timed out" in said.lower(), f"the client said: {said}")
    next_cell = asyncio.create_task(bench.server.cell("print('x is', x)"))
    await bench.server.has_begun_what_was_asked()
    go.touch()
    outcome = await next_cell
    text = expect_success(outcome)
    expect("begun lost\n" in text, "what was printed is lost", outcome)
    expect(text.strip().endswith("x is 42"), "x is another one", outcome)
    # Who cancels has interrupted the cell; who says nothing has not.
    if "cancelled after" in text:
        expect("KeyboardInterrupt" in text, "it was not interrupted", outcome)
    else:
        expect("which may not have reached you" in text, "no reason is given", outcome)
        expect("at the end of lost\n" in text, "its end is lost", outcome)


@step("a client that gives up on `wait_for_cell` has not ended the cell")
async def given_up_waiting(bench):
    code, go = waiting(bench, "held")
    outcome = await bench.server.cell(code, timeout=600, wait=0.5)
    cell = cell_in(outcome)
    arguments = {"cell": cell, "timeout": 600}
    await bench.server.give_up_on("wait_for_cell", arguments, after_secs=LIMIT_SECS)
    go.touch()
    # A client that said nothing still counts as one that waits, and has its answer.
    rest = await bench.server.call("wait_for_cell", {"cell": cell, "timeout": 300})
    while "another call waits" in rest.text:
        rest = await bench.server.call("wait_for_cell", {"cell": cell, "timeout": 300})
    expect("at the end of held" in rest.text, "the end is lost", rest)


@step("another client has a session of its own, and its successor finds its variables")
async def takeover(bench):
    code, go = waiting(bench, "left")
    async with bench.connect_again() as second:
        absent = await second.cell("x")
        expect("NameError" in absent.text, "it has the first one's variables", absent)
        expect_success(await second.cell("y = 6 * 8"))
        outcome = await second.cell(code, timeout=600, wait=0.5)
        cell = cell_in(outcome)
    async with bench.connect_again() as third:
        waited = asyncio.create_task(
            third.call("wait_for_cell", {"cell": cell, "timeout": 300})
        )
        await third.tools()
        go.touch()
        outcome = await waited
        text = expect_success(outcome)
        expect("[This session was taken over" in text, "it is not said", outcome)
        expect("at the end of left" in text, "the end is lost", outcome)
        expect((await third.cell("y")).text.endswith("48"), "y is lost")
    expect((await bench.server.cell("x")).text.endswith("42"), "x is lost")


@step("`ipybox sessions end` ends what is left, which the client notices")
async def end(bench):
    states = bench.command[bench.command.index("--state-dir") + 1]

    def sessions(*words):
        command = [bench.command[0], "sessions", *words, "--state-dir", states]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        return done.stdout

    def left():
        return [session["id"] for session in json.loads(sessions("--json"))]

    ids = left()
    expect(len(ids) == 2, f"there are {len(ids)} sessions, not 2")
    sessions("end", *ids)
    expect(not left(), "sessions are left")
    outcome = await bench.server.cell("x")
    expect(outcome.is_refused, "the call was answered", outcome)


if __name__ == "__main__":
    SCENARIO.main()
