"""Approval policies."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ApprovalPolicy"]


@dataclass(frozen=True)
class ApprovalPolicy:
    """Decides which calls need approval, which run and which are denied, by rules in TOML.

    It is checked when an executor or a tool server starts with it, which raises `ValueError` if it cannot be used.

    ```python
    policy = ApprovalPolicy('''
    default = "ask"

    [[rule]]
    server = "github"
    tool = ["get_*", "list_*"]
    effect = "allow"
    ''')
    ```

    Attributes:
        text: The rules.
    """

    text: str

    @classmethod
    def read(cls, file: str | os.PathLike[str]) -> ApprovalPolicy:
        """Reads a policy from a file.

        Raises:
            OSError: The file cannot be read.
        """
        return cls(Path(file).read_text(encoding="utf-8"))
