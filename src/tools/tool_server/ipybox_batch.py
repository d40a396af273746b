"""Announces tool calls together, so that the user is asked about all of them at once: `from mcptools import batch`.

Standard library only: it runs in every Python that the kernel or one of its children may start.
"""

import contextvars
import sys

__all__ = ["Batch", "BatchCall", "batch"]

# The batch that collects the calls of this thread or task.
_open = contextvars.ContextVar("ipybox_batch", default=None)


def batch(title):
    """Collect tool calls, ask the user once about all of them, and run what is allowed, in their order.

    title: what the calls are for, in a few words; the user reads it

        with batch("send the invitations") as invitations:
            for guest in guests:
                mail.send.run(to=guest.address, subject="Invitation")
        for result in invitations.results: ...

    In the block a call returns a `BatchCall` at once. At the end of the block all are decided about, and those that are
    allowed run, one after the other. `results` has what each has returned, or the exception that it has raised, in the
    order of the calls. If the block raises an exception, no call runs. In asynchronous code use `async with`.
    """
    if not isinstance(title, str) or not title.strip():
        message = f"the title of a batch must say what its calls are for, not {title!r}"
        raise TypeError(message)
    return Batch(title)


class BatchCall:
    """A call in a batch. It has a result once the batch has ended."""

    def __init__(self, name, body, read):
        self.name = name
        # The request; for ipybox itself.
        self.body = body
        self._read = [read]
        self._state = "has not run yet"
        self._result = None
        self._error = None

    def result(self):
        """The tool's result. Raises the exception of the call, if there is one."""
        if self._state:
            raise RuntimeError(self._why_not())
        if self._error is not None:
            raise self._error
        return self._result

    @property
    def error(self):
        """The exception that the call has raised, or None."""
        if self._state:
            raise RuntimeError(self._why_not())
        return self._error

    def then(self, convert):
        """Change the result by a function once it is there; for ipybox itself."""
        self._read.append(convert)
        return self

    def finish(self, status, content):
        """Take the answer of the tool server; for ipybox itself."""
        read, *converters = self._read
        try:
            self._result = read(status, content)
            for convert in converters:
                self._result = convert(self._result)
        except Exception as error:  # noqa: BLE001 - it is raised where the result is asked for
            self._error = error
        self._state = self._read = self.body = None

    def give_up(self, state):
        """Stay without a result; for ipybox itself."""
        if self._state:
            self._state = state
            self._read = self.body = None

    def _why_not(self):
        return f"the call of `{self.name}` {self._state}: it has a result after the `with` block"

    def __getattr__(self, name):
        # Python and IPython look up such names in every object.
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"`{self.name}` is a call in a batch: after the `with` block its result is `.result()`"
        )

    def __repr__(self):
        if self._state:
            return f"<{self.name}: {self._state}>"
        if self._error is not None:
            return f"<{self.name}: {type(self._error).__name__}: {self._error}>"
        return f"<{self.name}: {self._result!r}>"


class Batch:
    """Calls that are announced together."""

    def __init__(self, title):
        self.title = title
        self.calls = []
        self._token = None
        self._runner = None
        self.has_ended = False

    @property
    def results(self):
        """The result of each call, or the exception that it has raised, in the order of the calls."""
        return [call.error or call.result() for call in self.calls]

    def __len__(self):
        return len(self.calls)

    def __iter__(self):
        return iter(self.calls)

    def __getitem__(self, index):
        return self.calls[index]

    def __repr__(self):
        return f"<batch {self.title!r}: {len(self.calls)} calls>"

    def __enter__(self):
        if self._token is not None or self.has_ended:
            raise RuntimeError("a batch can be used once: begin another one")
        if _open.get() is not None:
            raise RuntimeError("a batch cannot be in another one")
        self._token = _open.set(self)
        return self

    def __exit__(self, kind, error, traceback):
        self._close(kind)
        if kind is None and self.calls:
            try:
                self._runner.run_batch_sync(self.title, self.calls)
            finally:
                self._end()

    async def __aenter__(self):
        return self.__enter__()

    async def __aexit__(self, kind, error, traceback):
        self._close(kind)
        if kind is None and self.calls:
            try:
                await self._runner.run_batch(self.title, self.calls)
            finally:
                self._end()

    def _close(self, error):
        _open.reset(self._token)
        # It cannot be pickled.
        self._token = None
        self.has_ended = True
        if error is not None:
            for call in self.calls:
                call.give_up("did not run, since the `with` block raised an exception")

    def _end(self):
        for call in self.calls:
            call.give_up("has no answer, and may have run")
        failed = [call for call in self.calls if not call._state and call.error]
        if failed:
            print(
                f"{len(failed)} of the {len(self.calls)} calls of the batch {self.title!r} failed or were not allowed "
                f"(`.results` says why). The first: {failed[0].name}: {failed[0].error}",
                file=sys.stderr,
            )


def collected(runner, name, body):
    """The call in the batch that collects calls now, or None if there is none; for ipybox itself.

    runner: the ToolRunner that reads its answer, and sends the batch if it is the first call
    body: its request
    """
    batch = _open.get()
    # A task that was started in the block may outlive it.
    if batch is None or batch.has_ended:
        return None
    call = BatchCall(name, body, runner.result)
    batch._runner = batch._runner or runner
    batch.calls.append(call)
    return call
