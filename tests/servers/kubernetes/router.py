"""The router of agent-sandbox: a reverse proxy that takes the sandbox from headers, for HTTP and WebSockets."""

import asyncio
import ipaddress
import re
import secrets
from typing import Any

import aiohttp
from aiohttp import web
from kinds import PODS, SERVICES
from multidict import CIMultiDict
from store import Store

DEFAULT_PORT = 8888
DEFAULT_NAMESPACE = "default"
LONGEST_SECONDS = 180.0
CONNECT_SECONDS = 5.0
LARGEST_MESSAGE = 16 << 20
LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")
OWN = {f"x-sandbox-{name}" for name in ("id", "namespace", "port", "pod-ip", "timeout")}
HOP_BY_HOP = {
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailers",
    "transfer-encoding",
    "upgrade",
}


class RoutingError(Exception):
    """A request that is answered by the router itself."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class SandboxRouter:
    """Finds the pod of a sandbox as the cluster's DNS would, and passes everything on."""

    def __init__(self, store: Store, token: str) -> None:
        self.store = store
        self.token = token
        self.session: aiohttp.ClientSession | None = None

    def application(self) -> web.Application:
        application = web.Application(client_max_size=1 << 30)
        application.router.add_route("*", "/{path:.*}", self.answer)
        application.cleanup_ctx.append(self.keep_session)
        return application

    async def keep_session(self, _: web.Application):
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False
        ) as self.session:
            yield

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/healthz" and request.method == "GET":
            return web.json_response({"status": "ok"})
        is_socket = request.headers.get("Upgrade", "").lower() == "websocket"
        try:
            if request.method not in METHODS:
                raise RoutingError(405, "Method Not Allowed")
            self.check_token(request)
            address = self.target(request)
            if is_socket:
                return await self.relay(request, address)
            return await self.forward(request, address)
        except RoutingError as error:
            if is_socket:
                # It is closed before it is accepted, which its server answers so.
                return web.Response(status=403)
            return web.json_response({"detail": str(error)}, status=error.status)

    def check_token(self, request: web.Request) -> None:
        parts = request.headers.get("Authorization", "").split()
        if len(parts) != 2 or parts[0].lower() != "bearer":
            raise RoutingError(401, "Missing or invalid Authorization header.")
        if not secrets.compare_digest(parts[1].encode(), self.token.encode()):
            raise RoutingError(401, "Invalid token.")

    def target(self, request: web.Request) -> str:
        """The address of the pod and the port that the headers name."""
        headers = request.headers
        name = headers.get("X-Sandbox-ID", "")
        if not name:
            raise RoutingError(400, "X-Sandbox-ID header is required.")
        if not is_label(name):
            raise RoutingError(400, "Invalid sandbox ID format.")
        namespace = headers.get("X-Sandbox-Namespace", DEFAULT_NAMESPACE)
        if not is_label(namespace):
            raise RoutingError(400, "Invalid namespace format.")
        port = headers.get("X-Sandbox-Port", str(DEFAULT_PORT))
        if not re.fullmatch(r"\s*\+?[0-9]+\s*", port) or not 1 <= int(port) <= 65535:
            raise RoutingError(400, "Invalid port format.")
        host = headers.get("X-Sandbox-Pod-IP")
        host = self.check_address(host) if host else self.resolve(name, namespace)
        if host is None:
            text = f"Could not connect to the backend sandbox: {name}"
            raise RoutingError(502, text)
        return f"{host}:{int(port)}"

    def check_address(self, text: str) -> str:
        try:
            address = ipaddress.ip_address(text)
        except ValueError as error:
            raise RoutingError(400, "Invalid target IP address format.") from error
        # Loopback addresses are refused, but here pods have them.
        if not any(
            pod.get("status", {}).get("podIP") == str(address)
            for pod in self.store.all_of(PODS)
        ):
            raise RoutingError(400, "Invalid target IP address.")
        return str(address)

    def resolve(self, name: str, namespace: str) -> str | None:
        """The address that a headless service has in DNS: that of a pod that is ready."""
        service = self.store.get(SERVICES, namespace, name)
        selector = (service or {}).get("spec", {}).get("selector")
        if not selector:
            return None
        for pod in self.store.all_of(PODS, namespace):
            labels = pod["metadata"].get("labels", {})
            if "deletionTimestamp" in pod["metadata"]:
                continue
            if selector.items() <= labels.items() and any(
                one["type"] == "Ready" and one["status"] == "True"
                for one in pod["status"].get("conditions", [])
            ):
                return pod["status"]["podIP"]
        return None

    async def forward(self, request: web.Request, address: str) -> web.StreamResponse:
        name = request.headers["X-Sandbox-ID"]
        url = f"http://{address}{request.raw_path}"
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=seconds_of(request)
        )
        begun = None
        try:
            async with self.session.request(
                request.method,
                url,
                headers=passed_on(request.headers),
                data=request.content if request.body_exists else None,
                timeout=timeout,
                allow_redirects=False,
                skip_auto_headers=(
                    "User-Agent",
                    "Accept",
                    "Accept-Encoding",
                    "Content-Type",
                ),
            ) as response:
                begun = web.StreamResponse(status=response.status)
                for key, value in response.headers.items():
                    if key.lower() not in excluded(response.headers):
                        begun.headers.add(key, value)
                await begun.prepare(request)
                async for chunk in response.content.iter_any():
                    await begun.write(chunk)
                await begun.write_eof()
                return begun
        except aiohttp.ClientConnectorError as error:
            text = f"Could not connect to the backend sandbox: {name}"
            raise RoutingError(502, text) from error
        except (asyncio.TimeoutError, aiohttp.ClientError) as error:
            if begun is not None:
                # The answer is cut off, as the sandbox's was.
                request.transport.abort()
                return begun
            if isinstance(error, asyncio.TimeoutError):
                text = f"Timed out waiting for the backend sandbox: {name}"
                raise RoutingError(504, text) from error
            text = "An internal error occurred in the proxy."
            raise RoutingError(500, text) from error

    async def relay(self, request: web.Request, address: str) -> web.StreamResponse:
        """Passes the messages of a WebSocket on in both directions."""
        headers = passed_on(request.headers)
        for name in [
            one for one in headers if one.lower().startswith("sec-websocket-")
        ]:
            del headers[name]
        wanted = request.headers.get("Sec-WebSocket-Protocol", "")
        protocols = [one.strip() for one in wanted.split(",") if one.strip()]
        try:
            behind = await self.session.ws_connect(
                f"ws://{address}{request.raw_path}",
                headers=headers,
                protocols=protocols,
                max_msg_size=LARGEST_MESSAGE,
            )
        except (OSError, aiohttp.ClientError, asyncio.TimeoutError) as error:
            raise RoutingError(502, "Backend WebSocket handshake failed.") from error
        front = web.WebSocketResponse(
            protocols=[behind.protocol] if behind.protocol else [],
            max_msg_size=LARGEST_MESSAGE,
        )
        await front.prepare(request)
        copies = [
            asyncio.create_task(copy_messages(front, behind)),
            asyncio.create_task(copy_messages(behind, front)),
        ]
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        for one, other in ((front, behind), (behind, front)):
            await one.close(code=other.close_code or 1000)
        for copy in copies:
            copy.cancel()
        return front


