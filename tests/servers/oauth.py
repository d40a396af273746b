"""An MCP server behind OAuth and its authorization server, on one port, that also err and attack on demand.

    oauth.py [--port PORT] [--sse] [--token-lifetime SECONDS] [--rotate] [--fault NAME [ARGUMENT …]] …

Once it listens, it prints `{"url": …, "issuer": …}` as the only line on standard output. It is the official SDK's
(1.x) authorization server, which consents without asking, and its Streamable HTTP server; `oauth.py --help` has the
faults. `GET /log` answers what was requested, and counts; `DELETE /log` forgets it. `PUT /fault` with
`[NAME, ARGUMENT …]` has it err so from then on.
"""

import argparse
import asyncio
import base64
import contextlib
import json
import socket
import time
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import uvicorn
from mcp.server.auth.settings import (
    AuthSettings,
    ClientRegistrationOptions,
    RevocationOptions,
)
from mcp.server.fastmcp import Context, FastMCP
from oauth_faults import FAULTS, MARKUP, OTHER_ISSUER, TOKEN_ERRORS, Faults
from oauth_provider import SCOPES, Provider
from pydantic import BaseModel

GRANTS = {"code": "authorization_code", "refresh": "refresh_token"}


def add_tools(server, faults):
    """Adds the protected server's tools."""

    class Identity(BaseModel):
        """The result of `whoami`."""

        client_id: str
        scopes: list[str]
        subject: str | None

    def token(context):
        # Not the SDK's context variable: that is of the session's first request.
        return context.request_context.request.user.access_token

    @server.tool()
    def whoami(context: Context) -> Identity:
        """The client that the token was given to."""
        known = token(context)
        return Identity(
            client_id=known.client_id, scopes=known.scopes, subject=known.subject
        )

    @server.tool(structured_output=False)
    def echo(text: str, context: Context) -> str:
        """Gives the text back."""
        if "token-echo" in faults:
            headers = context.request_context.request.headers
            text += f" (Authorization: {headers['authorization']})"
        return text

    @server.tool(structured_output=False)
    def admin(context: Context) -> str:
        """Needs the scope `admin`."""
        return f"{token(context).subject} may"

    @server.tool(structured_output=False)
    async def slow(seconds: float) -> str:
        """Answers after some seconds."""
        await asyncio.sleep(seconds)
        return f"slept {seconds} s"


