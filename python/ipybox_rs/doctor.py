"""Reports whether an executor would work on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ipybox_rs import _checks, _host
from ipybox_rs._options import interpreter

__all__ = ["Report", "examine"]


@dataclass(frozen=True)
class Report:
    """The findings about this machine. `str(report)` is for people.

    Attributes:
        can_run: Whether an executor without a sandbox would work.
        can_sandbox: Whether one with a sandbox would work, by the sandbox's backend: `srt`, `bwrap`.
        groups: Lists of findings by subject, as `ipybox doctor --json` prints them.
    """

    can_run: bool
    can_sandbox: dict[str, bool]
    groups: dict[str, list[dict[str, Any]]]
    _text: str

    def __str__(self) -> str:
        return self._text


async def examine(
    working_dir: str | os.PathLike[str] | None = None,
    python: str | os.PathLike[str] | None = None,
    state_dir: str | os.PathLike[str] | None = None,
) -> Report:
    """Tries everything that an executor with these options needs. Takes about two seconds, and leaves nothing behind.

    Args:
        working_dir: As for `CodeExecutor`.
        python: As for `CodeExecutor`.
        state_dir: As for `CodeExecutor`.

    Returns:
        The findings. `print` shows them, with the commands that fix what is missing.

    Raises:
        HostError: The program `ipybox` could not be started.
    """
    held = _host.HeldHost()
    try:
        place = _host.place(state_dir=_checks.path("state_dir", state_dir))
        place["directory"] = (
            _checks.path("working_dir", working_dir) or place["directory"]
        )
        answer = await held.host.request(
            "doctor", place=place, python=interpreter(python)
        )
        report = answer["report"]
        return Report(
            report["can_run"], report["can_sandbox"], report["groups"], answer["text"]
        )
    finally:
        await held.release()
