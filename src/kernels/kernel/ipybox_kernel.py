"""A kernel: IPython's shell, served to the host over one connection, without ipykernel.

Cells run in the main thread, one after the other. While none runs, and while one awaits, an event loop runs, if the code
has imported asyncio: tasks go on between cells. Code that does not await runs outside of the loop, so that
`asyncio.run()` works as in a script; `asyncio.create_task()` finds the loop all the same.

Standard library and IPython only.
"""

import base64
import contextlib
import math
import os
import signal
import sys
import threading
import time
import traceback

import ipybox_inquiry
import ipybox_messages
import ipybox_shell
import ipybox_sources
import ipybox_tracebacks
import ipybox_views
from ipybox_loading import ImportingPackage, after_import, later
from IPython.core import interactiveshell
from IPython.core.compilerop import CachingCompiler
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from traitlets import Type

# A second interrupt within so many seconds is taken seriously.
INSISTENCE_SECONDS = 10
# Modules that few sessions, or only their ends, need.
loop_module = later("ipybox_loop")
exit_module = later("ipybox_exit")
branch_module = later("ipybox_branch")
obstacles_module = later("ipybox_obstacles")
template_module = later("ipybox_template")
# `_IOLBF` of the C library, on Linux and macOS.
LINE_BUFFERED = 1


class Publisher(DisplayPublisher):
    """Sends the objects of `display` to the host."""

    def publish(
        self, data, metadata=None, *args, transient=None, update=False, **kwargs
    ):
        kind = "update_display_data" if update else "display_data"
        self.shell.kernel.show(kind, data, transient)

    def clear_output(self, wait=False):
        ipybox_views.forget_figures()
        self.shell.kernel.send("clear_output", {"wait": bool(wait)})


class ResultHook(DisplayHook):
    """Sends the value of a cell's last expression to the host."""

    def write_output_prompt(self):
        pass

    def finish_displayhook(self):
        # IPython's version writes to stdout, which code may have replaced.
        self._is_active = False

    def write_format_data(self, format_dict, md_dict=None):
        self.shell.kernel.show("execute_result", format_dict)

    def log_output(self, format_dict):
        # IPython would keep all results here, images too, for as long as the process lives.
        if self.shell.logger.log_output:
            super().log_output(format_dict)


class Compiler(CachingCompiler):
    """Names the code of each cell differently, so that its source is found."""

    def get_code_name(self, raw_code, transformed_code, number):
        return ipybox_sources.file_name(transformed_code)

    def cache(self, *args, **kwargs):
        name = super().cache(*args, **kwargs)
        ipybox_sources.forget_oldest(self._filename_map)
        return name


class InteractiveShell(ipybox_shell.WithoutTerminal, interactiveshell.InteractiveShell):
    """IPython's shell whose output goes to the host. `%config` knows it by the name that documentation uses."""

    compiler_class = Type(Compiler)
    display_pub_class = Publisher
    displayhook_class = ResultHook
    kernel = None

    @contextlib.contextmanager
    def _tee(self, channel):
        # IPython would keep all output here, for as long as the process lives.
        yield

    def showtraceback(self, exc_tuple=None, *args, **kwargs):
        exc_tuple = self.kernel.as_interrupt(exc_tuple or sys.exc_info())
        if ipybox_shell.is_success(exc_tuple[1]):
            return
        is_only_message = kwargs.get("exception_only", False)
        if is_only_message or not ipybox_tracebacks.show_group(self, exc_tuple):
            super().showtraceback(exc_tuple, *args, **kwargs)

    def _showtraceback(self, etype, evalue, stb):
        self._last_traceback = stb
        self.kernel.show_error(described(etype, evalue, stb))

    def enable_gui(self, gui=None):
        if gui:
            raise NotImplementedError(
                f"there is no screen here for the GUI event loop {gui!r}"
            )


