"""The benchmark of code mode (`benches/code_mode`), in part: what it counts, what it verifies, and what it refuses.

tests/packaging/code_mode.py --binary target/debug/ipybox --python KERNEL_PYTHON

Counts bytes instead of tokens, so that no tokenizer is needed.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benches/code_mode"))

import account
import chart
import office
import recorded
import replays
import tables
from arms import Arm, Misfit, Program, compact

COUNT = account.byte_counter()


def check(claim, why=""):
    if not claim:
        raise AssertionError(why)


def adds_up(arm, shape, talk):
    """The counted texts are those that were written and answered, and each turn is sent all that came before."""
    figures = talk.account.figures()
    sent, so_far = 0, arm.schemas() + COUNT(shape.task)
    for turn in talk.calls:
        sent += so_far
        so_far += sum(COUNT(call.written()) for call, _ in turn)
        so_far += sum(COUNT(answer.text) for _, answer in turn)
    sent += so_far
    so_far += COUNT(talk.answer)
    check(figures["turns"] == len(talk.calls) + 1, figures)
    check(figures["sent"] == sent, (figures, sent))
    check(figures["once"] == so_far, (figures, so_far))
    check(figures["schemas"] > len(compact(list(arm.definitions.values()))) // 2)


async def every_arm_reaches_the_end_state(program, directory):
    """The reference solutions, and that code pays where the page says so, and costs where it says so."""
    sent = {}
    for name in ("direct", "ipybox"):
        place = directory / name
        place.mkdir()
        effects = place / "effects.jsonl"
        servers = office.servers(recorded.names(recorded.chosen()), effects)
        async with await Arm.start(name, servers, program, place, COUNT) as arm:
            for shape in recorded.chosen():
                talk, _ = await office.solve(shape, arm, effects)
                adds_up(arm, shape, talk)
                sent[name, shape.name] = talk.account.figures()["sent"]
            if name == "direct":
                await wrong_ends_are_seen(arm, effects)
    check(sent["direct", "one lookup"] < sent["ipybox", "one lookup"], sent)
    check(sent["direct", "long chain"] > sent["ipybox", "long chain"], sent)


async def wrong_ends_are_seen(arm, effects):
    """A verifier that takes anything proves nothing."""
    shape = recorded.BY_NAME["retry on errors"]
    talk, _ = await office.solve(shape, arm, effects)
    kept = effects.read_text()
    for answer, state in [
        ("24 records, 24 calls", kept),
        (talk.answer, kept.rpartition('{"kind": "archived"')[0]),
        (talk.answer, kept + '{"kind": "archived", "record": "R99", "text": ""}\n'),
    ]:
        talk.answer = answer
        effects.write_text(state)
        try:
            office.verify(shape, talk, effects)
        except Misfit:
            continue
        raise AssertionError(f"{answer}, {state[-200:]} was taken")


async def recordings_are_replayed(program, directory):
    """The recording fits, and one in which something else was recorded does not."""
    hint = "`benches/code_mode/run.py --suite recorded --record` makes it anew, if the difference is meant"
    fits = await recorded.row(program, directory, COUNT)
    check(fits["calls"] and not fits["misfits"], f"{fits}\nhint: {hint}")
    lines = replays.read(recorded.FILE)
    spoiled = directory / "spoiled.jsonl"
    replays.write(spoiled, replays.with_change(replays.reordered(lines)))
    row = await recorded.row(program, directory, COUNT, spoiled)
    misfits = "\n".join(row["misfits"])
    for part in (
        "`orders`: ",
        "`orders.get_order`: the living server answered otherwise",
        "`crm.find_customer`: a call before one that it had followed",
    ):
        check(part in misfits, misfits)


def charts_are_of_the_figures():
    """The pictures of the page are those that the published figures make."""
    for name, drawn in chart.pictures(chart.RESULTS).items():
        there = (ROOT / "docs/images" / name).read_text()
        check(
            there == drawn,
            f"docs/images/{name} is not what benches/code_mode/chart.py draws\nhint: `python3 benches/code_mode/chart.py`",
        )


def the_page_has_the_figures():
    """Tables of the page, and of the figures behind it, are made of the published ones, and so is what is said of recorded runs."""
    files = ["docs/code-mode.md", "docs/record.md", "benches/code_mode/README.md"]
    page = "".join((ROOT / file).read_text() for file in files)
    for name, table in tables.every().items():
        hint = "`python3 benches/code_mode/tables.py` makes it"
        check(
            table in page,
            f"none of {', '.join(files)} has the table `{name}`\nhint: {hint}",
        )
    played = [row for row in tables.rows_of("recorded") if row["model"] == "gpt-4o"]
    calls, fit = (
        sum(row["calls"] for row in played),
        sum(not row["misfits"] for row in played),
    )
    line = f"{len(played)} runs, {calls:,} calls | all | {fit} |"
    check(line in page, f"benches/code_mode/README.md does not say `{line}`")


def published_figures_add_up():
    """Of every row: the whole is the sum of its parts."""
    for file in chart.RESULTS.glob("*.json"):
        for row in json.loads(file.read_text())["rows"]:
            if "once" in row:
                parts = ("schemas", "prompt", "written", "results")
                check(row["once"] == sum(row[part] for part in parts), row)
                first = row["schemas"] + row["prompt"]
                check(row["sent"] >= first * row["turns"], row)
                check(row["sent"] < row["once"] * row["turns"], row)


async def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--python", required=True, help="the kernel's")
    options = parser.parse_args()
    program = Program(str(Path(options.binary).resolve()), options.python)
    published_figures_add_up()
    charts_are_of_the_figures()
    the_page_has_the_figures()
    with tempfile.TemporaryDirectory(prefix="ipybox-code-mode-") as directory:
        await every_arm_reaches_the_end_state(program, Path(directory))
        await recordings_are_replayed(program, Path(directory))
    print("ok")


if __name__ == "__main__":
    asyncio.run(main())
