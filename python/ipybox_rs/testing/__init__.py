"""Tests of code that calls tools, without the servers: recorded at the first run, replayed afterwards."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import os
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from ipybox_rs import _program
from ipybox_rs.code_exec import CodeExecutor

__all__ = ["ReplayDifference", "recorded"]

MODES = ("none", "once", "new_episodes", "all")
"""When calls are recorded, in the words of VCR: never; if there is no recording; also those that it does not have; always."""

VARIABLE = "IPYBOX_RECORD_MODE"
"""Names the mode where pytest's option does not."""

UNKNOWN = "the recording does not have this call"


class ReplayDifference(AssertionError):
    """A test has made other calls than its recording has."""


class _RecordedExecutor(CodeExecutor):
    """An executor whose servers are recorded, or played from a recording.

    Args:
        file: The recording.
        attempt: Whether the recording is made (`record`), played (`replay`), or played and completed (`update`).
        options: Those of `CodeExecutor`. `record` and `registry` are its own.
    """

    def __init__(
        self, file: str | os.PathLike[str], *, attempt: str, **options: Any
    ) -> None:
        self._file = Path(file).absolute()
        self._attempt = attempt
        self._python = options.get("python")
        self._directory = tempfile.TemporaryDirectory(prefix="ipybox-test-")
        directory = Path(self._directory.name)
        # The run is recorded in any case: a replay to be compared.
        self._run = directory / "run.jsonl"
        if attempt != "record":
            options.setdefault("seed", _lines(self._file)[0]["seed"])
        options.setdefault("working_dir", directory / "workspace")
        options.setdefault("state_dir", directory / "state")
        super().__init__(record=self._run, **options)

    async def register_mcp_server(
        self, server_name: str, server_params: Mapping[str, Any]
    ) -> list[str]:
        """As `CodeExecutor.register_mcp_server`. A replay does not look at the parameters."""
        if self._attempt != "record":
            played: dict[str, Any] = {
                "command": _program.find(),
                "args": ["play", str(self._file), "--server", server_name],
            }
            if self._attempt == "update":
                played["args"] += await self._register_living(
                    server_name, server_params
                )
                # The played server fills the placeholders of the living one.
                names = re.findall(r"\$\{(\w+)\}", json.dumps(dict(server_params)))
                played["env"] = {name: f"${{{name}}}" for name in names}
            server_params = played
        return await super().register_mcp_server(server_name, server_params)

    async def _register_living(
        self, server_name: str, server_params: Mapping[str, Any]
    ) -> list[str]:
        """Registers the living server. Returns the flags by which `ipybox play` finds it."""
        directory = Path(self._directory.name)
        workspace, state = directory / "living", directory / "living-state"
        async with CodeExecutor(
            working_dir=workspace, state_dir=state, python=self._python
        ) as living:
            await living.register_mcp_server(server_name, server_params)
        return ["--update", "--workspace", str(workspace), "--state-dir", str(state)]

    def differences(self) -> list[str]:
        """The calls of a stopped executor that are not as recorded: unknown, not made, or before one that they followed."""
        given = _calls(self._run)
        # Calls that were added to the recording have no place in it, and need not be made again.
        recorded = [call for call in _calls(self._file) if call["cell"] > 0]
        messages = [_error(call) for call in given]
        unknown = [message for message in messages if UNKNOWN in message]
        missing = _count(recorded) - _count(given)
        return (
            unknown
            + [
                f"{count} recorded calls of `{server}.{tool}` were not made"
                for (server, tool), count in missing.items()
            ]
            + _reordered(recorded, given)
        )

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
    if mode == "all" or not path.exists():
        await _attempt(test, path, options, args, kwargs, attempt="record")
        return
    differences = await _attempt(test, path, options, args, kwargs, attempt="replay")
    if mode == "new_episodes" and any(UNKNOWN in words for words in differences):
        differences = await _attempt(
            test, path, options, args, kwargs, attempt="update"
        )
    if differences:
        raise ReplayDifference(f"{path}:\n" + "\n".join(differences))


async def _attempt(
    test: Callable[..., Awaitable[None]],
    path: Path,
    options: dict[str, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    attempt: str,
) -> list[str]:
    """Runs a test. Returns how it differs from its recording."""
    executor = _RecordedExecutor(path, attempt=attempt, **options)
    is_replay = attempt != "record"
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


def _reordered(
    recorded: list[dict[str, Any]], given: list[dict[str, Any]]
) -> list[str]:
    """The calls that came before one that they had followed. Two that overlapped have no order."""

    def begin(call: dict[str, Any]) -> int:
        return int(call["order"][0])

    known: defaultdict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for call in sorted(recorded, key=begin):
        known[_key(call)].append(call)
    made = [
        known[_key(call)].pop(0)
        for call in sorted(given, key=begin)
        if known[_key(call)]
    ]
    messages: list[str] = []
    first: dict[str, Any] | None = None
    for call in reversed(made):
        if first is not None and first["order"][1] < begin(call):
            messages.append(
                f"{_words(call)} was called before {_words(first)}, which it had followed"
            )
        if first is None or call["order"][1] < first["order"][1]:
            first = call
    return messages[::-1]


def _key(call: dict[str, Any]) -> tuple[str, str, str]:
    arguments = json.dumps(call["arguments"], sort_keys=True)
    return call["server"], call["tool"], arguments


def _words(call: dict[str, Any]) -> str:
    server, tool, arguments = _key(call)
    return f"`{server}.{tool}` with {arguments[:200]}"


def _error(call: dict[str, Any]) -> str:
    answer = call["answer"] or {}
    return str(answer.get("error", {}).get("message", ""))


def _count(calls: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    return Counter((call["server"], call["tool"]) for call in calls)
