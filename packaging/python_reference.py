"""Writes the reference of the Python library, `docs/python/reference.md`, from its docstrings.

`python_reference.py` writes the page, `python_reference.py --check` reports whether it is what it would write, and ends
with 1 if not. The library is read, not imported. Public is what a module has in `__all__` and what has a docstring.
"""

import argparse
import ast
import re
import sys
import textwrap
from dataclasses import dataclass, field
from inspect import cleandoc
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PYTHON = REPOSITORY / "python"
PAGE = REPOSITORY / "docs/python/reference.md"

PACKAGE = "ipybox_rs"

MODULES = [
    "ipybox_rs.code_exec",
    "ipybox_rs.mcp_apigen",
    "ipybox_rs.policy",
    "ipybox_rs.audit",
    "ipybox_rs.grants",
    "ipybox_rs.tool_exec.approval.client",
    "ipybox_rs.tool_exec.server",
    "ipybox_rs.tool_exec.client",
    "ipybox_rs.tool_exec.approval.server",
    "ipybox_rs.kernel_mgr.client",
    "ipybox_rs.kernel_mgr.server",
    "ipybox_rs.cells",
    "ipybox_rs.testing",
    "ipybox_rs.doctor",
    "ipybox_rs.utils",
    PACKAGE,
]
"""In the order of the page. A name that several of them have is described in the first."""

INTRODUCTION = """\
# Python reference

The public names of the library `ipybox_rs`, by module; the modules are those of the Python original. The pages before
this one, from [Quickstart](quickstart.md) on, explain how they are used. All names but {} can be imported from
`ipybox_rs` itself:

```python
from ipybox_rs import *
```

Classes that have `start` and `stop`, or `connect` and `disconnect`, are asynchronous context managers too. The examples
are cells of a notebook, with `await` at top level.
"""

NOTE = "<!-- test: covered by packaging/python_reference.py -->\n"
"""Signatures are no programs."""

WIDTH = 120
SIGNATURE_WIDTH = 100

SECTIONS = {
    "Args": "Parameters",
    "Attributes": "Attributes",
    "Returns": "Returns",
    "Yields": "Yields",
    "Raises": "Raises",
}
"""The sections of a docstring, and their titles on the page."""


class DocstringError(Exception):
    """The library's docstrings are wrong."""


@dataclass
class Entry:
    """A public class, function or other name."""

    name: str
    node: ast.AST
    source: str
    text: str
    members: list["Entry"] = field(default_factory=list)
    arguments: dict[str, str] = field(default_factory=dict)
    """The parameters of a signature of several lines, as they are written, by name, with `*` among them."""

    @property
    def constructor_text(self):
        """The docstring of the `__init__` of a class."""
        constructor = constructor_of(self.node)
        text = (constructor and ast.get_docstring(constructor)) or ""
        return text.removeprefix("Sets the options.")


class Module:
    """A file of the library."""

    def __init__(self, name):
        path = PYTHON / name.replace(".", "/")
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        self.name, self.source = name, file.read_text(encoding="utf-8")
        self.tree = ast.parse(self.source)
        self.text = ast.get_docstring(self.tree) or ""
        self.names = []
        self.definitions, self.imports, self.aliases = {}, {}, {}
        for node, following in zip(self.tree.body, [*self.tree.body[1:], None]):
            self._add(node, following)

    def _add(self, node, following):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            self.definitions[node.name] = (node, ast.get_docstring(node) or "")
        elif isinstance(node, ast.ImportFrom):
            for one in node.names:
                self.imports[one.asname or one.name] = (node.module, one.name)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name == "__all__":
                self.names = ast.literal_eval(node.value)
            elif isinstance(following, ast.Expr) and is_text(following.value):
                self.definitions[name] = (node, cleandoc(following.value.value))
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            # `if TYPE_CHECKING: Timeout = TimeoutError` says what a base is for readers.
            for one in node.body:
                if isinstance(one, ast.Assign):
                    self.aliases[ast.unparse(one.targets[0])] = ast.unparse(one.value)

    def segment(self, node):
        """The source of a part of it, on one line."""
        return " ".join(ast.get_source_segment(self.source, node).split())


