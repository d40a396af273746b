"""Programs to put where a platform package has its binary: tiny ones for every platform, and scripts to run here."""

import struct
import sys

ELF_MACHINES = {"x64": 62, "arm64": 183}
MACH_O_MACHINES = {"x64": 0x01000007, "arm64": 0x0100000C}

STATIC_EXIT_CODE = 7
"""The end of `static_elf`."""

EXIT_CODE = {
    # mov edi, 7; mov eax, 60; syscall
    "x64": bytes.fromhex("bf07000000 b83c000000 0f05"),
    # mov x0, #7; mov x8, #93; svc #0
    "arm64": struct.pack("<3I", 0xD28000E0, 0xD2800BA8, 0xD4000001),
}

LOADERS = {
    "x64": "/lib64/ld-linux-x86-64.so.2",
    "arm64": "/lib/ld-linux-aarch64.so.1",
}


def _elf(cpu, segments, body):
    base = 0x400000
    begin = 64 + 56 * (len(segments) + 1)
    size = begin + len(body)
    header = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    header += struct.pack("<HHIQQQI", 2, ELF_MACHINES[cpu], 1, base + begin, 64, 0, 0)
    header += struct.pack("<6H", 64, 56, len(segments) + 1, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 0x1000)
    others = [
        struct.pack(
            "<IIQQQQQQ",
            kind,
            4,
            begin + at,
            base + begin + at,
            base + begin + at,
            length,
            length,
            1,
        )
        for kind, at, length in segments
    ]
    return header + b"".join(others) + load + body


def static_elf(cpu):
    """A Linux program that needs no loader and ends with `STATIC_EXIT_CODE`."""
    return _elf(cpu, [], EXIT_CODE[cpu])


def glibc_elf(cpu, newest="2.17"):
    """A file that looks like a Linux program for glibc `newest`."""
    loader = LOADERS[cpu].encode() + b"\0"
    return _elf(cpu, [(3, 0, len(loader))], loader + f"GLIBC_{newest}\0".encode())


def mach_o(cpu):
    """A file that looks like a program for macOS."""
    return struct.pack("<8I", 0xFEEDFACF, MACH_O_MACHINES[cpu], 0, 2, 0, 0, 0, 0)


def script(body):
    """A program for this machine: Python with `json`, `os`, `signal`, `sys` and `time` at hand."""
    return f"#!{sys.executable} -IS\nimport json, os, signal, sys, time\n{body}\n"


PRINT_ARGUMENTS = script("print(json.dumps(sys.argv[1:]))")


def end_with(code):
    """A program that ends with a code."""
    return script(f"sys.exit({code})")


def end_by(number):
    """A program that a signal ends, as far as it can see."""
    return script(
        f"signal.signal({number}, signal.SIG_DFL) if {number} != signal.SIGKILL else None\n"
        f"os.kill(os.getpid(), {number})\n"
        "time.sleep(5)"
    )


def slow_to_end(code, seconds):
    """A program that takes its time after SIGTERM; says `ready` when it waits for it."""
    return script(
        "came = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: came.append(1))\n"
        "print('ready', flush=True)\n"
        "while not came: time.sleep(0.01)\n"
        f"time.sleep({seconds})\n"
        f"sys.exit({code})"
    )
