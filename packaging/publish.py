#!/usr/bin/env python3
"""Publishes what is not published yet, so that a release that failed half-way can be run again.

    packaging/publish.py crate [--dry-run]
    packaging/publish.py npm DIR [--dry-run]
    packaging/publish.py release TAG DIR --notes FILE
    packaging/publish.py image DIR
    packaging/publish.py registry FILE

`crate` publishes the packages of the workspace by `cargo`, first the one that the other depends on. `npm` publishes the packed packages (*.tgz)
in a directory by `npm`, those of the platforms first, and the one that depends on them when they can be seen.
`release` makes a release of an existing tag by `gh`: a draft that gets the directory's files, and is made public with
all of them. `image` tags the images whose digests name the directory's files as one, by `docker buildx`. `registry`
publishes a server.json by `mcp-publisher`. What is public is never changed. `--dry-run` does all but the upload.
Python 3.10 or newer, nothing else; credentials are those that these programs find.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from version import ProjectFiles, ReleaseError

ROOT = Path(__file__).resolve().parent.parent

# A package that has been published is seen by everybody after seconds, rarely minutes.
SEEN_SECONDS = 300
POLL_SECONDS = 5


def run(*command: str, cwd: Path | None = None) -> None:
    print("$", *command, flush=True)
    if subprocess.run(command, cwd=cwd, check=False).returncode != 0:
        raise ReleaseError(f"`{' '.join(command)}` failed")


def ask(*command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


# The crate


def crate_is_published(name: str, version: str) -> bool:
    # In another directory: here, cargo would describe the package in front of it.
    with tempfile.TemporaryDirectory() as directory:
        answer = ask(
            "cargo",
            "info",
            "--quiet",
            f"{name}@{version}",
            "--registry",
            "crates-io",
            cwd=Path(directory),
        )
    if answer.returncode == 0:
        return True
    if "could not find" in answer.stderr:
        return False
    raise ReleaseError(
        f"cannot learn whether {name} {version} is published: {answer.stderr.strip()}"
    )


def crate(dry_run: bool) -> None:
    tree = ProjectFiles(ROOT)
    left = []
    for name in [*tree.libraries, tree.crate]:
        if crate_is_published(name, tree.version):
            print(f"{name} {tree.version} is published already")
        else:
            left += ["--package", name]
    if left:
        dry = ["--dry-run"] if dry_run else []
        run("cargo", "publish", "--locked", *left, *dry, cwd=ROOT)


# npm


@dataclass(frozen=True)
class Packed:
    """A package as `npm pack` wrote it."""

    file: Path
    name: str
    version: str
    dependencies: frozenset[str]

    @classmethod
    def read(cls, file: Path) -> Packed:
        with tarfile.open(file) as archive:
            try:
                member = archive.extractfile("package/package.json")
            except KeyError:
                member = None
            if member is None:
                raise ReleaseError(
                    f"{file} has no package/package.json: no package that `npm pack` wrote"
                )
            manifest = json.load(member)
        return cls(
            file,
            manifest["name"],
            manifest["version"],
            frozenset(manifest.get("optionalDependencies", {})),
        )

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    def integrity(self) -> str:
        return (
            "sha512-"
            + base64.b64encode(hashlib.sha512(self.file.read_bytes()).digest()).decode()
        )

    def published(self) -> str | None:
        """The integrity of what is published under this name and version."""
        answer = ask(
            "npm", "view", str(self), "dist.integrity", "--json", "--prefer-online"
        )
        if answer.returncode == 0:
            # Of a package that exists in other versions only, npm says nothing at all.
            return json.loads(answer.stdout) if answer.stdout.strip() else None
        if "E404" in answer.stderr or "E404" in answer.stdout:
            return None
        raise ReleaseError(
            f"cannot learn whether {self} is published: {answer.stderr.strip()}"
        )


def npm(directory: Path, dry_run: bool) -> None:
    packages = [Packed.read(file) for file in sorted(directory.glob("*.tgz"))]
    if not packages:
        raise ReleaseError(f"{directory} has no packed packages (*.tgz)")
    there = {package.name for package in packages}
    for package in packages:
        if missing := sorted(package.dependencies - there):
            raise ReleaseError(
                f"{package} depends on {', '.join(missing)}, not to be found in {directory}"
            )
    # Nothing depends on the packages without dependencies but those that come after them.
    first = [package for package in packages if not package.dependencies]
    last = [package for package in packages if package.dependencies]
    for package in [package for package in first if publish_to_npm(package, dry_run)]:
        wait_until_seen(package)
    for package in last:
        publish_to_npm(package, dry_run)


def publish_to_npm(package: Packed, dry_run: bool) -> bool:
    """Publishes it, unless it is published already. True if it was published now."""
    published = package.published()
    if published is None:
        arguments = ["--access", "public", *(["--dry-run"] if dry_run else [])]
        run("npm", "publish", str(package.file.resolve()), *arguments)
        return not dry_run
    if published == package.integrity():
        print(f"{package} is published already")
    else:
        # Programs of two builds: both are right, and what is published cannot be replaced.
        print(f"{package} is published already, from another build; it stays as it is")
    return False


def wait_until_seen(package: Packed) -> None:
    until = time.monotonic() + SEEN_SECONDS
    while package.published() is None:
        if time.monotonic() > until:
            raise ReleaseError(
                f"{package} was published, but cannot be seen after {SEEN_SECONDS} seconds; run this again"
            )
        time.sleep(POLL_SECONDS)


# The release on the forge


def release(tag: str, directory: Path, notes: Path) -> None:
    files = sorted(str(path) for path in directory.iterdir() if path.is_file())
    if not files:
        raise ReleaseError(f"{directory} has no files to release")
    seen = ask("gh", "release", "view", tag, "--json", "isDraft")
    if seen.returncode == 0 and not json.loads(seen.stdout)["isDraft"]:
        print(f"{tag} is released already")
        return
    if seen.returncode != 0:
        if "not found" not in seen.stderr:
            raise ReleaseError(
                f"cannot learn whether {tag} is released: {seen.stderr.strip()}"
            )
        run(
            "gh",
            "release",
            "create",
            tag,
            "--draft",
            "--verify-tag",
            "--title",
            tag,
            "--notes-file",
            str(notes),
        )
    run("gh", "release", "upload", tag, "--clobber", *files)
    run("gh", "release", "edit", tag, "--draft=false", "--latest")


# The image


def image(directory: Path) -> None:
    tree = ProjectFiles(ROOT)
    name = tree.names["image"]
    digests = sorted(path.name for path in directory.iterdir())
    if len(digests) != 2 or not all(
        re.fullmatch("[0-9a-f]{64}", digest) for digest in digests
    ):
        raise ReleaseError(
            f"{directory} must have a file for each of the two machines, named by the digest of its image"
        )
    tag = f"{name}:{tree.version}"
    seen = ask("docker", "buildx", "imagetools", "inspect", tag)
    if seen.returncode == 0:
        print(f"{tag} is published already")
        return
    if "not found" not in seen.stderr:
        raise ReleaseError(
            f"cannot learn whether {tag} is published: {seen.stderr.strip()}"
        )
    images = [f"{name}@sha256:{digest}" for digest in digests]
    run(
        "docker",
        "buildx",
        "imagetools",
        "create",
        "--tag",
        tag,
        "--tag",
        f"{name}:latest",
        *images,
    )


# The registry of MCP servers


def registry(file: Path) -> None:
    # It has no way to ask first.
    answer = ask("mcp-publisher", "publish", str(file))
    output = f"{answer.stdout}{answer.stderr}".strip()
    print(output)
    if answer.returncode != 0:
        if "duplicate version" not in output:
            raise ReleaseError(f"`mcp-publisher publish {file}` failed")
        print("the version is published already")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("crate")
    command.add_argument("--dry-run", action="store_true")
    command = commands.add_parser("npm")
    command.add_argument("directory", type=Path)
    command.add_argument("--dry-run", action="store_true")
    command = commands.add_parser("release")
    command.add_argument("tag")
    command.add_argument("directory", type=Path)
    command.add_argument("--notes", type=Path, required=True)
    commands.add_parser("image").add_argument("directory", type=Path)
    commands.add_parser("registry").add_argument("file", type=Path)
    arguments = parser.parse_args()
    try:
        if arguments.command == "crate":
            crate(arguments.dry_run)
        elif arguments.command == "npm":
            npm(arguments.directory, arguments.dry_run)
        elif arguments.command == "release":
            release(arguments.tag, arguments.directory, arguments.notes)
        elif arguments.command == "image":
            image(arguments.directory)
        else:
            registry(arguments.file)
    except (ReleaseError, OSError) as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
