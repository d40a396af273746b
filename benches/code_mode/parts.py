"""Parts of M3ToolEval's solutions as actions: what one half of a family's tasks leaves, and what it saves the other half. Without a
model.

A solution is an expression over tools. The largest part of it that needs no more than values becomes an action, with a parameter for
each value, if it calls a tool more than once. It serves a task of the other half whose solution has the same expression in it, with
other values. The suite's own check verifies each answer.
"""

import ast
import copy
from dataclasses import dataclass
from pathlib import Path

from actions import (
    CATEGORY,
    WORDS,
    ReplayWithActions,
    halves,
    others_of,
    sentences_of,
)
from arms import OUTPUT_CHARS, Arm, Misfit
from m3tooleval import read
from suite import tools


@dataclass(frozen=True)
class SolutionPart:
    """An expression with calls of tools, and with holes in place of its values."""

    expression: ast.expr
    shape: str
    """The same for all parts that differ in their values only."""
    values: tuple
    """The expressions that are in the holes."""
    names: tuple
    """A name of a parameter for each."""

    def calls(self):
        """The names of its tools, in the order of their calls."""
        found = [node for node in ast.walk(self.expression) if is_call(node)]
        # The inner ones are called first.
        return [node.func.value.id for node in reversed(found)]

    def tools(self):
        """The names of its tools, each once."""
        return list(dict.fromkeys(self.calls()))

    def name(self, taken):
        """A name that no other action has."""
        name = "_and_".join(self.tools())[:60].rstrip("_")
        others = sum(other.startswith(name) for other in taken)
        return f"{name}_{others + 1}" if others else name

    def example(self):
        """The values of the parameters, if they are known without running the task."""
        try:
            return dict(zip(self.names, map(constant, self.values), strict=True))
        except (NameError, TypeError):
            return None


def constant(expression):
    """The value of an expression of constants."""
    code = compile(ast.Expression(expression), "value", "eval")
    return eval(code, {"__builtins__": {}})


def is_call(node):
    """True for `tool.run(…)`."""
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return called and node.func.attr == "run" and isinstance(node.func.value, ast.Name)


def calls_in(node):
    return sum(map(is_call, ast.walk(node)))


def bound_in(expression):
    """The names that loops and functions in the expression bind."""
    found = set()
    for node in ast.walk(expression):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        if isinstance(node, ast.arg):
            found.add(node.arg)
    return found


class Holes(ast.NodeTransformer):
    """Puts a hole in place of each value that a call of a tool is given."""

    def __init__(self, bound):
        self.bound, self.values, self.names = bound, [], []

    def visit_Call(self, node):
        if not is_call(node):
            return self.generic_visit(node)
        for keyword in node.keywords:
            keyword.value = self.filled(keyword.arg, keyword.value)
        return node

    def filled(self, name, value):
        if isinstance(value, ast.List):
            value.elts = [self.filled(name, item) for item in value.elts]
            return value
        used = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
        if calls_in(value) or used & self.bound:
            return self.visit(value)
        known = [ast.dump(one) for one in self.values]
        if ast.dump(value) not in known:
            self.values.append(value)
            self.names.append(self.free(name))
            known.append(ast.dump(value))
        return ast.Name(self.names[known.index(ast.dump(value))], ast.Load())

    def free(self, name):
        taken = [one for one in self.names if one.rstrip("0123456789_") == name]
        return f"{name}_{len(taken) + 1}" if taken else name


def part_of(expression):
    """The part that an expression is."""
    holes = Holes(bound_in(expression))
    made = holes.visit(copy.deepcopy(expression))
    return SolutionPart(made, ast.dump(made), tuple(holes.values), tuple(holes.names))


def parts_of(cell):
    """The parts of what a cell prints, from the largest on; those alone that are results."""
    (printed,) = ast.parse(cell).body[-1].value.args
    found = [
        (calls_in(node), node)
        for node in ast.walk(printed)
        if isinstance(node, ast.expr) and not is_call(node) and calls_in(node) > 1
    ]
    found.sort(key=lambda one: -one[0])
    return [part_of(node) for _, node in found]


class Served(ast.NodeTransformer):
    """Calls an action in place of each part of its shape."""

    def __init__(self, name, part):
        self.name, self.part = name, part

    def visit(self, node):
        if isinstance(node, ast.expr) and calls_in(node) > 1 and not is_call(node):
            part = part_of(node)
            if part.shape == self.part.shape:
                run = ast.Attribute(ast.Name(self.name, ast.Load()), "run", ast.Load())
                given = zip(part.names, part.values, strict=True)
                keywords = [ast.keyword(name, value) for name, value in given]
                return ast.Call(run, [], keywords)
        return self.generic_visit(node)


