"""Uses cells as an agent does: the four tools are listed, then cells run, fail, draw, time out and are cancelled."""

import asyncio
import re
from pathlib import Path

from steps import Scenario, expect, expect_error, expect_success, until

scenario = Scenario(__doc__)
step = scenario.step

# Tool → its arguments → the default, `...` for a required one, or `None` for one that has none.
TOOLS = {
    "register_mcp_server": {"server_name": ..., "server_params": ...},
    "execute_ipython_cell": {
        "code": ...,
        "timeout": 120,
        "max_output_chars": 5000,
        "session": None,
    },
    "install_package": {"package_name": ...},
    "reset": {"cells": None, "end": None, "session": None},
}

IMAGE = re.compile(r"^- \[([0-9a-f]{8})\]\((/.*/images/\1\.png)\)$", re.MULTILINE)
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@step("the four tools are listed with their parameters and defaults")
async def tools(bench):
    listed = {tool["name"]: tool for tool in await bench.server.tools()}
    expect(
        set(listed) == set(TOOLS),
        f"expected the tools {sorted(TOOLS)}, got {sorted(listed)}",
    )
    for name, arguments in TOOLS.items():
        schema = listed[name]["inputSchema"]
        properties = schema.get("properties") or {}
        expect(
            set(properties) == set(arguments),
            f"{name} has the arguments {sorted(properties)}",
        )
        required = {
            argument for argument, default in arguments.items() if default is ...
        }
        expect(
            set(schema.get("required") or []) == required,
            f"{name} requires {schema.get('required')}",
        )
        for argument, default in arguments.items():
            got = properties[argument].get("default", None if default is None else ...)
            expect(
                got == default, f"{name}.{argument} defaults to {got}, not {default}"
            )
        expect(listed[name]["description"], f"{name} has no description")


@step("a cell's last expression is its result")
async def last_expression(bench):
    outcome = await bench.server.cell("answer = 41\nanswer + 1")
    expect(expect_success(outcome).strip() == "42", "expected 42", outcome)


@step("state survives between cells")
async def state(bench):
    outcome = await bench.server.cell("print('the answer is', answer + 1)")
    expect(
        expect_success(outcome).strip() == "the answer is 42",
        "the variable is lost",
        outcome,
    )


@step("a cell without output succeeds")
async def silence(bench):
    expect_success(await bench.server.cell("silent = True"))


@step("standard output, standard error and the result come together")
async def streams(bench):
    code = "import sys\nprint('to stdout')\nprint('to stderr', file=sys.stderr)\n'a ' + 'result'"
    outcome = await bench.server.cell(code)
    for part in ("to stdout", "to stderr", "'a result'"):
        expect(part in expect_success(outcome), f"{part!r} is missing", outcome)


@step("no cell of fifty loses its output")
async def nothing_lost(bench):
    lost = []
    for number in range(50):
        outcome = await bench.server.cell(f"print({number})")
        if outcome.is_error or outcome.text.strip() != str(number):
            lost.append((number, outcome.text))
    expect(not lost, f"{len(lost)} cells lost output, the first ones: {lost[:3]}")


@step("`await` works at the top level")
async def top_level_await(bench):
    outcome = await bench.server.cell(
        "import asyncio\nawait asyncio.sleep(0.01, 'awaited')"
    )
    expect(
        "awaited" in expect_success(outcome), "the awaited value is missing", outcome
    )


@step("shell commands work, with their late output")
async def shell(bench):
    outcome = await bench.server.cell("!echo shell-$((40 + 2)); sleep 0.3; echo late")
    for part in ("shell-42", "late"):
        expect(part in expect_success(outcome), f"{part!r} is missing", outcome)


@step("magics work, in the workspace")
async def magics(bench):
    outcome = await bench.server.cell("%pwd")
    expect(
        str(bench.workspace) in expect_success(outcome),
        "the kernel is not in the workspace",
        outcome,
    )
    expect_success(
        await bench.server.cell("%%writefile note.txt\nwritten by a magic\n")
    )
    note = bench.workspace / "note.txt"
    expect(
        note.is_file() and note.read_text().startswith("written by a magic"),
        f"{note} is not written",
    )


@step("a Python error keeps what was printed before it")
async def python_error(bench):
    # What is printed is computed, because the traceback quotes the source.
    code = "def divide(a, b):\n    return a / b\nprint('printed', 6 * 7)\ndivide(1, 0)"
    text = expect_error(await bench.server.cell(code), "printed 42")
    for part in ("ZeroDivisionError", "division by zero", "Traceback", "divide(1, 0)"):
        expect(part in text, f"the error lacks {part!r}:\n{text}")
    expect("\x1b" not in text, f"the traceback has escape sequences: {text!r}")
    expect(
        text.index("printed 42") < text.index("Traceback"),
        f"the output does not come first:\n{text}",
    )


