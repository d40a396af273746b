"""Cells for agent frameworks: one that runs to its end, and one that stops at each question until the user has answered.

`run_cell` is for frameworks whose tools can wait for a user. `Cells` is for those that suspend their run while the user
thinks: the cell waits here, outside of the framework's saved state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ipybox_rs._results import CodeExecutionChunk, CodeExecutionResult
from ipybox_rs.code_exec import (
    CodeExecution,
    CodeExecutionError,
    CodeExecutionTimeout,
    CodeExecutor,
)
from ipybox_rs.tool_exec.approval.client import ApprovalRequest

if TYPE_CHECKING:
    _Stream = CodeExecution[ApprovalRequest | CodeExecutionChunk | CodeExecutionResult]

__all__ = ["Cells", "failure", "run_cell"]


def failure(error: CodeExecutionError | CodeExecutionTimeout) -> str:
    """The text for a model about a failed cell: its output, and the error."""
    printed = error.output.text if error.output else None
    return "\n".join(filter(None, [printed, str(error)]))


async def run_cell(
    executor: CodeExecutor, code: str, ask: Callable[[ApprovalRequest], Awaitable[bool]]
) -> str:
    """Runs a cell to its end.

    Args:
        executor: Where it runs.
        code: Python code.
        ask: Says whether a tool call may run.

    Returns:
        What the cell has shown.

    Raises:
        CodeExecutionError: As `CodeExecutor.stream`; `failure` makes a text of it.
        TimeoutError: The code exceeded its timeout.
    """
    text = ""
    async for item in executor.stream(code):
        if isinstance(item, ApprovalRequest):
            await (item.accept() if await ask(item) else item.reject())
        elif isinstance(item, CodeExecutionResult):
            text = item.text or ""
    return text


class Cells:
    """Runs a cell from question to question, one cell at a time.

    Each step gives two values, of which one is `None`: the question, a tool call as Python writes it, which waits for
    `answer`; or at the end the output, what the cell has shown or how it failed.
    """

    def __init__(self, executor: CodeExecutor) -> None:
        """Makes it for the cells of one conversation.

        Args:
            executor: Where they run. Its `approval_timeout` is how long a question waits.
        """
        self._executor = executor
        self._cell_id: str | None = None
        self._stream: _Stream | None = None
        self._request: ApprovalRequest | None = None

    async def start(self, cell_id: str, code: str) -> tuple[str | None, str | None]:
        """Begins a cell, unless another one has not ended: then the output says so.

        Args:
            cell_id: What the framework calls it, as the id of the model's call.
            code: Python code.
        """
        if self._cell_id is not None:
            return None, "Not run: another cell has not ended. Run one cell at a time."
        self._cell_id, self._stream = cell_id, self._executor.stream(code)
        return await self._step(self._stream)

    async def answer(
        self, cell_id: str, allowed: bool
    ) -> tuple[str | None, str | None]:
        """Answers the question of a cell, which goes on. If the cell is gone, the output says so.

        Args:
            cell_id: As for `start`.
            allowed: Whether the tool call may run.
        """
        request, stream = self._request, self._stream
        if cell_id != self._cell_id or request is None or stream is None:
            lost = "The cell has not ended: its kernel is gone. Variables are lost."
            return None, lost
        self._request = None
        await (request.accept() if allowed else request.reject())
        return await self._step(stream)

    async def _step(self, stream: _Stream) -> tuple[str | None, str | None]:
        try:
            item = await stream.__anext__()
            if isinstance(item, ApprovalRequest):
                self._request = item
                return str(item), None
            return None, item.text or ""
        except (CodeExecutionError, CodeExecutionTimeout) as error:
            return None, failure(error)
        finally:
            if self._request is None:
                self._cell_id = self._stream = None
                await stream.aclose()
