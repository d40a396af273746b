"""M3ToolEval, four of its five families: the calls by which the suite computes its expected outputs, and the same as code.

The suite's two modes of action are the arms: one call in JSON at a time, or code. Answers are checked by its own
`check_answer`. The fifth family, `web_browsing`, is left out: its answers are constants, without a way that leads there.
"""

from pathlib import Path

from arms import Misfit, call
from suite import Task, replay, tools

FAMILIES = ("message_decoder", "dna_sequencer", "trade_calculator", "travel_itinerary")
ARMS = ("direct", "ipybox", "hybrid")


def read(server):
    """The tasks of a family, and what their calls return."""
    found, results = [], {}
    for task in server.task()["tasks"]:
        calls = [
            call(server.name, tool, **arguments) for tool, arguments, _ in task["calls"]
        ]
        results[task["name"]] = [result for *_, result in task["calls"]]
        found.append(
            Task(
                task["name"],
                task["prompt"],
                [[made] for made in calls],
                task["answer"],
                cells=[task["cell"]],
            )
        )
    return found, results


async def rows(family, suite, program, directory, count, arms=ARMS):
    """The figures of a family. `suite` is the directory of a checkout."""
    place = Path(suite) / "scripts/eval/m3tooleval"
    async with tools(family, "m3.py", directory, place) as server:
        tasks, results = read(server)

        def verify(task, talk):
            made = [pair for turn in talk.calls for pair in turn]
            if all("__" in call.tool for call, _ in made):
                returned = [answer.text for _, answer in made]
                if returned != results[task.name]:
                    raise Misfit(
                        f"{task.name}: the tools return {returned}, not {results[task.name]}"
                    )
            else:
                talk.answer = made[-1][1].text.strip()
            if not server.task(check=task.name, answer=talk.answer)["right"]:
                raise Misfit(
                    f"{task.name}: the answer {talk.answer!r} is wrong, {task.answer!r} is right"
                )

        async for row in replay(
            f"m3tooleval {family}",
            server,
            tasks,
            program,
            directory,
            count,
            verify,
            arms,
        ):
            yield row
