"""Approval requests of code that calls tools."""

import asyncio
import gc
import threading

import pytest
from support import ECHO, collect

from ipybox_rs import (
    ApprovalPolicy,
    ApprovalRequest,
    CodeExecutionError,
    CodeExecutionResult,
    CodeExecutor,
    generate_mcp_sources,
)

CAUGHT = f"""
try:
    exec({ECHO!r})
except Exception as error:
    print(type(error).__name__)
"""
"""Code that prints the name of the exception that its call raises."""


async def started(probe, **options):
    """An executor that has the tools of a server."""
    executor = CodeExecutor(**options)
    await executor.start()
    await executor.register_mcp_server("probe", probe)
    return executor


async def asked(executor, code=ECHO, **options):
    """The stream of code and its first approval request."""
    stream = executor.stream(code, **options)
    request = await stream.__anext__()
    assert isinstance(request, ApprovalRequest)
    return stream, request


async def text_of(stream):
    """The text of the result of a stream."""
    return (await collect(stream))[-1].text


async def test_a_request_describes_what_would_run(probe):
    async with CodeExecutor() as executor:
        await executor.register_mcp_server("probe", probe)
        stream, request = await asked(executor)
        assert (request.server_name, request.tool_name) == ("probe", "echo")
        assert request.tool_args == {"text": "hi"}
        assert str(request) == "probe.echo(text='hi')"
        assert request.target.kind == "command"
        assert "probe.py" in request.target.text
        assert request.annotations.read_only is True
        assert await request.accept()
        assert await text_of(stream) == "hi"


async def test_accepting_says_whether_it_was_in_time(probe):
    executor = await started(probe)
    stream, request = await asked(executor)
    assert await request.accept() is True
    assert await request.accept() is False
    assert await request.reject() is False
    assert await text_of(stream) == "hi"
    await executor.stop()


async def test_a_rejected_call_fails_in_the_code(probe):
    executor = await started(probe)
    stream, request = await asked(executor, CAUGHT)
    assert await request.reject()
    assert await text_of(stream) == "ApprovalRejectedError"
    await executor.stop()


async def test_a_request_that_is_collected_is_rejected(probe):
    executor = await started(probe)
    stream, request = await asked(executor, CAUGHT)
    del request
    gc.collect()
    assert await text_of(stream) == "ApprovalRejectedError"
    await executor.stop()


async def test_an_expired_request_is_a_timeout_in_the_code(probe):
    executor = await started(probe, approval_timeout=0.2)
    stream, request = await asked(executor, CAUGHT)
    assert await text_of(stream) == "ApprovalTimeoutError"
    assert await request.accept() is False
    await executor.stop()


async def test_the_error_of_an_expired_request_ends_code_that_does_not_catch_it(probe):
    executor = await started(probe, approval_timeout=0.2)
    stream, _request = await asked(executor)
    with pytest.raises(CodeExecutionError, match="ApprovalTimeoutError"):
        await collect(stream)
    await executor.stop()


async def test_waiting_for_approval_is_no_part_of_the_timeout(probe):
    executor = await started(probe)
    # Afterwards the kernel has imported everything, and the rest of the call takes a small part of the time.
    stream, request = await asked(executor)
    assert await request.accept()
    assert await text_of(stream) == "hi"
    stream, request = await asked(executor, timeout=20)
    # Nothing happens meanwhile: that is what is tested.
    await asyncio.sleep(21)
    assert await request.accept()
    assert await text_of(stream) == "hi"
    await executor.stop()


async def test_an_answer_after_the_code_was_cancelled_is_too_late(probe):
    executor = await started(probe)
    stream, request = await asked(executor)
    await stream.aclose()
    assert (await executor.execute("1")).text == "1"
    assert await request.accept() is False
    await executor.stop()


async def test_an_answer_after_the_executor_was_stopped_is_too_late(probe):
    executor = await started(probe)
    _stream, request = await asked(executor)
    await executor.stop()
    assert await request.accept() is False


