"""Sockets that lead out of the sandbox's own network."""

import ctypes
import mmap
import platform
import socket

from attack import attempt, in_child, syscall

STREAM, DGRAM, RAW, SEQPACKET = (
    socket.SOCK_STREAM,
    socket.SOCK_DGRAM,
    socket.SOCK_RAW,
    socket.SOCK_SEQPACKET,
)


def open_socket(family, kind, protocol=0):
    def act():
        with socket.socket(family, kind, protocol) as opened:
            return opened.family, opened.type

    return act


def connect(kind):
    def act(address):
        with socket.socket(socket.AF_UNIX, kind) as client:
            client.connect("\0" + address[1:] if address.startswith("@") else address)
            client.send(b"attack")
            return address

    return act


def pair_send(kind):
    """One end of a pair sends to a socket of the host."""

    def act(address):
        left, right = socket.socketpair(socket.AF_UNIX, kind)
        with left, right:
            return left.sendto(b"attack", address)

    return act


def x32_socket():
    """The same call by its number in the x32 interface; a sandbox may end who tries."""
    return in_child(lambda: syscall(0x40000000 + 41, socket.AF_UNIX, STREAM, 0))


def i386_socket():
    """socket(AF_UNIX) through the interface of 32-bit programs: the filter has other numbers there."""

    def act():
        code = bytes.fromhex(
            "53 b8 67010000 bb 01000000 b9 01000000 31d2 cd80 5b 48 98 c3"
        )
        page = mmap.mmap(
            -1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        )
        page.write(code)
        run = ctypes.CFUNCTYPE(ctypes.c_long)(
            ctypes.addressof(ctypes.c_char.from_buffer(page))
        )
        result = run()
        if result < 0:
            raise OSError(-result, "refused")

    return in_child(act)


attempt("unix_stream_to_host", connect(STREAM), "unix_stream")
attempt("unix_datagram_to_host", connect(DGRAM), "unix_datagram")
attempt("abstract_socket_to_host", connect(STREAM), "abstract")
attempt("datagram_pair_to_host", pair_send(DGRAM), "unix_datagram")
attempt("raw_pair_to_host", pair_send(RAW), "unix_datagram")
attempt("unix_socket", open_socket(socket.AF_UNIX, STREAM))
attempt("unix_seqpacket_socket", open_socket(socket.AF_UNIX, SEQPACKET))
attempt("vsock", open_socket(40, STREAM))
attempt("packet_socket", open_socket(17, RAW))
attempt("packet_socket_by_type", open_socket(socket.AF_INET, 10))
attempt("crypto_socket", open_socket(38, SEQPACKET))
attempt("bluetooth_socket", open_socket(31, RAW))
attempt("can_socket", open_socket(29, RAW))
attempt("tipc_socket", open_socket(30, SEQPACKET))
attempt("xdp_socket", open_socket(44, RAW))
attempt("raw_inet_socket", open_socket(socket.AF_INET, RAW, 1))
attempt("sctp_socket", open_socket(socket.AF_INET, STREAM, 132))
attempt("mptcp_socket", open_socket(socket.AF_INET, STREAM, 262))
for protocol, name in [
    (4, "diagnosis"),
    (9, "audit"),
    (12, "netfilter"),
    (15, "uevent"),
    (16, "generic"),
]:
    attempt(f"netlink_{name}", open_socket(socket.AF_NETLINK, RAW, protocol))
if platform.machine() == "x86_64":
    attempt("x32_unix_socket", x32_socket)
    attempt("i386_unix_socket", i386_socket)
