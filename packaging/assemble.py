#!/usr/bin/env python3
"""Makes everything that a release consists of from the wheels, which hold the built programs.

    packaging/assemble.py --wheels DIR --out DIR [--targets TARGET,…] [--programs-only] [--any-glibc]

Each program is built once, as part of its wheel, and is the same in every channel. Writes, below `--out`:

    bin/TARGET/ipybox   the programs
    release/            archives, MCP bundles and SHA256SUMS, for the release on the forge
    npm/                the packed packages: the wrapper and one for each platform
    server.json         for the MCP registry, with the bundles and their checksums
    image/MACHINE/      what the container image of a machine is given as its build stage

Wants the wheel of each target, or of those named by `--targets`. Needs Python 3.10 or newer, Node.js 18 or newer
with npm, and for the bundles what packaging/mcpb/build.mjs needs.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import zipfile
from contextlib import nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import archive
from version import ProjectFiles, ReleaseError

ROOT = Path(__file__).resolve().parent.parent

# The last part of a wheel's name, by target.
PLATFORM_TAGS = {
    "x86_64-unknown-linux-gnu": r"manylinux.*_x86_64",
    "aarch64-unknown-linux-gnu": r"manylinux.*_aarch64",
    "x86_64-unknown-linux-musl": r"musllinux.*_x86_64",
    "aarch64-unknown-linux-musl": r"musllinux.*_aarch64",
    "x86_64-apple-darwin": r"macosx.*_x86_64",
    "aarch64-apple-darwin": r"macosx.*_arm64",
}
# The systems of the bundles. Of Linux, the static programs: a bundle cannot distinguish one libc from another.
BUNDLES = {
    "x86_64-unknown-linux-musl": "linux-x64",
    "aarch64-unknown-linux-musl": "linux-arm64",
    "x86_64-apple-darwin": "darwin-x64",
    "aarch64-apple-darwin": "darwin-arm64",
}
# The machines by Docker's names.
IMAGE_PLATFORMS = {
    "x86_64-unknown-linux-gnu": "amd64",
    "aarch64-unknown-linux-gnu": "arm64",
}


def run(*command: str | Path, into: Path | None = None) -> None:
    words = [str(word) for word in command]
    print("$", *words, *([">", into] if into else []), flush=True)
    with into.open("w") if into else nullcontext() as output:
        done = subprocess.run(words, cwd=ROOT, stdout=output, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"`{' '.join(words)}` failed")


def wheel_of(
    target: str, wheels: Path, distribution: str, version: str, any_glibc: bool
) -> Path:
    # A wheel for this machine alone, as a trial has it, is tagged `linux_x86_64`.
    tag = (
        PLATFORM_TAGS[target].replace("many", "(?:many)?")
        if any_glibc
        else PLATFORM_TAGS[target]
    )
    name = re.compile(
        rf"{re.escape(distribution)}-{re.escape(version)}-py3-none-{tag}\.whl"
    )
    found = [path for path in sorted(wheels.glob("*.whl")) if name.fullmatch(path.name)]
    if len(found) != 1:
        there = ", ".join(path.name for path in sorted(wheels.iterdir())) or "nothing"
        raise ReleaseError(
            f"{wheels} must have one wheel for {target} ({name.pattern}), but has {there}"
        )
    return found[0]


def take_program(wheel: Path, distribution: str, version: str, out: Path) -> Path:
    member = f"{distribution}-{version}.data/scripts/ipybox"
    with zipfile.ZipFile(wheel) as file:
        try:
            program = file.read(member)
        except KeyError:
            raise ReleaseError(f"{wheel} has no {member}") from None
    out.parent.mkdir(parents=True)
    out.write_bytes(program)
    out.chmod(0o755)
    return out


def assemble(
    wheels: Path,
    out: Path,
    targets: list[str],
    programs_only: bool,
    glibc: list[str],
    mcpb: list[str],
) -> None:
    """`glibc` and `mcpb` are options for the scripts that know them."""
    any_glibc = bool(glibc)
    if not wheels.is_dir():
        raise ReleaseError(f"{wheels} is no directory")
    if out.exists() and any(out.iterdir()):
        raise ReleaseError(
            f"{out} is not empty: what lies there already would be released too"
        )
    tree = ProjectFiles(ROOT)
    distribution = tree.names["pypi"].replace("-", "_")
    programs = {}
    for target in targets:
        wheel = wheel_of(target, wheels, distribution, tree.version, any_glibc)
        programs[target] = take_program(
            wheel, distribution, tree.version, out / "bin" / target / "ipybox"
        )
        archive.check(target, programs[target], any_glibc)
    if programs_only:
        return
    release, npm = out / "release", out / "npm"
    for directory in [release, npm]:
        directory.mkdir(parents=True)
    for target, program in programs.items():
        if target in archive.ARCHIVED:
            print(archive.make(target, program, release))
            bundle = release / f"ipybox-{BUNDLES[target]}.mcpb"
            words = ["--binary", program, "--target", BUNDLES[target], "--out", bundle]
            run("node", "packaging/mcpb/build.mjs", *words, *mcpb)
        if target in IMAGE_PLATFORMS:
            image = out / "image" / IMAGE_PLATFORMS[target] / "out"
            image.mkdir(parents=True)
            shutil.copy(program, image)
        words = ["--target", target, "--binary", program, "--out", out / "platforms"]
        run("node", "npm-wrapper/platform.mjs", *words, *glibc)
    for package in [*sorted((out / "platforms").iterdir()), ROOT / "npm-wrapper"]:
        run("npm", "pack", "--silent", "--pack-destination", npm, package)
    shutil.rmtree(out / "platforms")
    if bundles := sorted(release.glob("*.mcpb")):
        run(
            "node",
            "packaging/registry/with-bundles.mjs",
            *bundles,
            into=out / "server.json",
        )
    if any(release.iterdir()):
        print(archive.checksums(release, targets))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--targets", type=lambda text: text.split(","), default=archive.TARGETS
    )
    parser.add_argument(
        "--programs-only",
        action="store_true",
        help="take the programs out of the wheels, no more",
    )
    parser.add_argument(
        "--any-glibc",
        action="store_true",
        help="take programs that need a newer glibc, to try it out",
    )
    parser.add_argument(
        "--mcpb",
        type=Path,
        help="the program of the installed npm package `@anthropic-ai/mcpb`",
    )
    arguments = parser.parse_args()
    try:
        if unknown := [
            target for target in arguments.targets if target not in archive.TARGETS
        ]:
            raise ReleaseError(
                f"unknown targets {', '.join(unknown)}: there are {', '.join(archive.TARGETS)}"
            )
        assemble(
            arguments.wheels.resolve(),
            arguments.out.resolve(),
            arguments.targets,
            arguments.programs_only,
            ["--any-glibc"] if arguments.any_glibc else [],
            ["--mcpb", str(arguments.mcpb.resolve())] if arguments.mcpb else [],
        )
    except (ReleaseError, archive.ArchiveError, OSError) as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
