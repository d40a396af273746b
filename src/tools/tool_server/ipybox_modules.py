"""The representation of generated packages and modules: how a tool is called, and the list of tools.

Standard library only: it runs in every Python that the kernel or one of its children may start.
"""

import ast
import difflib
import importlib
import inspect
import pkgutil
import sys
import types

# The text before the signature in a module's docstring.
_BEGIN = "\n\nrun("
# The modules of a package that are for the others only.
_SUPPORT = ("_base", "_results", "_rules", "_values")
# The longest call that an error shows; `print(module)` shows all of it.
_CALL_CHARS = 600
# ipybox's own functions, and the modules that have them.
_OWN = {
    "mcptools.search": "ipybox_search",
    "mcptools.batch": "ipybox_batch",
    "mcptools.save": "ipybox_actions",
}


class _Module(types.ModuleType):
    """A module that `cloudpickle`, and with it joblib, takes to other processes as it takes plain modules: by name."""

    def __reduce__(self):
        return importlib.import_module, (self.__name__,)


class _DescribedPackage(type):
    """The class of `ToolPackage`. A method of the latter itself would hide the tool of its name."""

    def describe(cls, name, *others):
        """Make a package list its tools. Its own last statement calls this.

        others: the names of the modules that belong to no tool: those for resources and prompts
        """
        package = sys.modules[name]
        package.__class__ = FunctionPackage if name in _OWN else cls
        package.__others__ = others


class ToolPackage(_Module, metaclass=_DescribedPackage):
    """The package of an MCP server. Its modules, one for each tool, are imported on first access."""

    def __getattr__(self, name):
        # Python looks up such names in every module.
        if name.startswith("__"):
            raise AttributeError(
                f"module {self.__name__!r} has no attribute {name!r}",
                name=name,
                obj=self,
            )
        if name in _modules(self):
            return importlib.import_module(f"{self.__name__}.{name}")
        raise AttributeError(unknown_tool(self, name))

    def __dir__(self):
        return sorted({*super().__dir__(), *_modules(self)})

    def __str__(self):
        return _shown(self)

    def _repr_pretty_(self, printer, cycle):
        printer.text(_shown(self))


class FunctionPackage(ToolPackage):
    """The package of a server that has the name of a function of ipybox. It can be called like that function."""

    def __call__(self, *arguments, **options):
        module = importlib.import_module(_OWN[self.__name__])
        function = getattr(module, self.__name__.rpartition(".")[2])
        return function(*arguments, **options)


class ToolModule(_Module):
    """The module of a tool."""

    @classmethod
    def describe(cls, name, *functions):
        """Make a module show how its tool is called. Its own last statement calls this.

        functions: the functions that call the tool; they get the signature in the module's docstring.
        """
        module = sys.modules[name]
        module.__class__ = cls
        signature = _signature(module.__doc__ or "")
        if signature is not None:
            for function in functions:
                function.__signature__ = signature

    def __str__(self):
        return _shown(self)

    def _repr_pretty_(self, printer, cycle):
        printer.text(_shown(self))


def _shown(module):
    doc = module.__doc__ or ""
    return f"{module.__name__}\n\n{doc.strip()}"


def call_of(module):
    """The call of a tool in one line, or None if its module does not say it."""
    signature = _signature(module.__doc__ or "")
    if signature is None:
        return None
    # The asterisk says that arguments have names, as each call shows.
    call = f"{module.__name__}.run{signature}".replace("(*, ", "(", 1)
    return call if len(call) <= _CALL_CHARS else f"{call[:_CALL_CHARS]}…"


def nearest_call(package, similar):
    """The call of the first of these tools of a package; None if there is none, or if its module cannot be imported."""
    try:
        return call_of(importlib.import_module(f"{package}.{similar[0]}"))
    except Exception:  # noqa: BLE001 - a module that is broken must not hide the error about the missing one
        return None


def tool_modules(package):
    """The names of the modules in a server's package, one for each tool."""
    others = vars(package).get("__others__", ())
    return [name for name in _modules(package) if name not in others]


def _modules(package):
    names = (module.name for module in pkgutil.iter_modules(package.__path__))
    return sorted(name for name in names if name not in _SUPPORT)


def unknown_tool(package, name):
    """The error for a tool that a server's package does not have."""
    tools = tool_modules(package)
    names = _modules(package)
    server = package.__name__.rpartition(".")[2]
    similar = nearest(name, names)
    hint = f"; did you mean {', '.join(map(repr, similar))}?" if similar else ""
    call = nearest_call(package.__name__, similar)
    calls = f"`{call}`; " if call else ""
    return (
        f"the MCP server {server!r} has no tool {name!r}{hint}\n"
        f"hint: {calls}`print({package.__name__})` lists its {len(tools)} tools"
    )


def nearest(name, names, most=3):
    """The existing names closest to a missing one, ignoring case."""
    by_key = {_key(known): known for known in names}
    keys = difflib.get_close_matches(_key(name), by_key, n=most)
    return [by_key[key] for key in keys]


def _key(name):
    return str(name).replace("_", "").replace("-", "").casefold()


class _SignatureText(str):
    """A type or a default as it is written in a signature."""

    def __repr__(self):
        return str(self)


def _signature(doc):
    begin = doc.find(_BEGIN)
    if begin < 0:
        # `python -OO` removes docstrings.
        return None
    text = doc[begin + 2 :].partition("\n\n")[0].rstrip()
    try:
        return _parsed(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # It is for readers only: the tool works without it.
        return None


def _parsed(text):
    function = ast.parse(f"def {text}: pass").body[0]
    arguments = function.args
    parameters = [
        inspect.Parameter(
            argument.arg,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=_SignatureText(ast.unparse(argument.annotation)),
            default=inspect.Parameter.empty
            if default is None
            else _SignatureText(ast.unparse(default)),
        )
        for argument, default in zip(arguments.args, _defaults(arguments))
    ]
    if arguments.kwarg:
        annotation = _SignatureText(ast.unparse(arguments.kwarg.annotation))
        parameters.append(
            inspect.Parameter(
                arguments.kwarg.arg,
                inspect.Parameter.VAR_KEYWORD,
                annotation=annotation,
            )
        )
    result = _SignatureText(ast.unparse(function.returns))
    return inspect.Signature(parameters, return_annotation=result)


def _defaults(arguments):
    return [None] * (len(arguments.args) - len(arguments.defaults)) + arguments.defaults
