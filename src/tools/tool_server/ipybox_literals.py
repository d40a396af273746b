"""Values that a server has written by `str` or `repr` of Python, as JSON has them.

Nothing is executed: literals are read from the syntax tree, and a few classes that rows of databases have. Standard library
only: it runs in every Python that the kernel or one of its children may start.
"""

import ast
import datetime
import math
import warnings

# A longer text is not parsed: its tree takes a hundred times as much memory.
MOST_CHARS = 2_000_000
# Classes whose text in JSON is that of their only argument.
BY_TEXT = {"Decimal", "UUID", "PosixPath", "PurePosixPath", "Timestamp", "ObjectId"}
# Classes whose only argument is a list or a dict.
BY_CONTENT = {"OrderedDict", "dict", "frozenset", "list", "set", "tuple"}
TIMES = {"date": datetime.date, "datetime": datetime.datetime, "time": datetime.time}


class NoLiteral(Exception):
    """The text is no literal."""


def read(text):
    """The dicts and lists of which a text consists: one, or one in each line; none if it holds anything else."""
    if len(text) > MOST_CHARS:
        return []
    try:
        return [_container(text)]
    except NoLiteral:
        lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        return []
    try:
        return [_container(line) for line in lines]
    except NoLiteral:
        return []


def _container(text):
    try:
        with warnings.catch_warnings():
            # Of escapes in the server's texts.
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval")
        value = _value(tree.body)
    except (SyntaxError, ValueError, RecursionError, MemoryError, TypeError):
        raise NoLiteral from None
    if not isinstance(value, (dict, list)):
        raise NoLiteral
    return value


def _value(node):
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str() as value):
            return None if value in (math.inf, -math.inf) else value
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return [_value(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return {
                _key(key): _value(value)
                for key, value in zip(keys, values, strict=True)
            }
        case ast.UnaryOp(
            op=ast.USub(), operand=ast.Constant(value=int() | float() as number)
        ):
            return -number
        case ast.Name(id="nan") | ast.Name(id="NaT"):
            # JSON has no other word for what is missing.
            return None
        case ast.Call(func=function, args=arguments, keywords=[]):
            return _object(function, [_value(argument) for argument in arguments])
    raise NoLiteral


def _key(node):
    value = None if node is None else _value(node)
    if node is None or isinstance(value, (dict, list)):
        raise NoLiteral
    return value if isinstance(value, str) else str(value)


def _object(function, arguments):
    name = (
        function.attr
        if isinstance(function, ast.Attribute)
        else getattr(function, "id", "")
    )
    if name in TIMES and all(isinstance(argument, int) for argument in arguments):
        return TIMES[name](*arguments).isoformat()
    if len(arguments) != 1:
        raise NoLiteral
    (argument,) = arguments
    if name == "Decimal" and isinstance(argument, str):
        number = float(argument)
        return number if math.isfinite(number) else None
    if name in BY_TEXT and isinstance(argument, str):
        return argument
    if name in BY_CONTENT and isinstance(argument, (dict, list)):
        return dict(argument) if name == "OrderedDict" else argument
    raise NoLiteral
