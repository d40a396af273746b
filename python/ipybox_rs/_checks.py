"""Checks what callers pass, and names it where it is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_FOREVER = 1e10
"""Centuries, in seconds: JSON has no infinity."""


def seconds(name: str, value: float | None) -> float | None:
    """Checks a time in seconds; `None` is a time without end.

    Raises:
        TypeError: It is no number.
        ValueError: It is negative or not a number.
    """
    return (
        None if value is None else duration(name, value, "a number of seconds or None")
    )


def duration(name: str, value: float, what: str = "a number of seconds") -> float:
    """Checks a time in seconds that must be given.

    Raises:
        TypeError: It is no number.
        ValueError: It is negative or not a number.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be {what}, not {value!r}")
    if not value >= 0:
        raise ValueError(
            f"{name} must be a time in seconds, 0 or longer, not {value!r}"
        )
    return float(min(value, _FOREVER))


def count(name: str, value: int | None) -> int | None:
    """Checks a number of something; `None` is no limit.

    Raises:
        TypeError: It is no whole number.
        ValueError: It is negative, or more than there can be.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number or None, not {value!r}")
    if not 0 <= value < 1 << 63:
        raise ValueError(
            f"{name} must be 0 or more, and less than 2**63, not {value!r}"
        )
    return value


def processors(name: str, value: float | None) -> float | None:
    """Checks a number of processors; `None` is no limit.

    Raises:
        TypeError: It is no number.
        ValueError: It is less than a hundredth.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number or None, not {value!r}")
    if not 0.01 <= value <= 100_000:
        raise ValueError(
            f"{name} must be a number of processors, 0.01 or more, not {value!r}"
        )
    return float(value)


def texts(name: str, value: Sequence[str]) -> list[str]:
    """Checks a list of texts.

    Raises:
        TypeError: It is none.
    """
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise TypeError(f"{name} must be a list of str, not {value!r}")
    return [text(f"{name}[{index}]", item) for index, item in enumerate(value)]


def instance(name: str, value: Any, kind: type) -> None:
    """Checks that an optional object is of a class.

    Raises:
        TypeError: It is of another one.
    """
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__} or None, not {value!r}")


_DEEPEST = 100
"""The deepest nesting of values: the host reads JSON to a depth of 127."""


def mapping(name: str, value: Any) -> dict[str, Any]:
    """Checks a mapping of names to values.

    Raises:
        TypeError: It is none.
        ValueError: It is nested too deeply.
    """
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise TypeError(f"{name} must be a dict with str keys, not {value!r}")
    level = [value]
    for _ in range(_DEEPEST):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return dict(value)
    raise ValueError(f"{name} must not be nested more than {_DEEPEST} levels deep")


def _inside(value: Any) -> list[Any]:
    """The containers in a container."""
    values = value.values() if isinstance(value, Mapping) else value
    return [one for one in values if isinstance(one, (Mapping, list, tuple))]


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


def optional_text(name: str, value: Any) -> str | None:
    """Checks a text that may be missing.

    Raises:
        TypeError: It is something else.
    """
    return None if value is None else text(name, value)


def path(name: str, value: Any) -> str | None:
    """The absolute path of a file or a directory.

    Raises:
        TypeError: It is no path.
        ValueError: No file can have this path.
    """
    if value is None:
        return None
    try:
        path = str(Path(value).absolute())
    except TypeError:
        raise TypeError(f"{name} must be a path or None, not {value!r}") from None
    if "\0" in path:
        raise ValueError(f"{name} must have no NUL, not {value!r}")
    return path


def variables(name: str, value: Any) -> dict[str, str]:
    """Checks environment variables.

    Raises:
        TypeError: They are no mapping of texts to texts.
        ValueError: A process cannot have such a variable.
    """
    given = _texts_by_names(name, value)
    for key, one in given.items():
        if not key or "=" in key or "\0" in key + one:
            raise ValueError(
                f"{name} must have names without `=`, and no NUL, not {key!r}"
            )
    return given


_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def headers(name: str, value: Any) -> dict[str, str]:
    """Checks headers of HTTP. The host looks at names and values, which are secrets.

    Raises:
        TypeError: They are no mapping of texts to texts.
    """
    return _texts_by_names(name, value)


def _texts_by_names(name: str, value: Any) -> dict[str, str]:
    try:
        given = dict(value or {})
    except (TypeError, ValueError):
        raise TypeError(
            f"{name} must be a dict of str to str, not {type(value).__name__}"
        ) from None
    for key, one in given.items():
        if not isinstance(key, str) or not isinstance(one, str):
            raise TypeError(
                f"{name} must have str keys and values, not {key!r}: {type(one).__name__}"
            )
    return given


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
