"""The event loop of a kernel's tasks, for code that runs outside of it. Standard library only."""

import contextvars
import functools

# Functions that work outside of a loop too, since tasks go on between cells. `asyncio.get_running_loop` is none of them: libraries
# take a loop that runs for a reason to refuse synchronous calls.
NEEDING_A_LOOP = ("all_tasks", "create_task", "ensure_future", "gather", "shield")


def lend(asyncio, find_loop):
    """Give these functions the loop that `find_loop` returns, if it returns one and no other runs."""
    for name in NEEDING_A_LOOP:
        function = with_loop(getattr(asyncio, name), asyncio.events, find_loop)
        setattr(asyncio, name, function)
        setattr(asyncio.tasks, name, function)


def with_loop(function, events, find_loop):
    @functools.wraps(function)
    def call(*args, **kwargs):
        loop = None if events._get_running_loop() else find_loop()
        if loop is None:
            return function(*args, **kwargs)
        events._set_running_loop(loop)
        try:
            return function(*args, **kwargs)
        finally:
            events._set_running_loop(None)

    return call


class KeptContext:
    """Context variables that a coroutine has set, for code after it: a task has a context of its own."""

    def __init__(self):
        self._context = {}

    async def run(self, coroutine):
        try:
            return await coroutine
        finally:
            self._context = contextvars.copy_context()

    def restore(self):
        """Set them in the current context."""
        before = contextvars.copy_context()
        for variable, value in self._context.items():
            if variable not in before or before[variable] is not value:
                variable.set(value)
