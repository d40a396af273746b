"""`CodeExecutor`: a kernel whose code can call tools."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ipybox_rs import _checks, _host, _options
from ipybox_rs._contexts import Startable
from ipybox_rs._errors import (
    CodeExecutionError,
    CodeExecutionTimeout,
    InstallError,
    KernelLostError,
    KernelUnavailableError,
    StartError,
)
from ipybox_rs._results import CodeExecutionChunk, CodeExecutionResult, Truncated
from ipybox_rs._session import CodeExecution, RunningSession
from ipybox_rs.audit import AuditSettings
from ipybox_rs.grants import GivenGrant, Grant
from ipybox_rs.mcp_apigen import Registry
from ipybox_rs.policy import ApprovalPolicy
from ipybox_rs.tool_exec.approval.client import ApprovalRequest

if TYPE_CHECKING:
    # Type checkers bring it along.
    from typing_extensions import Self

__all__ = [
    "CodeExecution",
    "CodeExecutionChunk",
    "CodeExecutionError",
    "CodeExecutionResult",
    "CodeExecutionTimeout",
    "CodeExecutor",
    "InstallError",
    "KernelLostError",
    "KernelUnavailableError",
    "StartError",
    "Truncated",
]


class CodeExecutor(Startable):
    """Runs Python code in an IPython kernel, and lets it call the tools of MCP servers.

    Variables and definitions persist from one piece of code to the next. Code runs one piece at a time, in the order
    of the calls; one executor may be used by many tasks, and from several threads with a loop each.

    A tool call of code needs approval: `stream` yields an `ApprovalRequest` for each call, `execute` approves all of
    them. **Without a sandbox the kernel has the rights of your program**: approval is about tools, not about what
    Python does.

    ```python
    async with CodeExecutor() as executor:
        async for item in executor.stream("print('hello')"):
            match item:
                case ApprovalRequest():
                    print(f"The code calls {item}")
                    await item.accept()
                case CodeExecutionResult():
                    print(item.text)
    ```
    """

    def __init__(
        self,
        tool_server_host: str = "localhost",
        tool_server_port: int | None = None,
        kernel_gateway_host: str = "localhost",
        kernel_gateway_port: int | None = None,
        kernel_env: Mapping[str, str] | None = None,
        images_dir: str | os.PathLike[str] | None = None,
        approval_timeout: float | None = 60,
        connect_timeout: float = 30,
        sandbox: bool = False,
        sandbox_config: str | os.PathLike[str] | None = None,
        log_level: str = "WARNING",
        *,
        working_dir: str | os.PathLike[str] | None = None,
        kernel_init_timeout: float = 60,
        approve_tool_calls: bool = True,
        approve_shell_cmds: bool = False,
        require_shell_escape: bool = False,
        approval_policy: ApprovalPolicy | None = None,
        audit: AuditSettings | None = None,
        python: str | os.PathLike[str] | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        registry: Registry | None = None,
        sandbox_backend: Literal["srt", "bwrap"] = "srt",
        checkpoint: bool = False,
        notebook: str | os.PathLike[str] | None = None,
        record: str | os.PathLike[str] | None = None,
        seed: int | None = None,
        sandbox_workspace_config: bool = False,
        allow_home_workspace: bool = False,
        sandbox_install_domains: Sequence[str] = (),
        changes: Literal["write", "ask"] = "write",
        limit_memory: int | None = None,
        limit_cpu: float | None = None,
        limit_processes: int | None = None,
        limit_disk: int | None = None,
        undo_memory: int | None = None,
        cold_start: bool = False,
        branch_files: bool = False,
        kernel_memory_limit: int | None = None,
        kernel_max_processes: int | None = None,
        kernel_max_file_size: int | None = None,
        kernel_gateway_url: str | None = None,
        kernel_gateway_token: str | None = None,
        kernel_gateway_ca: str | os.PathLike[str] | None = None,
        kernel_name: str | None = None,
        kernel_gateway_headers: Mapping[str, str] | None = None,
        kernel_hub_url: str | None = None,
        kernel_hub_token: str | None = None,
        kernel_hub_server: str | None = None,
        kernel_hub_user: str | None = None,
        kernel_hub_options: Mapping[str, Any] | None = None,
        kernel_pod_url: str | None = None,
        kernel_pod_token: str | None = None,
        kernel_pool: str | None = None,
        kernel_namespace: str | None = None,
        kernel_pool_port: int = 8888,
        kernel_router_url: str | None = None,
        kernel_router_token: str | None = None,
        kernel_claim_timeout: float = 600,
        kernel_claim_lease: float = 300,
        kernel_idle_timeout: float | None = None,
        kernel_exit_timeout: float = 2,
    ) -> None:
        """Sets the options.

        Args:
            tool_server_host: The host that the tool server listens on, a loopback address.
            tool_server_port: Its port; `None` for a free one.
            kernel_gateway_host: Has no effect.
            kernel_gateway_port: Has no effect.
            kernel_env: Variables for the kernel, which inherits only what every program needs. Servers that were registered for a
                directory of `PYTHONPATH` in it are known to the executor.
            images_dir: Where images are saved; default: `images` in the working directory.
            approval_timeout: How long an approval request waits for its answer, in seconds; `None`: no limit. After
                that the call raises `ApprovalTimeoutError` in the code.
            connect_timeout: How long a tool call waits for an MCP server to start, in seconds. The start goes on after that.
            sandbox: Whether the kernel runs in a sandbox: without secrets and network, and with write access to its working
                directory only. Tool calls work as usual.
            sandbox_config: What code in the sandbox may do: a JSON file in the settings format of sandbox-runtime.
            log_level: The least severe messages of the host process that go to the logger `ipybox_rs` (`DEBUG`,
                `INFO`, `WARNING`, `ERROR`, `CRITICAL`).
            working_dir: The kernel's working directory, created if missing, and the place of `mcptools` and `images`;
                default: the current directory.
            kernel_init_timeout: How long a kernel may take to start, in seconds.
            approve_tool_calls: Whether tool calls of `stream` need approval. Without it they run. An
                `approval_policy` replaces it.
            approve_shell_cmds: Whether shell commands of `stream` (`!command`, `%%bash`) need approval: tool `shell` or `shell_magic` of
                the server `ipybox`, with the argument `cmd`. Only a sandbox is a boundary.
            require_shell_escape: Whether Python's own functions that start programs are blocked. Needs `approve_shell_cmds`.
            approval_policy: Decides which calls need approval, which run and which are denied, in `execute` too.
            audit: A log of cells, tool calls and decisions; default: none.
            python: The interpreter that runs the kernel, or its virtual environment; packages are installed into it.
                Default: the interpreter of this process. `"managed"`: an environment that is made for the working
                directory.
            state_dir: Where registered servers, environments and lasting answers are kept. Default: `ipybox` in the platform's
                data directory.
            registry: The MCP servers whose tools code can call; default: those registered for the working directory.
            sandbox_backend: The program that makes the sandbox: sandbox-runtime, or bubblewrap directly (Linux).
            checkpoint: Whether variables are saved after each piece of code, for `ipybox_checkpoint.restore()`. Excludes
                `kernel_gateway_url`.
            notebook: The Jupyter notebook to which code is appended: a file that ends with `.ipynb`, relative to the working
                directory, or `"auto"` for a new one in the state directory.
            record: The recording of the session, for `ipybox replay`: a new file, or a directory for a new one.
            seed: The seed of hashes, `random`, `numpy.random` and `uuid.uuid4`, below 2**32; default: a random one with
                `record`, else none.
            sandbox_workspace_config: Whether `sandbox-config.json` in the working directory is added to the default policy. What it
                opens has to be allowed once by `ipybox sandbox-policy`.
            allow_home_workspace: Whether the working directory may be the home directory, or contain it, in a sandbox.
            sandbox_install_domains: Domains that packages may be installed from in the sandbox, beside those that uv and pip are
                configured for.
            changes: When changes in the working directory are there: at once, or when a user has applied them by
                `ipybox changes` (with `sandbox_backend="bwrap"`).
            limit_memory: Memory of the kernel and all that it starts together, in bytes; Linux only. Default: no limit, and 3/4 of
                the machine's in a sandbox.
            limit_cpu: Their processor time, in processors; Linux only. Default: no limit.
            limit_processes: Their processes and threads; Linux only. Default: no limit, and 1024 in a sandbox.
            limit_disk: The disk that their temporary files and the growth of the working directory take, in bytes. Default: no
                limit, and 16 GiB of temporary files in a sandbox.
            undo_memory: Memory of the states to which `reset(cells=1)` can go back, in bytes; Linux only. Default: none are kept.
            cold_start: Whether every kernel starts from scratch; else, on Linux, those after a reset are forks.
            branch_files: Whether each `copy()` works in a copy of the working directory, for `ipybox changes`. Excludes a sandbox.
            kernel_memory_limit: Memory of the kernel, and of each process that it starts, in bytes; Linux only. Default: that of
                all together.
            kernel_max_processes: Processes and threads that the kernel may add to those that its user runs; Linux only. Default:
                no limit.
            kernel_max_file_size: The size in bytes to which a file can grow; Linux only. Default: no limit, and 16 GiB in a sandbox.
            kernel_gateway_url: Runs the kernel on the Jupyter Server, Kernel Gateway or Enterprise Gateway at this URL.
                Excludes a sandbox and `python`.
            kernel_gateway_token: The token of that server, or with a blank in it (`Bearer …`) the whole value of the
                header `Authorization`.
            kernel_gateway_ca: A file with certificates in PEM to trust beside the system's.
            kernel_name: The kernel spec to start there; default: the server's.
            kernel_gateway_headers: Headers of each request to that server, as proxies before it want them; their values are
                secrets.
            kernel_hub_url: Runs the kernel on a server of the JupyterHub at this URL, started if needed; the options above hold there.
            kernel_hub_token: The token of its user, or of a service.
            kernel_hub_server: The named server; default: the user's default server.
            kernel_hub_user: The user whose server it is; default: the token's.
            kernel_hub_options: Options for its start, as the Hub's spawner takes them; default: those of its last start.
            kernel_pod_url: Runs the kernel in the pod at this URL, where `ipybox pod` waits; `kernel_gateway_ca` and
                `kernel_gateway_headers` hold there.
            kernel_pod_token: The token of that pod, if it has one.
            kernel_pool: Runs the kernel in a sandbox of this warm pool of a Kubernetes cluster with agent-sandbox, with the
                credentials that `kubectl` has.
            kernel_namespace: The pool's namespace; default: that of the credentials.
            kernel_pool_port: The port of `ipybox pod` in sandboxes.
            kernel_router_url: The router to sandboxes; default: they are reached at their own addresses.
            kernel_router_token: The router's token.
            kernel_claim_timeout: How long a sandbox may take to be ready, in seconds.
            kernel_claim_lease: After this time, in seconds, the cluster deletes the sandbox of a killed session.
            kernel_idle_timeout: The time without code, in seconds, after which the kernel ends; the next code has another one, with
                the variables. Needs `checkpoint`. Its sandbox of a pool is suspended if it has volumes, else deleted. Default: it
                does not end.
            kernel_exit_timeout: How long the exit of a kernel may take, in which threads end and `atexit` functions run, in
                seconds.

        Raises:
            TypeError: A value has the wrong type.
            ValueError: A value cannot be used, or two contradict each other.
        """
        if require_shell_escape and not approve_shell_cmds:
            raise ValueError(
                "require_shell_escape=True requires approve_shell_cmds=True"
            )
        _checks.instance("approval_policy", approval_policy, ApprovalPolicy)
        _checks.instance("audit", audit, AuditSettings)
        _checks.instance("registry", registry, Registry)
        if sandbox_backend not in ("srt", "bwrap"):
            raise ValueError(
                f'sandbox_backend must be "srt" or "bwrap", not {sandbox_backend!r}'
            )
        if changes not in ("write", "ask"):
            raise ValueError(f'changes must be "write" or "ask", not {changes!r}')
        _checks.port("kernel_gateway_port", kernel_gateway_port)
        remote = _options.remote_place(
            kernel_gateway_url=kernel_gateway_url,
            kernel_hub_url=kernel_hub_url,
            kernel_pod_url=kernel_pod_url,
            kernel_pool=kernel_pool,
        )
        self.tool_server_host = _checks.text("tool_server_host", tool_server_host)
        self.tool_server_port = _checks.port("tool_server_port", tool_server_port)
        self.kernel_gateway_host = kernel_gateway_host
        self.kernel_gateway_port = kernel_gateway_port
        self.kernel_env = _checks.variables("kernel_env", kernel_env)
        self.images_dir = images_dir
        self.approval_timeout = _checks.seconds("approval_timeout", approval_timeout)
        self.connect_timeout = connect_timeout
        self.kernel_init_timeout = kernel_init_timeout
        self.sandbox = sandbox
        self.sandbox_config = sandbox_config
        self.log_level = _checks.level(log_level)
        self.approve_tool_calls = approve_tool_calls
        self.approve_shell_cmds = approve_shell_cmds
        self.require_shell_escape = require_shell_escape
        self._registry = registry
        self._options: dict[str, Any] = {
            "has_tools": True,
            "working_dir": _checks.path("working_dir", working_dir),
            "kernel_env": self.kernel_env,
            "images_dir": _checks.path("images_dir", images_dir),
            "approval_timeout": self.approval_timeout,
            "connect_timeout": _checks.duration("connect_timeout", connect_timeout),
            "kernel_init_timeout": _checks.duration(
                "kernel_init_timeout", kernel_init_timeout
            ),
            "tool_server_host": self.tool_server_host,
            "tool_server_port": self.tool_server_port,
            "approve_tool_calls": bool(approve_tool_calls),
            "approve_shell_cmds": bool(approve_shell_cmds),
            "require_shell_escape": bool(require_shell_escape),
            "checkpoint": bool(checkpoint),
            "kernel_idle_timeout": None
            if kernel_idle_timeout is None
            else _checks.duration("kernel_idle_timeout", kernel_idle_timeout),
            "kernel_exit_timeout": _checks.duration(
                "kernel_exit_timeout", kernel_exit_timeout
            ),
            "notebook": _options.notebook(notebook),
            "record": _checks.path("record", record),
            "seed": _checks.count("seed", seed),
            "approval_policy": None
            if approval_policy is None
            else approval_policy.text,
            "audit": None if audit is None else audit._checked(),
            "state_dir": _checks.path("state_dir", state_dir),
            "sandbox": bool(sandbox),
            "sandbox_config": _checks.path("sandbox_config", sandbox_config),
            "sandbox_backend": sandbox_backend,
            "changes": changes,
            "sandbox_workspace_config": bool(sandbox_workspace_config),
            "allow_home_workspace": bool(allow_home_workspace),
            "sandbox_install_domains": _checks.texts(
                "sandbox_install_domains", sandbox_install_domains
            ),
            "limit_memory": _checks.count("limit_memory", limit_memory),
            "limit_cpu": _checks.processors("limit_cpu", limit_cpu),
            "limit_processes": _checks.count("limit_processes", limit_processes),
            "limit_disk": _checks.count("limit_disk", limit_disk),
            "undo_memory": _checks.count("undo_memory", undo_memory),
            "cold_start": bool(cold_start),
            "branch_files": bool(branch_files),
            "kernel_memory_limit": _checks.count(
                "kernel_memory_limit", kernel_memory_limit
            ),
            "kernel_max_processes": _checks.count(
                "kernel_max_processes", kernel_max_processes
            ),
            "kernel_max_file_size": _checks.count(
                "kernel_max_file_size", kernel_max_file_size
            ),
            **_options.gateway_options(
                kernel_gateway_url,
                kernel_gateway_token,
                kernel_gateway_ca,
                kernel_name,
                kernel_gateway_headers,
                remote,
            ),
            **_options.hub_options(
                kernel_hub_url,
                kernel_hub_token,
                kernel_hub_server,
                kernel_hub_user,
                kernel_hub_options,
            ),
            **_options.pod_options(kernel_pod_url, kernel_pod_token),
            **_options.pool_options(
                kernel_pool,
                kernel_namespace,
                kernel_pool_port,
                kernel_router_url,
                kernel_router_token,
                kernel_claim_timeout,
                kernel_claim_lease,
            ),
        }
        if remote is None:
            self._options["python"] = _options.interpreter(python)
        elif python is not None:
            raise ValueError(
                "python excludes kernel_gateway_url, kernel_hub_url, kernel_pod_url and kernel_pool: the interpreter is there"
            )
        self._session: RunningSession | None = None
        self._is_starting = False
        # A copy runs from the beginning.
        self._is_copy = False

    def __repr__(self) -> str:
        state = (
            "stopped"
            if self._session is None
            else f"working_dir={str(self.working_dir)!r}"
        )
        return f"<CodeExecutor {state}>"

    def __del__(self) -> None:
        session = getattr(self, "_session", None)
        if session is not None and not session.is_stopped:
            _host.unclosed(self)
            session.abandon()

    async def start(self) -> None:
        """Starts the tool server and a kernel, and waits until it runs code.

        Raises:
            RuntimeError: It runs already.
            StartError: The kernel, the sandbox, the environment or the tool server could not be started.
            ValueError: The options cannot be used.
            HostError: The program `ipybox` could not be started.
        """
        if self._session is not None or self._is_starting:
            raise RuntimeError("the executor has been started already")
        self._is_starting = True
        try:
            self._session = await self._started()
        finally:
            self._is_starting = False

    async def _started(self) -> RunningSession:
        options = dict(self._options)
        options["working_dir"] = options["working_dir"] or os.getcwd()
        if self._registry is not None:
            options["registry"] = await self._registry._open()
        return await RunningSession.start(options, self.log_level)

    async def stop(self) -> None:
        """Kills the kernel, closes all connections, completes the audit log, and waits until no process is left.

        Code that runs or waits ends with an error. Stopping a stopped executor does nothing.
        """
        session, self._session = self._session, None
        if session is not None:
            await session.stop()

    @property
    def working_dir(self) -> Path:
        """The real path of the working directory of an executor that has been started."""
        return self._running().working_dir

    @property
    def notebook(self) -> Path | None:
        """The notebook of an executor that has been started: a file, from the first code on; `None` without one."""
        return self._running().notebook

    def _running(self) -> RunningSession:
        if self._session is None:
            raise RuntimeError(
                "the executor is not running: use `async with`, or `await start()`"
            )
        return self._session

    async def execute(
        self,
        code: str,
        timeout: float | None = 120,
        *,
        max_output_chars: int | None = None,
    ) -> CodeExecutionResult:
        """Runs code to its end and approves its tool calls, except those that an approval policy denies.

        Cancelling the task that waits for it interrupts the code.

        Args:
            code: Python code, as a user would type it into IPython: magics, `!commands` and `await` at top level work.
            timeout: How long it may run, in seconds, before it is interrupted; `None`: no limit. Waiting for other
                code to end does not count.
            max_output_chars: How many characters of its output the result holds; default: 1,000,000. Of more, it holds
                the beginning and the end, and the path of a file with all of it.

        Returns:
            What the code has shown. If it was ended by `cancel`, what it had shown until then, with a note.

        Raises:
            CodeExecutionError: The code raised an exception, or its kernel was lost (`KernelLostError`), or there is
                none (`KernelUnavailableError`).
            TimeoutError: The code exceeded its timeout; it is a `CodeExecutionTimeout`.
        """
        session = self._running()
        seconds = _checks.seconds("timeout", timeout)
        return await session.execute(
            _checks.text("code", code),
            seconds,
            _checks.count("max_output_chars", max_output_chars),
        )

    def stream(
        self,
        code: str,
        timeout: float | None = 120,
        chunks: bool = False,
        *,
        max_output_chars: int | None = None,
    ) -> CodeExecution[ApprovalRequest | CodeExecutionChunk | CodeExecutionResult]:
        """Runs code and yields its approval requests, its output if `chunks`, and its result.

        The code begins with the first event that is asked for. Leaving the loop, or cancelling the task that runs it,
        interrupts the code.

        Args:
            code: Python code.
            timeout: How long it may run, in seconds, before it is interrupted; `None`: no limit. Waiting for other
                code to end and for approval does not count.
            chunks: Whether output is yielded as it is produced. The result has all of it in any case.
            max_output_chars: As for `execute`.

        Yields:
            `ApprovalRequest`: The code calls a tool and waits for `accept` or `reject`.
            `CodeExecutionChunk`: A piece of output.
            `CodeExecutionResult`: The result; nothing follows.

        Raises:
            CodeExecutionError: As for `execute`; also after a rejected or unanswered request, if the code does not
                catch the exception of its call.
            TimeoutError: As for `execute`.
        """
        params = {
            "code": _checks.text("code", code),
            "timeout": _checks.seconds("timeout", timeout),
            "chunks": bool(chunks),
            "max_output_chars": _checks.count("max_output_chars", max_output_chars),
        }
        return CodeExecution(self, self._running(), params, lambda event: event)

    def cancel(self) -> None:
        """Interrupts the running code and cancels code that waits. Returns at once, and may be called from any thread.

        Its `stream` or `execute` ends without an exception, with what was shown until then. Variables are kept, unless
        the code does not react to the interrupt within 5 seconds. Without running code it does nothing.
        """
        if self._session is not None:
            self._session.cancel()

    async def reset(
        self, *, cells: int | None = None, to: str | None = None
    ) -> list[str]:
        """Replaces the kernel by a fresh one and closes the connections to MCP servers, or undoes the last cells.

        Variables, definitions and imports are lost. MCP servers start again when their tools are called next. Code
        that runs is stopped.

        Args:
            cells: The number of pieces of code, the last ones, to undo instead. Needs `undo_memory`.
            to: Or the id of the first piece to undo, the `cell` of its result.

        Returns:
            Lines about what was not taken back.

        Raises:
            KernelUnavailableError: No fresh kernel starts: the next code tries again. Or the state before these cells
                was not kept.
            ValueError: `cells` and `to` were passed together.
        """
        return await self._running().reset(cells, to)

    async def copy(self) -> CodeExecutor:
        """Makes an executor that begins with this one's variables, imports, definitions and working directory.

        They are those after the code that runs or waits. The kernel of the copy is a fork of this one's, which takes
        milliseconds (Linux); from then on they are apart, and both have to be stopped:
        `async with await executor.copy() as copied:`. Connections stay with this one, files are shared, and random numbers
        differ. Answers and grants count for both together; the copy has no more rights.

        Raises:
            KernelUnavailableError: A copy would suffer; the message names what holds threads, child processes, files that are
                open for writing, or shared memory. Or the kernel is on a Jupyter server.
        """
        session = await self._running().copy()
        copied = copy(self)
        copied._session = session
        copied._is_copy = True
        return copied

    async def __aenter__(self) -> Self:
        if not self._is_copy:
            await self.start()
        return self

    async def grants(self) -> list[GivenGrant]:
        """The grants that answers have given and that have not ended, used up or not, in their order."""
        given = await self._running().request("grants")
        return [
            GivenGrant(
                each["id"], each["left"], Grant.read(each["grant"], each["text"])
            )
            for each in given
        ]

    async def revoke_grant(self, id: int) -> bool:
        """Ends the grant of this number, if there is one: calls that it covers are asked about again."""
        return bool(
            await self._running().request("revoke_grant", id=_checks.count("id", id))
        )

    async def install_package(self, package: str | Sequence[str]) -> str:
        """Installs Python packages where the kernel finds them; they can be imported at once.

        Args:
            package: One requirement or several: `requests`, `pandas numpy>=1.20`, `git+https://…`, or a list of them.

        Returns:
            What was installed, in one line.

        Raises:
            InstallError: The package cannot be installed; the message has the installer's output.
        """
        session = self._running()
        try:
            return str(
                await session.request(
                    "install_package",
                    package=_checks.text("package", package)
                    if isinstance(package, str)
                    else _checks.texts("package", package),
                )
            )
        except KernelUnavailableError as error:
            raise InstallError(str(error)) from None

    async def register_mcp_server(
        self, server_name: str, server_params: Mapping[str, Any]
    ) -> list[str]:
        """Generates the package `mcptools.<server_name>` for the tools of an MCP server, and registers the server.

        Code can import it at once, and the connection is kept for the first call. Parameters, result and exceptions are
        those of `generate_mcp_sources`.
        """
        return list(
            await self._running().request(
                "register_mcp_server",
                server_name=_checks.text("server_name", server_name),
                server_params=_checks.mapping("server_params", server_params),
            )
        )
