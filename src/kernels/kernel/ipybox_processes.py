"""Makes `multiprocessing` work with code of cells, and in a sandbox, without importing it at start.

From Python 3.14 on it starts processes by a fork server. These cannot find functions and classes of cells, since the code of
cells is in no file, and a pool would start one failing worker after the other, without end. `fork` is the default here, as it
was before. Code that asks for something else by name gets it, and an exception if it sends something of a cell.

Where sockets of the Unix family are denied, managers and listeners meet on the loopback interface.
"""

import types

NOT_FOUND = (
    "`{name}` is defined in a cell, where processes that `{method}` starts do not find it: write it to a module with "
    "`%%writefile` and import it, or use `multiprocessing.get_context('fork')`"
)


def start_by_fork(context):
    default = context._default_context
    if default._default_context is context._concrete_contexts.get("forkserver"):
        default._default_context = context._concrete_contexts["fork"]


def meet_on_loopback(connection):
    """Clients must prove that they know the process's key, so that a port is as safe as a socket file."""
    connection.default_family = "AF_INET"


def refuse_code_of_cells(reduction):
    """Check what a process is started with, if it is not a fork."""

    class ProcessPickler(reduction.ForkingPickler):
        """Refuses what would be pickled by its name in `__main__`."""

        def reducer_override(self, thing):
            is_code = isinstance(thing, (types.FunctionType, type))
            if is_code and thing.__module__ == "__main__":
                import pickle

                name, method = thing.__qualname__, "spawn` or `forkserver"
                raise pickle.PicklingError(NOT_FOUND.format(name=name, method=method))
            return NotImplemented

    def dump(thing, file, protocol=None):
        ProcessPickler(file, protocol).dump(thing)

    reduction.dump = dump
    reduction.PicklerForOthers = ProcessPickler


def check_tasks(pool):
    """Check what a pool sends to its workers, if these are no forks."""
    from multiprocessing import reduction

    set_up_queues = pool.Pool._setup_queues

    def set_up_checked_queues(self):
        set_up_queues(self)
        if self._ctx.get_start_method() != "fork":
            writer = self._inqueue._writer
            self._quick_put = lambda task: writer.send_bytes(
                reduction.PicklerForOthers.dumps(task)
            )

    pool.Pool._setup_queues = set_up_checked_queues
