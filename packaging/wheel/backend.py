"""Builds the wheel, also from a source distribution, in which maturin leaves no file executable; pip wants that."""

from pathlib import Path

import maturin
from maturin import (
    build_sdist,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_wheel",
]


def build_wheel(*arguments, **options):
    """Lets the scripts be run and leaves the rest to maturin."""
    for script in (Path(__file__).parent / "data/scripts").iterdir():
        script.chmod(0o755)
    return maturin.build_wheel(*arguments, **options)
