"""Grants: one answer to many calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from ipybox_rs import _checks
from ipybox_rs._errors import OutsideGrantError

__all__ = ["GivenGrant", "Grant", "OutsideGrantError"]


class ToolCall(Protocol):
    """A call of a tool, as an `ApprovalRequest` is one."""

    @property
    def server_name(self) -> str: ...

    @property
    def tool_name(self) -> str: ...

    @property
    def tool_args(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Grant:
    """One answer to many calls: to those of a tool whose arguments fit its patterns, and to so many of them.

    `ApprovalRequest.proposed_grant` proposes one. `Grant.of` begins with the call of a request alone; each `argument`
    after that loosens it. `ApprovalRequest.grant` answers with it.

    A pattern is a dictionary with one key:

    | pattern | values |
    |---|---|
    | `{"equal": value}` | this value alone |
    | `{"prefix": "issue-"}` | texts that begin so, with up to 100 letters, digits and `-_.:#` behind it |
    | `{"domain": "example.com"}` | mail addresses at exactly this domain |
    | `{"origin": "https://example.com"}` | URLs with exactly this scheme, host and port |
    | `{"within": "/work/out"}` | paths below this directory, by their text |
    | `{"between": {"min": 1, "max": 10}}` | numbers within these bounds |
    | `{"text": {"max_chars": 900}}` | any text of this length at most |
    | `{"any": {}}` | any value |
    | `{"each": {"pattern": pattern, "max_items": 5}}` | lists of one to so many items, all of which fit |

    ```python
    from ipybox_rs import ApprovalRequest, Grant

    async def allow_mails(request: ApprovalRequest):
        grant = Grant.of(request, 20).argument("to", {"domain": "example.com"})
        await request.grant(grant)
    ```

    Attributes:
        server_name: The name under which the MCP server is registered.
        tool_name: The tool's name on its server.
        arguments: The patterns of the arguments, by their names. A call needs exactly these arguments.
        count: How many calls it allows, 1 to 10,000, that of its request among them.
        life: Whether it ends with the cell or with the executor. Resets end the first alone.
        also: Grants for other announced calls, given with it: those of `proposed_grant`, or some of them.
        text: It as a call, as users are shown it; `None` for one of your own.
    """

    server_name: str
    tool_name: str
    arguments: dict[str, dict[str, Any]]
    count: int
    life: Literal["cell", "session"] = "cell"
    also: tuple[Grant, ...] = ()
    text: str | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, request: ToolCall, count: int) -> Grant:
        """A grant for `count` calls with exactly the arguments of this `ApprovalRequest`, in its cell, with its own call."""
        fixed = {name: {"equal": value} for name, value in request.tool_args.items()}
        return cls(request.server_name, request.tool_name, fixed, count)

    def argument(self, name: str, pattern: Mapping[str, Any]) -> Grant:
        """A copy of the grant, with this pattern for an argument."""
        pattern = dict(_checks.mapping("pattern", pattern))
        return replace(self, arguments={**self.arguments, name: pattern}, text=None)

    def for_session(self) -> Grant:
        """A copy of the grant, which ends with the executor and not with the cell."""
        return replace(self, life="session", text=None)

    def __str__(self) -> str:
        return self.text if self.text is not None else repr(self)

    @classmethod
    def read(cls, wire: dict[str, Any], text: str | None) -> Grant:
        also = tuple(cls.read(each, None) for each in wire.get("also", ()))
        return cls(**{**wire, "also": also}, text=text)

    def written(self) -> dict[str, Any]:
        return {
            **({"also": [each.written() for each in self.also]} if self.also else {}),
            "server_name": self.server_name,
            "tool_name": self.tool_name,
            "arguments": self.arguments,
            "count": self.count,
            "life": self.life,
        }


@dataclass(frozen=True)
class GivenGrant:
    """A grant that was given.

    Attributes:
        id: Its number, by which the audit log names it.
        left: How many more calls it allows.
        grant: What it allows.
    """

    id: int
    left: int
    grant: Grant
