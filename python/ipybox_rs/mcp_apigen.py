"""Generates typed Python APIs for the tools of MCP servers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ipybox_rs import _checks, _host
from ipybox_rs._errors import GenerateError

__all__ = [
    "ApigenReport",
    "GenerateError",
    "Registry",
    "apigen",
    "generate_mcp_sources",
]


class Registry:
    """MCP servers by name, in memory: for executors that must not know each other's servers.

    Without one, servers are registered for a working directory, and known to all executors that run there.
    """

    def __init__(self, connect_timeout: float = 120) -> None:
        """Makes an empty registry.

        Args:
            connect_timeout: How long a registration waits for a server to start, in seconds.
        """
        self._timeout = _checks.duration("connect_timeout", connect_timeout)
        self._held: _host.HeldHost | None = None
        self._number = 0

    def __del__(self) -> None:
        held = getattr(self, "_held", None)
        if held is not None:
            held.host.post("registry/close", number=self._number)

    async def _open(self) -> int:
        """Its number in the host."""
        if self._held is None or not self._held.host.is_usable:
            held, number = _host.HeldHost(), _host.number()
            place = _host.place(self._timeout)
            await held.host.request("registry/open", number=number, place=place)
            self._held, self._number = held, number
        return self._number


async def generate_mcp_sources(
    server_name: str,
    server_params: Mapping[str, Any],
    root_dir: str | os.PathLike[str],
    *,
    registry: Registry | None = None,
    connect_timeout: float = 120,
    state_dir: str | os.PathLike[str] | None = None,
) -> list[str]:
    """Generates a typed Python API for the tools of an MCP server, the package `<root_dir>/<server_name>/`.

    Each tool becomes a module with a class `Params`, a class `Result` if the tool declares one, and a function `run`.
    The server is registered too: executors whose working directory, or whose kernel's `PYTHONPATH`, is `root_dir` or
    its parent know it, now and later. A package and a registration of the same name are replaced, in one step.

    Args:
        server_name: The name of the package, and of the server in approval requests: a lower-case Python identifier.
        server_params: How to reach the server: `command`, `args`, `env`, `cwd` of a program, or `url`, `headers`,
            `type` of a server behind a URL. `${NAME}` placeholders in them are filled from the environment of this
            process, and the `.env` of its current directory, when connecting.
        root_dir: Where the package is written, usually `mcptools` in the working directory.
        registry: Registers the server there instead.
        connect_timeout: How long to wait for the server to start, in seconds.
        state_dir: Where registrations are kept. Default: `ipybox` in the platform's data directory.

    Returns:
        The names of the generated modules, one for each tool.

    Raises:
        ValueError: The name or the parameters cannot be used.
        GenerateError: The server cannot be connected to, or the package cannot be written.
    """
    _checks.instance("registry", registry, Registry)
    held = _host.HeldHost()
    try:
        params: dict[str, Any] = {
            "place": _host.place(
                _checks.duration("connect_timeout", connect_timeout),
                _checks.path("state_dir", state_dir),
            ),
            "server_name": _checks.text("server_name", server_name),
            "server_params": _checks.mapping("server_params", server_params),
            "root_dir": _checks.path("root_dir", root_dir),
        }
        if registry is not None:
            params["registry"] = await registry._open()
        return list(await held.host.request("generate_mcp_sources", **params))
    finally:
        await held.release()


@dataclass(frozen=True)
class ApigenReport:
    """The generated modules, and warnings.

    Attributes:
        modules: The names of the modules, one for each tool.
        warnings: Parts of the tools' schemas that the generated code does not express, and tools that were left out.
    """

    modules: list[str]
    warnings: list[str]


async def apigen(
    server_name: str,
    root_dir: str | os.PathLike[str],
    *,
    server_params: Mapping[str, Any] | None = None,
    tools: str | os.PathLike[str] | None = None,
    results: Mapping[str, list[Any]] | None = None,
    is_async: bool = False,
) -> ApigenReport:
    """Generates the package `<root_dir>/<server_name>/` without registering a server.

    Args:
        server_name: The name of the package.
        root_dir: Where the package is written.
        server_params: How to reach the server; either this or `tools`.
        tools: A file with the result of a `tools/list` request.
        results: Results of tools, by tool name. The module of a tool with results has `run_parsed`, which returns an
            instance of the type that is inferred from them.
        is_async: Whether `run` is an `async def` (and `run_sync` is there too) instead of a `def` (and `run_async`).

    Raises:
        ValueError: The name cannot be used, a result is for a tool that is not there, or not just one source is given.
        GenerateError: The tools cannot be listed, or the package cannot be written.
    """
    held = _host.HeldHost()
    try:
        report = await held.host.request(
            "apigen",
            place=_host.place(),
            server_name=_checks.text("server_name", server_name),
            root_dir=_checks.path("root_dir", root_dir),
            server_params=None
            if server_params is None
            else _checks.mapping("server_params", server_params),
            tools=_checks.path("tools", tools),
            results=_checks.mapping("results", results or {}),
            is_async=bool(is_async),
        )
        return ApigenReport(report["modules"], report["warnings"])
    finally:
        await held.release()
