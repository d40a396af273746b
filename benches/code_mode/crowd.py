"""All actions of all suites in one workspace, beside all tools: is the one that serves a task still found?"""

from contextlib import AsyncExitStack
from pathlib import Path

import m3tooleval
import tau
from actions import WORDS, ReplayWithActions, halves, read
from arms import Arm, Servers
from parts import ReplayWithParts
from suite import tools


async def suites_of(package, checkout, directory, stack):
    """The running servers, each with the name and tasks of its suite and what makes a replay of it in an arm."""
    for domain in tau.DOMAINS:
        opened = tools(domain, "tau.py", directory, package)
        server = await stack.enter_async_context(opened)
        data = Path(package) / "tau2/data/tau2/domains" / domain
        tasks, _, readings, words = read(server, data)
        described = server.task(descriptions=True)["descriptions"]
        given = (server.name, readings, words, described)
        yield server, tasks, lambda arm, given=given: ReplayWithActions(arm, *given)
    for family in m3tooleval.FAMILIES:
        place = Path(checkout) / "scripts/eval/m3tooleval"
        opened = tools(family, "m3.py", directory, place)
        server = await stack.enter_async_context(opened)
        tasks, _ = m3tooleval.read(server)
        described = server.task(descriptions=True)["descriptions"]
        words = {task.name: task.prompt[:WORDS] for task in tasks}
        given = (server.name, words, described)
        yield server, tasks, lambda arm, given=given: ReplayWithParts(arm, *given)


async def rows(package, checkout, program, directory, count):
    """For each task that an action serves, and each half that saves: is the action found?"""
    # The other suites' servers have announced themselves in the directory.
    own = Path(directory) / "crowd"
    own.mkdir()
    async with AsyncExitStack() as stack:
        opened = suites_of(package, checkout, own, stack)
        suites = [suite async for suite in opened]
        parameters = [server.servers().parameters for server, *_ in suites]
        servers = Servers(
            {name: one for many in parameters for name, one in many.items()}
        )
        for turn in (1, 2):
            place = own / f"turn-{turn}"
            place.mkdir()
            async with await Arm.start("ipybox", servers, program, place, count) as arm:
                replays = []
                for server, tasks, replay_in in suites:
                    fold, first, second = halves(tasks)[turn]
                    replaying = replay_in(arm)
                    for task in first:
                        await replaying.save_of(task)
                    replays.append((server.name, replaying, second))
                saved = sum(len(replaying.saved) for _, replaying, _ in replays)
                for name, replaying, second in replays:
                    for task in second:
                        action, needed, others = replaying.sought(task)
                        if action is None:
                            continue
                        replaying.figures = {}
                        asked = arm.begin("")
                        await replaying.is_found(task, asked, action, needed, others)
                        yield {
                            "suite": "actions in one workspace",
                            "of": name,
                            "task": task.name,
                            "fold": fold,
                            "actions": saved,
                            **replaying.figures,
                        }
