"""`ToolServer`: calls the tools of MCP servers for code in other processes."""

from __future__ import annotations

from ipybox_rs import _checks, _host
from ipybox_rs._contexts import Startable
from ipybox_rs.policy import ApprovalPolicy
from ipybox_rs.tool_exec import _tokens

__all__ = ["ToolServer"]


class ToolServer(Startable):
    """An HTTP server that calls the tools of MCP servers for code in other processes, and asks for approval before.

    There are two secrets. Code that calls tools has the caller token, which lets it name a registered server, a tool
    and arguments. The host token registers servers and approves calls. Clients in the same process (`ToolRunner`,
    `ApprovalClient`) know both; pass them to clients in other processes. Do not give the host token to code that must
    not approve its own calls.

    MCP servers start when one of their tools is called first, each in an empty directory of its own.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int = 8900,
        approval_required: bool = False,
        approval_timeout: float | None = 60,
        connect_timeout: float = 30,
        log_to_stderr: bool = False,
        log_level: str = "INFO",
        *,
        approval_policy: ApprovalPolicy | None = None,
        token: str | None = None,
        host_token: str | None = None,
    ) -> None:
        """Sets the options.

        Args:
            host: The host to listen on, a loopback address.
            port: The port to listen on; 0 for a free one, which is in `port` once it listens.
            approval_required: Whether every call needs approval.
            approval_timeout: How long an approval request waits for its answer, in seconds; `None`: no limit.
            connect_timeout: How long a call waits for an MCP server to start, in seconds.
            log_to_stderr: Has no effect.
            log_level: The least severe messages that go to the logger `ipybox_rs`.
            approval_policy: Decides which calls need approval, which run and which are denied; replaces
                `approval_required`.
            token: The caller token, at least 16 visible ASCII characters; default: a random one.
            host_token: The host token; default: a random one.
        """
        self.host = _checks.text("host", host)
        self.port = port
        _checks.port("port", port)
        self.approval_required = approval_required
        self.approval_timeout = _checks.seconds("approval_timeout", approval_timeout)
        self.connect_timeout = connect_timeout
        self.log_to_stderr = log_to_stderr
        self.log_level = _checks.level(log_level)
        self._asked_port = port
        self._timeout = _checks.duration("connect_timeout", connect_timeout)
        self._policy = approval_policy
        _checks.instance("approval_policy", approval_policy, ApprovalPolicy)
        self._given = (
            _checks.optional_text("token", token),
            _checks.optional_text("host_token", host_token),
        )
        self._token: str | None = None
        self._host_token: str | None = None
        self._held: _host.HeldHost | None = None
        self._is_starting = False
        self._number = 0

    def __del__(self) -> None:
        held = getattr(self, "_held", None)
        if held is not None and held.host.is_usable:
            _host.unclosed(self)
            _tokens.forget(self.port)
            held.host.post("tool_server/stop", number=self._number)

    @property
    def token(self) -> str:
        """The caller token of a running server, for code that calls tools."""
        if self._token is None:
            raise RuntimeError("the tool server is not running")
        return self._token

    @property
    def host_token(self) -> str:
        """The host token of a running server, for registering servers and approving calls."""
        if self._host_token is None:
            raise RuntimeError("the tool server is not running")
        return self._host_token

    async def start(self) -> None:
        """Starts to listen.

        Raises:
            RuntimeError: It runs already.
            StartError: The port is taken, or the host is no loopback address.
            ValueError: A token cannot be used.
        """
        if self._held is not None or self._is_starting:
            raise RuntimeError("the tool server is running already")
        self._is_starting = True
        try:
            await self._start()
        finally:
            self._is_starting = False

    async def _start(self) -> None:
        token, host_token = self._given
        held, number = _host.HeldHost(), _host.number()
        held.host.want_level(self.log_level)
        try:
            started = await held.host.request(
                "tool_server/start",
                number=number,
                place=_host.place(self._timeout),
                host=self.host,
                port=self._asked_port,
                approval_required=bool(self.approval_required),
                approval_policy=None if self._policy is None else self._policy.text,
                approval_timeout=self.approval_timeout,
                token=token,
                host_token=host_token,
            )
        except BaseException:
            held.host.post("tool_server/stop", number=number)
            held.release_soon()
            raise
        self._held, self._number, self.port = held, number, started["port"]
        self._token, self._host_token = started["token"], started["host_token"]
        _tokens.remember(self.port, started["token"], started["host_token"])

    async def stop(self) -> None:
        """Stops listening, and waits until all MCP servers have ended. Stopping a stopped server does nothing."""
        held, self._held = self._held, None
        if held is None:
            return
        _tokens.forget(self.port)
        self._token = self._host_token = None
        try:
            await held.host.finish("tool_server/stop", number=self._number)
        finally:
            await held.release()

    async def join(self) -> None:
        """Waits until the server has stopped."""
        if self._held is not None:
            await self._held.host.request("tool_server/join", number=self._number)
