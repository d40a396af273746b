"""Gathers a function of the session with all that it uses, as the files of an action.

`api.py` gets the signature with its types, and `impl.py` the code. Standard library only.
"""

import ast
import builtins
import inspect
import symtable
import sys
import textwrap
import types

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# The largest constant that is taken along, in characters.
MOST_CHARS = 2000
LITERALS = (str, bytes, int, float, complex, bool, type(None), tuple, list, dict, set)


class ActionError(Exception):
    """A function that cannot be saved as an action. The text says why, and what would help."""


def gather(function):
    """The texts of an action's files, by name."""
    name = function.__name__
    if name == "<lambda>" or not name.isidentifier():
        raise ActionError(
            "a lambda has no name: write a function with `def`, types and a docstring"
        )
    check_signature(function)
    if function.__closure__:
        names = ", ".join(f"`{name}`" for name in function.__code__.co_freevars)
        raise ActionError(
            f"`{name}` is a closure over {names}: make them parameters, and define it outside of other functions"
        )
    session = SessionCode(function.__globals__)
    own, _ = session.definition(name, function)
    api = Part(session)
    api.add_names(names_of_signature(own, session.variables))
    impl = Part(session, api)
    impl.add(name, function)
    run = "run_async" if isinstance(own, ast.AsyncFunctionDef) else "run"
    docstring = inspect.cleandoc(function.__doc__)
    public = sorted({*api.definitions, run})
    exported = ", ".join(public)
    return {
        "__init__.py": f"from .api import {exported}\n\n__all__ = {public!r}\n",
        "api.py": joined(
            literal_docstring(docstring.partition("\n")[0]),
            api.imports(),
            api.code(),
            runner(own, run, name),
        ),
        "impl.py": joined(impl.imports(), impl.code()),
    }


def check_signature(run):
    """Refuse a function that its users could not read."""
    name = run.__name__
    if not (run.__doc__ or "").strip():
        raise ActionError(
            f'`{name}` has no docstring\nhint: say in one sentence what it does: """Rank …"""'
        )
    for parameter in inspect.signature(run).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ActionError(
                f"`{name}` takes `{parameter}`: give each parameter a name and a type"
            )
        if parameter.annotation is parameter.empty:
            raise ActionError(
                f"the parameter `{parameter.name}` of `{name}` has no type\nhint: `{parameter.name}: str`"
            )
    if inspect.signature(run).return_annotation is inspect.Signature.empty:
        raise ActionError(
            f"`{name}` does not say what it returns\nhint: `-> list[str]`, or `-> None`"
        )


def runner(own, run, name):
    """The function of `api.py`, which calls that of `impl.py`."""
    arguments = own.args
    given = [argument.arg for argument in [*arguments.posonlyargs, *arguments.args]]
    given += [f"{argument.arg}={argument.arg}" for argument in arguments.kwonlyargs]
    wait = "await " if isinstance(own, ast.AsyncFunctionDef) else ""
    calls = ast.parse(
        f"async def f():\n    from .impl import {name}\n    return {wait}{name}({', '.join(given)})"
    )
    signature = type(own)(
        name=run,
        args=arguments,
        body=[own.body[0], *calls.body[0].body],
        decorator_list=[],
        returns=own.returns,
        type_params=getattr(own, "type_params", []),
    )
    return ast.unparse(ast.fix_missing_locations(signature))


def literal_docstring(text):
    return ast.unparse(ast.Module([ast.Expr(ast.Constant(text))], []))


def joined(*parts):
    return "\n\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


class SessionCode:
    """The variables of the session, and the statements that have imported them."""

    def __init__(self, variables):
        self.variables = variables
        self._imports = {}
        for code in variables.get("In") or []:
            self._note_imports(code)

    def _note_imports(self, code):
        try:
            tree = ast.parse(code)
        except (SyntaxError, ValueError):
            # It has magics. Lines that import are still lines of Python.
            lines = [
                line
                for line in code.splitlines()
                if line.startswith(("import ", "from "))
            ]
            try:
                tree = ast.parse("\n".join(lines))
            except (SyntaxError, ValueError):
                return
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                for alias in node.names:
                    self._note_import(node, alias)

    def _note_import(self, node, alias):
        statement = type(node)(**{**dict(ast.iter_fields(node)), "names": [alias]})
        text = ast.unparse(ast.fix_missing_locations(statement))
        bound = alias.asname or alias.name.partition(".")[0]
        is_part = (
            isinstance(node, ast.Import) and "." in alias.name and not alias.asname
        )
        if is_part:
            # `import a.b` and `import a.c` hold together.
            texts = [
                known
                for known in self._imports.get(bound, [])
                if known.startswith("import ")
            ]
            self._imports[bound] = [*dict.fromkeys([*texts, text])]
        else:
            self._imports[bound] = [text]

    def definition(self, name, value):
        """The statement that defines a function or a class of the session, and its text."""
        try:
            source = textwrap.dedent(inspect.getsource(value))
            node = ast.parse(source).body[0]
        except (OSError, TypeError, SyntaxError, IndexError):
            source, node = self._newest_class(name)
        if getattr(node, "name", None) != name or not isinstance(
            node, (*FUNCTIONS, ast.ClassDef)
        ):
            raise ActionError(
                f"the code of `{name}` is not known: define it in a cell, with `def` or `class` and under this name"
            )
        return node, with_decorators(source, node)

    def _newest_class(self, name):
        """The same of a class, which only the text of its cell tells."""
        for code in reversed(self.variables.get("In") or []):
            try:
                statements = ast.parse(code).body
            except (SyntaxError, ValueError):
                continue
            for node in reversed(statements):
                if isinstance(node, ast.ClassDef) and node.name == name:
                    return code, node
        return "", None

    def import_of(self, name, value):
        """The statements that import a name, or None if it is defined in the session."""
        known = self._imports.get(name)
        if isinstance(value, types.ModuleType):
            root = value.__name__.partition(".")[0]
            if known:
                return known
            return [
                f"import {value.__name__}"
                if name == root == value.__name__
                else f"import {value.__name__} as {name}"
            ]
        module = getattr(value, "__module__", None)
        is_own = module == self.variables.get("__name__")
        if is_own and isinstance(value, (types.FunctionType, type)):
            # It may have replaced what was imported under its name.
            return None
        if known and is_imported(known, value):
            return known
        own = getattr(value, "__name__", "")
        if is_own or getattr(sys.modules.get(module), own, None) is not value:
            return None
        return [f"from {module} import {own}" + ("" if own == name else f" as {name}")]


