"""Saves functions that have worked as actions: `from mcptools import save`.

Standard library only, but for pydantic, which generated packages need too.
"""

import ast
import importlib
import importlib.util
import inspect
import json
import sys
import textwrap
import types

from ipybox_gathering import ActionError, check_signature, gather
from ipybox_runtime import ask_host

__all__ = ["ActionError", "save"]

FILES = ("__init__.py", "api.py", "impl.py")
RUNNERS = ("run", "run_async")
# The largest file that is sent, in characters. The host has a limit of its own.
MOST_CHARS = 256 * 1024


class Saved(str):
    """An answer; as the last value of a cell it is shown as it is printed."""

    def __repr__(self):
        return str(self)


def save(function, category=None, example=None, publish=False):
    """Save a function that has worked as an action, which `search` finds: `from gentools.<category> import <name>`.

    function: a function with types and a docstring, whose name says what it does; or the package `gentools.<category>.<name>`,
        if its files are written by hand
    category: a subject, such as "reports"; lower case with underscores
    example: arguments for its test, as a dict; default: those of the newest call in a cell
    publish: on the server of a team, ask those who decide about it to serve it to everybody

    The function is taken with all that it uses: other functions, classes, imports and small constants of the session. It is
    tested in a fresh kernel, where tools answer as they did in the newest cells. If the test fails, nothing is saved.
    """
    if isinstance(function, types.ModuleType):
        draft, run = of_package(function, category)
    else:
        draft, run = of_function(function, category)
    if example is None:
        example = newest_arguments(draft["name"], run, run is not function)
    if not isinstance(example, dict):
        raise ActionError(
            f"`example` must be a dict of arguments by name, not {example!r}"
        )
    try:
        inspect.signature(run).bind(**example)
    except TypeError as error:
        message = f"`example` does not fit `{draft['name']}`: {error}"
        raise ActionError(message) from None
    draft["example"] = as_json(example)
    draft["publish"] = bool(publish)
    answer = ask_host("/save", {**draft, **described(run)})
    forget(f"gentools.{draft['category']}.{draft['name']}")
    return Saved(answer)


def of_function(function, category):
    """Gather the request for a function of the session, and return it with the function."""
    if not isinstance(function, types.FunctionType):
        raise ActionError(
            f"save a function or a package `gentools.<category>.<name>`, not {type(function).__name__}"
        )
    if category is None:
        raise ActionError('name a category: `save(function, category="reports")`')
    files = gather(inspect.unwrap(function))
    return {
        "category": category,
        "name": function.__name__,
        "files": files,
    }, function


def of_package(module, category):
    """Gather the same of a package that is written by hand."""
    parts = module.__name__.split(".")
    if len(parts) != 3 or parts[0] != "gentools" or not hasattr(module, "__path__"):
        raise ActionError(
            f"`{module.__name__}` is no package `gentools.<category>.<name>`"
        )
    if category not in (None, parts[1]):
        raise ActionError(f"`{module.__name__}` is of the category `{parts[1]}`")
    files = {}
    for name in FILES:
        files[name] = source_of(module, name)
    # Its files may have changed since it was imported.
    forget(module.__name__)
    module = importlib.import_module(module.__name__)
    run = next(filter(None, (getattr(module, name, None) for name in RUNNERS)), None)
    if run is None:
        raise ActionError(f"`{module.__name__}` has neither `run` nor `run_async`")
    return {"category": parts[1], "name": parts[2], "files": files}, run


def source_of(package, file):
    """The text of a file of a package, which a remote kernel does not have as a file."""
    stem = file.removesuffix(".py")
    name = package.__name__ if stem == "__init__" else f"{package.__name__}.{stem}"
    importlib.invalidate_caches()
    spec = importlib.util.find_spec(name)
    try:
        return spec.loader.get_source(spec.name)[: MOST_CHARS + 1]
    except (AttributeError, TypeError, OSError, ImportError, SyntaxError):
        raise ActionError(
            f"`{package.__name__}` needs the files {', '.join(FILES)}: `{file}` cannot be read"
        ) from None


