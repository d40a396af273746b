"""Values that are no JSON, as JSON has them: what numpy, pandas, dataclasses, models and the standard library make.

Standard library only: it runs in every Python that the kernel or one of its children may start. What is left to
pydantic is left as it is where there is no pydantic.
"""

import enum
import os
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from operator import is_

from ipybox_results import ToolResult, json_values

_PLAIN = (str, int, float, bool, type(None))
_ITEMS = (Sequence, AbstractSet, ValuesView, Iterator, deque)
_BYTES = (bytes, bytearray, memoryview)

# The methods by which libraries give their values as Python's: numpy and torch, pyarrow, polars.
_METHODS = ("tolist", "to_pylist", "as_py", "to_dicts", "to_list")


class DecimalText(str):
    """A decimal number as pydantic writes it: as text. `number` is for places where texts are refused."""

    @property
    def number(self):
        from decimal import Decimal

        value = Decimal(self)
        if value.is_finite() and value == value.to_integral_value():
            return int(value)
        return float(value)


def plain(value):
    """The same value as JSON has it, as pydantic writes it. What has no such form stays, to be refused."""
    while True:
        if type(value) in _PLAIN:
            return value
        if type(value) is dict:
            return {
                member if isinstance(member, str) else key_text(member): plain(held)
                for member, held in value.items()
            }
        if type(value) is list:
            return [plain(item) for item in value]
        simpler = step(value)
        if simpler is value:
            return value
        value = simpler


def step(value):
    """A form of `value` that is nearer to JSON, or `value` itself. What is in it stays as it is."""
    if isinstance(value, enum.Enum):
        return value.value
    if type(value) in _PLAIN or isinstance(value, str):
        return value
    # Its import takes milliseconds.
    decimal = sys.modules.get("decimal")
    if decimal is not None and isinstance(value, decimal.Decimal):
        return DecimalText(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return value if type(value) is dict else dict(value)
    # An open file is an iterator of its lines.
    if (
        isinstance(value, _ITEMS)
        and not isinstance(value, _BYTES)
        and not hasattr(value, "read")
    ):
        return value if type(value) is list else list(value)
    if hasattr(type(value), "tool_result"):
        return _given(value)
    if hasattr(type(value), "model_dump"):
        return value.model_dump(by_alias=True)
    if hasattr(type(value), "__dataclass_fields__"):
        from dataclasses import fields

        return {field.name: getattr(value, field.name) for field in fields(value)}
    library = type(value).__module__.partition(".")[0]
    if library == "pandas" and (own := _of_pandas(value)) is not value:
        return own
    if library == "numpy" and getattr(value, "dtype", None) is not None:
        return _of_numpy(value)
    for name in _METHODS:
        method = getattr(type(value), name, None)
        if callable(method) and not isinstance(value, _BYTES):
            return method(value)
    return _by_pydantic(value)


def other_form(value):
    """The value of a text where no text belongs: a decimal's number, or the JSON that a tool has returned."""
    if isinstance(value, DecimalText):
        return value.number
    if isinstance(value, ToolResult):
        values = json_values(value)
        return values[0] if len(values) == 1 else value
    return value


def key_text(key):
    """The name of an object's member, as pydantic writes it."""
    key = plain(key)
    if key is None or isinstance(key, bool):
        return str(key)
    return key if isinstance(key, str) else str(key)


def without_refused(value, refused):
    """`value` with a form nearer to JSON for what is in it and was refused; itself if there is none.

    refused: the ids of what was refused
    """
    if type(value) is dict:
        changed = {
            _renamed(name, refused): without_refused(member, refused)
            for name, member in value.items()
        }
        is_same = all(
            name in value and value[name] is changed[name] for name in changed
        )
        return value if is_same else changed
    if type(value) in (list, tuple):
        items = [without_refused(item, refused) for item in value]
        is_same = all(map(is_, items, value))
        value = value if is_same else items
    if type(value) is list or id(value) not in refused:
        return value
    other = other_form(value)
    return step(value) if other is value else other


def _renamed(name, refused):
    return key_text(name) if id(name) in refused else name


def _given(model):
    """The fields of a tool's own model that were given: defaults are not sent."""
    if type(model).__pydantic_root_model__:
        return model.root
    given = {
        name if field.alias is None else field.alias: getattr(model, name)
        for name, field in type(model).model_fields.items()
        if name in model.model_fields_set
    }
    return {**given, **(model.model_extra or {})}


def _of_pandas(value):
    if type(value).__name__ in ("NaTType", "NAType"):
        return None
    if hasattr(value, "to_pydatetime") and not hasattr(value, "dtype"):
        return value.to_pydatetime(warn=False)
    if hasattr(value, "notna"):
        # A missing value is null, as in the JSON that pandas writes.
        value = value.astype(object)
        value = value.where(value.notna(), None)
        return value.to_dict("records") if hasattr(value, "columns") else value.tolist()
    return value


def _of_numpy(value):
    if value.dtype.kind in "mM":
        # Finer units would be integers.
        value = value.astype(f"{value.dtype.kind}8[us]")
    return value.tolist()


def _by_pydantic(value):
    try:
        from pydantic_core import to_jsonable_python

        return to_jsonable_python(value)
    except (ImportError, ValueError):
        return value
