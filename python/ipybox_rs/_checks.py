"""Checks what callers pass, and names it where it is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def seconds(name: str, value: float | None) -> float | None:
    """Checks a time in seconds; `None` is a time without end.

    Raises:
        TypeError: It is no number.
        ValueError: It is negative or not a number.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds or None, not {value!r}")
    if not value >= 0:
        raise ValueError(
            f"{name} must be a time in seconds, 0 or longer, not {value!r}"
        )
    # JSON has no infinity.
    return None if value == float("inf") else float(value)


def port(name: str, value: int | None) -> int | None:
    """Checks a port.

    Raises:
        TypeError: It is no whole number.
        ValueError: There is no such port.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a port or None, not {value!r}")
    if not 0 <= value <= 65535:
        raise ValueError(f"{name} must be a port between 0 and 65535, not {value!r}")
    return value


def text(name: str, value: Any) -> str:
    """Checks a text.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {value!r}")
    return value


def path(name: str, value: Any) -> str | None:
    """The absolute path of a file or a directory.

    Raises:
        TypeError: It is no path.
    """
    if value is None:
        return None
    try:
        return str(Path(value).absolute())
    except TypeError:
        raise TypeError(f"{name} must be a path or None, not {value!r}") from None


def variables(name: str, value: Any) -> dict[str, str]:
    """Checks environment variables.

    Raises:
        TypeError: They are no mapping of texts to texts.
    """
    try:
        given = dict(value or {})
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a dict of str to str, not {value!r}") from None
    for key, one in given.items():
        if not isinstance(key, str) or not isinstance(one, str):
            raise TypeError(
                f"{name} must have str keys and values, not {key!r}: {type(one).__name__}"
            )
    return given


_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def level(value: Any) -> str:
    """Checks the name of a log level.

    Raises:
        ValueError: There is no such level.
    """
    name = str(value).upper()
    if name not in _LEVELS:
        raise ValueError(
            f"log_level must be one of {', '.join(_LEVELS)}, not {value!r}"
        )
    return name
