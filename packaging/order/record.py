#!/usr/bin/env python3
"""Writes `functions.txt`: the functions that a session uses, as patterns of names that outlive updates of crates.

Builds the program as for a release, with its symbols, and plays the session of `packaging/smoke.py` under `valgrind`,
which has to be installed. Takes about ten minutes.
"""

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "target/order"

BUILD = ["cargo", "build", "--release", "--locked", "--bin", "ipybox"]
VALGRIND = ["valgrind", "--quiet", "--tool=callgrind", "--demangle=no"]


def lasting(name: str) -> str:
    """The name as a pattern, without what changes with the version of a crate.

    In the v0 scheme of rustc these are the numbers of crates (`Cs…_` before a name) and the places of what is repeated
    (`B…_`), which depend on how long those are.
    """
    name = re.sub(r"Cs[0-9A-Za-z]+_(?=\d)", "*", name)
    name = re.sub(r"(?<=[A-Za-z0-9_*])B[0-9A-Za-z]{0,3}_", "*", name)
    return re.sub(r"\*+", "*", name)


def used(directory: Path) -> set[str]:
    """The names of the functions that a session of `smoke.py` calls."""
    program = directory / "ipybox"
    traced = [*VALGRIND, f"--callgrind-out-file={directory}/calls.%p"]
    command = shlex.join([*traced, str(TARGET / "release/ipybox")])
    program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    program.chmod(0o755)
    python = ROOT / "target/test-tools/kernel/bin/python"
    smoke = [ROOT / "packaging/smoke.py", "--", program, "--python", python]
    subprocess.run([sys.executable, *smoke], check=True)
    # `fn=(7) _RNv…` names a function when it occurs for the first time, `cfn=` when that is as one that is called.
    return {
        name
        for calls in directory.glob("calls.*")
        for name in re.findall(
            r"^c?fn=\(\d+\) (_R\w+)", calls.read_text(), re.MULTILINE
        )
    }


def main() -> None:
    unstripped = ["--config", "profile.release.strip=false"]
    subprocess.run([*BUILD, *unstripped, "--target-dir", TARGET], cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory(prefix="ipybox-order-") as directory:
        functions = sorted({lasting(name) for name in used(Path(directory))})
    (ROOT / "packaging/order/functions.txt").write_text("\n".join(functions) + "\n")
    print(f"{len(functions)} functions")


if __name__ == "__main__":
    main()
