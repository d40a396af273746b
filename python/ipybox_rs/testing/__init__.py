"""Tests of code that calls tools, without the servers: recorded at the first run, replayed afterwards."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import os
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from ipybox_rs import _program
from ipybox_rs.code_exec import CodeExecutor

__all__ = ["ReplayDifference", "recorded"]

MODES = ("none", "once", "new_episodes", "all")
"""When tests are recorded, in the words of VCR: never; if there is no recording; also if a call is not in it; always."""

VARIABLE = "IPYBOX_RECORD_MODE"
"""Names the mode where pytest's option does not."""

UNKNOWN = "the recording does not have this call"


class ReplayDifference(AssertionError):
    """A test has made other calls than its recording has."""


class _RecordedExecutor(CodeExecutor):
    """An executor whose servers are recorded, or played from a recording.

    Args:
        file: The recording.
        is_replay: Whether servers are played from it; otherwise it is made.
        options: Those of `CodeExecutor`. `record` and `registry` are its own.
    """

    def __init__(
        self, file: str | os.PathLike[str], *, is_replay: bool, **options: Any
    ) -> None:
        self._file = Path(file).absolute()
        self._is_replay = is_replay
        self._directory = tempfile.TemporaryDirectory(prefix="ipybox-test-")
        directory = Path(self._directory.name)
        # The run is recorded in any case: a replay to be compared.
        self._run = directory / "run.jsonl"
        if is_replay:
            options.setdefault("seed", _lines(self._file)[0]["seed"])
        options.setdefault("working_dir", directory / "workspace")
        options.setdefault("state_dir", directory / "state")
        super().__init__(record=self._run, **options)

    async def register_mcp_server(
        self, server_name: str, server_params: Mapping[str, Any]
    ) -> list[str]:
        """As `CodeExecutor.register_mcp_server`. A replay does not look at the parameters."""
        if self._is_replay:
            args = ["play", str(self._file), "--server", server_name]
            server_params = {"command": _program.find(), "args": args}
        return await super().register_mcp_server(server_name, server_params)

    def differences(self) -> list[str]:
        """The calls of a stopped executor that are not as recorded: unknown ones with a diff, and those not made."""
        given = _calls(self._run)
        messages = [_error(call) for call in given]
        unknown = [message for message in messages if UNKNOWN in message]
        missing = _count(_calls(self._file)) - _count(given)
        return unknown + [
            f"{count} recorded calls of `{server}.{tool}` were not made"
            for (server, tool), count in missing.items()
        ]

    def keep(self) -> None:
        """Makes the recording of a stopped executor that of the test."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        written = self._file.with_name(self._file.name + ".new")
        written.write_bytes(self._run.read_bytes())
        written.replace(self._file)

    def remove(self) -> None:
        """Removes the directory of a stopped executor."""
        self._directory.cleanup()


def recorded(
    file: str | os.PathLike[str], **options: Any
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Gives an asynchronous test an argument `executor`, whose servers are recorded in `file`.

    Args:
        file: The recording, relative to the file of the test.
        options: Those of `CodeExecutor`.

    Raises:
        ReplayDifference: When the test has ended, it has made other calls than its recording has.
    """

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        path = Path(inspect.getfile(test)).parent / file

        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            asyncio.run(_run(test, path, options, args, kwargs))

        signature = inspect.signature(test)
        others = [
            parameter
            for parameter in signature.parameters.values()
            if parameter.name != "executor"
        ]
        # pytest has no fixture of this name.
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate


async def _run(
    test: Callable[..., Awaitable[None]],
    path: Path,
    options: dict[str, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    mode = os.environ.get(VARIABLE, "once")
    if mode not in MODES:
        raise ValueError(f"{VARIABLE} must be one of {', '.join(MODES)}, not {mode!r}")
    if mode == "none" and not path.exists():
        raise FileNotFoundError(
            f"{path}: there is no recording, and the mode `none` makes none"
        )
    if mode != "all" and path.exists():
        differences = await _attempt(test, path, options, args, kwargs, is_replay=True)
        if not differences:
            return
        if mode != "new_episodes":
            raise ReplayDifference(f"{path}:\n" + "\n".join(differences))
    await _attempt(test, path, options, args, kwargs, is_replay=False)


async def _attempt(
    test: Callable[..., Awaitable[None]],
    path: Path,
    options: dict[str, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    is_replay: bool,
) -> list[str]:
    """Runs a test. Returns how a replay differs."""
    executor = _RecordedExecutor(path, is_replay=is_replay, **options)
    failure = None
    try:
        try:
            async with executor:
                await test(*args, executor=executor, **kwargs)
        except Exception as error:  # noqa: BLE001 - a call that is not recorded explains it better
            failure = error
        differences = executor.differences() if is_replay else []
        if failure is not None and not differences:
            raise failure
        if failure is None and not is_replay:
            executor.keep()
        return differences
    finally:
        executor.remove()


def _lines(file: Path) -> list[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _calls(file: Path) -> list[dict[str, Any]]:
    return [line for line in _lines(file) if line["line"] == "call"]


def _error(call: dict[str, Any]) -> str:
    answer = call["answer"] or {}
    return str(answer.get("error", {}).get("message", ""))


def _count(calls: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    return Counter((call["server"], call["tool"]) for call in calls)
