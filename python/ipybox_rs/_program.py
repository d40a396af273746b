"""Finds the program `ipybox` that belongs to this package."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sysconfig
from pathlib import Path

from ipybox_rs._errors import HostError

VARIABLE = "IPYBOX_PROGRAM"
"""Names another program, for those who build it themselves."""


def find() -> str:
    """The path of the program.

    Raises:
        HostError: There is none.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return named
    package = Path(__file__).resolve().parent
    directories = [
        sysconfig.get_path("scripts"),
        # As `pip install --user` and `--target` (`--prefix`) put it.
        sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")),
        str(package.parent / "bin"),
        str(package.parents[3] / "bin") if len(package.parents) > 3 else "",
    ]
    for directory in filter(None, directories):
        program = Path(directory, "ipybox")
        # The launcher of a Python package has this name too.
        if program.is_file() and not _is_script(program):
            return str(program)
    places = ", ".join(f"`{directory}`" for directory in filter(None, directories))
    raise HostError(
        f"the program `ipybox` of the package `ipybox-rs` is in none of {places}: install the package anew. "
        "The package `ipybox` in the same environment replaces it: they need an environment each"
    )


def version() -> str | None:
    """The version of this package, if it is installed."""
    if os.environ.get(VARIABLE):
        return None
    try:
        return importlib.metadata.version("ipybox-rs")
    except importlib.metadata.PackageNotFoundError:
        return None


def is_same(one: str, other: str) -> bool:
    """True if two versions are the same: Python writes `1.0.0rc1`, Cargo `1.0.0-rc.1`."""
    return _parts(one) == _parts(other)


def _parts(version: str) -> list[str]:
    return re.findall(r"\d+|[a-z]+", version.lower())


def _is_script(program: Path) -> bool:
    with program.open("rb") as file:
        return file.read(2) == b"#!"