def with_action(cell, name, part):
    """The cell with an action in it, and the tools that it calls beside that."""
    tree = Served(name, part).visit(ast.parse(cell))
    left = list(
        dict.fromkeys(node.func.value.id for node in ast.walk(tree) if is_call(node))
    )
    left = [tool for tool in left if tool != name]
    (imported,) = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    imported.names = [one for one in imported.names if one.name in left]
    tree.body = [node for node in tree.body if node is not imported or imported.names]
    code = ast.unparse(ast.fix_missing_locations(tree))
    return f"from gentools.{CATEGORY} import {name}\n{code}", left


class ReplayWithParts(ReplayWithActions):
    """Replays tasks, saves the largest parts of those of one half, and uses them in the others."""

    def __init__(self, arm, server, words, descriptions):
        super().__init__(arm, server, {}, words, descriptions)

    async def run(self, task):
        talk = self.arm.begin(task.prompt)
        (cell,), left = task.cells, others_of(task)
        name, needed, others = self.sought(task)
        self.figures = {"is_served": False, "found_by_tools": None}
        self.figures |= {"found_by_words": None, "could_be_served": name is not None}
        if not self.is_saving and await self.is_found(task, talk, name, needed, others):
            self.figures["is_served"] = True
            cell, _ = with_action(cell, name, self.saved[name])
            left = []
        if left:
            await self.learn(task, talk)
        if self.is_saving and name is None:
            await self.save_part(talk, parts_of(cell))
        talk.end(await talk.cell(cell, max_output_chars=OUTPUT_CHARS))
        return talk

    def sought(self, task):
        (cell,) = task.cells
        shapes = {part.shape: name for name, part in self.saved.items()}
        fitting = [part.shape for part in parts_of(cell) if part.shape in shapes]
        if not fitting:
            return None, [], []
        name = shapes[fitting[0]]
        _, others = with_action(cell, name, self.saved[name])
        return name, self.saved[name].tools(), others

    async def save_of(self, task):
        (cell,) = task.cells
        if self.sought(task)[0] is None:
            await self.save_part(self.arm.begin(""), parts_of(cell))

    async def save_part(self, talk, parts):
        """Saves the largest part that needs no more than values, as an agent would write it."""
        part = next((one for one in parts if one.example()), None)
        if part is None:
            return
        name, example = part.name(self.saved), part.example()
        parameters = ", ".join(
            f"{one}: {type(value).__name__}" for one, value in example.items()
        )
        explained = sentences_of(part.tools(), self.descriptions)
        given = ", ".join(f"{one}={value!r}" for one, value in example.items())
        lines = [
            f"from mcptools.{self.server} import {', '.join(part.tools())}",
            f"def {name}({parameters}) -> object:",
            f'    """{explained}"""',
            f"    return {ast.unparse(part.expression)}",
            f"print({name}({given}))",
        ]
        await talk.cell("\n".join(lines), max_output_chars=OUTPUT_CHARS)
        saving = f"save({name}, category={CATEGORY!r}, example={example!r})"
        await talk.cell(f"from mcptools import save\nprint({saving})")
        self.saved[name] = part


async def rows(family, suite, program, directory, count):
    """The figures of all tasks of a family, without actions, and with those of the other half."""
    place = Path(suite) / "scripts/eval/m3tooleval"
    async with tools(family, "m3.py", directory, place) as server:
        tasks, _ = read(server)
        described = server.task(descriptions=True)["descriptions"]
        words = {task.name: task.prompt[:WORDS] for task in tasks}
        for fold, first, second in halves(tasks):
            place = Path(directory) / f"parts-{family}-{fold}"
            place.mkdir()
            async with await Arm.start(
                "ipybox", server.servers(), program, place, count
            ) as arm:
                replaying = ReplayWithParts(arm, server.name, words, described)
                for task in [*first, *second]:
                    replaying.is_saving = task in first
                    saved = len(replaying.saved)
                    talk = await replaying.run(task)
                    if not server.task(check=task.name, answer=talk.answer)["right"]:
                        raise Misfit(f"{task.name}: {talk.answer!r} is wrong")
                    yield {
                        "suite": f"actions {family}",
                        "task": task.name,
                        "arm": "with" if first else "without",
                        "fold": fold,
                        "half": 1 if replaying.is_saving else 2,
                        "saves": len(replaying.saved) > saved,
                        "calls": sum(map(len, task.groups)),
                        **replaying.figures,
                        **talk.account.figures(),
                    }
