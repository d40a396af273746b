"""Makes `multiprocessing` work where sockets of the Unix family are denied, without importing it at start.

Most of it works there as it is: pools, processes, queues, pipes and shared memory, with the start methods `fork` and
`spawn`. Two defaults do not: managers and listeners meet at a socket file, and from Python 3.14 on processes are started
by a fork server, which listens at one. Both are set as the modules are loaded; code that asks for something else by name
gets it.
"""

from ipybox_loading import after_import


def install():
    after_import("multiprocessing.context", _start_by_fork)
    after_import("multiprocessing.connection", _meet_on_loopback)


def _start_by_fork(context):
    """The default start method on Linux until Python 3.13.

    `spawn` is the alternative, but functions that were defined in a cell cannot be sent to a new interpreter.
    """
    default = context._default_context
    if default._default_context is context._concrete_contexts.get("forkserver"):
        default._default_context = context._concrete_contexts["fork"]


def _meet_on_loopback(connection):
    """Clients must prove that they know the process's key, so that a port is as safe as a socket file."""
    connection.default_family = "AF_INET"
