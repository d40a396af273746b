"""Adapts an ipykernel that a Jupyter server has started, as boot.py prepares our own kernel.

It is run once in a fresh kernel, before any code of a user, with SETTINGS, an object with `sources`, the other modules
that are needed, by name. Standard library and ipykernel only.
"""

import importlib.abc
import importlib.machinery
import os
import sys

# The oldest ipykernel that handles requests on its control channel while a cell runs.
OLDEST_IPYKERNEL = (6, 0)
OLDEST_PYTHON = (3, 10)


def adapt(settings):
    check_versions()
    from ipykernel.kernelapp import IPKernelApp
    from IPython import get_ipython

    shell = get_ipython()
    kernel = shell.kernel
    app = IPKernelApp.instance() if IPKernelApp.initialized() else None
    os.environ.update(settings["environment"])
    sys.meta_path.insert(0, SourceImporter(settings["sources"]))
    import ipybox_carrier
    import ipybox_files
    import ipybox_imports
    import ipybox_input
    import ipybox_ipykernel
    import ipybox_limits
    import ipybox_loading
    import ipybox_runtime
    import ipybox_session
    import ipybox_shell
    import ipybox_streams
    import ipybox_threads
    import ipybox_views

    try:
        ipybox_limits.limit(**settings["limits"])
    except SystemExit as error:
        raise RuntimeError(str(error)) from None
    is_free = settings["shell_commands"] == "free"
    if not is_free:
        import ipybox_commands
    counter = ipybox_session.OutputCounter(kernel.session)
    ipybox_session.adapt(kernel.session)
    ipybox_session.run_once(kernel, counter.replies)
    # The reply must be encodable: an error while sending could not be reported.
    kernel.session.pack({})
    carrier = ipybox_carrier.Carrier(kernel, settings["lease_seconds"])
    ipybox_runtime.carry_by(carrier.connect)
    ipybox_imports.install(ipybox_runtime.ask_host)
    if app is not None:
        ipybox_streams.take_over(app)
    ipybox_ipykernel.configure(shell)
    ipybox_shell.adapt(shell)
    ipybox_shell.run_scripts_until_they_end(shell, lambda stream: False)
    ipybox_shell.start_processes_by_fork(has_unix_sockets=True)
    ipybox_threads.install(ipybox_ipykernel.in_cell_of_caller(shell))
    if not is_free:
        is_only_escape = settings["shell_commands"] == "only_escape"
        ipybox_commands.ask_first(shell, is_only_escape)
    ipybox_input.refuse_input()
    ipybox_files.install(ipybox_runtime.ask_host)
    wants_views = ipybox_ipykernel.wants_views(kernel)
    ipybox_views.install(shell, ipybox_loading.after_import, wants_views)
    ipybox_ipykernel.refuse_input(kernel, ipybox_input.refuse)
    ipybox_ipykernel.wake_loop_by_signals()
    ipybox_shell.be_no_terminal()


def check_versions():
    if sys.version_info < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise RuntimeError(
            f"the kernel's Python is {sys.version.split()[0]}; {oldest} or newer is needed"
        )
    import ipykernel

    if ipykernel.version_info[:2] < OLDEST_IPYKERNEL:
        oldest = ".".join(map(str, OLDEST_IPYKERNEL))
        raise RuntimeError(
            f"the kernel is ipykernel {ipykernel.__version__}; {oldest} or newer is needed"
        )


class SourceImporter(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports modules that are in no file."""

    def __init__(self, sources):
        self._sources = sources

    def find_spec(self, name, path=None, target=None):
        if name not in self._sources:
            return None
        # With a location, so that tracebacks look for the text.
        spec = importlib.machinery.ModuleSpec(name, self, origin=f"ipybox:{name}.py")
        # So that tracebacks look for the text.
        spec.has_location = True
        return spec

    def get_source(self, name):
        return self._sources[name]

    def get_code(self, name):
        return self.source_to_code(self._sources[name], f"ipybox:{name}.py")


adapt(SETTINGS)  # noqa: F821 - given by who runs this
