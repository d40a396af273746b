"""A user is asked about tool calls: yes once, for the session, always, no, and no answer at all.

`approval.py --params JSON -- COMMAND …` registers the probe server with a COMMAND that has `--approval ask`.
"""

import asyncio
import contextlib
import json
import os
import textwrap

from steps import Scenario, expect, expect_error, expect_success, until

scenario = Scenario(__doc__)
step = scenario.step


class User:
    """Answers questions as the step says, and remembers them."""

    def __init__(self):
        self.questions = []
        self.answer = "allow once"
        self.schema = None
        self.has_waited = None

    async def __call__(self, message, schema):
        self.questions.append(message)
        self.schema = schema
        if self.answer == "silence":
            # The SDK 1.x reads nothing meanwhile, so that only what happens outside of this process can end it.
            await until(self.has_waited)
        if self.answer in ("decline", "cancel"):
            return {"action": self.answer}
        if self.answer == "just accept":
            return {"action": "accept", "content": {}}
        return {"action": "accept", "content": {"decision": self.answer}}

    def will(self, answer):
        self.answer = answer
        self.questions.clear()

    def will_say_nothing(self, *, before):
        """Answers only when the condition `before` holds."""
        self.will("silence")
        self.has_waited = before


user = scenario.on_question = User()


def asked(count, *fragments):
    """Fails the step unless so many questions were asked, each with the fragments."""
    expect(
        len(user.questions) == count, f"asked {len(user.questions)}: {user.questions}"
    )
    for question in user.questions:
        for fragment in fragments:
            expect(fragment in question, f"no {fragment!r} in {question!r}")


ECHO = "from mcptools.probe import echo\nprint(echo.run(text={!r}))"


@step("a registration is asked for, and a refused one leaves nothing")
async def register(bench):
    arguments = {
        "server_name": "probe",
        "server_params": json.loads(bench.options.params),
    }
    user.will("decline")
    outcome = await bench.server.call("register_mcp_server", arguments)
    expect_error(outcome, "register_mcp_server", "rejected")
    asked(1, "Register this MCP server", "probe.py")
    expect(not (bench.workspace / "mcptools").exists(), "something was generated")
    user.will("just accept")
    expect_success(await bench.server.call("register_mcp_server", arguments))
    asked(1)
    user.will("decline")
    expect_success(await bench.server.call("register_mcp_server", arguments))
    asked(0)


@step("wrong parameters are refused without a question")
async def wrong(bench):
    user.will("allow once")
    arguments = {"server_name": "probe", "server_params": {"program": "x"}}
    expect_error(await bench.server.call("register_mcp_server", arguments), "command")
    arguments = {"server_name": "ipybox", "server_params": {"command": "x"}}
    expect_error(await bench.server.call("register_mcp_server", arguments), "ipybox")
    outcome = await bench.server.call(
        "install_package", {"package_name": "--index-url x"}
    )
    expect_error(outcome, "option")
    asked(0)


@step("an installation is asked for")
async def install(bench):
    user.will("cancel")
    outcome = await bench.server.call("install_package", {"package_name": "tabulate"})
    expect_error(outcome, "install_package", "rejected")
    asked(1, "Install this Python package", "tabulate")


@step("a call that is allowed once runs, and the next one is asked for again")
async def once(bench):
    user.will("allow once")
    for text in ("one", "two"):
        outcome = await bench.server.cell(ECHO.format(text))
        expect(expect_success(outcome).strip() == text, f"expected {text}", outcome)
    asked(2, "probe.echo(text=", "probe.py", "it only reads")
    schema = user.schema if isinstance(user.schema, dict) else user.schema.model_dump()
    expect("decision" in schema["properties"], f"the form is {schema}")


@step("a call that is denied raises, and what was printed before is there")
async def denied(bench):
    user.will("deny")
    outcome = await bench.server.cell("print('before')\n" + ECHO.format("no"))
    expect_error(outcome, "before", "ApprovalRejectedError", "rejected")
    user.will("decline")
    code = "from ipybox_runtime import ApprovalRejectedError\ntry:\n    echo.run(text='x')\nexcept ApprovalRejectedError as e:\n    print('caught', e)"
    expect("caught" in expect_success(await bench.server.cell(code)), "not caught")


@step("a shell command is asked for as it will run")
async def shell(bench):
    user.will("allow once")
    outcome = await bench.server.cell("word = 'hello'\n!echo {word} $word")
    expect("hello hello" in expect_success(outcome), "no output", outcome)
    asked(1, "Run this shell command", "ipybox.shell(cmd='echo hello hello')")
    user.will("deny")
    outcome = await bench.server.cell("%%bash\ntouch made")
    expect_error(outcome, "ApprovalRejectedError")
    expect(not (bench.workspace / "made").exists(), "it ran all the same")


