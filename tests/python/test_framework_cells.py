"""Cells for agent frameworks, `ipybox_rs.cells`; `docs/agent-frameworks.md` has a program for each framework."""

import pytest
from support import ECHO

from ipybox_rs import CodeExecutionError, CodeExecutor
from ipybox_rs.cells import Cells, failure, run_cell

TWICE = f"""
print("before")
{ECHO}
try:
    {ECHO.splitlines()[1].replace("hi", "again")}
except Exception as error:
    print(type(error).__name__)
"""


async def started(probe):
    executor = CodeExecutor()
    await executor.start()
    await executor.register_mcp_server("probe", probe)
    return executor


async def test_a_cell_stops_at_each_question_and_ends_with_its_output(probe):
    executor = await started(probe)
    cells = Cells(executor)
    question, output = await cells.start("1", TWICE)
    assert (question, output) == ("probe.echo(text='hi')", None)
    question, output = await cells.answer("1", True)
    assert (question, output) == ("probe.echo(text='again')", None)
    question, output = await cells.answer("1", False)
    assert question is None
    assert output == "before\nhi\nApprovalRejectedError"
    await executor.stop()


async def test_another_cell_is_refused_until_the_first_has_ended(probe):
    executor = await started(probe)
    cells = Cells(executor)
    await cells.start("1", ECHO)
    _, output = await cells.start("2", "1 + 1")
    assert output == "Not run: another cell has not ended. Run one cell at a time."
    assert await cells.answer("1", True) == (None, "hi")
    assert await cells.start("2", "1 + 1") == (None, "2")
    await executor.stop()


async def test_an_answer_to_a_cell_that_is_gone_says_so(probe):
    executor = await started(probe)
    cells = Cells(executor)
    gone = "The cell has not ended: its kernel is gone. Variables are lost."
    assert await cells.answer("1", True) == (None, gone)
    await cells.start("1", ECHO)
    assert await cells.answer("2", True) == (None, gone)
    assert await cells.answer("1", True) == (None, "hi")
    assert await cells.answer("1", True) == (None, gone)
    await executor.stop()


async def test_a_cell_that_fails_ends_with_what_it_has_printed_and_the_next_runs(probe):
    executor = await started(probe)
    cells = Cells(executor)
    question, output = await cells.start("1", "print('so far')\n1 / 0")
    assert question is None
    assert output.startswith("so far\n")
    assert output.endswith("ZeroDivisionError: division by zero")
    assert await cells.start("2", "") == (None, "")
    await executor.stop()


async def test_run_cell_asks_about_each_call(probe):
    executor = await started(probe)
    asked = []

    async def ask(request):
        asked.append(str(request))
        return len(asked) == 1

    output = await run_cell(executor, TWICE, ask)
    assert output == "before\nhi\nApprovalRejectedError"
    assert asked == ["probe.echo(text='hi')", "probe.echo(text='again')"]
    with pytest.raises(CodeExecutionError) as raised:
        await run_cell(executor, "print('so far')\n1 / 0", ask)
    assert failure(raised.value).startswith("so far\n")
    await executor.stop()
