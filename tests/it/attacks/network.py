"""Looks for a way to the host's network: directly, through the sandbox's proxies, and through whatever listens inside."""

import base64
import json
import os
import socket
import urllib.parse

from attack import TARGETS

TCP, UDP = TARGETS["tcp"], TARGETS["udp"]


def report(name, act):
    try:
        got = act()
        held, detail = not got, repr(got)[:200]
    except OSError as error:
        held, detail = True, str(error)
    print(json.dumps({"attack": name, "held": held, "detail": detail}), flush=True)


def connected(address, port):
    with socket.create_connection((address, port), timeout=1) as client:
        client.sendall(b"attack")
        return client.getpeername()


def datagram(address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        client.sendto(b"attack", (address, port))
        # It was sent within the sandbox's own network; whether it arrived, the host knows.
        return (
            not address.startswith(("127.", "::1", "localhost", "0.0.0.0", "::"))
            and client.getsockname()
        )


HOSTS = [
    "127.0.0.1",
    "localhost",
    "::1",
    "0.0.0.0",
    "::",
    "127.0.0.2",
    "::ffff:127.0.0.1",
    *TARGETS["addresses"],
    "169.254.169.254",
    "10.0.0.1",
    "192.0.2.1",
    "2001:db8::1",
]
for host in HOSTS:
    report(f"tcp {host}", lambda host=host: connected(host, TCP))
    report(f"udp {host}", lambda host=host: datagram(host, UDP))
report("name", lambda: socket.getaddrinfo("example.com", 443))
report("dns", lambda: datagram("9.9.9.9", 53))


def proxy():
    found = urllib.parse.urlsplit(os.environ.get("HTTP_PROXY", ""))
    if not found.hostname:
        raise SystemExit("no proxy in the environment")
    user = f"{urllib.parse.unquote(found.username or '')}:{urllib.parse.unquote(found.password or '')}"
    return found.hostname, found.port, base64.b64encode(user.encode()).decode()


def through_connect(target):
    host, port, user = proxy()
    with socket.create_connection((host, port), timeout=3) as client:
        client.sendall(
            f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic {user}\r\n\r\n".encode()
        )
        status = client.recv(200).split(b"\r\n")[0]
        return status if b" 200" in status else None


def through_get(target):
    host, port, user = proxy()
    with socket.create_connection((host, port), timeout=3) as client:
        client.sendall(
            f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic {user}\r\n\r\n".encode()
        )
        status = client.recv(200).split(b"\r\n")[0]
        return status if b" 200" in status or b"canary" in status else None


def through_socks(target, port):
    host, proxy_port, _ = proxy()
    ports = [proxy_port, 1080]
    for each in ports:
        try:
            with socket.create_connection((host, each), timeout=3) as client:
                client.sendall(b"\x05\x01\x00")
                client.recv(2)
                client.sendall(
                    b"\x05\x01\x00\x03"
                    + bytes([len(target)])
                    + target.encode()
                    + port.to_bytes(2, "big")
                )
                answer = client.recv(10)
                if answer[:2] == b"\x05\x00" and len(answer) > 2:
                    return answer
        except OSError:
            continue
    return None


LITERALS = [
    "127.0.0.1",
    "localhost",
    "[::1]",
    "0.0.0.0",
    "0",
    "127.1",
    "2130706433",
    "0x7f000001",
    "[::ffff:127.0.0.1]",
    "localhost.",
    "LOCALHOST",
    "%6cocalhost",
    "127.0.0.1.nip.io",
    "example.com",
    *TARGETS["addresses"],
]
for literal in LITERALS:
    report(
        f"connect {literal}",
        lambda literal=literal: through_connect(f"{literal}:{TCP}"),
    )
    report(f"get {literal}", lambda literal=literal: through_get(f"{literal}:{TCP}"))
    report(
        f"socks {literal}",
        lambda literal=literal: through_socks(literal.strip("[]"), TCP),
    )


def listening():
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table) as lines:
            for line in list(lines)[1:]:
                fields = line.split()
                if fields[3] == "0A":
                    yield int(fields[1].rsplit(":", 1)[1], 16)


def babble(port):
    for words in (
        bytes(1000),
        os.urandom(5000),
        b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x05\x01\x00" * 100,
        b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL"
        + bytes(48)
        + bytes(100),
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=1) as client:
            client.sendall(words)
            client.settimeout(0.05)
            try:
                client.recv(1000)
            except OSError:
                continue


if TARGETS["babble"]:
    for port in sorted(set(listening())):
        report(f"babble {port}", lambda port=port: babble(port))
