"""The generated packages of MCP servers, as their sources say what they have: nothing of them is imported.

Standard library only.
"""

import ast
import os
import sys

import ipybox_hints
from ipybox_bindings import RUNNERS
from ipybox_hints import ROOT

# The most modules of tools whose sources are kept.
MOST_SOURCES = 500
TOOL_RESULT = "ToolResult"
MODEL_BASES = ("ToolModel", "OpenModel")
_sources = {}


class Packages:
    """The generated packages, as they are while a cell is checked."""

    def __init__(self):
        self._locations = ipybox_hints.locations()
        self.servers = ipybox_hints.servers()
        self._tools = {}
        self._known = {}

    @staticmethod
    def root_names():
        """The names in the package around those of the servers, besides theirs."""
        return (
            {*ipybox_hints.OWN, *vars(sys.modules[ROOT])}
            if ROOT in sys.modules
            else {*ipybox_hints.OWN}
        )

    def tools(self, server):
        if server not in self._tools:
            self._tools[server] = ipybox_hints.tools(server)
        return self._tools[server]

    def source(self, server, tool=None):
        """A generated module, as its file is now; None if there is none, or if it is not a generated one."""
        path = (server, "__init__") if tool is None else (server, tool)
        if path not in self._known:
            files = (
                os.path.join(location, *path) + ".py" for location in self._locations
            )
            source = next(filter(None, (source_at(file, path) for file in files)), None)
            is_judged = (
                source is not None
                and source.is_generated
                and not is_replaced(server, tool)
            )
            self._known[path] = source if is_judged else None
        return self._known[path]


def has_member(name, *path):
    """Return whether an imported module has a member, which code may have given it."""
    module = sys.modules.get(".".join((ROOT, *path)))
    return module is not None and name in vars(module)


def is_replaced(server, tool):
    """Return whether code has put functions of its own in the place of those that call a tool."""
    module = sys.modules.get(f"{ROOT}.{server}.{tool}")
    functions = [vars(module).get(name) for name in RUNNERS] if module else []
    own = [None, getattr(module, "__file__", None)]
    return any(
        getattr(getattr(each, "__code__", None), "co_filename", each) not in own
        for each in functions
    )


def source_at(file, path):
    try:
        status = os.stat(file)
        version = (status.st_mtime_ns, status.st_size, status.st_ino)
        kept = _sources.get(file)
        if kept is None or kept[0] != version:
            if len(_sources) >= MOST_SOURCES:
                _sources.clear()
            with open(file, encoding="utf-8") as opened:
                kept = _sources[file] = (version, ModuleSource(path, opened.read()))
        return kept[1]
    except OSError:
        return None


class ModelSource:
    """A generated class, as its source says it."""

    def __init__(self, tool, definition):
        self.tool = tool
        bases = [base.id for base in definition.bases if isinstance(base, ast.Name)]
        options = {
            option.arg: getattr(option.value, "value", None)
            for option in definition.keywords
        }
        fields = [
            statement
            for statement in definition.body
            if isinstance(statement, ast.AnnAssign)
            and not statement.target.id.startswith("_")
        ]
        # Of other kinds, nothing is known.
        self.is_root = len(bases) != 1 or bases[0] not in MODEL_BASES
        self.is_closed = options.get("extra") == "forbid"
        self.fields = [field.target.id for field in fields]
        self.required = [field.target.id for field in fields if is_required(field)]
        self._aliases = {field.target.id: aliases(field) for field in fields}
        self.known = set().union(*(self.names(name) for name in self.fields))

    def names(self, field):
        return {field, *self._aliases[field]}

    def json_name(self, field):
        return next(iter(self._aliases.get(field, ())), field)

    def members(self):
        """The names of attributes: of fields, and of what every model has."""
        from pydantic import BaseModel

        return {*self.fields, *dir(BaseModel), "tool_result"}


class TextResult:
    """The class of results of tools that declare no other one."""

    fields, is_root, is_closed = (), False, True

    def __init__(self, tool):
        self.tool = tool

    @staticmethod
    def members():
        from ipybox_results import ToolResult

        return {*dir(ToolResult), "structured", "blocks"}


def is_required(field):
    value = field.value
    if not (isinstance(value, ast.Call) and getattr(value.func, "id", None) == "Field"):
        return value is None
    return not value.args and not {"default", "default_factory"} & {
        option.arg for option in value.keywords
    }


def aliases(field):
    """The names of a field in JSON."""
    calls = [node for node in ast.walk(field) if isinstance(node, ast.Call)]
    options = [
        option.value
        for call in calls
        for option in call.keywords
        if option.arg == "alias"
    ]
    # `json_default(value, alias)`
    options += [call.args[1] for call in calls if len(call.args) > 1]
    return [option.value for option in options if isinstance(option, ast.Constant)]


def tool_name(function):
    """The name of the tool that a generated function calls."""
    names = (
        node.value.value
        for node in ast.walk(function)
        if isinstance(node, ast.keyword)
        and node.arg == "tool_name"
        and isinstance(node.value, ast.Constant)
    )
    return next(names, None)


class ModuleSource:
    """A generated module, as its source says it."""

    def __init__(self, path, text):
        self._path = path
        tree = ast.parse(text)
        self.is_generated = (
            "ToolModule.describe(" in text or "ToolPackage.describe(" in text
        )
        self.names = set()
        self.classes = {}
        # The tool's own name.
        self.tool_name = None
        self._returns = {}
        for statement in tree.body:
            self._take(statement)

    def _take(self, statement):
        if isinstance(statement, ast.ClassDef):
            self.classes[statement.name] = ModelSource(".".join(self._path), statement)
            self.names.add(statement.name)
        elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._returns[statement.name] = getattr(statement.returns, "id", None)
            self.names.add(statement.name)
            if statement.name == RUNNERS[0]:
                self.tool_name = tool_name(statement)
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            self.names.update(alias.asname or alias.name for alias in statement.names)
        else:
            self.names.update(
                node.id for node in ast.walk(statement) if isinstance(node, ast.Name)
            )

    def result(self, function):
        """The class of what a function returns; None if it may be of several."""
        name = self._returns.get(function)
        tool = ".".join(self._path)
        return TextResult(tool) if name == TOOL_RESULT else self.classes.get(name)

    def argument(self, name):
        """The name in JSON of an argument."""
        model = self.classes.get("Params")
        return name if model is None else model.json_name(name)

    def call(self):
        call = ipybox_hints.call_of(*self._path)
        return f"`{call}`" if call else None
