#!/usr/bin/env python3
"""Archives of the program for a release, and their checksums.

    packaging/archive.py make --target x86_64-unknown-linux-musl --binary PATH --out DIR
    packaging/archive.py check --target TARGET --binary PATH
    packaging/archive.py checksums DIR

`make` writes `ipybox-TARGET.tar.gz` with the program, LICENSE and README.md, the same bytes from the same files.
It first checks that the program is what the name will say: the machine it runs on, no dynamic linker for musl, no
glibc newer than 2.17 (or any with `--any-glibc`, to try something out). `check` does that alone. `checksums` writes
`SHA256SUMS` for what lies in a directory, as `sha256sum -c` reads it, and wants an archive for each target.
Python 3.10 or newer, nothing else.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import re
import struct
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

TARGETS = [
    "x86_64-unknown-linux-gnu",
    "aarch64-unknown-linux-gnu",
    "x86_64-unknown-linux-musl",
    "aarch64-unknown-linux-musl",
    "x86_64-apple-darwin",
    "aarch64-apple-darwin",
]
# Of Linux, those for download are static: they run wherever the kernel does.
ARCHIVED = [target for target in TARGETS if not target.endswith("-gnu")]

ELF_MACHINES = {62: "x86_64", 183: "aarch64"}
MACH_O_MACHINES = {0x01000007: "x86_64", 0x0100000C: "aarch64"}
ELF_INTERPRETER = 3

# The glibc that npm's and PyPI's packages promise: that of CentOS 7, named `manylinux2014` there.
GLIBC = (2, 17)


class ArchiveError(Exception):
    """An archive cannot be made. The message is for the user of the script."""


def describe(program: bytes) -> tuple[str, str, bool]:
    """Machine, system, and whether a dynamic linker is wanted."""
    if program[:5] == b"\x7fELF\x02":
        (machine,) = struct.unpack_from("<H", program, 18)
        (headers,) = struct.unpack_from("<Q", program, 32)
        size, count = struct.unpack_from("<HH", program, 54)
        kinds = [
            struct.unpack_from("<I", program, headers + index * size)[0]
            for index in range(count)
        ]
        return (
            ELF_MACHINES.get(machine, f"machine {machine}"),
            "linux",
            ELF_INTERPRETER in kinds,
        )
    if program[:4] == b"\xcf\xfa\xed\xfe":
        (machine,) = struct.unpack_from("<I", program, 4)
        return MACH_O_MACHINES.get(machine, f"machine {machine:#x}"), "darwin", True
    raise ArchiveError("neither an ELF nor a Mach-O program of 64 bits")


def check(target: str, binary: Path, any_glibc: bool = False) -> None:
    """That the program is one for the target."""
    try:
        program = binary.read_bytes()
    except OSError as error:
        raise ArchiveError(
            f"cannot read the program {binary}: {error.strerror}"
        ) from None
    try:
        machine, system, dynamic = describe(program)
    except (ArchiveError, struct.error) as error:
        raise ArchiveError(f"{binary} is {error}") from None
    wanted = target.split("-")[0]
    if machine != wanted:
        raise ArchiveError(f"{binary} is for {machine}, but {target} needs {wanted}")
    if system not in target:
        raise ArchiveError(f"{binary} is for {system}, but the target is {target}")
    if target.endswith("-musl") and dynamic:
        raise ArchiveError(
            f"{binary} wants a dynamic linker, but a program for {target} must be static"
        )
    if target.endswith("-gnu"):
        if not dynamic:
            raise ArchiveError(f"{binary} is static, but the target is {target}")
        found = [
            tuple(map(int, version.split(b".")))
            for version in re.findall(rb"GLIBC_(\d+\.\d+)", program)
        ]
        if max(found, default=GLIBC) > GLIBC and not any_glibc:
            newest, oldest = (
                ".".join(map(str, version)) for version in (max(found), GLIBC)
            )
            raise ArchiveError(
                f"{binary} needs glibc {newest}, but {target} promises to run with {oldest}"
            )


def make(target: str, binary: Path, out: Path, any_glibc: bool = False) -> Path:
    check(target, binary, any_glibc)
    members = [
        ("ipybox", binary, 0o755),
        ("LICENSE", ROOT / "LICENSE", 0o644),
        ("README.md", ROOT / "README.md", 0o644),
    ]
    time = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, path, mode in members:
            entry = tarfile.TarInfo(f"ipybox-{target}/{name}")
            content = path.read_bytes()
            entry.size, entry.mode, entry.mtime = len(content), mode, time
            archive.addfile(entry, io.BytesIO(content))
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"ipybox-{target}.tar.gz"
    # Without a name and with the time above, the header is the same each time.
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", 9, file, mtime=time) as packed,
    ):
        packed.write(raw.getvalue())
    return path


def checksums(directory: Path, targets: list[str]) -> Path:
    sums = directory / "SHA256SUMS"
    if not directory.is_dir():
        raise ArchiveError(f"{directory} is no directory")
    wanted = [f"ipybox-{target}.tar.gz" for target in targets if target in ARCHIVED]
    missing = [name for name in wanted if not (directory / name).is_file()]
    if missing:
        raise ArchiveError(
            f"{directory} lacks {', '.join(missing)}: a release has an archive for each target"
        )
    files = sorted(
        path for path in directory.iterdir() if path.is_file() and path != sums
    )
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in files
    ]
    sums.write_text("".join(lines), encoding="utf-8")
    return sums


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ["make", "check"]:
        command = commands.add_parser(name)
        command.add_argument("--target", choices=TARGETS, required=True)
        command.add_argument("--binary", type=Path, required=True)
        command.add_argument("--any-glibc", action="store_true")
        if name == "make":
            command.add_argument("--out", type=Path, required=True)
    commands.add_parser("checksums").add_argument("directory", type=Path)
    arguments = parser.parse_args()
    try:
        if arguments.command == "make":
            print(
                make(
                    arguments.target,
                    arguments.binary,
                    arguments.out,
                    arguments.any_glibc,
                )
            )
        elif arguments.command == "check":
            check(arguments.target, arguments.binary, arguments.any_glibc)
        else:
            print(checksums(arguments.directory, TARGETS))
    except ArchiveError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
