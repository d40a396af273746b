"""The names of a cell: what its imports bind them to, and what may change them while it runs.

Standard library only.
"""

import ast
import types

from ipybox_hints import ROOT

# Functions, and attributes, by which code changes or asks for names while it runs.
DYNAMIC_NAMES = frozenset(
    [
        "eval",
        "exec",
        "globals",
        "locals",
        "vars",
        "setattr",
        "delattr",
        "hasattr",
        "getattr",
        "__import__",
        "import_module",
        "patch",
        "monkeypatch",
        "reload",
    ]
)
DYNAMIC_ATTRIBUTES = frozenset(
    ["import_module", "modules", "patch", "setattr", "reload", "__dict__"]
)
# Line magics that bind names, or change modules.
BINDING_MAGICS = frozenset(
    [
        "run",
        "load",
        "loadpy",
        "rerun",
        "recall",
        "autoreload",
        "load_ext",
        "reload_ext",
        "store",
        "edit",
        "macro",
        "pylab",
    ]
)
RUNNERS = ("run", "run_async")
# ipybox's own function that collects calls.
BATCH = "batch"
_visitors = {}


class CellVisitor(ast.NodeVisitor):
    """Visits all that can be a fault or have one below it, in less time than Python's own visitor."""

    def generic_visit(self, node):
        for field in node._fields:
            value = getattr(node, field, None)
            if type(value) is list:
                for item in value:
                    if isinstance(item, ast.AST):
                        self.visit(item)
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                self.visit(value)

    def visit(self, node):
        visitor = _visitors.get((type(self), type(node)))
        if visitor is None:
            name = f"visit_{type(node).__name__}"
            visitor = _visitors[type(self), type(node)] = getattr(
                type(self), name, type(self).generic_visit
            )
        visitor(self, node)


class Bindings(CellVisitor):
    """The names that a cell binds anywhere: what imports bind them to, and those that are bound in other ways."""

    def __init__(self, tree):
        self.imports = {}
        # The values that names get by an assignment in the cell's outermost block.
        self.assigned = {}
        self.others = {}
        # The number of loops that bind each name.
        self.loops = {}
        self.is_dynamic = False
        # Whether calls may be collected in a batch.
        self.has_batch = False
        self.used = set()
        self._top = {id(statement) for statement in tree.body}
        self.visit(tree)

    def reach_tools(self, names):
        """Return whether the cell can have modules of tools: by its imports, or by variables of earlier cells."""
        targets = (target for found in self.imports.values() for target in found)
        return any(target[0] == ROOT for target in targets) or any(
            (path_of(names.get(name)) or ("",))[0] == ROOT for name in self.used
        )

    def target(self, name):
        """The value that imports alone give a name; None if it is bound otherwise, False if it is not bound."""
        targets = self.imports.get(name, set())
        if name in self.others or len(targets) > 1:
            return None
        return next(iter(targets), False)

    def value(self, name):
        """The statement by which alone a name gets its value, in the cell's outermost block."""
        is_only = self.others.get(name) == 1 and name not in self.imports
        return self.assigned.get(name) if is_only else None

    def is_of_loops(self, name):
        """Return whether only loops bind a name."""
        return name not in self.imports and self.others.get(name) == self.loops.get(
            name
        )

    def _bind(self, name):
        if name is not None:
            self.others[name] = self.others.get(name, 0) + 1

    def visit_Import(self, node):
        for alias in node.names:
            path = tuple(alias.name.split("."))
            bound = (alias.asname, path) if alias.asname else (path[0], path[:1])
            self.imports.setdefault(bound[0], set()).add(bound[1])

    def visit_ImportFrom(self, node):
        for alias in node.names:
            self.has_batch = self.has_batch or alias.name == BATCH
            if alias.name == "*":
                self.is_dynamic = True
            elif node.level:
                self._bind(alias.asname or alias.name)
            else:
                path = (*node.module.split("."), alias.name)
                self.imports.setdefault(alias.asname or alias.name, set()).add(path)

    def visit_Name(self, node):
        if isinstance(node.ctx, ast.Load):
            self.used.add(node.id)
            self.has_batch = self.has_batch or node.id == BATCH
            self.is_dynamic = self.is_dynamic or node.id in DYNAMIC_NAMES
        else:
            self._bind(node.id)

    def visit_Attribute(self, node):
        is_set = not isinstance(node.ctx, ast.Load)
        self.has_batch = self.has_batch or node.attr == BATCH
        # Members of modules may be replaced, by `tool.run = …` or by a library for tests.
        if node.attr in DYNAMIC_ATTRIBUTES or (is_set and node.attr in RUNNERS):
            self.is_dynamic = True
        self.generic_visit(node)

    def visit_Assign(self, node):
        target = node.targets[0]
        if (
            id(node) in self._top
            and len(node.targets) == 1
            and isinstance(target, ast.Name)
        ):
            self.assigned[target.id] = node
        self.generic_visit(node)

    def visit_Call(self, node):
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in (
            "run_line_magic",
            "run_cell_magic",
        ):
            magic = (
                node.args[0].value
                if node.args and isinstance(node.args[0], ast.Constant)
                else None
            )
            self.is_dynamic = self.is_dynamic or magic in BINDING_MAGICS
        self.generic_visit(node)

    def visit_Constant(self, node):
        # Files of packages that the code writes itself.
        if isinstance(node.value, str) and ROOT in node.value:
            self.is_dynamic = True

    def _visit_loop(self, node):
        if isinstance(node.target, ast.Name):
            name = node.target.id
            self.loops[name] = self.loops.get(name, 0) + 1
        self.generic_visit(node)

    visit_For = visit_AsyncFor = visit_comprehension = _visit_loop

    def _visit_named(self, node):
        self._bind(node.name)
        self.generic_visit(node)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _visit_named
    visit_ExceptHandler = visit_MatchAs = visit_MatchStar = _visit_named

    def visit_MatchMapping(self, node):
        self._bind(node.rest)
        self.generic_visit(node)

    def visit_arg(self, node):
        self._bind(node.arg)
        self.generic_visit(node)

    def _visit_foreign(self, node):
        for name in node.names:
            self._bind(name)

    visit_Global = visit_Nonlocal = _visit_foreign


def path_of(value):
    """The path of the module, or of the function of a tool, that a variable has from an earlier cell."""
    if isinstance(value, types.ModuleType):
        return tuple(value.__name__.split("."))
    if isinstance(value, (types.FunctionType, type)) and str(
        value.__module__
    ).startswith(f"{ROOT}."):
        return (*value.__module__.split("."), value.__name__)
    return None