async def copy_messages(source: Any, target: Any) -> None:
    """Copies messages until one side closes."""
    async for message in source:
        if message.type == aiohttp.WSMsgType.TEXT:
            await target.send_str(message.data)
        elif message.type == aiohttp.WSMsgType.BINARY:
            await target.send_bytes(message.data)


def is_label(text: str) -> bool:
    return len(text) <= 63 and LABEL.fullmatch(text) is not None


def seconds_of(request: web.Request) -> float:
    """The time that a sandbox has to answer; a wrong value counts as none."""
    try:
        seconds = float(request.headers.get("X-Sandbox-Timeout", LONGEST_SECONDS))
    except ValueError:
        return LONGEST_SECONDS
    return seconds if 0 < seconds <= LONGEST_SECONDS else LONGEST_SECONDS


def excluded(headers: Any) -> set[str]:
    """Headers of one connection only."""
    named = headers.get("Connection", "").split(",")
    return HOP_BY_HOP | {name.strip().lower() for name in named}


def passed_on(headers: Any) -> CIMultiDict[str]:
    """The headers that the sandbox gets: neither the router's own nor its token."""
    without = OWN | excluded(headers) | {"host", "authorization"}
    return CIMultiDict(
        (key, value) for key, value in headers.items() if key.lower() not in without
    )
