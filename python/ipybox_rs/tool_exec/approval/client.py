"""Approval requests, and the client that answers those of a tool server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from ipybox_rs import _checks, _host
from ipybox_rs._contexts import Connectable
from ipybox_rs._errors import ApprovalClientError, HostError, OutsideGrantError
from ipybox_rs.grants import Grant
from ipybox_rs.tool_exec import _tokens

__all__ = [
    "ApprovalBatch",
    "ApprovalCallback",
    "ApprovalClient",
    "ApprovalClientError",
    "ApprovalRequest",
    "Label",
    "Origin",
    "Provenance",
    "Target",
    "ToolAnnotations",
]

Label = Literal["trusted", "untrusted", "confidential"]
"""The user's label for the data of a server: the `[labels]` of a policy."""

_LOGGER = logging.getLogger("ipybox_rs")


@dataclass(frozen=True)
class Target:
    """The command, server or kernel that runs an approved call.

    Attributes:
        kind: `"command"` or `"url"` of an MCP server, `"kernel"` for a shell command, `"host"` for ipybox itself.
        text: The command line or the URL, with unfilled placeholders; `None` for the other two kinds.
    """

    kind: Literal["command", "url", "kernel", "host"]
    text: str | None = None

    @classmethod
    def of(cls, wire: Any) -> Target:
        if isinstance(wire, str):
            return cls("kernel" if wire == "kernel" else "host")
        return (
            cls("command", wire["command"])
            if "command" in wire
            else cls("url", wire["url"])
        )


@dataclass(frozen=True)
class ToolAnnotations:
    """A server's own hints on what a tool does. Nothing enforces them; `None` means not known.

    Attributes:
        read_only: It changes nothing.
        destructive: It may destroy existing data.
        idempotent: Calling it again with the same arguments changes nothing more.
        open_world: It reaches out to the world beyond the server.
    """

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


@dataclass(frozen=True)
class ApprovalBatch:
    """Calls that code in the kernel announces together: `with mcptools.batch(title)`.

    Attributes:
        id: A name that no other batch has.
        title: What the code says that the calls are for. It is as trustworthy as the code.
        size: How many calls it has. Those that a policy or an earlier answer decides about have no request.
    """

    id: str
    title: str
    size: int


@dataclass(frozen=True)
class Origin:
    """The source of data in an argument: evidence, since code can rewrite what it sends.

    Attributes:
        argument: The argument, by its name; `tool name` for the name of the tool, which code chooses too.
        server: The server that has returned the data.
        tool: Its tool.
        label: The server's label in the policy.
        bytes: About how many bytes of text have been found; 0 for values alone.
        values: How many short values, such as numbers and addresses, if no longer text was found.
    """

    argument: str
    server: str
    tool: str
    label: Label | None
    bytes: int = 0
    values: int = 0


@dataclass(frozen=True)
class Provenance:
    """The sources of the data that a call would send, as far as they are known.

    Attributes:
        origins: What its arguments have in common with what tools have returned: evidence. Those with the strictest
            label first, then the most.
        read: The labels of the servers that the session has called, with these servers: certain. Those of calls before it in
            the same batch are among them.
        asked_again: Why the call is asked about again, although it was accepted; `None` if it was not.
    """

    origins: tuple[Origin, ...]
    read: dict[Label, list[str]]
    asked_again: str | None = None

    @classmethod
    def of(cls, wire: dict[str, Any]) -> Provenance:
        origins = tuple(
            Origin(
                origin["argument"],
                origin["server"],
                origin["tool"],
                origin.get("label"),
                **origin["found"],
            )
            for origin in wire.get("origins", ())
        )
        return cls(origins, wire.get("read", {}), wire.get("asked_again"))