@step("a syntax error is an error")
async def syntax_error(bench):
    expect_error(await bench.server.cell("def broken(:\n    pass"), "SyntaxError")


@step("asking for input is an error, not a hang")
async def input_refused(bench):
    expect_error(await bench.server.cell("input('Your name? ')", timeout=300), "input")


@step("a plot is saved and listed as an absolute link")
async def plot(bench):
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 4])\nprint('drawn')\nplt.show()"
    text = expect_success(await bench.server.cell(code))
    head, marker, links = text.partition("Generated images:")
    expect(
        marker and "drawn" in head, f"no `Generated images:` after the output:\n{text}"
    )
    found = IMAGE.findall(links)
    expect(
        len(found) == 1,
        f"expected one link like `- [0a1b2c3d](/…/images/0a1b2c3d.png)`:\n{text}",
    )
    path = Path(found[0][1])
    expect(
        path.parent == bench.workspace / "images",
        f"{path} is not in the workspace's images/",
    )
    expect(
        path.is_file() and path.read_bytes().startswith(PNG_SIGNATURE),
        f"{path} is no PNG file",
    )


@step("two plots of one cell are two images")
async def two_plots(bench):
    code = "for scale in (1, 2):\n    plt.figure()\n    plt.plot([0, scale])\n    plt.show()"
    text = expect_success(await bench.server.cell(code))
    expect(
        len({name for name, _ in IMAGE.findall(text)}) == 2,
        f"expected two links:\n{text}",
    )


@step("a timeout interrupts the cell, says so and keeps the state")
async def timeout(bench):
    outcome = await bench.server.cell(
        "print('printed', 6 * 7)\nwhile True: pass", timeout=15
    )
    text = expect_error(outcome)
    expect(
        "timed out" in text.lower() or "timeout" in text.lower(),
        "the error does not say that it timed out",
        outcome,
    )
    expect("printed 42" in text, "what was printed before the timeout is lost", outcome)
    after = await bench.server.cell("answer")
    expect(expect_success(after).strip() == "41", "the state is lost", after)


@step("output over the limit is cut, with a notice")
async def truncation(bench):
    outcome = await bench.server.cell("print('x' * 10_000)", max_output_chars=100)
    text = expect_success(outcome)
    expect(
        "[Output truncated: exceeded 100 character limit]" in text,
        "the notice is missing",
        outcome,
    )
    kept = text.partition("[Output truncated")[0].count("x")
    expect(99 <= kept <= 100, f"{kept} characters were kept, not 100", outcome)
    path = text.partition(" characters are in ")[2].partition("]")[0]
    whole = Path(path).read_text()
    expect(whole == "x" * 10_000 + "\n", "the file is not the whole", outcome)


@step("ten million characters arrive whole when they may")
async def large_output(bench):
    outcome = await bench.server.cell(
        "print('x' * 10_000_000)", max_output_chars=20_000_000
    )
    count = expect_success(outcome).count("x")
    expect(count == 10_000_000, f"{count} of 10,000,000 characters arrived")


@step("a cancelled cell is interrupted and the next one runs at once")
async def cancellation(bench):
    started = bench.workspace / "started"
    stopped = bench.workspace / "stopped"
    code = (
        "import pathlib, time\n"
        "try:\n"
        "    pathlib.Path('started').touch()\n"
        "    time.sleep(600)\n"
        "    pathlib.Path('ran-on').touch()\n"
        "finally:\n"
        "    pathlib.Path('stopped').touch()"
    )
    await bench.server.cancel_call(
        "execute_ipython_cell", {"code": code}, once=until(started.exists)
    )
    outcome = await bench.server.cell("answer + 2")
    text = expect_success(outcome).strip()
    expect(text.endswith("\n\n43"), "the next cell does not give 43", outcome)
    expect(
        text.startswith("[Answer of an earlier call, cancelled after "),
        "it does not report the cancelled cell",
        outcome,
    )
    expect(stopped.exists(), "the cancelled cell still ran when the next one ended")
    expect(not (bench.workspace / "ran-on").exists(), "it was not interrupted")


