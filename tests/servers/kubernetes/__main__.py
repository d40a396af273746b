"""An API server of Kubernetes with agent-sandbox, whose pods are local processes: see README.md beside this file.

Usage: python tests/servers/kubernetes [--kubeconfig FILE] [--home DIR]. It prints one line of JSON when it is ready, and
ends, with all of its pods, at the end of standard input or on SIGTERM.
"""

import argparse
import asyncio
import base64
import json
import os
import secrets
import signal
import ssl
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

import trustme
from access import Access
from aiohttp import web
from api import ApiServer
from claims import ClaimController
from faults import ClusterFaults
from kinds import CLAIMS, NAMESPACES, POOLS, SANDBOXES
from pods import HOST, Kubelet
from pools import PoolController
from registry import ObjectRegistry
from router import SandboxRouter
from sandboxes import SandboxController
from statuses import ApiError
from store import ClusterClock, Store
from watches import Watches

SPACES = ("default", "kube-system", "agent-sandbox-system")


class Cluster:
    """All parts of the server, and the loop of its controllers."""

    def __init__(self, home: Path) -> None:
        self.changed = asyncio.Event()
        clock, store = ClusterClock(), Store()
        store.on_change = self.changed.set
        self.registry = ObjectRegistry(store, clock)
        watches = Watches(store)
        self.faults = ClusterFaults(self.registry, watches)
        self.kubelet = Kubelet(self.registry, home)
        self.faults.evict_pod = self.kubelet.evict
        self.token = secrets.token_urlsafe(32)
        self.router = SandboxRouter(store, secrets.token_urlsafe(32))
        access = Access(store, clock, self.token)
        self.api = ApiServer(self.registry, access, watches, self.faults, self.kubelet)
        self.controllers = [
            (POOLS, PoolController(self.registry, self.faults)),
            (SANDBOXES, SandboxController(self.registry)),
            (CLAIMS, ClaimController(self.registry, self.faults)),
        ]
        for name in SPACES:
            self.registry.create(NAMESPACES, "", {"metadata": {"name": name}})

    async def control(self) -> None:
        """Reconciles everything after each change, and when a time has come."""
        while True:
            self.changed.clear()
            pause = await self.reconcile()
            # Not `wait_for`, which does not always end when it is cancelled.
            if pause is not None:
                asyncio.get_running_loop().call_later(pause, self.changed.set)
            await self.changed.wait()

    async def reconcile(self) -> float | None:
        """One round; the seconds after which some object wants another."""
        pauses = []
        self.registry.collect_garbage()
        for kind, controller in self.controllers:
            for listed in self.registry.store.all_of(kind):
                key = listed["metadata"]["namespace"], listed["metadata"]["name"]
                # Requests are answered between two objects, and may have removed this one.
                await asyncio.sleep(0)
                object = self.registry.store.get(kind, *key)
                if object is None:
                    continue
                try:
                    pause = controller.reconcile(object)
                except ApiError as error:
                    print(f"{kind.kind} {'/'.join(key)}: {error}", file=sys.stderr)
                    pause = 1.0
                if pause is not None:
                    pauses.append(max(pause, 0.05))
        self.kubelet.sync()
        return min(pauses, default=None)


async def listen(
    application: web.Application, contexts: list[ssl.SSLContext | None]
) -> tuple[web.AppRunner, list[int]]:
    """Serves an application on loopback, with TLS and without. The runner and the ports."""
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    for context in contexts:
        await web.TCPSite(runner, HOST, 0, ssl_context=context).start()
    return runner, [address[1] for address in runner.addresses]


def kubeconfig(url: str, token: str, authority: bytes) -> dict[str, Any]:
    """A configuration of the administrator. Without TLS, `kubectl` would send no token."""
    data = base64.b64encode(authority).decode()
    cluster = {"server": url, "certificate-authority-data": data}
    context = {"cluster": "tests", "user": "admin", "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "tests", "context": context}],
        "current-context": "tests",
    }


async def until_the_end() -> None:
    """Waits for a signal, or for the end of standard input."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)

    def read() -> None:
        if not sys.stdin.buffer.read1(1 << 16):
            loop.remove_reader(sys.stdin)
            ended.set()

    loop.add_reader(sys.stdin, read)
    await ended.wait()


async def serve(options: argparse.Namespace, home: Path) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(HOST, "localhost").configure_cert(context)
    cluster = Cluster(home)
    application = cluster.api.application()
    runner, ports = await listen(application, [None, context])
    routing, router_ports = await listen(cluster.router.application(), [None])
    controlling = asyncio.create_task(cluster.control())
    certificate = authority.cert_pem.bytes()
    (home / "authority.pem").write_bytes(certificate)
    secure = f"https://{HOST}:{ports[1]}"
    if options.kubeconfig:
        config = kubeconfig(secure, cluster.token, certificate)
        options.kubeconfig.write_text(json.dumps(config, indent=2))
    ready = {
        "url": f"http://{HOST}:{ports[0]}",
        "secure_url": secure,
        "authority": str(home / "authority.pem"),
        "token": cluster.token,
        "router": f"http://{HOST}:{router_ports[0]}",
        "router_token": cluster.router.token,
        "home": str(home),
    }
    print(json.dumps(ready), flush=True)
    ending = asyncio.create_task(until_the_end())
    # The controllers never end, unless by a mistake of theirs.
    await asyncio.wait([controlling, ending], return_when=asyncio.FIRST_COMPLETED)
    if controlling.done():
        # It has failed.
        controlling.result()
    controlling.cancel()
    await asyncio.wait([controlling])
    await cluster.kubelet.close()
    await routing.cleanup()
    await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE")
    parser.add_argument("--home", type=Path, metavar="DIR")
    options = parser.parse_args()
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or sys.stdin.isatty()):
        parser.error("standard input, whose end ends the server, has to be a pipe")
    if options.home:
        asyncio.run(serve(options, options.home))
    else:
        with tempfile.TemporaryDirectory(prefix="kubernetes-") as home:
            asyncio.run(serve(options, Path(home)))


if __name__ == "__main__":
    main()
