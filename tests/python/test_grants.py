"""Grants: one answer to many calls."""

import dataclasses

import pytest
from support import collect

from ipybox_rs import (
    ApprovalRequest,
    CodeExecutionError,
    CodeExecutor,
    Grant,
    OutsideGrantError,
)

# Calls by a name that may be anything are not announced.
LOOP = """
from mcptools.probe import add
total, call = 0, add.run
for b in range({}):
    total = call(a=7, b=b).total
print(total)
"""

ANNOUNCED = """
from mcptools.probe import add, echo
print(echo.run(text="a"))
for b in range(3):
    print(add.run(a=7, b=b).total)
print(echo.run(text="b"))
"""

CAUGHT = """
from mcptools.probe import add
for b in {}:
    try:
        print(add.run(a=7, b=b).total)
    except Exception as error:
        print(type(error).__name__)
"""


async def run(executor, code, answer):
    """Runs code, and answers its requests. Returns what it printed."""
    async for item in executor.stream(code):
        if isinstance(item, ApprovalRequest):
            await answer(item)
    return item.text


async def test_a_proposal_answers_a_loop(probe):
    async with CodeExecutor() as executor:
        await executor.register_mcp_server("probe", probe)
        proposals = []

        async def answer(request):
            proposals.append(request.proposed_grant)
            if request.proposed_grant is None:
                assert await request.accept()
            else:
                assert await request.grant(request.proposed_grant)

        assert await run(executor, LOOP.format(37), answer) == "43"
        assert [proposal is not None for proposal in proposals] == [
            False,
            False,
            False,
            True,
        ]
        proposal = proposals[-1]
        assert str(proposal) == "probe.add(a=7, b=<a number from 0 to 52>)"
        assert proposal.arguments == {
            "a": {"equal": 7},
            "b": {"between": {"min": 0, "max": 52}},
        }
        assert (proposal.count, proposal.life) == (50, "cell")
        # It has ended with its cell.
        assert await executor.grants() == []


async def test_announced_calls_are_answered_together_or_some_of_them(probe):
    async with CodeExecutor() as executor:
        await executor.register_mcp_server("probe", probe)
        asked = []

        async def answer_all(request):
            asked.append(str(request))
            assert await request.grant(request.proposed_grant)

        async def answer_some(request):
            asked.append(str(request))
            grant = request.proposed_grant
            if grant is None:
                assert await request.reject()
                return
            assert str(grant) == (
                "probe.echo(text='a'); up to 3: probe.add(a=7, b=<a number from 0 to 2>); up to 1: probe.echo(text='b')"
            )
            assert await request.grant(dataclasses.replace(grant, also=grant.also[:1]))

        async def answer_more(request):
            grant = request.proposed_grant
            wider = dataclasses.replace(grant.also[0], count=50)
            with pytest.raises(OutsideGrantError, match="does not propose"):
                await request.grant(dataclasses.replace(grant, also=(wider,)))

        assert await run(executor, ANNOUNCED, answer_all) == "a\n7\n8\n9\nb"
        assert asked == ["probe.echo(text='a')"]
        asked.clear()
        with pytest.raises(CodeExecutionError, match="was rejected"):
            await run(executor, ANNOUNCED, answer_some)
        assert asked == ["probe.echo(text='a')", "probe.echo(text='b')"]
        with pytest.raises(CodeExecutionError, match="was rejected"):
            await run(executor, ANNOUNCED, answer_more)
        assert await executor.grants() == []


async def test_a_grant_of_ones_own_is_listed_and_revoked(probe):
    async with CodeExecutor() as executor:
        await executor.register_mcp_server("probe", probe)
        outside = []

        async def answer(request):
            outside.append(request.outside_of_grants)
            if len(outside) > 1:
                assert await request.reject()
                return
            grant = Grant.of(request, 3).for_session()
            grant = grant.argument("b", {"between": {"min": 1, "max": 2}})
            assert await request.grant(grant)

        printed = await run(executor, CAUGHT.format([1, 2, 3]), answer)
        assert printed == "8\n9\nApprovalRejectedError"
        assert outside == [
            None,
            "Outside of grant 1: b=3 is not a number from 1 to 2",
        ]
        [given] = await executor.grants()
        assert (given.id, given.left, given.grant.life) == (1, 1, "session")
        assert str(given.grant) == "probe.add(a=7, b=<a number from 1 to 2>)"
        assert await executor.revoke_grant(1) is True
        assert await executor.revoke_grant(1) is False
        assert (
            await run(executor, CAUGHT.format([1]), answer) == "ApprovalRejectedError"
        )


async def test_a_grant_that_does_not_cover_its_call_permits_nothing(probe):
    async with CodeExecutor() as executor:
        await executor.register_mcp_server("probe", probe)

        async def answer(request):
            grant = Grant.of(request, 3).argument("b", {"equal": 2})
            with pytest.raises(OutsideGrantError, match="b=1 is not 2"):
                await request.grant(grant)
            assert await request.response() is False
            assert await request.accept() is False

        printed = await run(executor, CAUGHT.format([1]), answer)
        assert printed == "ApprovalRejectedError"


async def test_what_is_no_pattern_leaves_the_request_open(probe):
    async with CodeExecutor() as executor:
        await executor.register_mcp_server("probe", probe)

        async def answer(request):
            with pytest.raises(ValueError, match="unknown variant"):
                await request.grant(Grant.of(request, 3).argument("b", {"all": 1}))
            with pytest.raises(TypeError):
                await request.grant(None)
            with pytest.raises(TypeError):
                Grant.of(request, 3).argument("b", 1)
            none = dataclasses.replace(Grant.of(request, 3), count=0)
            with pytest.raises(ValueError):
                await request.grant(none)
            assert await request.accept()

        assert await run(executor, CAUGHT.format([1]), answer) == "8"


async def test_a_request_of_ones_own_has_no_grants():
    answers = []

    async def respond(decision):
        answers.append(decision)

    request = ApprovalRequest("probe", "echo", {"text": "hi"}, respond)
    assert request.proposed_grant is None
    with pytest.raises(OutsideGrantError):
        await request.grant(Grant.of(request, 3))
    assert answers == [False]


async def test_calls_of_execute_use_no_grant(probe):
    async with CodeExecutor() as executor:
        await executor.register_mcp_server("probe", probe)

        async def answer(request):
            assert await request.grant(Grant.of(request, 3).for_session())

        assert await run(executor, CAUGHT.format([1]), answer) == "8"
        await executor.execute(CAUGHT.format([1]))
        assert [given.left for given in await executor.grants()] == [2]
        assert (await collect(executor.stream(CAUGHT.format([1]))))[-1].text == "8"
        assert [given.left for given in await executor.grants()] == [1]
