"""Messages to the host process, as lines."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any


def line_of(message: dict[str, Any]) -> bytes:
    """A message as the host reads it.

    Raises:
        TypeError, ValueError: Something in it cannot be written as JSON.
    """
    try:
        return _json(message) + b"\n"
    except (TypeError, ValueError, RecursionError):
        _blame(message["params"])
        raise


_LONG_NUMBER = re.compile("[0-9]{19}")
"""Numbers of fewer digits have at most 64 bits."""


def _json(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    if _LONG_NUMBER.search(text):
        json.loads(text, parse_int=_refuse_long)
    return text.encode()


def _refuse_long(digits: str) -> None:
    """Refuses what the host would read as another number, or not at all: its integers have 64 bits."""
    if len(digits) > 20 or not -(1 << 63) <= int(digits) < 1 << 64:
        shown = digits if len(digits) <= 40 else f"{digits[:20]}…"
        raise ValueError(f"{shown} has more than 64 bits")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{value!r} cannot be written as JSON")


def _blame(params: dict[str, Any]) -> None:
    """Raises an error that names the parameter which cannot be written."""
    for name, value in params.items():
        try:
            _json(value)
        except (TypeError, ValueError, RecursionError) as error:
            if name in _GROUPS:
                _blame(value)
            if isinstance(error, UnicodeEncodeError):
                surrogates = error.object[error.start : error.end]
                message = f"{name} must be Unicode text, without lone surrogates: {surrogates!r}"
                raise ValueError(message) from None  # noqa: TRY004
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(
                f"{name} cannot be passed to the host process: {error}"
            ) from None


_GROUPS = ("options", "place", "at")
"""Parameters that hold what callers call parameters."""
