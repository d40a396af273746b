"""Asks the tool server for what is not code's to ask, and then for more than it should bear."""

import http.client
import json
import os
import secrets
import socket

from attack import TARGETS

HOST, PORT = os.environ["IPYBOX_TOOL_SERVER"].rsplit(":", 1)
TOKEN = os.environ["IPYBOX_TOOL_SERVER_TOKEN"]
ECHO = {"server_name": "probe", "tool_name": "echo", "tool_args": {"text": "alive"}}
RUN = {"command": "touch", "args": [TARGETS["redirected"]]}
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


def ask(method, path, body=None, token=TOKEN, **headers):
    connection = http.client.HTTPConnection(HOST, int(PORT), timeout=120)
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    text = None if body is None else json.dumps(body)
    connection.request(
        method, path, text, {"Content-Type": "application/json", **headers}
    )
    response = connection.getresponse()
    return response.status, response.read().decode(errors="replace")


def report(name, held, detail):
    print(
        json.dumps({"attack": name, "held": held, "detail": str(detail)[:200]}),
        flush=True,
    )


def refused(name, *request, **options):
    try:
        status, text = ask(*request, **options)
    except OSError as error:
        return report(name, True, error)
    report(name, status >= 400 or '"error"' in text, (status, text))


def alive(after):
    report(
        f"alive after {after}",
        ask("POST", "/run", ECHO) == (200, '{"result":"alive"}'),
        after,
    )


alive("nothing")
for extra in (
    {"server_params": RUN},
    {"params": RUN},
    {"approved": True},
    {"token": TOKEN},
    {"target": RUN},
):
    refused(f"run with {list(extra)}", "POST", "/run", {**ECHO, **extra})
for server in (
    "unknown",
    "ipybox",
    "",
    "../probe",
    "probe/../probe",
    "PROBE",
    "touch",
    json.dumps(RUN),
):
    refused(f"server {server}", "POST", "/run", {**ECHO, "server_name": server})
refused(
    "a tool that the policy denies",
    "POST",
    "/run",
    {"server_name": "probe", "tool_name": "pid", "tool_args": {}},
)
for name in ("pid ", "PID", "probe.pid", "pid\0", "../pid"):
    refused(
        f"tool {name!r}",
        "POST",
        "/run",
        {"server_name": "probe", "tool_name": name, "tool_args": {}},
    )
for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
    for path in (
        "/",
        "/servers",
        "/servers/probe",
        "/servers/evil",
        "/reset",
        "/status",
        "/approval",
        "/run/../status",
        "//status",
        "/%2e%2e/status",
        "/approve/../reset",
        "http://localhost/status",
    ):
        refused(f"{method} {path}", method, path, {"server_params": RUN, **RUN})
for path in ("/approval", "/approve", "/run", "/status"):
    refused(f"socket {path}", "GET", path, **UPGRADE)
for name, answer in [
    ("answer", {"id": "1", "approved": True}),
    ("jsonrpc", {"jsonrpc": "2.0", "id": 1, "result": True}),
    ("tool", {"server_name": "probe", "tool_name": "pid", "tool_args": {"cmd": "x"}}),
    ("reset", {"tool_name": "reset", "tool_args": {"cmd": "x"}}),
]:
    refused(f"forged approval: {name}", "POST", "/approve", answer)
for token in (
    None,
    "",
    "0",
    TOKEN[:-1],
    TOKEN + "0",
    TOKEN.upper(),
    TOKEN[::-1],
    "null",
    "Bearer",
):
    refused(f"token {str(token)[:6]}", "POST", "/run", ECHO, token=token)
guessed = [ask("GET", "/status", token=secrets.token_hex(32))[0] for _ in range(200)]
report("guessed host tokens", min(guessed) >= 400, set(guessed))
for host in ("evil.example", "169.254.169.254", "localhost.evil.example"):
    refused(f"Host: {host}", "POST", "/run", ECHO, Host=host)
refused("Origin", "POST", "/run", ECHO, Origin="http://localhost")
alive("requests that are not code's")


def send(data, wait=0.05):
    with socket.create_connection((HOST, int(PORT)), timeout=120) as client:
        try:
            client.sendall(data)
            client.settimeout(wait)
            client.recv(100)
        except OSError:
            pass


HEAD = f"POST /run HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n".encode()
for name, data in {
    "zeros": bytes(1 << 16),
    "a line without end": b"GET /" + b"x" * (4 << 20),
    "headers without end": b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200_000,
    "a body that does not come": HEAD + b"Content-Length: 1000000\r\n\r\n{",
    "a length that is no number": HEAD
    + b"Content-Length: 99999999999999999999999\r\n\r\n{}",
    "two lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "two framings": HEAD
    + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks without end": HEAD
    + b"Transfer-Encoding: chunked\r\n\r\n"
    + (b"10000\r\n" + b"x" * 65536 + b"\r\n") * 100,
    "deep": HEAD + b"Content-Length: 200000\r\n\r\n" + b"[" * 200_000,
    "http/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(1 << 16),
}.items():
    send(data)
    alive(name)

held = []
try:
    for _ in range(3_000):
        client = socket.create_connection((HOST, int(PORT)), timeout=0.5)
        client.sendall(b"POST /run HTTP/1.1\r\n")
        held.append(client)
except OSError as error:
    report("connections", True, f"{len(held)}: {error}")
for client in held:
    client.close()
alive(f"{len(held)} connections")
