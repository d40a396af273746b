"""`AuditSettings`: a log of what code does."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

from ipybox_rs import _checks

__all__ = ["AuditSettings"]


@dataclass(frozen=True)
class AuditSettings:
    """A log of cells, tool calls and decisions.

    Attributes:
        file: The file, in a directory that exists and that code in the kernel cannot write to.
        contents: What it contains beside names, decisions, durations and sizes: the arguments of calls, or everything,
            which is results, code and output too.
        max_bytes: The size in bytes at which the file is rotated.
    """

    file: str | os.PathLike[str]
    contents: Literal["arguments", "everything"] = "arguments"
    max_bytes: int = 10 * 1024 * 1024

    def _checked(self) -> dict[str, Any]:
        """As the host reads them."""
        if self.contents not in ("arguments", "everything"):
            message = (
                f'contents must be "arguments" or "everything", not {self.contents!r}'
            )
            raise ValueError(message)
        return {
            "file": _checks.path("file", self.file),
            "contents": self.contents,
            "max_bytes": _checks.count("max_bytes", self.max_bytes),
        }
