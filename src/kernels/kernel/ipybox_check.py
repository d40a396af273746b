"""Checks how a cell calls tools, before its first statement runs: names of servers, tools and their members, arguments, and
attributes of results.

What a cell did before a wrong call cannot be taken back, so it does not begin. Nothing is judged that cannot be known from
the code and the generated packages alone: names that are bound twice, code in `try`, what `exec` or `setattr` may change.
A fault before which the cell calls nothing is left to Python, which has nothing to undo and shows its own traceback.

Standard library and IPython only.
"""

import ast

import ipybox_hints
from ipybox_bindings import RUNNERS, CellVisitor, path_of
from ipybox_generated import Packages, has_member
from ipybox_hints import ROOT
from ipybox_plan import CellPlan
from IPython.core.error import InputRejected

# Functions whose `with` expects an exception.
EXPECTING = frozenset(["suppress", "raises", "assertRaises", "assertRaisesRegex"])
# Members that `infer_result` adds to a tool's module, while a cell runs.
INFERRED = frozenset(["run_parsed", "run_parsed_async", "ParseResult"])
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# The most faults that an error names.
MOST_FAULTS = 5


class CellCheckError(InputRejected):
    """A cell calls tools in a way that cannot work. Nothing of it has run."""

    def _render_traceback_(self):
        return [f"CellCheckError: {self}"]


class Fault:
    """A mistake at a node, and what would be right."""

    def __init__(self, node, words, hint, is_in_function):
        self.node, self.words, self.hint = node, words, hint
        self.is_in_function = is_in_function

    def __str__(self):
        code = ast.unparse(self.node)
        shown = code if len(code) <= 100 else f"{code[:99]}…"
        lines = [f"line {self.node.lineno}: `{shown}`: {self.words}"]
        return "\n".join([*lines, *([f"hint: {self.hint}"] if self.hint else [])])


def check(tree, bindings, names):
    """Raise an error if the cell calls tools wrongly after it has called something else. Return the calls that it will make.

    bindings: the cell's names
    names: the variables of earlier cells
    """
    checker = Checker(bindings, names)
    checker.visit(tree)
    if not any(follows_a_call(tree, fault) for fault in checker.faults):
        return checker.plan
    # All are worth mending at once.
    shown = checker.faults[:MOST_FAULTS]
    more = len(checker.faults) - len(shown)
    words = ["nothing of this cell has run", *map(str, shown)]
    if more:
        words.append(f"and {more} more")
    raise CellCheckError("\n".join(words))


def follows_a_call(tree, fault):
    """Return whether the cell may have called something before it comes to a fault."""
    nodes = list(ast.walk(tree))
    functions = {node.name for node in nodes if isinstance(node, FUNCTIONS)}
    begin, end = place(fault.node)
    for call in nodes:
        if not isinstance(call, ast.Call):
            continue
        first, last = place(call)
        # Python makes the calls within a faulty one first.
        is_within = call is not fault.node and begin <= first and last <= end
        if last <= begin or is_within:
            return True
        # A function runs after what stands below it, but for the call by which it runs.
        is_around = first <= begin and end <= last
        if fault.is_in_function and not is_around and not uses(call, functions):
            return True
    return False


def uses(node, names):
    return any(
        isinstance(each, ast.Name) and each.id in names for each in ast.walk(node)
    )


def place(node):
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


