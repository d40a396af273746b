"""Words of Python that can be searched: the name of a class leads to one file, and docstrings begin with their subject.

`tests/it/architecture/words.rs` checks the same of Rust.
"""

import ast
from collections import defaultdict

DIRECTORIES = ["benches", "crates", "examples", "packaging", "python", "src", "tests"]

GENERATED = "golden"
"""The directory of files that the code generator has written."""

ASKING_WORDS = {"What", "Who", "Whose", "Where", "How", "Whether", "Which"}
"""Words that leave the subject of a sentence open."""

MOST_NAMESAKES = 7
"""Of names of classes. Four are the library's and those of code in kernels, alike on purpose. To lower it is progress."""


def documented(tree):
    """The texts that describe something: those of modules, classes and functions, and those below a name."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            value = getattr(statement, "value", None)
            if isinstance(statement, ast.Expr) and isinstance(value, ast.Constant):
                yield str(value.value).lstrip()


def problems_of_python(repository):
    """Docstrings that begin with a word that asks, and too many classes that share their names."""
    files = defaultdict(set)
    for directory in DIRECTORIES:
        for path in sorted((repository / directory).rglob("*.py")):
            if GENERATED in path.parts or "node_modules" in path.parts:
                continue
            tree = ast.parse(path.read_text())
            name = path.relative_to(repository)
            for text in documented(tree):
                if ASKING_WORDS.intersection(text.split()[:1]):
                    yield f"{name}: begin with the subject: `{text.splitlines()[0]}`"
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    files[node.name].add(str(name))
    if len(files) < 200:
        yield f"only {len(files)} classes were found"
    shared = {name: sorted(paths) for name, paths in files.items() if len(paths) > 1}
    if len(shared) > MOST_NAMESAKES:
        yield f"{len(shared)} instead of {MOST_NAMESAKES} names of classes are those of several files: {shared}"