class OAuthApplication:
    """The whole server as an ASGI application: it notes each request, errs where it shall, and else asks the SDK."""

    def __init__(self, options, port):
        self.origin = f"http://127.0.0.1:{port}"
        self.faults = Faults(options.fault, options.fault_times)
        self.path = "/sse" if options.sse else "/mcp"
        self.posted = "/messages/" if options.sse else "/mcp"
        self.url = self.origin + self.path
        self.provider = Provider(options, self.faults, self.origin)
        self.cimd, self.dcr = options.cimd, "no-dcr" not in self.faults
        self.challenges_all = options.challenge_all
        self.requests, self.refreshing = [], 0
        self.inner = self.protected(options)

    def protected(self, options):
        """The SDK's application: the tools, and the sign-in for them."""
        auth = AuthSettings(
            issuer_url=self.origin,
            resource_server_url=self.url,
            required_scopes=["mcp"],
            validate_token_resource=not options.any_resource,
            client_registration_options=ClientRegistrationOptions(
                enabled=self.dcr, default_scopes=SCOPES
            ),
            revocation_options=RevocationOptions(enabled=True),
        )
        server = FastMCP(
            "oauth", log_level="CRITICAL", auth=auth, auth_server_provider=self.provider
        )
        add_tools(server, self.faults)
        return server.sse_app() if options.sse else server.streamable_http_app()

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self.inner(scope, receive, send)
            return
        if scope["path"] == "/log":
            await self.log(scope, send)
            return
        if scope["path"] == "/fault":
            await self.arm(receive, send)
            return
        request = Request(scope, await whole_body(receive))
        self.requests.append(request.noted)

        async def noting(message):
            if message["type"] == "http.response.start":
                request.noted["status"] = message["status"]
            await send(message)

        if await self.err(request, receive, noting):
            return
        await self.inner(scope, request.again(receive), noting)

    async def err(self, request, receive, send):
        """Answers what the SDK shall not; returns whether it did."""
        path = request.path
        if path.startswith("/.well-known/oauth-protected-resource"):
            if path.removeprefix("/.well-known/oauth-protected-resource") != self.path:
                return await reply(send, 404, {"error": "not_found"})
            return await self.described(receive, send, "prm", self.resource_metadata())
        if path == "/.well-known/oauth-authorization-server":
            return await self.described(receive, send, "as", self.server_metadata())
        if path == "/other-host":
            return await reply(send, 200, self.server_metadata())
        if path in ("/token", "/revoke"):
            return await self.token(request, send)
        if path == self.posted and request.rpc.get("method") == "tools/call":
            return await self.call(request, send)
        return False

    async def token(self, request, send):
        form = request.noted.get("form", {})
        kind, _, credentials = request.headers.get("authorization", "").partition(" ")
        extra = {}
        if kind.lower() == "basic" and "client_id" not in form:
            with contextlib.suppress(ValueError):
                name = base64.b64decode(credentials).decode().partition(":")[0]
                extra["client_id"] = unquote(name)
        if request.path == "/revoke" and "client_secret" not in form:
            extra["client_secret"] = ""
        if extra:
            # Neither is needed there, but the SDK says so.
            request.change(request.body + b"&" + urlencode(extra).encode())
        place = next(
            (
                place
                for place, grant in GRANTS.items()
                if form.get("grant_type") == grant
            ),
            None,
        )
        if request.path == "/revoke" or place is None:
            return False
        if place == "refresh":
            self.refreshing += 1
            counts = self.provider.counts
            most = max(counts["most_refreshes_at_once"], self.refreshing)
            counts["most_refreshes_at_once"] = most
            try:
                if "concurrent" in self.faults:
                    seconds = float(self.faults.argument("concurrent", "0.5"))
                    await asyncio.sleep(seconds)
            finally:
                self.refreshing -= 1
        for fault, key in (
            ("token-type", "token_type"),
            ("access-token", "access_token"),
        ):
            if fault in self.faults:
                answer = {"access_token": "a", "token_type": "Bearer"}
                answer[key] = self.faults[fault][0]
                return await reply(send, 200, answer)
        error = self.faults.error(place)
        if error == "unavailable":
            page = b"<html><body>503 Service Unavailable</body></html>"
            return await reply(send, 503, page, [(b"content-type", b"text/html")])
        if error:
            markup = "html-error" in self.faults
            description = MARKUP if markup else f"the fixture says {error}"
            if "repeated-request" in self.faults:
                description = f"{request.body.decode()} {credentials}"
            answer = {"error": error, "error_description": description}
            basic = [(b"www-authenticate", b'Basic realm="oauth"')]
            headers = basic if error == "invalid_client" and kind else []
            return await reply(send, TOKEN_ERRORS.get(error, 400), answer, headers)
        return False

    async def call(self, request, send):
        counts = self.provider.counts
        counts["calls"] += 1
        if counts["calls"] == int(self.faults.argument("401-after", "0")):
            self.provider.access.clear()
        text = request.headers.get("authorization", "").partition(" ")[2]
        known = await self.provider.load_access_token(text)
        metadata = f"{self.origin}/.well-known/oauth-protected-resource{self.path}"
        if "401-always" in self.faults:
            value = f'Bearer error="invalid_token", resource_metadata="{metadata}"'
            headers = [(b"www-authenticate", value.encode())]
            return await reply(send, 401, {"error": "invalid_token"}, headers)
        wanted = request.rpc.get("params", {}).get("name") == "admin"
        if known and wanted and "admin" not in known.scopes:
            scope = "mcp admin" if self.challenges_all else "admin"
            value = f'Bearer error="insufficient_scope", scope="{scope}", resource_metadata="{metadata}"'
            headers = [(b"www-authenticate", value.encode())]
            return await reply(send, 403, {"error": "insufficient_scope"}, headers)
        return False

    def resource_metadata(self):
        faults = self.faults
        resource, server = self.url, self.origin
        if "resource-mismatch" in faults:
            resource = faults.argument(
                "resource-mismatch", "https://evil.example.com/mcp"
            )
        if "metadata-private" in faults:
            server = faults.argument("metadata-private", "http://169.254.169.254/")
        return {
            "resource": resource,
            "authorization_servers": [server],
            "scopes_supported": ["mcp"],
            "bearer_methods_supported": ["header"],
        }

    def server_metadata(self):
        faults, origin = self.faults, self.origin
        methods = ["client_secret_basic", "client_secret_post", "none"]
        metadata = {
            "issuer": origin,
            "authorization_endpoint": f"{origin}/authorize",
            "token_endpoint": f"{origin}/token",
            "registration_endpoint": f"{origin}/register" if self.dcr else None,
            "revocation_endpoint": f"{origin}/revoke",
            "scopes_supported": SCOPES,
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": methods,
            "revocation_endpoint_auth_methods_supported": methods,
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": "no-iss" not in faults,
            "client_id_metadata_document_supported": True if self.cimd else None,
        }
        endpoints = {
            "javascript-url": "javascript:alert(1)",
            "file-url": "file:///etc/passwd",
            "user-info": f"{origin}/authorize".replace("//", "//bank.example@", 1),
            "plain-http": "http://example.com/authorize",
        }
        for name, endpoint in endpoints.items():
            if name in faults:
                metadata["authorization_endpoint"] = endpoint
        if "issuer-mismatch" in faults:
            metadata["issuer"] = faults.argument("issuer-mismatch", OTHER_ISSUER)
        if "no-s256" in faults:
            absent = faults.argument("no-s256", "") == "absent"
            metadata["code_challenge_methods_supported"] = None if absent else ["plain"]
        if "metadata" in faults:
            key, value = faults["metadata"]
            metadata[key] = json.loads(value)
        return {key: value for key, value in metadata.items() if value is not None}

    async def described(self, receive, send, kind, metadata):
        """Answers with metadata, or with what the faults make of it."""
        faults = self.faults
        if "slow-metadata" in faults and faults.argument("slow-metadata", "as") == kind:
            while (await receive())["type"] != "http.disconnect":
                pass
            return True
        if "huge-metadata" in faults and faults.argument("huge-metadata", "as") == kind:
            await self.flood(receive, send)
            return True
        if "redirect-metadata" in faults and kind == "as":
            other_host = self.origin.replace("127.0.0.1", "localhost") + "/other-host"
            location = faults.argument("redirect-metadata", other_host)
            return await reply(send, 302, b"", [(b"location", location.encode())])
        return await reply(send, 200, metadata)

    async def flood(self, receive, send):
        """A JSON object that goes on until nobody reads it."""
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        gone = asyncio.ensure_future(receive())
        piece, size = b'{"issuer":"', 0
        while not gone.done() and size < 4 << 30:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            size += len(piece)
            self.provider.counts["metadata_bytes"] = size
            piece = b"x" * (1 << 16)
            await asyncio.sleep(0)
        gone.cancel()

    async def log(self, scope, send):
        if scope["method"] == "DELETE":
            self.requests.clear()
            self.provider.counts.clear()
            self.provider.forged.clear()
        answer = {
            "requests": self.requests,
            "statistics": dict(self.provider.counts),
            "forged_callbacks": self.provider.forged,
            "clients": [
                client.model_dump(mode="json", exclude_none=True)
                for client in self.provider.clients.values()
            ],
        }
        await reply(send, 200, answer)

    async def arm(self, receive, send):
        """Errs from now on as the request says."""
        name, *arguments = json.loads(await whole_body(receive))
        if not is_fault(name):
            await reply(send, 400, {"error": f"no fault is called {name!r}"})
            return
        self.faults[name] = arguments
        await reply(send, 200, {})