class ApprovalRequest:
    """A tool call that waits for permission.

    `accept` or `reject` it; one that is collected as garbage without an answer is rejected. The call that runs is
    exactly the call that is shown. `str(request)` writes it as Python would, `server.tool(name='value')`, and escapes
    characters that could mislead a reader on a terminal.

    Answers return whether they came in time: it is too late if the request has expired or was answered already, or its
    code no longer waits.

    Attributes:
        server_name: The name under which the MCP server is registered. `ipybox` is ipybox itself: its tools are
            `shell` and `shell_magic`, with the argument `cmd`.
        tool_name: The tool's name on its server.
        tool_args: The arguments that the tool will get.
        target: The command or URL behind the server's name; `None` if it is not known.
        annotations: The server's hints on the tool; `None` if they are not known.
        batch: The batch in which the code has announced the call, with others.
        provenance: Where the data in the call comes from, and what the session has read; `None` if the policy lets
            every call run. Requests of an `ApprovalClient` have none.
        proposed_grant: A grant for this call and those that the cell's code has announced; or, from the fourth such call
            on, for those that were accepted in this cell one by one. Requests of an `ApprovalClient` have none.
        outside_of_grants: Why the call is outside of the grants that there are for its tool.
    """

    def __init__(
        self,
        server_name: str,
        tool_name: str,
        tool_args: dict[str, Any],
        respond: Callable[[bool], Awaitable[None]],
    ) -> None:
        """Makes a request of your own; `respond` is called with the decision."""
        self.server_name = server_name
        self.tool_name = tool_name
        self.tool_args = tool_args
        self.target: Target | None = None
        self.annotations: ToolAnnotations | None = None
        self.batch: ApprovalBatch | None = None
        self.provenance: Provenance | None = None
        self.proposed_grant: Grant | None = None
        self.outside_of_grants: str | None = None
        self._respond = respond
        self._host: _host.HostProcess | None = None
        self._number = 0
        self._text: str | None = None
        self._decision: bool | None = None
        self._callbacks: list[Callable[[bool], None]] = []

    @classmethod
    def of(cls, host: _host.HostProcess, wire: dict[str, Any]) -> ApprovalRequest:
        async def respond(_decision: bool) -> None:
            raise AssertionError("the host is asked")

        request = cls(
            wire["server_name"], wire["tool_name"], wire["tool_args"], respond
        )
        request._host, request._number, request._text = (
            host,
            wire["request"],
            wire["text"],
        )
        request.target = Target.of(wire["target"])
        if wire["annotations"] is not None:
            request.annotations = ToolAnnotations(**wire["annotations"])
        if wire["batch"] is not None:
            request.batch = ApprovalBatch(**wire["batch"])
        if wire["provenance"] is not None:
            request.provenance = Provenance.of(wire["provenance"])
        if wire["proposed_grant"] is not None:
            text = wire["proposed_grant_text"]
            request.proposed_grant = Grant.read(wire["proposed_grant"], text)
        request.outside_of_grants = wire["outside_of_grants"]
        return request

    def __str__(self) -> str:
        if self._text is not None:
            return self._text
        arguments = ", ".join(
            f"{name}={value!r}" for name, value in self.tool_args.items()
        )
        return f"{self.server_name}.{self.tool_name}({arguments})"

    def __repr__(self) -> str:
        return f"<ApprovalRequest {self}>"

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            if self._host is not None and self._decision is None:
                self._host.post(
                    "approval_request/answer", request=self._number, answer="reject"
                )

    async def accept(self) -> bool:
        """Lets the call run."""
        return await self._answer("accept")

    async def accept_for_session(self) -> bool:
        """Lets the call run, and similar calls as long as the executor runs.

        Calls of the same tool of the same server are similar, whatever their arguments. To a shell command, only the
        same command is similar.
        """
        return await self._answer("accept_for_session")

    async def accept_always(self) -> bool:
        """As `accept_for_session`, and in later executors of the same working directory too."""
        return await self._answer("accept_always")

    async def grant(self, grant: Grant) -> bool:
        """Lets the call run, and those that a grant covers: as many as it says, this one among them.

        Raises:
            OutsideGrantError: The grant does not cover this call, or cannot be given. The call is rejected then.
            ValueError: A pattern of the grant is none.
        """
        if not isinstance(grant, Grant):
            raise TypeError(f"grant must be a Grant, not {grant!r}")
        if self._host is None:
            await self.reject()
            raise OutsideGrantError("a request of your own has no grants")
        if self._decision is not None or self._host.ended.done():
            return False
        try:
            in_time = await self._host.request(
                "approval_request/answer",
                request=self._number,
                answer="grant",
                grant=grant.written(),
            )
        except OutsideGrantError:
            self._decide(False)
            raise
        self._decide(True)
        return bool(in_time)

    async def reject(self) -> bool:
        """Makes the call fail, in the code, with `ApprovalRejectedError`."""
        return await self._answer("reject")

    async def accept_with(self, content: dict[str, Any]) -> bool:
        """Answers a question of a server: one whose `tool_name` is `elicitation/create`.

        Args:
            content: The values that `tool_args["requestedSchema"]` asks for, by their names. Those that have defaults may be
                left out.
        """
        return await self._answer("accept_with", content)

    async def _answer(self, answer: str, content: dict[str, Any] | None = None) -> bool:
        decision = answer != "reject"
        is_first = self._decision is None
        if is_first:
            self._decide(decision)
        if self._host is None:
            await self._respond(decision)
            return is_first
        # Without a host there is no code that waits.
        if not is_first or self._host.ended.done():
            return False
        return bool(
            await self._host.request(
                "approval_request/answer",
                request=self._number,
                answer=answer,
                **({} if content is None else {"content": content}),
            )
        )

    def _decide(self, decision: bool) -> None:
        self._decision = decision
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            _call(callback, decision)

    async def response(self) -> bool:
        """Waits until it is answered, and returns whether it was accepted."""
        if self._decision is None:
            loop = asyncio.get_running_loop()
            answered: asyncio.Future[bool] = loop.create_future()

            def answer(decision: bool) -> None:
                if not answered.done():
                    answered.set_result(decision)

            def deliver(decision: bool) -> None:
                loop.call_soon_threadsafe(answer, decision)

            self.on_decision(deliver)
            return await answered
        return self._decision

    def on_decision(self, callback: Callable[[bool], None]) -> None:
        """Calls `callback` once it is answered, with whether it was accepted; at once if it is answered already."""
        if self._decision is None:
            self._callbacks.append(callback)
        else:
            _call(callback, self._decision)