async def test_a_request_can_be_answered_by_another_thread(probe):
    executor = await started(probe)
    stream, request = await asked(executor)
    answers = []
    answering = threading.Thread(
        target=lambda: answers.append(asyncio.run(request.accept()))
    )
    answering.start()
    assert await text_of(stream) == "hi"
    answering.join()
    assert answers == [True]
    await executor.stop()


async def test_several_calls_of_one_cell_can_be_open_at_once(probe):
    code = """
    from concurrent.futures import ThreadPoolExecutor
    from mcptools.probe import echo
    with ThreadPoolExecutor(4) as threads:
        print(sorted(threads.map(lambda one: echo.run(echo.Params(text=one)), "abcd")))
    """
    executor = await started(probe)
    stream, first = await asked(executor, code)
    requests = [first] + [await stream.__anext__() for _ in range(3)]
    assert sorted(request.tool_args["text"] for request in requests) == list("abcd")
    for request in reversed(requests):
        assert await request.accept()
    assert await text_of(stream) == "['a', 'b', 'c', 'd']"
    await executor.stop()


async def test_on_decision_is_called_once_with_the_decision(probe):
    executor = await started(probe)
    stream, request = await asked(executor)
    decisions = []
    request.on_decision(decisions.append)
    request.on_decision(lambda _: 1 / 0)
    await request.accept()
    await request.reject()
    request.on_decision(decisions.append)
    assert decisions == [True, True]
    assert await text_of(stream) == "hi"
    await executor.stop()


async def test_response_waits_for_the_decision(probe):
    executor = await started(probe)
    stream, request = await asked(executor, CAUGHT)
    waiting = asyncio.ensure_future(request.response())
    await asyncio.sleep(0)
    assert not waiting.done()
    await request.reject()
    assert await waiting is False
    assert await request.response() is False
    await collect(stream)
    await executor.stop()


async def test_a_request_of_ones_own_calls_respond():
    decisions = []

    async def respond(decision):
        decisions.append(decision)

    request = ApprovalRequest("server", "tool", {"x": [1]}, respond)
    assert str(request) == "server.tool(x=[1])"
    await request.accept()
    assert decisions == [True]
    assert await request.response() is True


async def test_accept_for_session_lets_later_calls_of_the_tool_run(probe):
    executor = await started(probe)
    stream, request = await asked(executor)
    await request.accept_for_session()
    assert await text_of(stream) == "hi"
    assert [type(event) for event in await collect(executor.stream(ECHO))] == [
        CodeExecutionResult
    ]
    await executor.stop()
    again = await started(probe)
    stream, request = await asked(again)
    await request.accept()
    await collect(stream)
    await again.stop()


async def test_accept_always_lets_calls_of_later_executors_run(probe):
    await generate_mcp_sources("probe", probe, "mcptools")
    async with CodeExecutor() as executor:
        stream, request = await asked(executor)
        await request.accept_always()
        await collect(stream)
    async with CodeExecutor() as executor:
        events = await collect(executor.stream(ECHO))
    assert [type(event) for event in events] == [CodeExecutionResult]


async def test_a_policy_decides_which_calls_are_asked_for(probe):
    policy = ApprovalPolicy(
        'default = "ask"\n'
        '[[rule]]\nserver = "probe"\ntool = ["echo"]\neffect = "allow"\n'
        '[[rule]]\nserver = "probe"\ntool = ["fail"]\neffect = "deny"\n'
    )
    executor = await started(probe, approval_policy=policy)
    assert [event.text for event in await collect(executor.stream(ECHO))] == ["hi"]
    denied = "from mcptools.probe import fail; fail.run(fail.Params())"
    for running in (executor.execute(denied), collect(executor.stream(denied))):
        with pytest.raises(CodeExecutionError, match="ApprovalRejectedError"):
            await running
    stream, request = await asked(
        executor, "from mcptools.probe import pid; pid.run(pid.Params())"
    )
    await request.accept()
    await collect(stream)
    await executor.stop()


