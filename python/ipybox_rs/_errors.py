"""All exceptions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ipybox_rs._results import CodeExecutionResult


class HostError(RuntimeError):
    """The host process, the program `ipybox`, could not be started, or has ended."""


class StartError(RuntimeError):
    """An executor, a kernel or a tool server could not be started. No process is left behind."""


class GenerateError(RuntimeError):
    """No package was generated. An earlier package and registration are unchanged."""


class InstallError(RuntimeError):
    """A Python package was not installed. The message has the installer's output."""


class CodeExecutionError(Exception):
    """Code raised an exception, or could not be run to its end. The message is the traceback, or the reason.

    Attributes:
        name: The exception's class, such as `"ZeroDivisionError"`; `None` if the code did not raise one.
        value: The exception's text, such as `"division by zero"`; `None` if the code did not raise one.
        output: What the code had shown before; `None` if it was not run at all.
    """

    def __init__(
        self,
        message: str,
        name: str | None = None,
        value: str | None = None,
        output: CodeExecutionResult | None = None,
    ) -> None:
        super().__init__(message)
        self.name = name
        self.value = value
        self.output = output


class KernelLostError(CodeExecutionError):
    """The kernel was lost while the code ran: it was reset, it died, or the connection to it failed.

    The next code runs in a fresh kernel.

    Attributes:
        variables_kept: Whether the variables are still there, as after a broken connection to a remote kernel.
    """

    def __init__(
        self,
        message: str,
        output: CodeExecutionResult | None = None,
        variables_kept: bool = False,
    ) -> None:
        super().__init__(message, output=output)
        self.variables_kept = variables_kept


class KernelUnavailableError(CodeExecutionError):
    """The code was not run: there is no kernel, and none can be started."""


if TYPE_CHECKING or asyncio.TimeoutError is TimeoutError:
    Timeout = TimeoutError
else:
    # Two classes before Python 3.11: those who catch either catch this one.
    Timeout = type("TimeoutError", (asyncio.TimeoutError, TimeoutError), {})


class CodeExecutionTimeout(Timeout):
    """Code ran longer than it was allowed to, and was interrupted. A `TimeoutError`.

    Attributes:
        output: What the code had shown before.
        variables_kept: Whether the variables are still there. If the code does not react to the interrupt, its
            kernel is killed, and a fresh one takes its place.
    """

    def __init__(
        self,
        message: str,
        output: CodeExecutionResult | None = None,
        variables_kept: bool = True,
    ) -> None:
        super().__init__(message)
        self.output = output
        self.variables_kept = variables_kept


class Cancelled(Exception):
    """Code was cancelled by `CodeExecutor.cancel`; for ourselves."""

    def __init__(self, message: str, output: CodeExecutionResult) -> None:
        super().__init__(message)
        self.output = output


class ToolRunnerError(Exception):
    """A tool failed, or the tool server cannot be reached or refuses the request."""


class ApprovalRejectedError(ToolRunnerError):
    """A tool call was rejected, or nobody could be asked. It did not run."""


class ApprovalTimeoutError(ToolRunnerError):
    """Nobody answered an approval request in time. The call did not run."""


class OutsideGrantError(ValueError):
    """A grant does not cover the call that it was to answer, or cannot be given. The call was rejected."""


class ApprovalClientError(RuntimeError):
    """The connection to a tool server's approval channel could not be opened, or has ended."""


_CLASSES: dict[str, type[Exception]] = {
    "settings": ValueError,
    "invalid": ValueError,
    "start": StartError,
    "generate": GenerateError,
    "install": InstallError,
    "unavailable": KernelUnavailableError,
    "tool": ToolRunnerError,
    "rejected": ApprovalRejectedError,
    "timeout": ApprovalTimeoutError,
    "outside_grant": OutsideGrantError,
    "approval_client": ApprovalClientError,
    "closed": RuntimeError,
}


def error_of(wire: dict[str, Any]) -> Exception:
    """The exception for an error of the host."""
    from ipybox_rs._results import CodeExecutionResult

    message, data = wire["message"], wire.get("data") or {}
    kind = data.get("kind")
    output = CodeExecutionResult.of(data["output"]) if "output" in data else None
    if kind == "raised":
        return CodeExecutionError(message, data["name"], data["value"], output)
    if kind == "timed_out":
        return CodeExecutionTimeout(message, output, data["kept"])
    if kind == "lost":
        return KernelLostError(message, output, data["kept"])
    if kind == "cancelled" and output is not None:
        return Cancelled(message, output)
    return _CLASSES.get(str(kind), RuntimeError)(message)
