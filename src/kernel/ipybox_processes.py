"""Makes `multiprocessing` work where sockets of the Unix family are denied, without importing it at start.

Most of it works there as it is: pools, processes, queues, pipes and shared memory, with the start methods `fork` and
`spawn`. Two defaults do not: managers and listeners meet at a socket file, and from Python 3.14 on processes are started
by a fork server, which listens at one. Both are set as the modules are loaded; code that asks for something else by name
gets it.
"""

import sys
from importlib.machinery import PathFinder


def _start_by_fork(context):
    """What Python did on Linux until 3.13.

    `spawn` would be the other way, but functions that were defined in a cell cannot be sent to a new interpreter.
    """
    default = context._default_context
    if default._default_context is context._concrete_contexts.get("forkserver"):
        default._default_context = context._concrete_contexts["fork"]


def _meet_on_loopback(connection):
    """Whoever connects proves that it knows the process's key, so that a port is no weaker than a file."""
    connection.default_family = "AF_INET"


_ADJUSTMENTS = {
    "multiprocessing.context": _start_by_fork,
    "multiprocessing.connection": _meet_on_loopback,
}


class _Finder:
    """Lets the usual finder find the two modules, and adjusts each after it has run."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        adjust = _ADJUSTMENTS.get(name)
        if adjust is None:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_adjust(module):
                execute(module)
                adjust(module)

            spec.loader.exec_module = execute_and_adjust
        return spec


def install():
    """To be called before anything imports `multiprocessing`; what is loaded already is adjusted at once."""
    for name, adjust in _ADJUSTMENTS.items():
        if name in sys.modules:
            adjust(sys.modules[name])
    sys.meta_path.insert(0, _Finder)