def _call(callback: Callable[[bool], None], decision: bool) -> None:
    try:
        callback(decision)
    except Exception:
        _LOGGER.exception("a callback of an approval request failed")


ApprovalCallback = Callable[[ApprovalRequest], Awaitable[None]]
"""Is called with each request, and answers it."""


class ApprovalClient(Connectable):
    """Answers the approval requests of a `ToolServer`, in this process or another.

    Requests are handed to the callback one after the other. Requests that are open when the client disconnects are
    rejected. A tool server has one client at a time.

    ```python
    async def on_approval_request(request: ApprovalRequest):
        print(f"Approval request: {request}")
        await request.accept()

    async with ToolServer(port=8900, approval_required=True):
        async with ApprovalClient(callback=on_approval_request, port=8900):
            ...  # calls of tools
    ```
    """

    def __init__(
        self,
        callback: ApprovalCallback,
        host: str = "localhost",
        port: int = 8900,
        *,
        host_token: str | None = None,
    ) -> None:
        """Sets what to connect to.

        Args:
            callback: An async function that is called with each request. One that it leaves unanswered is rejected.
            host: The host of the tool server.
            port: Its port.
            host_token: Its host token. Default: that of the server of this process on the port, else
                the variable `IPYBOX_TOOL_SERVER_HOST_TOKEN`.
        """
        if not callable(callback):
            raise TypeError(f"callback must be an async function, not {callback!r}")
        self.callback = callback
        self.host = _checks.text("host", host)
        self.port = port
        _checks.port("port", port)
        self._host_token = _checks.optional_text("host_token", host_token)
        self._held: _host.HeldHost | None = None
        self._number = 0
        self._task: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Connects to the tool server, which then sends its requests here.

        Raises:
            RuntimeError: It is connected already.
            ApprovalClientError: The server cannot be reached, or refuses the client. That another client is connected
                shows later: no requests come, and the logger `ipybox_rs` says why.
        """
        if self._held is not None:
            raise RuntimeError("the approval client is connected already")
        token = _tokens.host_token(self.port, self._host_token)
        if token is None:
            message = f"connect to the tool server on port {self.port}: its host token is not known; give `host_token`"
            raise ApprovalClientError(message)
        self._held, self._number = _host.HeldHost(), _host.number()
        try:
            await self._held.host.request(
                "approval_client/connect",
                number=self._number,
                host=self.host,
                port=self.port,
                host_token=token,
            )
        except BaseException:
            held, self._held = self._held, None
            held.host.post("approval_client/disconnect", number=self._number)
            held.release_soon()
            raise
        self._task = asyncio.create_task(self._receive(self._held.host, self._number))

    async def disconnect(self) -> None:
        """Sends the answers that were given, rejects what is open, and disconnects."""
        held, self._held = self._held, None
        if held is None:
            return
        task, self._task = self._task, None
        # The callback itself may disconnect.
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        try:
            await held.host.finish("approval_client/disconnect", number=self._number)
        finally:
            await held.release()

    async def _receive(self, host: _host.HostProcess, number: int) -> None:
        # Until the callback has disconnected.
        while self._held is not None and self._number == number:
            try:
                wire = await host.request("approval_client/next", number=number)
            except (ApprovalClientError, HostError) as error:
                _LOGGER.warning("the approval client is disconnected: %s", error)
                return
            if wire is None:
                return
            await self._hand_over(ApprovalRequest.of(host, wire))

    async def _hand_over(self, request: ApprovalRequest) -> None:
        # The only reference to the request is the callback's afterwards: one that it has not answered is rejected.
        try:
            await self.callback(request)
        except Exception:
            _LOGGER.exception("the callback of an approval client failed")
            # A log handler may keep the traceback, and with it the request.
            with contextlib.suppress(HostError):
                await request.reject()
