"""Sessions that last, in a real Claude Code whose model is a script: what `docs/sessions.md` promises of servers that are
killed, of runs that follow each other, of subagents and of cells for which Claude Code does not wait.

Claude Code 2.1 notices at once that a stdio server has ended: the running call fails with "Connection closed". It starts
the server again by itself, but only for the next call of one of its tools.
"""

import json
import os
import re
import signal
import subprocess
import threading
import time
import uuid

from model import ScriptedModel
from report import collected, expect

TOOLS = "mcp__plugin_codeact-default_ipybox__"
CELL = TOOLS + "execute_ipython_cell"
WAIT = TOOLS + "wait_for_cell"
FIND = ("ToolSearch", {"query": f"select:{CELL},{WAIT}"})
ALLOWED = ("ToolSearch", "Agent", CELL, WAIT)

TAKEN_OVER = "[This session was taken over as it was"
DEADLINE_SECS = 600
"""For something that happens in another process."""

STEPS, step = collected()


def cell(code, **arguments):
    """A call that runs `code`."""
    return CELL, {"code": code, **arguments}


def until(condition):
    """Waits for something in another process."""
    end = time.monotonic() + DEADLINE_SECS
    while not condition():
        expect(time.monotonic() < end, f"did not happen: {condition.__doc__}")
        time.sleep(0.02)


def has(result, *texts):
    """Fails the step unless a tool's result has all of them."""
    for text in texts:
        expect(text in result, f"{text!r} is not in the answer:\n{result}")


class Sessions:
    """The steps, each in a session of its own."""

    def __init__(self, home):
        self.home = home

    def run(self, steps):
        """Runs all of them."""
        for sentence, function in STEPS:
            steps.step(f"lasting: {sentence}", self.alone, function)

    def none_are_left(self):
        """Those who only look which tools there are leave no session behind."""

        def are_none():
            """the sessions of clients that only looked end"""
            return not self.home.kept()

        until(are_none)

    def alone(self, function):
        """Runs one step, with nothing of the one before."""
        for name in ("begun", "go"):
            (self.home.project / name).unlink(missing_ok=True)
        try:
            with self.home.enabled("default"):
                function(self)
        finally:
            # A cell that waits for it ends, whatever has happened.
            self.let_go()
            self.home.end_sessions()

    def converse(self, script, *flags, **variables):
        """A run of Claude Code; gives what the tools answered."""
        with ScriptedModel(script) as model:
            said = self.home.converse(
                model, "Go on.", *ALLOWED, flags=flags, **variables
            )
            results = model.results()
        expect(results, f"nothing was called:\n{said}")
        return results

    def waiting(self, words):
        """Code that says that it has begun, and ends when it is let go."""
        return (
            f"import pathlib, time\nprint('begun', {words!r})\n"
            "pathlib.Path('begun').touch()\n"
            "while not pathlib.Path('go').exists(): time.sleep(0.02)\n"
            f"print('at the end of', {words!r})"
        )

    def has_begun(self):
        """a cell has begun"""
        return (self.home.project / "begun").exists()

    def let_go(self):
        """Ends the cell that waits."""
        (self.home.project / "go").touch()


@step("a server that is killed in mid-cell is started again, and finds `x`")
def server_killed(self):
    problems = []

    def kill():
        try:
            until(self.has_begun)
            os.kill(self.home.servers()[-1], signal.SIGKILL)
        except Exception as error:  # noqa: BLE001 - in a thread; reported below
            problems.append(error)

    before = len(self.home.servers())
    killing = threading.Thread(target=kill)
    killing.start()

    def after_death(_):
        # The cell ran on without a server, and still does.
        killing.join()
        return cell("print('while it runs')", if_busy="refuse")

    def fetch(results):
        self.let_go()
        left = re.search(r"`(cell-\d+)`, `execute_ipython_cell`", results[-1])
        expect(left, f"the cell is not named:\n{results[-1]}")
        return WAIT, {"cell": left[1], "timeout": DEADLINE_SECS}

    script = [
        lambda _: FIND,
        lambda _: cell("x = 6 * 7"),
        lambda _: cell(self.waiting("the killed one"), timeout=600),
        after_death,
        fetch,
        lambda _: cell("print('x is', x)"),
    ]
    results = self.converse(script)
    expect(not problems, problems)
    started = len(self.home.servers()) - before
    expect(started == 2, f"{started} servers were started, not 2")
    *_, lost, taken, fetched, last = results
    # Claude Code's own words to the model.
    has(lost, "Connection closed", '"is_error": true')
    has(taken, TAKEN_OVER, "has not ended", "Not run: another cell has not ended")
    has(fetched, "begun the killed one", "at the end of the killed one")
    has(last, "x is 42")
    expect(TAKEN_OVER not in last, f"the takeover is reported twice:\n{last}")