def described(etype, evalue, stb):
    try:
        value = ipybox_sources.shown_text(evalue)
    except BaseException:  # noqa: BLE001 - the class of the exception is the user's
        value = "<the exception cannot be shown as text>"
    lines = stb if isinstance(stb, list) else str(stb).splitlines()
    return ipybox_messages.shortened_error(
        {"ename": etype.__name__, "evalue": value, "traceback": lines}
    )


def show_output_once(wurlitzer):
    """Make `%load_ext wurlitzer` do nothing: output of C code belongs to the cell already."""
    wurlitzer.load_ipython_extension = lambda shell: None


def write_lines_of_c(ctypes):
    """Have the C library write each line of stdout at once, as to a terminal: in order, and before a crash.

    Only ctypes makes this quick.
    """
    name = "__stdoutp" if sys.platform == "darwin" else "stdout"
    with contextlib.suppress(Exception):
        library = ctypes.CDLL(None)
        stdout = ctypes.c_void_p.in_dll(library, name)
        library.setvbuf(stdout, None, LINE_BUFFERED, 0)


class Kernel:
    """Handles the host's requests. `get_ipython().kernel` for libraries that look for one."""

    def __init__(self, host):
        self._host = host
        self._process = os.getpid()
        self._loop = None
        # Requests that have come, the oldest first.
        self.requests = []
        # The event loops of the kernels that this one was forked from.
        self._left = []
        self._is_announced = True
        # Of a branch: what it has of its origin.
        self._inherited = None
        self._is_in_cell = False
        self._is_interrupted = False
        # True if the client of the newest cell shows views.
        self._has_views = False
        # The time at which an interrupt was last ignored.
        self._ignored = -math.inf
        self.shell = InteractiveShell.instance(config=ipybox_shell.configuration())
        self.shell.kernel = self
        self.comm_manager = ipybox_shell.NoComms()
        # `%autoawait` knows it by this name.
        asyncio_runner = {"asyncio": (self._run_in_loop, True)}
        self.shell.loop_runner_map = self.shell.loop_runner_map | asyncio_runner
        self.shell.loop_runner = "asyncio"
        # Set by `boot.py`, if variables are saved at all.
        self.save_variables = None
        os.environ.setdefault("MPLBACKEND", ipybox_shell.INLINE_BACKEND)
        signal.signal(signal.SIGINT, self._interrupt_between_cells)
        after_import("asyncio", self._use_loop)
        after_import("mcptools", ImportingPackage.adopt)
        after_import("wurlitzer", show_output_once)
        after_import("ctypes", write_lines_of_c)
        ipybox_views.install(self.shell, after_import, self._wants_views)

    def serve(self):
        """Report that the kernel is ready, and handle requests until the last one asks for its end."""
        self._host.send("ready", {})
        while True:
            request = self._next_request()
            if request["type"] == "execute_request":
                self._has_views = request["content"]["has_views"]
                self._execute(request["cell"].encode(), request["content"])
            elif request["type"] in ipybox_inquiry.ANSWERS:
                self._answer(request)
            elif request["type"] == "refresh_imports":
                ipybox_shell.refresh_imports(request["content"]["package"])
            elif request["type"] == "checkpoint":
                self.save_variables(request["content"]["number"])
            elif request["type"] == "branch":
                self._branch(request)
            elif request["type"] == "template":
                # All kernels of the template end by it.
                exit_module()
                self._branch(request, template_module().KernelTemplate)
            elif request["type"] == "awaken":
                branch_module().awaken(self._host)
            elif request["type"] == "renewed":
                # Of a fork that took too long, or of a state that is awake.
                branch_module().take_token(request["content"])
            elif request["type"] == "shutdown_request":
                self._exit(request["content"]["seconds"])

    def _exit(self, seconds):
        """End this process as Python ends one, in so many seconds."""
        try:
            python_exit = exit_module()
            is_complete = python_exit.end(
                self.shell, self._loop, seconds, self._inherited
            )
            flush_streams()
            self._host.send("shutdown_reply", {"is_complete": is_complete})
            python_exit.leave()
        finally:
            os._exit(1)

    @property
    def loop(self):
        """The event loop of the code's tasks, if it has one."""
        return self._loop

    def _branch(self, request, make_template=None):
        """Fork this kernel. Both go on from here."""
        obstacles_module()
        branch_module().answer(self, self._host, request, make_template)
        if not self._is_announced:
            self._is_announced = True
            self._host.send("ready", {})

    def begin_branch(self, inherited):
        """Be the kernel of a branch, in the process that has just been forked."""
        self._inherited = inherited or self._inherited
        self._process = os.getpid()
        self._is_announced = False
        self.requests.clear()
        # Of the origin's tasks not even the end runs here: it would act on what is the origin's.
        self._left.append(self._loop)
        self._loop = None

    def _wants_views(self):
        # Of what a forked process shows there is text only.
        return self._has_views and not self._host.is_fork

    def get_parent(self, channel=None):
        """ipywidgets calls this; there is no parent message."""
        return {}

    # Output

    def send(self, kind, content):
        # Two processes cannot send on one socket.
        if not self._host.is_fork:
            self._host.send(kind, content)

    def show_error(self, error):
        if self._host.is_fork:
            print("\n".join(error["traceback"]), file=sys.stderr)
        self.send("error", error)

    def show(self, kind, data, transient=None):
        if self._host.is_fork:
            print(data.get("text/plain", ""))
            return
        if ipybox_views.is_repeated(kind, data):
            return
        readable = {
            name: as_text(value)
            for name, value in ipybox_views.with_view(data).items()
            if name in ipybox_messages.READ
        }
        content = {"data": readable, "transient": display_id(transient)}
        for piece_kind, piece in ipybox_messages.pieces(kind, content):
            if piece_kind == "stream":
                self._host.write(piece["text"])
            else:
                self._host.send(piece_kind, piece)

    def as_interrupt(self, exc_tuple):
        """The exception; a KeyboardInterrupt instead of the CancelledError by which an interrupt ends an `await`."""
        etype, _, tb = exc_tuple
        if (
            self._is_interrupted
            and etype is not None
            and etype.__name__ == "CancelledError"
        ):
            return KeyboardInterrupt, KeyboardInterrupt().with_traceback(tb), tb
        return exc_tuple

    # Cells

    def _execute(self, cell, content):
        self._host.begin(cell)
        self._is_interrupted = False
        self._take_back()
        self.shell._last_traceback = None
        error = None
        try:
            try:
                self._is_in_cell = True
                signal.signal(signal.SIGINT, signal.default_int_handler)
                result = self.shell.run_cell(
                    content["code"], store_history=content["store_history"]
                )
                error = result.error_before_exec or result.error_in_exec
            finally:
                self._end_of_code()
        except BaseException as outside:  # noqa: BLE001 - an interrupt in IPython's own code, or a hook's exception
            self._end_of_code()
            error = outside
            self._show_outside(outside)
        flush_streams()
        if os.getpid() != self._process:
            # A forked process whose code has ended.
            os._exit(exit_status(error))
        self._host.send("execute_reply", self._reply(error), cell)

    def _take_back(self):
        """Be IPython's shell again, if code has begun another one that has not ended as it should."""
        if interactiveshell.InteractiveShell._instance is not self.shell:
            for kind in type(self.shell)._walk_mro():
                kind._instance = self.shell
        sys.modules["__main__"] = self.shell.user_module

    def _answer(self, request):
        """Answer a question about code that a person writes. It can run code of the user's, so that it is as a cell."""
        answer = ipybox_inquiry.ANSWERS[request["type"]]
        kind, content = answer.kind, answer.nothing
        try:
            try:
                self._is_in_cell = True
                signal.signal(signal.SIGINT, signal.default_int_handler)
                content = answer.find(self.shell, **request["content"])
            finally:
                self._end_of_code()
        except BaseException:  # noqa: BLE001 - an interrupt, or an exception of the user's objects
            self._end_of_code()
        self._host.send(kind, content, request["cell"].encode())

    def _end_of_code(self):
        """Mark that no user code runs: from here on an interrupt must not raise.

        What code has made of SIGINT ends with its cell, as in ipykernel: a server that stops later would put back what it
        had found between cells, where an interrupt is ignored.
        """
        while self._is_in_cell:
            try:
                signal.signal(signal.SIGINT, self._interrupt_between_cells)
                self._is_in_cell = False
            except KeyboardInterrupt:
                pass

    def _show_outside(self, error):
        try:
            self.shell.showtraceback((type(error), error, error.__traceback__))
        except BaseException:  # noqa: BLE001 - code may have put its own in the place of that
            traceback.print_exc()

    def _interrupt_between_cells(self, number, frame):
        """No cell runs, but a task may block the loop and keep cells from starting: a second interrupt ends it."""
        before, self._ignored = self._ignored, time.monotonic()
        if self._loop is None or self._ignored - before > INSISTENCE_SECONDS:
            return
        import asyncio

        if asyncio.current_task(self._loop) is not None:
            raise KeyboardInterrupt

    def _reply(self, error):
        if error is None:
            return {"status": "ok"}
        if self.as_interrupt((type(error), error, None))[0] is KeyboardInterrupt:
            error = KeyboardInterrupt()
        last = getattr(self.shell, "_last_traceback", None) or []
        return {"status": "error", **described(type(error), error, last)}

    def _run_in_loop(self, coroutine):
        """Run a cell that awaits."""
        import asyncio

        loop = self._living_loop()
        context = loop_module().KeptContext()
        task = loop.create_task(context.run(coroutine))

        def interrupt(number, frame):
            # On the second interrupt, another task keeps the cell from ending.
            if self._is_interrupted or asyncio.current_task(loop) is task:
                raise KeyboardInterrupt
            self._is_interrupted = True
            loop.call_soon_threadsafe(task.cancel)

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, interrupt)
        try:
            while True:
                try:
                    return loop.run_until_complete(task)
                except KeyboardInterrupt:
                    if task.done():
                        raise
                    task.cancel()
                except RuntimeError:
                    # Code has stopped the loop.
                    if task.done() or loop.is_closed():
                        raise
        finally:
            if signal.getsignal(signal.SIGINT) is interrupt:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            context.restore()

    # Between cells

    def _next_request(self):
        while not self.requests:
            try:
                if self._loop is None:
                    self._host.wait()
                else:
                    self._living_loop().run_forever()
            except BaseException:  # noqa: BLE001 - of a task that ends with SystemExit, or a signal handler of the code's
                traceback.print_exc()
                continue
            if self._loop is None:
                return self._host.receive()
        return self.requests.pop(0)

    def _use_loop(self, asyncio):
        """Create a loop for code that has just imported asyncio."""
        self._living_loop()
        main = threading.get_ident()

        def find_loop():
            is_outside = self._is_in_cell and threading.get_ident() == main
            return self._living_loop() if is_outside else None

        loop_module().lend(asyncio, find_loop)

    def _living_loop(self):
        """The event loop of tasks; a new one if code has closed it, as a script does at its end."""
        import asyncio

        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
            self._loop.add_reader(self._host.fileno(), self._receive)
        # `asyncio.run` leaves no current loop.
        asyncio.set_event_loop(self._loop)
        return self._loop

    def _receive(self):
        if self._host.is_fork:
            # Requests are for the process that this one was forked from.
            os._exit(0)
        request = self._host.receive(is_waiting=False)
        if request is not None:
            self.requests.append(request)
            if not self._is_in_cell:
                self._loop.stop()


def exit_status(error):
    """The exit status of a process whose code has ended with `error`."""
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return error.code & 0xFF
    return 0 if error is None else 1


def as_text(value):
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def display_id(transient):
    name = (transient or {}).get("display_id")
    return {} if name is None else {"display_id": str(name)}


def flush_streams():
    """Flush buffers: of streams that code has put in place of ours, and of the C library."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    # Only ctypes makes this quick.
    ctypes = sys.modules.get("ctypes")
    if ctypes is not None:
        with contextlib.suppress(Exception):
            ctypes.CDLL(None).fflush(None)