@step("several calls at once are asked for together")
async def together(bench):
    code = """import asyncio
from mcptools.probe import add
sums = await asyncio.gather(*[add.run_async(a=i, b=1) for i in range(5)])
print([s.total for s in sums])"""
    # On a machine with much else to do they may come one after the other.
    for _ in range(100):
        user.will("allow once")
        outcome = await bench.server.cell(code)
        expect("[1, 2, 3, 4, 5]" in expect_success(outcome), "wrong sums", outcome)
        if len(user.questions) == 1:
            break
    asked(1, "these 5 calls", "probe.add", "# | a")


@step("waiting for an answer does not count, and progress reports it")
async def waiting(bench):
    async def slowly(message, schema):
        await asyncio.sleep(21)
        return {"action": "accept", "content": {"decision": "allow once"}}

    user.will("allow once")
    original, User.__call__ = User.__call__, lambda self, m, s: slowly(m, s)
    try:
        heard = []
        outcome = await bench.server.call(
            "execute_ipython_cell",
            {"code": ECHO.format("late"), "timeout": 20},
            on_progress=heard.append,
        )
    finally:
        User.__call__ = original
    expect("late" in expect_success(outcome), "no output", outcome)
    messages = [event.message for event in heard]
    expect(
        any("waiting for approval" in message for message in messages),
        f"progress: {messages}",
    )


@step("a call that nobody answers for expires, and the session goes on")
async def silence(bench):
    user.will_say_nothing(before=(bench.workspace / "expired").exists)
    limit = ["--approval-timeout", "3"]
    async with bench.connect_again(*limit, on_question=user) as server:
        call = textwrap.indent(ECHO.format("unanswered"), "    ")
        code = f"try:\n{call}\nfinally:\n    open('expired', 'w').close()"
        outcome = await server.cell(code)
        expect_error(outcome, "ApprovalTimeoutError", "was not approved within 3 s")
        user.answer = "allow once"
        outcome = await server.cell("print('still here')")
        expect("still here" in expect_success(outcome), "no output", outcome)


@step("a call that is cancelled while it waits ends, and variables are kept")
async def cancelled(bench):
    await bench.server.cell("kept = 41")
    is_cancelled = asyncio.Event()
    user.will_say_nothing(before=is_cancelled.is_set)

    async def asked_for():
        while not user.questions:
            await asyncio.sleep(0.02)

    arguments = {"code": ECHO.format("cancelled")}
    await bench.server.cancel_call("execute_ipython_cell", arguments, once=asked_for())
    is_cancelled.set()
    user.answer = "deny"
    outcome = await bench.server.cell("kept + 1")
    expect("42" in expect_success(outcome), "no state", outcome)


@step("a reset ends a call that waits")
async def reset(bench):
    process = int(expect_success(await bench.server.cell("import os; os.getpid()")))

    def is_gone():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, 0)
            return False
        return True

    user.will_say_nothing(before=is_gone)
    call = asyncio.create_task(bench.server.cell(ECHO.format("reset")))
    while not user.questions:
        await asyncio.sleep(0.02)
    expect_success(await bench.server.call("reset"))
    expect_error(await call, "reset")
    user.answer = "allow once"
    expect_success(await bench.server.cell("from mcptools.probe import add"))


@step("an answer for the session holds for the session")
async def for_the_session(bench):
    user.will("allow for this session")
    for text in ("one", "two", "three"):
        expect_success(await bench.server.cell(ECHO.format(text)))
    asked(1)
    user.will("deny")
    expect_error(await bench.server.cell("add.run(a=1)"), "ApprovalRejectedError")
    asked(1)


@step("an answer for good holds in the next session too")
async def always(bench):
    user.will("always allow")
    expect_success(await bench.server.cell("print(add.run(a=1).total)"))
    user.will("deny")
    async with bench.connect_again(on_question=user) as server:
        code = "from mcptools.probe import add\nprint(add.run(a=2).total)"
        outcome = await server.cell(code)
        expect("7" in expect_success(outcome), "no sum", outcome)
        asked(0)
        expect_error(await server.cell(ECHO.format("x")), "ApprovalRejectedError")
        asked(1)


@step("an error says what a client without elicitation can do")
async def without(bench):
    async with bench.connect_again() as server:
        code = "from mcptools.probe import fail\nfail.run()"
        expect_error(
            await server.cell(code),
            "does not support elicitation",
            "--approval-policy",
        )
        outcome = await server.call("install_package", {"package_name": "tabulate"})
        expect_error(outcome, "does not support elicitation")


if __name__ == "__main__":
    parser = scenario.arguments()
    parser.add_argument("--params", required=True, help="JSON: how to reach the probe")
    options, command = scenario.parse(parser)
    raise SystemExit(scenario.run(options, command))