class Request:
    """A request with its body, and what is noted of it."""

    def __init__(self, scope, body):
        self.scope, self.body, self.path = scope, body, scope["path"]
        self.headers = {
            name.decode().lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        self.noted = {
            "time": time.time(),
            "method": scope["method"],
            "path": self.path,
            "query": fields(scope["query_string"].decode()),
            "headers": self.headers,
        }
        self.rpc = {}
        kind = self.headers.get("content-type", "")
        if kind.startswith("application/x-www-form-urlencoded"):
            self.noted["form"] = fields(body.decode())
        elif kind.startswith("application/json"):
            with contextlib.suppress(ValueError):
                self.noted["json"] = json.loads(body)
            if isinstance(self.noted.get("json"), dict):
                self.rpc = self.noted["json"]

    def change(self, body):
        """Gives the SDK another body."""
        self.body = body
        length = (b"content-length", str(len(body)).encode())
        kept = [pair for pair in self.scope["headers"] if pair[0] != length[0]]
        self.scope["headers"] = [*kept, length]

    def again(self, receive):
        """A `receive` for one who has not read the body yet."""
        is_read = False

        async def replayed():
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": self.body, "more_body": False}

        return replayed


def fields(text):
    """The fields of a query or form: a text, or a list where one is repeated."""
    parsed = parse_qs(text, keep_blank_values=True)
    return {key: v[0] if len(v) == 1 else v for key, v in parsed.items()}


async def whole_body(receive):
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


async def reply(send, status, content, headers=()):
    """Answers with JSON, or with bytes; gives True."""
    if not isinstance(content, bytes):
        content = json.dumps(content).encode()
        headers = [(b"content-type", b"application/json"), *headers]
    headers = [
        *headers,
        (b"content-length", str(len(content)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
    return True


def is_fault(name):
    """Says whether a fault is called so."""
    known = {name.split()[0] for name in FAULTS}
    place, _, error = name.partition(":")
    is_error = f"{place}:ERROR" in known and (
        place == "authorize" or error in TOKEN_ERRORS or error == "unavailable"
    )
    return name in known or is_error


def check(parser, given):
    """Ends the process where a fault is unknown."""
    for name, *_ in given:
        if not is_fault(name):
            parser.error(f"no fault is called {name!r}")


def main():
    faults = "\n".join(f"  {name}\n      {text}" for name, text in FAULTS.items())
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"faults:\n{faults}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--port", type=int, default=0, help="default: a free one")
    add("--sse", action="store_true", help="the old transport, HTTP+SSE")
    add("--token-lifetime", type=float, default=3600, metavar="SECONDS")
    add("--rotate", action="store_true", help="each refresh token is for one use")
    add("--no-refresh", action="store_true", help="give out no refresh tokens")
    add("--client-id", help="a client that is registered already")
    add("--client-secret")
    add("--client-auth", choices=["basic", "post"], default="basic")
    add(
        "--redirect-uri",
        action="append",
        help="its redirect URI, exactly; default: any on loopback",
    )
    add(
        "--exact-redirect",
        action="store_true",
        help="a client that registers is bound to the port of its redirect URI",
    )
    add(
        "--challenge-all",
        action="store_true",
        help="ask for the scopes there are as well, where `admin` is missing",
    )
    add("--cimd", action="store_true", help="take client IDs that are https URLs")
    add(
        "--any-resource",
        action="store_true",
        help="take tokens that were asked for without `resource`",
    )
    add("--fault", nargs="+", action="append", default=[], metavar=("NAME", "ARGUMENT"))
    add(
        "--fault-times",
        type=int,
        default=-1,
        metavar="N",
        help="err N times at /authorize and /token, then no more",
    )
    options = parser.parse_args()
    check(parser, options.fault)
    if options.client_id and urlsplit(options.client_id).scheme:
        parser.error("--client-id is a URL: use --cimd")
    # Bound here, because uvicorn does not say which port it was given.
    listener = socket.create_server(("127.0.0.1", options.port))
    application = OAuthApplication(options, listener.getsockname()[1])
    ready = {"url": application.url, "issuer": application.origin}
    print(json.dumps(ready), flush=True)
    uvicorn.Server(
        uvicorn.Config(
            application,
            log_level="critical",
            timeout_graceful_shutdown=1,
            lifespan="on",
        )
    ).run(sockets=[listener])


if __name__ == "__main__":
    main()