async def test_a_policy_can_be_read_from_a_file(workspace):
    file = workspace.write("policy.toml", 'default = "allow"\n')
    assert ApprovalPolicy.read(file).text == 'default = "allow"\n'
    with pytest.raises(OSError):
        ApprovalPolicy.read("missing.toml")


@pytest.mark.parametrize(
    "text", ["nonsense", 'default = "maybe"', "[[rule]]\neffect = 1"]
)
async def test_a_policy_that_cannot_be_used_is_a_value_error(text):
    with pytest.raises(ValueError):
        await CodeExecutor(approval_policy=ApprovalPolicy(text)).start()


async def test_without_approval_of_tool_calls_they_run(probe):
    executor = await started(probe, approve_tool_calls=False)
    assert [event.text for event in await collect(executor.stream(ECHO))] == ["hi"]
    await executor.stop()


async def test_execute_accepts_every_call(probe):
    executor = await started(probe)
    assert (await executor.execute(ECHO)).text == "hi"
    await executor.stop()


async def test_shell_commands_are_asked_for():
    async with CodeExecutor(approve_shell_cmds=True) as executor:
        stream, request = await asked(executor, "!echo from the shell")
        assert (request.server_name, request.tool_name) == ("ipybox", "shell")
        assert request.tool_args["cmd"] == "echo from the shell"
        assert request.target.kind == "kernel"
        await request.accept()
        assert await text_of(stream) == "from the shell"
        stream, request = await asked(executor, "%%bash\necho rejected")
        assert request.tool_name == "shell_magic"
        await request.reject()
        with pytest.raises(CodeExecutionError):
            await collect(stream)


async def test_require_shell_escape_blocks_pythons_own_ways():
    async with CodeExecutor(
        approve_shell_cmds=True, require_shell_escape=True
    ) as executor:
        for code in (
            "import os; os.system('true')",
            "import subprocess; subprocess.run('true')",
        ):
            with pytest.raises(CodeExecutionError):
                await executor.execute(code)
        assert (await executor.execute("!echo escaped")).text == "escaped"


async def test_require_shell_escape_needs_approval_of_shell_commands():
    with pytest.raises(ValueError, match="approve_shell_cmds"):
        CodeExecutor(require_shell_escape=True)


async def test_an_unread_stream_does_not_lose_requests(probe):
    executor = await started(probe)
    stream, first = await asked(executor, f"{ECHO}\n{ECHO}")
    await first.accept()
    await asyncio.sleep(0.3)
    second = await stream.__anext__()
    assert await second.accept()
    assert await text_of(stream) == "hi\nhi"
    await executor.stop()


async def test_audit_settings_make_a_log(probe, tmp_path):
    from ipybox_rs import AuditSettings

    file = tmp_path / "audit.jsonl"
    executor = await started(probe, audit=AuditSettings(file))
    await executor.execute(ECHO)
    await executor.stop()
    assert '"echo"' in file.read_text()
    assert '"face":"python_library"' in file.read_text()


async def test_the_requests_of_a_batch_say_so(probe):
    async with CodeExecutor() as executor:
        await executor.register_mcp_server("probe", probe)
        code = """
import mcptools
from mcptools.probe import echo
with mcptools.batch("say it twice") as batch:
    for text in ("one", "two"): echo.run(text=text)
print([call.error is None for call in batch])"""
        batches = []
        async for item in executor.stream(code):
            if isinstance(item, ApprovalRequest):
                batches.append(item.batch)
                is_second = item.tool_args["text"] == "two"
                assert await (item.accept() if is_second else item.reject())
            else:
                last = item
        assert last.text.endswith("[False, True]")
        assert [(batch.title, batch.size) for batch in batches] == [
            ("say it twice", 2)
        ] * 2
        assert len({batch.id for batch in batches}) == 1