@step("a cancelled cell that waits its turn never runs")
async def cancellation_of_a_waiting_cell(bench):
    first_started = bench.workspace / "first-started"
    code = (
        "pathlib.Path('first-started').touch()\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.01)\n"
        "'first'"
    )
    first = asyncio.create_task(bench.server.cell(code))
    await until(first_started.exists)
    waiting = {"code": "pathlib.Path('must-not-exist').touch()"}
    await bench.server.cancel_call(
        "execute_ipython_cell", waiting, once=asyncio.sleep(0.2)
    )
    # What the server answers after the cancellation, it has read after it.
    await bench.server.tools()
    (bench.workspace / "go").touch()
    outcome = await first
    expect(
        "first" in expect_success(outcome),
        "the running cell was cancelled instead",
        outcome,
    )
    expect_success(await bench.server.cell("'after'"))
    expect(not (bench.workspace / "must-not-exist").exists(), "the cancelled cell ran")


@step("the output of a cell whose client gives up comes with the next answer")
async def abandonment(bench):
    go = bench.workspace / "go-on"
    code = (
        "print('printed', 6 * 7, flush=True)\n"
        "while not pathlib.Path('go-on').exists(): time.sleep(0.01)\n"
        "print('printed', 6 * 8)"
    )
    gave_up = await bench.server.give_up_on(
        "execute_ipython_cell", {"code": code}, after_secs=15
    )
    expect("timed out" in gave_up.lower(), f"the client said: {gave_up}")
    next_cell = asyncio.create_task(bench.server.cell("answer + 2"))
    await bench.server.has_begun_what_was_asked()
    go.touch()
    outcome = await next_cell
    text = expect_success(outcome).strip()
    expect("printed 42\n" in text, "what was printed is lost", outcome)
    # Who cancels has interrupted the cell.
    if "cancelled after" not in text:
        expect("which may not have reached you" in text, "no reason is given", outcome)
        expect("printed 48\n" in text, "what was printed later is lost", outcome)
    expect(text.endswith("\n\n43"), "the next cell does not give 43", outcome)
    after = expect_success(await bench.server.cell("answer + 3"))
    expect(after.strip() == "44", "it is reported once more", outcome)


@step("output is reported as progress while the cell runs")
async def progress(bench):
    heard = bench.workspace / "heard"
    code = (
        "for line in range(5):\n"
        "    print(f'line {line}', flush=True)\n"
        "    while not pathlib.Path(f'heard{line}').exists(): time.sleep(0.01)"
    )
    reports = []

    def report(progress):
        reports.append(progress)
        for line in range(5):
            if f"line {line}" in progress.message:
                heard.with_name(f"heard{line}").touch()

    arguments = {"code": f"import pathlib, time\n{code}", "timeout": 300}
    outcome = await bench.server.call(
        "execute_ipython_cell", arguments, on_progress=report
    )
    expect(
        "line 4" in expect_success(outcome), "the output is not in the result", outcome
    )
    messages = "".join(report.message for report in reports)
    for line in range(4):
        expect(f"line {line}" in messages, f"`line {line}` was not reported: {reports}")
    values = [report.progress for report in reports]
    expect(values == sorted(set(values)), f"the progress does not grow: {values}")


@step("cells sent together run one by one, in order")
async def order(bench):
    expect_success(await bench.server.cell("trail = []"))
    cells = [
        bench.server.cell(f"time.sleep(0.02)\ntrail.append({number})\nlen(trail)")
        for number in range(8)
    ]
    for number, outcome in enumerate(await asyncio.gather(*cells)):
        expect(
            expect_success(outcome).strip() == str(number + 1),
            f"cell {number} ran out of order",
            outcome,
        )
    outcome = await bench.server.cell("trail == list(range(8))")
    expect(
        expect_success(outcome).strip() == "True",
        "the order is not that of arrival",
        outcome,
    )


@step("a kernel that dies is an error, and the next cell has a new one")
async def death(bench):
    expect_error(
        await bench.server.cell("import os\nos._exit(3)", timeout=300), "kernel"
    )
    outcome = await bench.server.cell("'alive' + '!'", timeout=300)
    expect("alive!" in expect_success(outcome), "no new kernel", outcome)


@step("reset clears variables and keeps files")
async def reset(bench):
    expect_success(await bench.server.cell("answer = 41"))
    expect_success(await bench.server.call("reset"))
    expect_error(await bench.server.cell("answer"), "NameError")
    outcome = await bench.server.cell("open('note.txt').read()")
    expect("written by a magic" in expect_success(outcome), "the file is gone", outcome)


if __name__ == "__main__":
    scenario.main()