def is_text(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


class Reference:
    """The library, read."""

    def __init__(self):
        self.files = {name: Module(name) for name in MODULES}
        self.entries = {name: [] for name in MODULES}
        self.others = {name: [] for name in MODULES}
        """Names that are described under another one, or in another module."""
        self.described = {}
        for name in MODULES:
            for exported in self.files[name].names:
                self._find(name, exported)
            self.entries[name].sort(key=rank)
        self.anchors = {
            entry.name: anchor(entry.name)
            for module in MODULES
            for one in self.entries[module]
            for entry in [one, *one.members]
        }
        self._check()

    def _file(self, name):
        if name not in self.files:
            self.files[name] = Module(name)
        return self.files[name]

    def _find(self, module, exported):
        """Follows a name to its definition."""
        where, name = module, exported
        while name in self._file(where).imports:
            where, name = self._file(where).imports[name]
        node, text = self._file(where).definitions.get(name, (None, None))
        if not text:
            raise DocstringError(f"{where}.{name} has no docstring")
        if (where, name) in self.described:
            self.others[module].append((exported, self.described[where, name]))
            return
        self.described[where, name] = exported
        file = self._file(where)
        entry = Entry(exported, node, signature(file, node, exported), text)
        entry.arguments = arguments_of(entry, written_arguments(file, node))
        if isinstance(node, ast.ClassDef):
            for one in filter(is_public_method, node.body):
                source, text = signature(file, one, one.name), ast.get_docstring(one)
                member = Entry(f"{exported}.{one.name}", one, source, text)
                member.arguments = arguments_of(member, written_arguments(file, one))
                entry.members.append(member)
        self.entries[module].append(entry)

    def _check(self):
        """Every public module has to be on the page."""
        for file in sorted((PYTHON / PACKAGE).rglob("*.py")):
            parts = file.relative_to(PYTHON).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            is_public = not any(part.startswith("_") for part in name.split("."))
            if is_public and name not in MODULES and Module(name).names:
                raise DocstringError(f"{name} is not in the list of this script")

    def page(self):
        """The page's Markdown."""
        parts = [self.introduction(), self.overview()]
        for name in MODULES:
            entries, others = self.entries[name], self.others[name]
            if name == PACKAGE:
                continue
            parts.append(f"## {name}\n")
            parts.append(self.prose(self.files[name].text, None))
            aliases = [
                f"`{exported}` is [`{described}`](#{self.anchors[described]})."
                for exported, described in others
                if exported != described
            ]
            if aliases:
                parts.append(filled(" ".join(aliases)) + "\n")
            parts += [self.entry(one, "###") for one in entries]
        return "\n".join(parts)

    def introduction(self):
        """The text before the sections, with the names that only their modules have."""
        every = {one.name for entries in self.entries.values() for one in entries}
        *names, last = sorted(every - set(self.files[PACKAGE].names))
        listed = f"{', '.join(f'`{name}`' for name in names)} and `{last}`"
        first, text, rest = INTRODUCTION.format(listed).split("\n\n", 2)
        return f"{first}\n\n{filled(text)}\n\n{rest}"

    def overview(self):
        """The section of the package itself."""
        parts = [f"## {PACKAGE}\n", self.prose(self.files[PACKAGE].text, None)]
        parts += [self.entry(one, "###") for one in self.entries[PACKAGE]]
        return "\n".join(parts)

    def entry(self, entry, level):
        """The section of a class, function or other name."""
        parts = [f"{level} {entry.name}\n", shown(entry), self.prose(entry.text, entry)]
        if entry.constructor_text:
            parts.append(self.prose(entry.constructor_text, entry))
        parts += [self.entry(one, level + "#") for one in entry.members]
        return "\n".join(parts)

    def prose(self, text, entry):
        """A docstring as Markdown."""
        parts = []
        for section, body in sections(text):
            if section:
                parts.append(f"**{SECTIONS[section]}**\n")
            if section in (None, "Returns"):
                parts += [self.paragraph(one, entry) for one in paragraphs(body)]
            else:
                items = [self.item(name, what, entry) for name, what in listed(body)]
                parts.append("\n".join(items) + "\n")
        return "\n".join(parts)

    def paragraph(self, text, entry):
        if text.startswith("```"):
            return f"{text}\n"
        if text.startswith("|"):
            return f"{self.linked(text, entry)}\n"
        return filled(self.linked(text, entry)) + "\n"

    def item(self, name, what, entry):
        name = name.strip("`")
        name = f"`{entry.arguments.get(name, name) if entry else name}`"
        # A parameter may have the name of a method.
        name = self.linked(name, entry) if name[1].isupper() else name
        return filled(f"- {name}: {self.linked(what, entry)}", "  ")

    def linked(self, text, entry):
        """With links to the names that are described here."""
        own = entry.name.split(".")[0] if entry else None

        def link(match):
            name = match[1]
            for module in MODULES:
                name = name.removeprefix(f"{module}.")
            name = f"{own}.{name}" if f"{own}.{name}" in self.anchors else name
            if name not in self.anchors or name in (own, entry and entry.name):
                return match[0]
            return f"[{match[0]}](#{self.anchors[name]})"

        return re.sub(r"(?<![\[`])`([A-Za-z_][\w.]*)`(?!`)", link, text)


def signature(file, node, name):
    """A name as it is written in code, with types and defaults."""
    if isinstance(node, ast.Assign):
        return f"{name} = {file.segment(node.value)}"
    if isinstance(node, ast.ClassDef):
        if is_exception(node):
            bases = (file.segment(base) for base in node.bases)
            return f"class {name}({', '.join(file.aliases.get(one, one) for one in bases)})"
        if constructor := constructor_of(node):
            return laid_out(f"class {name}", parameters(file, constructor), "")
        if fields := dataclass_fields(file, node):
            return laid_out(f"class {name}", fields, "")
        return f"class {name}"
    returned = file.segment(node.returns) if node.returns else "None"
    returns = "" if returned == "None" else f" -> {returned}"
    if has_decorator(node, "property"):
        return f"{name}:{returns.removeprefix(' ->')}"
    keyword = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    return laid_out(f"{keyword} {name}", parameters(file, node), returns)


def written_arguments(file, node):
    """The parameters of a class or function as they are written."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return parameters(file, node)
    if isinstance(node, ast.ClassDef) and not is_exception(node):
        constructor = constructor_of(node)
        return (
            parameters(file, constructor)
            if constructor
            else dataclass_fields(file, node)
        )
    return []


def arguments_of(entry, written):
    """Those of a signature of several lines, if each of them is described: then the descriptions have their types."""
    described = {
        name.strip("`")
        for text in (entry.text, entry.constructor_text)
        for section, body in sections(text)
        if section in ("Args", "Attributes")
        for name, _what in listed(body)
    }
    named = {one.split(":")[0]: one for one in written}
    is_described = all(name in described for name in named if name != "*")
    return named if "\n" in entry.source and is_described else {}


def shown(entry):
    """The signature, without the parameters that are described below it."""
    if "\n" not in entry.source:
        return f"`{entry.source}`\n"
    if not entry.arguments:
        return f"{NOTE}```python\n{entry.source}\n```\n"
    before, after = entry.source.split("(")[0], entry.source.rpartition(")")[2]
    names = list(entry.arguments)
    by_name = ""
    if "*" in names:
        by_name = f" By name only: from `{names[names.index('*') + 1]}` on."
    return f"`{before}(…){after}`{by_name}\n"


def rank(entry):
    """Functions and classes first, then data, then exceptions."""
    if isinstance(entry.node, ast.ClassDef):
        is_data = has_decorator(entry.node, "dataclass")
        return 2 if is_exception(entry.node) else 1 if is_data else 0
    return 1 if isinstance(entry.node, ast.Assign) else 0


def is_exception(node):
    bases = " ".join(ast.unparse(base) for base in node.bases)
    return bool(re.search(r"Error|Exception|Timeout", bases))


def is_public_method(node):
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    return not node.name.startswith("_") and ast.get_docstring(node) is not None


def has_decorator(node, name):
    return any(re.match(rf"{name}\b", ast.unparse(one)) for one in node.decorator_list)


def constructor_of(node):
    """The `__init__` that a class defines."""
    for one in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(one, ast.FunctionDef) and one.name == "__init__":
            return one
    return None


def parameters(file, node):
    """The parameters of a function, as they are written."""
    arguments, found = node.args, []
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    for one, default in zip(positional, defaults):
        if one.arg not in ("self", "cls"):
            found.append(parameter(file, one, default))
    if arguments.vararg:
        found.append(f"*{parameter(file, arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        found.append("*")
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults):
        found.append(parameter(file, one, default))
    if arguments.kwarg:
        found.append(f"**{parameter(file, arguments.kwarg, None)}")
    return found


def parameter(file, node, default):
    text = (
        f"{node.arg}: {file.segment(node.annotation)}" if node.annotation else node.arg
    )
    return text if default is None else f"{text} = {file.segment(default)}"


def dataclass_fields(file, node):
    """The parameters of a dataclass's constructor."""
    found = []
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and not one.target.id.startswith("_"):
            text = f"{one.target.id}: {file.segment(one.annotation)}"
            if one.value:
                value = file.segment(one.value)
                text += (
                    f" = {'[]' if value == 'field(default_factory=list)' else value}"
                )
            found.append(text)
    return found


def laid_out(before, arguments, after):
    """On one line, or a line for each argument."""
    line = f"{before}({', '.join(arguments)}){after}"
    if len(line) <= SIGNATURE_WIDTH:
        return line
    return f"{before}(\n" + "".join(f"    {one},\n" for one in arguments) + f"){after}"


def sections(text):
    """The parts of a docstring: first the description, then those of `SECTIONS`, each with its text."""
    found = [(None, [])]
    for line in text.splitlines():
        if line.removesuffix(":") in SECTIONS and line.endswith(":"):
            found.append((line[:-1], []))
        else:
            found[-1][1].append(line)
    return [
        (name, textwrap.dedent("\n".join(lines)).strip("\n")) for name, lines in found
    ]


def paragraphs(text):
    """Paragraphs, tables and whole fenced blocks."""
    found, fence = [[]], False
    for line in text.splitlines():
        if line.startswith("```"):
            fence = not fence
        if line.strip() or fence:
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return ["\n".join(lines) for lines in found if lines]


def listed(text):
    """The names of a section and what is said of each."""
    found = []
    for line in text.splitlines():
        if match := re.match(r"(\S[^:]*): (.*)", line):
            found.append([match[1], match[2]])
        elif line.startswith("  ") and found:
            found[-1][1] += f" {line.strip()}"
        else:
            raise DocstringError(f"a line of a docstring names nothing: {line!r}")
    return found


def filled(text, indent=""):
    return textwrap.fill(
        " ".join(text.split()),
        WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing, report whether it differs"
    )
    is_check = parser.parse_args().check
    try:
        page = Reference().page()
    except (DocstringError, SyntaxError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if not is_check:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page:
        return 0
    print(f"{PAGE.relative_to(REPOSITORY)} is not what the docstrings say")
    print("hint: run `python3 packaging/python_reference.py`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