class Checker(CellVisitor):
    """Collects the faults of a cell."""

    def __init__(self, bindings, names):
        self.faults = []
        self._bindings, self._names = bindings, names
        # Counts what is around the code: handlers of exceptions, and functions that may be called later.
        self._guards = self._functions = 0
        self._packages = Packages()
        self.plan = CellPlan(bindings, names)

    def _fault(self, node, words, hint=None):
        if not self._guards:
            self.faults.append(Fault(node, words, hint, self._functions > 0))

    # The code around

    def _visit_try(self, node):
        self._guards += bool(node.handlers)
        self._visit_all(node.body)
        self._guards -= bool(node.handlers)
        self._visit_all([*node.handlers, *node.orelse, *node.finalbody])

    visit_Try = visit_TryStar = _visit_try

    def _visit_with(self, node):
        expressions = [
            each for item in node.items for each in ast.walk(item.context_expr)
        ]
        said = {
            getattr(each, "attr", None) or getattr(each, "id", None)
            for each in expressions
        }
        self._guards += bool(said & EXPECTING)
        self.generic_visit(node)
        self._guards -= bool(said & EXPECTING)

    visit_With = visit_AsyncWith = _visit_with

    def _visit_function(self, node):
        self._functions += 1
        with self.plan.loop():
            self.generic_visit(node)
        self._functions -= 1

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_function

    def _visit_for(self, node):
        self.visit(node.iter)
        with self.plan.loop(node.target, node.iter):
            self._visit_all([node.target, *node.body])
        self._visit_all(node.orelse)

    visit_For = visit_AsyncFor = _visit_for

    def visit_While(self, node):
        with self.plan.loop():
            self._visit_all([node.test, *node.body])
        self._visit_all(node.orelse)

    def _visit_comprehension(self, node):
        fields = [name for name in node._fields if name != "generators"]
        self._visit_generators(
            node.generators, [getattr(node, name) for name in fields]
        )

    visit_ListComp = visit_SetComp = visit_DictComp = _visit_comprehension
    visit_GeneratorExp = _visit_comprehension

    def _visit_generators(self, generators, values):
        if not generators:
            self._visit_all(values)
            return
        first, *others = generators
        self.visit(first.iter)
        with self.plan.loop(first.target, first.iter):
            self._visit_all([first.target, *first.ifs])
            self._visit_generators(others, values)

    def _visit_all(self, nodes):
        for node in nodes:
            self.visit(node)

    # Names

    def visit_Import(self, node):
        for alias in node.names:
            self._check_path(node, tuple(alias.name.split(".")))

    def visit_ImportFrom(self, node):
        if node.level or node.module.split(".")[0] != ROOT:
            return
        for alias in node.names:
            self._check_path(node, (*node.module.split("."), alias.name))

    def visit_Attribute(self, node):
        owner = self._path(node.value)
        if (
            owner is not None
            and isinstance(node.ctx, ast.Load)
            and not node.attr.startswith("_")
        ):
            self._check_path(node, (*owner, node.attr), is_last_only=True)
        result = self._result(node.value)
        if result is not None and isinstance(node.ctx, ast.Load):
            self._check_field(node, result)
        self.generic_visit(node)

    def visit_Subscript(self, node):
        result = self._result(node.value)
        key = node.slice
        is_by_name = isinstance(key, ast.Constant) and isinstance(key.value, str)
        if result is not None and is_by_name and not result.is_root:
            fields = ipybox_hints.listed(result.fields)
            shown = (
                f"its fields are attributes: {fields}"
                if result.fields
                else "it is text, and `.value` what a server structured"
            )
            self._fault(
                node, f"the result of `{result.tool}` has no items by name; {shown}"
            )
        self.generic_visit(node)

    def _path(self, node):
        """The module of a server or tool, or the member of one, that an expression is for certain."""
        if isinstance(node, ast.Name):
            target = self._bindings.target(node.id)
            path = path_of(self._names.get(node.id)) if target is False else target
            return path if path and path[0] == ROOT else None
        if isinstance(node, ast.Attribute):
            owner = self._path(node.value)
            return (*owner, node.attr) if owner is not None else None
        return None

    def _check_path(self, node, path, is_last_only=False):
        """Find the first part of a path that does not exist."""
        if path[0] != ROOT or len(path) < 2:
            return
        server, *rest = path[1:]
        if server not in self._packages.servers:
            # It may be registered before a function is called.
            is_known = server in self._packages.root_names() or self._functions
            if not is_known and not (rest and is_last_only):
                self._fault(
                    node,
                    f"there is no MCP server `{server}`",
                    ipybox_hints.hint_of_server(server),
                )
        elif rest:
            self._check_member(
                node, server, *rest[:2], is_judged=len(rest) <= 2 or not is_last_only
            )

    def _check_member(self, node, server, tool, member=None, is_judged=True):
        package = self._packages.source(server)
        if package is None or not is_judged or tool.startswith("_"):
            return
        if tool not in self._packages.tools(server):
            is_known = tool in package.names or has_member(tool, server)
            if not is_known and member is None:
                self._fault(
                    node,
                    f"`{server}` has no tool `{tool}`",
                    ipybox_hints.hint_of_tool(server, tool),
                )
            return
        module = self._packages.source(server, tool)
        if (
            module is None
            or member is None
            or member in INFERRED
            or member.startswith("_")
        ):
            return
        if member not in module.names and not has_member(member, server, tool):
            self._fault(node, f"`{server}.{tool}` has no `{member}`", module.call())

    # Calls

    def visit_Call(self, node):
        path = self._path(node.func)
        if path is not None:
            self._check_call(node, path)
        self.generic_visit(node)

    def _check_call(self, node, path):
        module = self._packages.source(*path[1:3]) if len(path) in (3, 4) else None
        if module is None or path[2] not in self._packages.tools(path[1]):
            return
        if len(path) == 3:
            words = f"a tool is called by the function of its module: `{ast.unparse(node.func)}.run(...)`"
            self._fault(node, words)
        elif path[3] in RUNNERS:
            self._check_arguments(node, module, takes_params=True)
            if not self._bindings.has_batch:
                self.plan.note(path[1], module, node)
        elif path[3] == "Params":
            self._check_arguments(node, module, takes_params=False)

    def _check_arguments(self, node, module, takes_params):
        positional = len(node.args)
        if any(isinstance(each, ast.Starred) for each in node.args):
            return
        if positional > takes_params:
            self._fault(node, "arguments have names", module.call())
            return
        model = module.classes.get("Params")
        given = [keyword.arg for keyword in node.keywords]
        if takes_params and positional and given:
            if None not in given:
                self._fault(
                    node,
                    "it takes `Params` or keyword arguments, not both",
                    module.call(),
                )
            return
        if (
            model is None
            or model.is_root
            or positional
            or (takes_params and given == ["params"])
        ):
            return
        unknown = [
            name for name in given if name is not None and name not in model.known
        ]
        missing = (
            []
            if None in given
            else [
                name for name in model.required if model.names(name).isdisjoint(given)
            ]
        )
        if missing:
            self._fault(
                node,
                f"it needs {ipybox_hints.listed(missing)}{near(unknown, missing)}",
                module.call(),
            )
        elif unknown and model.is_closed:
            words = f"it has no argument {ipybox_hints.listed(unknown)}{near(unknown, model.fields)}"
            self._fault(node, words, module.call())

    # Results

    def _result(self, node):
        """The class of a tool's result that an expression is for certain."""
        # There, calls wait, and return what stands for their results.
        if self._bindings.has_batch:
            return None
        if isinstance(node, ast.Name) and not self._functions:
            statement = self._bindings.value(node.id)
            is_before = statement is not None and statement.end_lineno < node.lineno
            return self._result(statement.value) if is_before else None
        is_awaited = isinstance(node, ast.Await)
        call = node.value if is_awaited else node
        path = self._path(call.func) if isinstance(call, ast.Call) else None
        if path is None or len(path) != 4 or path[3] != RUNNERS[is_awaited]:
            return None
        module = self._packages.source(*path[1:3])
        return module.result(RUNNERS[is_awaited]) if module is not None else None

    def _check_field(self, node, result):
        if (
            not result.is_closed
            or node.attr.startswith("_")
            or node.attr in result.members()
        ):
            return
        hint = (
            f"its fields are {ipybox_hints.listed(result.fields)}"
            if result.fields
            else "it is text"
        )
        self._fault(node, f"the result of `{result.tool}` has no `{node.attr}`", hint)


def near(unknown, names):
    """The words for names that were meant by unknown ones."""
    found = [(name, ipybox_hints.nearest(name, names)) for name in unknown]
    meant = [
        f"`{name}` is none, did you mean `{like[0]}`?" for name, like in found if like
    ]
    return f"; {' '.join(meant)}" if meant else ""
