"""Assigns the output of threads to the cells that they work for. Standard library only."""

import contextlib
import functools
import sys
import threading
import weakref

from ipybox_frames import is_code_of_user
from ipybox_loading import after_import

# Functions that run their first argument in threads that were started before.
WORK_OF_POOLS = ("_map_async", "apply_async", "imap", "imap_unordered")


def install(in_this_cell, of_library=None):
    """Assign the output of a thread to the cell that started it, or that submitted work to it.

    `in_this_cell` binds a function's output to the cell of the code that calls it; `of_library` also does so for the main
    function of a library's thread.
    """
    start_thread = threading.Thread.start
    of_library = of_library or in_this_cell

    @functools.wraps(start_thread)
    def start(self):
        is_of_user = is_code_of_user(sys._getframe(1).f_code.co_filename)
        run = (in_this_cell if is_of_user else of_library)(self.run)

        def run_and_forget():
            # A thread that refers to itself would live until the garbage is collected.
            vars(self).pop("run", None)
            run()

        # Not by assignment: a class may override `__setattr__`.
        vars(self)["run"] = run_and_forget
        start_thread(self)

    threading.Thread.start = start
    after_import(
        "concurrent.futures.thread",
        lambda module: bind_work(module.ThreadPoolExecutor, "submit", in_this_cell),
    )

    def bind_work_of_pools(pool):
        for name in WORK_OF_POOLS:
            bind_work(pool.ThreadPool, name, in_this_cell)

    after_import("multiprocessing.pool", bind_work_of_pools)


def bind_work(pool, name, in_this_cell):
    begin = getattr(pool, name)

    @functools.wraps(begin)
    def begin_in_cell(self, function, /, *args, **kwargs):
        return begin(self, in_this_cell(function), *args, **kwargs)

    setattr(pool, name, begin_in_cell)


def follow_queues(host):
    """Have a thread or a task that takes something from a queue work for the running cell if that has put it there."""
    after_import("queue", lambda queue: follow(host, queue.Queue, "put", "get"))
    after_import(
        "asyncio.queues",
        lambda queues: follow(host, queues.Queue, "put_nowait", "get_nowait"),
    )

    def follow_records(handlers):
        follow(host, handlers.QueueHandler, "enqueue", None)
        follow(host, handlers.QueueListener, None, "dequeue")

    after_import("logging.handlers", follow_records)


# The cell that has last put something into a queue.
_cells = weakref.WeakKeyDictionary()


def follow(host, owner, putter, getter):
    """Patch methods of a queue, or of what has one as its `queue`."""

    def of(thing):
        return thing if putter and getter else thing.queue

    def put_for_cell(put):
        @functools.wraps(put)
        def put_and_note(self, *args, **kwargs):
            # Not every queue can be referred to.
            with contextlib.suppress(TypeError):
                _cells[of(self)] = host.cell()
            return put(self, *args, **kwargs)

        return put_and_note

    def get_for_cell(get):
        @functools.wraps(get)
        def get_and_follow(self, *args, **kwargs):
            thing = get(self, *args, **kwargs)
            with contextlib.suppress(TypeError):
                host.work_for(_cells.get(of(self), b""))
            return thing

        return get_and_follow

    if putter:
        setattr(owner, putter, put_for_cell(getattr(owner, putter)))
    if getter:
        setattr(owner, getter, get_for_cell(getattr(owner, getter)))