@step("a conversation that is resumed goes on with its variables, and no other does")
def resumed(self):
    def begin(word):
        return [lambda _: FIND, lambda _: cell(f"x = 'of {word}'")]

    def go_on(earlier, *flags):
        # The calls before are in the request, too.
        calls = [lambda _: FIND, lambda _: cell("print('x is', x)")]
        return self.converse([None] * earlier + calls, *flags)

    ids = {word: str(uuid.uuid4()) for word in ("one", "two")}
    for word, name in ids.items():
        self.converse(begin(word), "--session-id", name)
    for word, name in ids.items():
        results = go_on(2, "--resume", name)
        has(results[-1], f"x is of {word}")
        expect(any(TAKEN_OVER in result for result in results), results)
    results = go_on(4, "--resume", ids["one"], "--fork-session")
    has(results[-1], "NameError")
    expect(any("begun in another conversation" in one for one in results), results)


@step("Claude Code is killed in mid-cell, and the resumed conversation gets the answer")
def client_killed(self):
    name = str(uuid.uuid4())
    script = [lambda _: FIND, lambda _: cell(self.waiting("a lost run"), timeout=600)]
    with ScriptedModel(script) as model:
        claude = subprocess.Popen(
            [
                self.home.options.claude,
                "-p",
                "Go.",
                "--session-id",
                name,
                "--allowedTools",
                ",".join(ALLOWED),
            ],
            cwd=self.home.project,
            env=self.home.with_model(model),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            until(self.has_begun)
        finally:
            claude.kill()
            claude.wait()

    def is_alone():
        """the session is without a client"""
        (session,) = self.home.kept()
        return not session["is_attended"]

    until(is_alone)

    def fetch(results):
        self.let_go()
        left = re.search(r"`(cell-\d+)`, `execute_ipython_cell`", results[-1])
        expect(left, f"the cell is not named:\n{results[-1]}")
        return WAIT, {"cell": left[1], "timeout": DEADLINE_SECS}

    # The lost run has made one call, which is in the conversation.
    results = self.converse(
        [None, lambda _: FIND, lambda _: cell("0", if_busy="refuse"), fetch],
        "--resume",
        name,
    )
    has(results[-2], TAKEN_OVER)
    has(results[-1], "begun a lost run", "at the end of a lost run")


@step("two subagents share one server, and each has its own `x`")
def subagents(self):
    agents = {"aardvark": 11, "buffalo": 22}
    set_by = {name: threading.Event() for name in agents}
    before = len(self.home.servers())

    def meet():
        for event in set_by.values():
            expect(event.wait(DEADLINE_SECS), "an agent has not set its `x`")

    def agent(name, value):
        def read(results):
            set_by[name].set()
            meet()
            handle = re.search(r"\[New session `(\w+)`", results[-1])
            expect(handle, f"there is no handle:\n{results[-1]}")
            return cell(f"print('{name} has', x)", session=handle[1])

        return [
            lambda _: FIND,
            lambda _: cell(f"x = {value}", session="new"),
            read,
        ]

    def launch(_):
        return [
            (
                "Agent",
                {
                    "description": name,
                    "prompt": name,
                    "subagent_type": "general-purpose",
                },
            )
            for name in agents
        ]

    def own(_):
        meet()
        return cell("print('main has', x)")

    script = [lambda _: FIND, lambda _: cell("x = 'its own'"), launch, own]
    others = {name: agent(name, value) for name, value in agents.items()}
    with ScriptedModel(script, others) as model:
        self.home.converse(model, "Go on.", *ALLOWED)
        has(model.results()[-1], "main has its own")
        for name, value in agents.items():
            *_, made, read = model.results(name)
            has(made, "[New session `")
            has(read, f"{name} has {value}")
    started = len(self.home.servers()) - before
    expect(started == 1, f"{started} servers were started, not 1")


LIMIT_SECS = 10
LIMIT = {"MCP_TOOL_TIMEOUT": str(LIMIT_SECS * 1000)}


@step("the output of a cell that takes longer than Claude Code waits comes in parts")
def in_parts(self):
    begin = []

    def look(results):
        begin.append(time.monotonic())
        if begin[-1] - begin[0] > 2 * LIMIT_SECS:
            self.let_go()
        if running := re.search(r"\[`(cell-\d+)` still runs", results[-1]):
            return WAIT, {"cell": running[1], "timeout": 1}
        return None if "x is 42" in results[-1] else cell("print('x is', x)")

    code = "x = 6 * 7\n" + self.waiting("a long one")
    script = [lambda _: FIND, lambda _: cell(code, timeout=600, wait=1), *[look] * 60]
    results = self.converse(script, **LIMIT)
    expect(begin[-1] - begin[0] > 2 * LIMIT_SECS, "the cell was not long enough")
    output = "\n".join(results)
    for words in ("begun a long one", "at the end of a long one"):
        expect(output.count(words) == 1, f"{words!r} comes {output.count(words)} times")
    expect("timed out" not in output, f"Claude Code gave up on a call:\n{output}")
    has(results[-1], "x is 42")


@step("a cell that Claude Code moves into the background goes on, and its answer comes")
def moved(self):
    def refused(_):
        return cell("print('beside it')", if_busy="refuse")

    def after_it(_):
        self.let_go()
        return cell("print('x is', x)")

    script = [
        lambda _: FIND,
        lambda _: cell("x = 6 * 7\n" + self.waiting("a moved one"), timeout=600),
        refused,
        after_it,
    ]
    # It moves none if nobody is there, unless it is told to.
    soon = {
        "CLAUDE_CODE_MCP_AUTO_BACKGROUND_MS": "1000",
        "CLAUDE_AUTO_BACKGROUND_TASKS": "1",
    }
    with ScriptedModel(script) as model:
        self.home.converse(model, "Go on.", *ALLOWED, **soon)
        *_, moved, beside, after = model.results()
        has(moved, "was moved to the background")
        has(beside, "Not run: another cell has not ended")
        has(after, "x is 42")
        last = json.dumps(model.requests[-1]["messages"])
        has(last, r"begun a moved one\nat the end of a moved one")


@step("the tools are there without a search if the entry has `alwaysLoad`")
def always_loaded(self):
    server = {
        "command": str(self.home.options.ipybox),
        "args": ["--state-dir", str(self.home.scratch / "state")],
        "alwaysLoad": True,
    }
    config = self.home.scratch / "always.json"
    config.write_text(json.dumps({"mcpServers": {"always": server}}))
    with ScriptedModel([]) as model:
        self.home.converse(
            model, "Go on.", flags=("--mcp-config", config, "--strict-mcp-config")
        )
        tools = [tool["name"] for tool in model.requests[-1]["tools"]]
    expect("mcp__always__execute_ipython_cell" in tools, tools)


@step(
    "a cell on which Claude Code gives up is interrupted, which the next answer reports"
)
def given_up(self):
    # The kernel is there before the limit counts.
    name = str(uuid.uuid4())
    first = [lambda _: FIND, lambda _: cell("x = 6 * 7")]
    self.converse(first, "--session-id", name)
    results = self.converse(
        [
            *[None] * len(first),
            lambda _: FIND,
            lambda _: cell("print('x is', x)"),
            lambda _: cell(self.waiting("a lost one"), timeout=600),
            lambda _: cell("print('x is', x)"),
        ],
        "--resume",
        name,
        **LIMIT,
    )
    has(results[-2], "timed out", '"is_error": true')
    has(results[-1], "[Answer of an earlier call, cancelled after", "begun a lost one")
    has(results[-1], "KeyboardInterrupt", "x is 42")