def is_imported(statements, value):
    """Return whether a statement still gives a name its value."""
    node = ast.parse(statements[-1]).body[0]
    if not isinstance(node, ast.ImportFrom) or node.level:
        return False
    module = sys.modules.get(node.module)
    return getattr(module, node.names[0].name, None) is value


class Part:
    """A file: definitions in an order in which each finds what it needs, and imports."""

    def __init__(self, session, api=None):
        self._session, self._api = session, api
        self.definitions = {}
        self._imports = []
        self._shared = []
        self._seen = set()

    def add_names(self, names):
        for name in names:
            value = self._session.variables.get(name)
            if name in self._session.variables and not is_builtin(name, value):
                self.add(name, value)
            elif not hasattr(builtins, name) and not is_of_python(name):
                raise ActionError(f"it uses `{name}`, which is not defined")

    def add(self, name, value):
        """Take a variable of the session along, with what it uses."""
        if name in self._seen:
            return
        self._seen.add(name)
        if self._api is not None and name in self._api.definitions:
            self._shared.append(name)
            return
        statements = self._session.import_of(name, value)
        if statements is not None:
            self._imports.extend(statements)
        elif isinstance(value, (types.FunctionType, type)):
            self._define(name, value)
        elif is_literal(value):
            self.definitions[name] = f"{name} = {value!r}"
        else:
            raise ActionError(
                f"it uses the variable `{name}` of the session, of type {type(value).__name__}: make it a parameter"
            )

    def _define(self, name, value):
        closure = getattr(value, "__closure__", None)
        if closure:
            raise ActionError(
                f"it uses `{name}`, which is a closure: define it outside of other functions"
            )
        value = (
            inspect.unwrap(value) if isinstance(value, types.FunctionType) else value
        )
        node, text = self._session.definition(name, value)
        self.add_names(names_of(node, self._session.variables))
        self.definitions[name] = text

    def imports(self):
        lines = sorted(
            dict.fromkeys(self._imports),
            key=lambda line: (line.startswith("from __future__") is False, line),
        )
        if self._shared:
            lines.append(f"from .api import {', '.join(sorted(self._shared))}")
        return "\n".join(lines)

    def code(self):
        return "\n\n\n".join(self.definitions.values())


def with_decorators(source, node):
    """The text of a definition in the outermost block of a text."""
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    return "\n".join(source.splitlines()[first - 1 : node.end_lineno])


def is_builtin(name, value):
    """Return whether a name is Python's own. IPython wraps some, such as `open`."""
    own = getattr(builtins, name, sys)
    return is_of_python(name) or value is own or getattr(value, "__wrapped__", 0) is own


def is_of_python(name):
    return name.startswith("__") and name.endswith("__")


def is_literal(value):
    """Return whether a value is small and can be written in code."""
    if type(value) not in LITERALS:
        return False
    try:
        text = repr(value)
        return len(text) <= MOST_CHARS and ast.literal_eval(text) == value
    except Exception:  # noqa: BLE001 - it holds what is no literal
        return False


def names_of_signature(own, known):
    """The names in the types and defaults of a function; `known` are the variables of the session."""
    arguments = own.args
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    annotations = [own.returns, *(argument.annotation for argument in parameters)]
    names = {
        name for node in annotations if node for name in names_of_type(node, known)
    }
    for default in filter(None, [*arguments.defaults, *arguments.kw_defaults]):
        names |= {node.id for node in ast.walk(default) if isinstance(node, ast.Name)}
    return sorted(names)


def names_of_type(annotation, known):
    """The names in a type; one that is written as a text may be no type."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                parsed = ast.parse(node.value, mode="eval")
            except (SyntaxError, ValueError):
                continue
            names = (each.id for each in ast.walk(parsed) if isinstance(each, ast.Name))
            yield from (name for name in names if name in known)


def names_of(node, known):
    """The names that a definition takes from around it."""
    table = symtable.symtable(ast.unparse(node), "<action>", "exec")
    names = set(free_names(table, True))
    for each in ast.walk(node):
        for annotation in (
            getattr(each, "annotation", None),
            getattr(each, "returns", None),
        ):
            if isinstance(annotation, ast.AST):
                names |= {
                    name for name in names_of_type(annotation, known) if name in known
                }
    return sorted(names - {node.name})


def free_names(table, is_top):
    for symbol in table.get_symbols():
        if is_top:
            if (
                symbol.is_referenced()
                and not symbol.is_assigned()
                and not symbol.is_imported()
            ):
                yield symbol.get_name()
        elif symbol.is_global() and symbol.is_referenced():
            yield symbol.get_name()
    for child in table.get_children():
        yield from free_names(child, False)
