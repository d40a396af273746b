"""The tools and tasks of a family of M3ToolEval: `m3.py FAMILY ANNOUNCEMENT`, with the suite's `tasks` on the path.

The suite has no written solutions, but each expected output is computed by an expression over the tools. That expression is
the reference: evaluated with tools that are watched it gives the calls, and rewritten for `mcptools` it is the cell.
"""

import ast
import contextlib
import importlib
import inspect
import sys

from toolbox import Tool, serve

FAMILY = sys.argv[1]
MODULES = {
    "message_decoder": "message_decoder",
    "dna_sequencer": "dna_sequencer",
    "trade_calculator": "trade_calculator",
    "travel_itinerary": "travel_itinerary_planning",
}
TYPES = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "dict": {"type": "object", "additionalProperties": True},
    "List[Dict]": {
        "type": "array",
        "items": {"type": "object", "additionalProperties": True},
    },
}

# The suite prints its tasks when it is imported.
with contextlib.redirect_stdout(sys.stderr):
    module = importlib.import_module(f"tasks.impl.{MODULES[FAMILY]}")


def parameters_of(tool):
    """The parameters of a tool, and whether the last takes any number of arguments."""
    try:
        found = inspect.signature(tool.function).parameters.values()
    except ValueError:
        # Python's own `max` and `min` have no signature.
        return ["args"], True
    return [one.name for one in found], any(
        one.kind is one.VAR_POSITIONAL for one in found
    )


def annotations_of(tool):
    """The types in the signature that the suite shows to models."""
    head = tool.fn_signature
    function = ast.parse(f"def {head}: pass").body[0]
    arguments = [*function.args.args, *filter(None, [function.args.vararg])]
    types = {
        argument.arg: ast.unparse(argument.annotation)
        for argument in arguments
        if argument.annotation
    }
    return types, ast.unparse(function.returns) if function.returns else None


def tool_of(tool):
    """A tool of the suite as one of MCP."""
    names, variable = parameters_of(tool)
    types, returns = annotations_of(tool)
    properties = {
        name: dict(TYPES.get(types.get(name), {"type": "string"})) for name in names
    }
    if variable:
        last = names[-1]
        number = {"type": "number"}
        items = TYPES.get(types.get(last), {} if "nucleotide" in tool.name else number)
        properties[last] = {"type": "array", "items": items}
    schema = {"type": "object", "properties": properties}
    schema["required"] = names[:-1] if variable else names

    def function(**arguments):
        rest = arguments.pop(names[-1], []) if variable else []
        return tool.function(*arguments.values(), *rest)

    result = TYPES.get(returns, {})
    return Tool(tool.description, schema, function, result)


TOOLS = {name: tool_of(tool) for name, tool in module.CUR_TOOLS.items()}
"""The tools on offer."""

OWN = {
    name for name, tool in module.CUR_TOOLS.items() if getattr(module, name, None)
} - {"max", "min", "sum"}
"""The tools that the expressions call: `max`, `min` and `sum` are Python's own there."""


def arguments_of(name, arguments):
    """Arguments by name."""
    names, variable = parameters_of(module.CUR_TOOLS[name])
    if not variable:
        return dict(zip(names, arguments, strict=True))
    plain = len(names) - 1
    return {
        **dict(zip(names[:plain], arguments[:plain], strict=True)),
        names[-1]: list(arguments[plain:]),
    }


@contextlib.contextmanager
def watched():
    """Notes the calls of the tools while an expression is evaluated."""
    calls, original = [], {name: getattr(module, name) for name in OWN}

    def watch(name, function):
        def call(*arguments):
            result = function(*arguments)
            calls.append([name, arguments_of(name, arguments), str(result)])
            return result

        return call

    for name, function in original.items():
        setattr(module, name, watch(name, function))
    try:
        yield calls
    finally:
        for name, function in original.items():
            setattr(module, name, function)


class Rewritten(ast.NodeTransformer):
    """Lets an expression call the tools by `mcptools`."""

    def __init__(self):
        self.tools, self.helpers = [], []

    def visit_Call(self, node):
        self.generic_visit(node)
        if not isinstance(node.func, ast.Name):
            return node
        name = node.func.id
        if name in OWN:
            return self.tool(name, node)
        if callable(getattr(module, name, None)) and name not in self.helpers:
            self.helpers.append(name)
        return node

    def tool(self, name, node):
        if name not in self.tools:
            self.tools.append(name)
        names, variable = parameters_of(module.CUR_TOOLS[name])
        plain = len(names) - 1 if variable else len(names)
        keywords = [
            ast.keyword(parameter, value)
            for parameter, value in zip(names[:plain], node.args, strict=False)
        ]
        if variable:
            rest = ast.List(node.args[plain:], ast.Load())
            keywords.append(ast.keyword(names[-1], rest))
        run = ast.Attribute(ast.Name(name, ast.Load()), "run", ast.Load())
        result = ast.Attribute(ast.Call(run, [], keywords), "result", ast.Load())
        returns = annotations_of(module.CUR_TOOLS[name])[1]
        # JSON has no tuples, and some expected outputs are.
        if returns.startswith("("):
            return ast.Call(ast.Name("tuple", ast.Load()), [result], [])
        return result

    def visit_Subscript(self, node):
        """A constant of the module is written out."""
        self.generic_visit(node)
        constant = isinstance(node.value, ast.Name) and getattr(
            module, node.value.id, None
        )
        if isinstance(constant, list) and isinstance(node.slice, ast.Constant):
            return ast.Constant(constant[node.slice.value])
        return node


def cell_of(expression):
    """The expression as a cell."""
    rewritten = Rewritten()
    printed = ast.unparse(rewritten.visit(expression))
    functions = []
    for name in rewritten.helpers:
        source = ast.parse(inspect.getsource(getattr(module, name)))
        functions.append(ast.unparse(rewritten.visit(source)))
    imported = f"from mcptools.{FAMILY} import {', '.join(rewritten.tools)}"
    return "\n".join([imported, *functions, f"print({printed})"])


def expressions():
    """The expressions that compute the expected outputs, in the order of the tasks."""
    tree = ast.parse(inspect.getsource(module))
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "Task"
    ]
    found.sort(key=lambda node: node.lineno)
    return [
        next(
            keyword.value
            for keyword in node.keywords
            if keyword.arg == "expected_output"
        )
        for node in found
    ]


def tasks():
    """All tasks, with their reference solutions."""
    described = []
    for task, expression in zip(module.TASKS, expressions(), strict=True):
        code = compile(ast.Expression(expression), FAMILY, "eval")
        with watched() as calls:
            value = eval(code, vars(module))
        if value != task.expected_output:
            raise ValueError(f"{task.name}: {value!r} is not {task.expected_output!r}")
        described.append(
            {
                "name": task.name.partition("/")[2],
                "prompt": task.instruction,
                "calls": calls,
                "answer": str(value),
                "cell": cell_of(expression),
            }
        )
    return described


def check(name, answer):
    """True if the suite takes an answer."""
    task = next(task for task in module.TASKS if task.name.endswith(f"/{name}"))
    return task.check_answer(answer)


def answer(request):
    if "check" in request:
        return {"right": check(request["check"], request["answer"])}
    if "descriptions" in request:
        return {"descriptions": {name: one.description for name, one in TOOLS.items()}}
    return {"tasks": tasks()}


if __name__ == "__main__":
    serve(FAMILY, lambda: TOOLS, answer, sys.argv[2])
