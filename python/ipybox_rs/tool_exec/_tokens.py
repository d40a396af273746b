"""The tokens of tool servers: those of this process are known, others come from the environment."""

from __future__ import annotations

import os

TOKEN = "IPYBOX_TOOL_SERVER_TOKEN"
HOST_TOKEN = "IPYBOX_TOOL_SERVER_HOST_TOKEN"

_ours: dict[int, tuple[str, str]] = {}
"""The caller token and the host token, by port: tool servers listen on this machine only."""


def remember(port: int, token: str, host_token: str) -> None:
    _ours[port] = (token, host_token)


def forget(port: int) -> None:
    _ours.pop(port, None)


def token(port: int, given: str | None) -> str | None:
    """The caller token of the tool server on a port, if it is known."""
    return given or _ours.get(port, (None, None))[0] or os.environ.get(TOKEN)


def host_token(port: int, given: str | None) -> str | None:
    """The host token of the tool server on a port, if it is known."""
    return given or _ours.get(port, (None, None))[1] or os.environ.get(HOST_TOKEN)