def described(run):
    """The docstring, the signature and the schemas of a function."""
    import typing

    check_signature(run)
    try:
        types_by_name = typing.get_type_hints(run, include_extras=True)
    except Exception as error:  # noqa: BLE001 - types are code
        message = f"the types of `{run.__name__}` cannot be read: {error}"
        raise ActionError(message) from None
    return {
        "description": inspect.cleandoc(run.__doc__),
        "signature": shown_signature(run),
        "is_async": inspect.iscoroutinefunction(run),
        "input_schema": input_schema(run, types_by_name),
        "output_schema": output_schema(types_by_name["return"]),
    }


def shown_signature(run):
    """The parameters and the result as the code has them."""
    source = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(run))))
    wanted = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = next(node for node in ast.walk(source) if isinstance(node, wanted))
    return f"({ast.unparse(found.args)}) -> {ast.unparse(found.returns)}"


def input_schema(run, types_by_name):
    """JSON Schema of the arguments."""
    import pydantic

    fields = {}
    for parameter in inspect.signature(run).parameters.values():
        has_default = parameter.default is not parameter.empty
        default = parameter.default if has_default else ...
        fields[parameter.name] = (types_by_name[parameter.name], default)
    try:
        model = pydantic.create_model(
            run.__name__, __config__={"extra": "forbid"}, **fields
        )
        return model.model_json_schema()
    except Exception as error:  # noqa: BLE001 - types are code
        message = (
            f"the parameters of `{run.__name__}` cannot be described as JSON: {error}\n"
            "hint: use texts, numbers, lists, dicts and pydantic models"
        )
        raise ActionError(message) from None


def output_schema(result):
    """JSON Schema of the result; None if it is no JSON."""
    import pydantic

    if result is None or result is type(None):
        return None
    try:
        return pydantic.TypeAdapter(result).json_schema(mode="serialization")
    except Exception:  # noqa: BLE001 - the result may be anything, such as a table
        return None


def as_json(value):
    """Arguments as JSON."""
    import pydantic_core

    try:
        return json.loads(pydantic_core.to_json(value))
    except Exception as error:  # noqa: BLE001 - values have code of their own
        message = f"`example` cannot be written as JSON: {error}\nhint: give arguments that can, or change the types"
        raise ActionError(message) from None


def newest_arguments(name, run, is_package):
    """The arguments of the newest call in the session's cells whose values are known."""
    variables = vars(sys.modules.get("__main__"))
    for code in reversed(variables.get("In") or []):
        try:
            calls = [
                node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)
            ]
        except (SyntaxError, ValueError):
            # It has magics, or is none of Python.
            continue
        for call in reversed(calls):
            if not is_call_of(call.func, name, is_package):
                continue
            arguments = known_arguments(call, run, variables)
            if arguments is not None:
                return arguments
    raise ActionError(
        f"no cell calls `{name}` with values that are known\n"
        f'hint: give arguments for its test: `save(…, example={{"name": value}})`'
    )


def is_call_of(called, name, is_package):
    if isinstance(called, ast.Attribute) and is_package and called.attr in RUNNERS:
        return getattr(called.value, "id", getattr(called.value, "attr", None)) == name
    return isinstance(called, ast.Name) and called.id == name


def known_arguments(call, run, variables):
    """The arguments of a call by name; None if a value is not known."""
    try:
        bound = inspect.signature(run).bind(
            *(known(value, variables) for value in call.args),
            **{option.arg: known(option.value, variables) for option in call.keywords},
        )
    except (TypeError, ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return dict(bound.arguments)


def known(node, variables):
    """The value of an argument: a literal, or a variable that holds one."""
    if isinstance(node, ast.Name):
        value = variables.get(node.id)
        if isinstance(value, (str, int, float, list, tuple, dict)):
            return value
        raise ValueError(node.id)
    return ast.literal_eval(node)


def forget(package):
    """Have the next import read a package anew."""
    for name in list(sys.modules):
        if f"{name}.".startswith(f"{package}."):
            del sys.modules[name]
    above, _, last = package.rpartition(".")
    vars(sys.modules.get(above, types.ModuleType(above))).pop(last, None)
    importlib.invalidate_caches()
