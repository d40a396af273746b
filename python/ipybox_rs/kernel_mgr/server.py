"""`KernelGateway`: where kernels of `KernelClient`s run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from ipybox_rs import _checks
from ipybox_rs._contexts import Connectable, Startable

__all__ = ["KernelGateway"]

_running: dict[int, KernelGateway] = {}
"""The gateways of this process, by port."""


class KernelGateway(Startable):
    """Options for the kernels of `KernelClient`s: in a sandbox or without, with which variables.

    ipybox starts kernels itself. So a gateway is no server, and nothing listens on its port: the clients of this
    process find it by the port.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int = 8888,
        sandbox: bool = False,
        sandbox_config: str | os.PathLike[str] | None = None,
        log_level: str = "INFO",
        log_to_stderr: bool = False,
        env: Mapping[str, str] | None = None,
        *,
        working_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        """Sets the options.

        Args:
            host: Has no effect.
            port: The port by which clients find it.
            sandbox: Whether kernels run in a sandbox.
            sandbox_config: What code in the sandbox may do, as for `CodeExecutor`.
            log_level: The least severe messages that go to the logger `ipybox_rs`.
            log_to_stderr: Has no effect.
            env: Variables for the kernels, which inherit nothing but what every program needs.
            working_dir: The working directory of kernels; default: the current directory.
        """
        self.host = _checks.text("host", host)
        self.port = port
        _checks.port("port", port)
        self.sandbox = bool(sandbox)
        self.sandbox_config = _checks.path("sandbox_config", sandbox_config)
        self.log_level = _checks.level(log_level)
        self.log_to_stderr = log_to_stderr
        self.env = _checks.variables("env", env)
        self.working_dir = _checks.path("working_dir", working_dir)
        self._clients: set[Connectable] = set()
        self._stopped: asyncio.Event | None = None

    async def start(self) -> None:
        """Lets clients find it.

        Raises:
            RuntimeError: It, or another one on this port, runs already.
        """
        if self.port in _running:
            raise RuntimeError(
                f"a kernel gateway on port {self.port} is running already"
            )
        _running[self.port] = self
        self._stopped = asyncio.Event()

    async def stop(self, timeout: float = 10) -> None:
        """Stops the kernels of its clients, and waits until no process is left.

        Args:
            timeout: How long to wait, in seconds. The processes end in any case.
        """
        if _running.get(self.port) is not self:
            return
        del _running[self.port]
        stopping = [client.disconnect() for client in list(self._clients)]
        try:
            await asyncio.wait_for(
                asyncio.gather(*stopping), _checks.seconds("timeout", timeout)
            )
        except asyncio.TimeoutError:
            pass
        finally:
            if self._stopped is not None:
                self._stopped.set()

    async def join(self) -> None:
        """Waits until it is stopped."""
        if self._stopped is not None:
            await self._stopped.wait()


def find(port: int) -> KernelGateway | None:
    """The gateway of this process on a port."""
    return _running.get(port)
