"""Turns one variable of the user's namespace into bytes, and bytes into its value.

Functions and classes of cells are saved by value, by `cloudpickle`. What they refer to by name is not: a function that
comes back reads the globals of the kernel that it is in, as it did in the earlier one. Without `cloudpickle` only data is
saved.
"""

import _io
import contextlib
import functools
import importlib
import io
import pickle
import sys
import types

try:
    import cloudpickle
except ImportError:
    cloudpickle = None

# The version that Python 3.8 and newer read.
PROTOCOL = 5
# Closed over, and not assigned yet.
EMPTY = "ipybox: an empty cell"
# Functions with a cache, which Python saves by their names alone.
CACHED = functools._lru_cache_wrapper
NAMED = (type, types.FunctionType, CACHED)
REASON_CHARS = 200

# The user's namespace, and what finds a name that is not in it.
namespace = {}
find = None


class NotSavedError(Exception):
    """A value did not come back; its text is the reason."""


class VariablePickler(pickle.Pickler if cloudpickle is None else cloudpickle.Pickler):
    """Pickles the variable `name` to `file`."""

    def __init__(self, file, name):
        super().__init__(file, protocol=PROTOCOL)
        self._name = name

    def reducer_override(self, value):
        if isinstance(value, types.ModuleType) and is_importable(value):
            return importlib.import_module, (value.__name__,)
        # The concrete class: the check is made for each object.
        if isinstance(value, _io._IOBase) and not isinstance(
            value, (io.BytesIO, io.StringIO)
        ):
            return stream(value)
        if isinstance(value, NAMED):
            name = name_in_cells(value)
            # A class is saved with what it holds.
            is_own = name is not None and name.split(".")[0] == self._name
            if name is not None and not is_own:
                return named, (name,)
            if is_own and cloudpickle is None:
                raise pickle.PicklingError(
                    "functions and classes of cells need the package `cloudpickle`"
                )
        if cloudpickle is None:
            return NotImplemented
        if isinstance(value, CACHED) and value.__module__ == "__main__":
            return cached, (value.__wrapped__, value.cache_parameters())
        if (
            isinstance(value, types.FunctionType)
            and value.__globals__ is namespace
            and value.__module__ == "__main__"
        ):
            return function(value)
        return super().reducer_override(value)


def load(data):
    return pickle.loads(data)


def is_importable(module):
    return sys.modules.get(module.__name__) is module and module.__name__ != "__main__"


def stream(value):
    for name in ("stdout", "stderr", "stdin"):
        if value is getattr(sys, name, None):
            return getattr, (sys, name)
    raise pickle.PicklingError("an open file")


def name_in_cells(value):
    """The name, perhaps with dots, by which cells have this class or function; `None` if it is not from a cell."""
    name = value.__qualname__
    if value.__module__ != "__main__" or not isinstance(name, str):
        return None
    first, *rest = name.split(".")
    found = namespace.get(first)
    for part in rest:
        found = getattr(found, part, None)
    return name if found is value else None


def named(name):
    """The class or function that cells have by this name: of this kernel, or else the saved one."""
    first, *rest = name.split(".")
    try:
        value = namespace[first] if first in namespace else find(first)
    except NotSavedError as error:
        raise NotSavedError(f"it needs `{first}`, which {error}") from None
    for part in rest:
        value = getattr(value, part)
    return value


def function(value):
    """The recipe for a function: it is made first without the values that may refer to it."""
    cells = value.__closure__ or ()
    state = {
        "cells": [contents(cell) for cell in cells],
        "attributes": dict(vars(value)),
        "__name__": value.__name__,
        "__qualname__": value.__qualname__,
        "__module__": value.__module__,
        "__doc__": value.__doc__,
        "__defaults__": value.__defaults__,
        "__kwdefaults__": value.__kwdefaults__,
    }
    for name in ("__annotations__", "__type_params__"):
        # Annotations are code of the user's, which may fail.
        with contextlib.suppress(Exception):
            state[name] = getattr(value, name)
    return empty_function, (value.__code__, len(cells)), state, None, None, fill


def cached(value, parameters):
    return functools.lru_cache(**parameters)(value)


def contents(cell):
    try:
        return cell.cell_contents
    except ValueError:
        return EMPTY


def empty_function(code, cells):
    closure = tuple(types.CellType() for _ in range(cells))
    return types.FunctionType(code, namespace, None, None, closure)


def fill(value, state):
    for cell, held in zip(value.__closure__ or (), state.pop("cells"), strict=True):
        if not (isinstance(held, str) and held == EMPTY):
            cell.cell_contents = held
    vars(value).update(state.pop("attributes"))
    for name, held in state.items():
        # `__type_params__` came with Python 3.12.
        if hasattr(value, name):
            setattr(value, name, held)


def reason(error):
    """An exception as one short line."""
    try:
        text = " ".join(str(error).split())
    except BaseException:  # noqa: BLE001 - the class of the exception may be the user's
        text = ""
    kind = type(error).__name__
    if not text:
        text = kind
    elif not isinstance(error, (pickle.PicklingError, TypeError, NotSavedError)):
        text = f"{kind}: {text}"
    return text if len(text) <= REASON_CHARS else text[: REASON_CHARS - 1] + "…"
