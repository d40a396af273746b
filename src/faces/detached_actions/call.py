"""Calls a saved action, and writes its result to a file for the host. Runs in a cell of a kernel that has run nothing else.

The arguments are data: they are checked against the types of the action's function before it is called.
"""

import importlib
import json

from pydantic import ConfigDict, validate_call
from pydantic_core import PydanticSerializationError, to_jsonable_python


def checked(module, function):
    """A function of a module, which refuses arguments and results of other types than it declares."""
    config = ConfigDict(arbitrary_types_allowed=True)
    run = getattr(importlib.import_module(module), function)
    return validate_call(config=config, validate_return=True)(run)


def write_result(value, file, most):
    """Write a result as JSON of at most so many bytes."""
    try:
        plain = to_jsonable_python(value, by_alias=True, inf_nan_mode="null")
    except PydanticSerializationError as error:
        kind = type(value)
        raise TypeError(
            f"the result, of type {kind.__module__}.{kind.__qualname__}, is no JSON: {error}"
        ) from None
    text = json.dumps(plain, ensure_ascii=False).encode("utf-8", "replace")
    if len(text) > most:
        raise ValueError(
            f"the result has {len(text):,} bytes as JSON, and at most {most:,} can be returned: return less of it"
        )
    with open(file, "wb") as written:
        written.write(text)
