#!/usr/bin/env python3
"""One version and one set of names in every file that carries them.

    packaging/version.py check               all agree with Cargo.toml, else exit status 1 and what does not
    packaging/version.py check --tag v0.1.0  and it is the tagged version, whose section the changelog has
    packaging/version.py set 0.2.0           writes the version everywhere and dates the changelog's section
    packaging/version.py show                prints the version
    packaging/version.py notes               prints the changelog's section of the version

Cargo.toml says what the version is, and in `[package.metadata.names]` what registries call ipybox. `--root DIR`
means another tree than the one this script lies in. Python 3.10 or newer, nothing else.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# No pre-releases: the channels spell them differently and would need tags of their own.
NUMBER = r"\d+\.\d+\.\d+"

PLATFORMS = [
    "linux-x64",
    "linux-arm64",
    "linux-x64-musl",
    "linux-arm64-musl",
    "darwin-x64",
    "darwin-arm64",
]
PLUGINS = ["codeact-default", "codeact-sandbox", "codeact-docker"]

# Files that are not searched for mentions: history, texts of others, texts that tests compare on purpose.
UNSEARCHED_DIRECTORIES = {
    ".git",
    "target",
    "node_modules",
    "tests",
    ".ruff_cache",
    "__pycache__",
}
UNSEARCHED_FILES = {"CHANGELOG.md", "Cargo.lock", "package-lock.json", "version.py"}
SEARCHED_ENDINGS = {
    ".json",
    ".md",
    ".mjs",
    ".js",
    ".py",
    ".rs",
    ".sh",
    ".toml",
    ".txt",
    ".yml",
    ".yaml",
    "",
}


@dataclass(frozen=True)
class Claim:
    """A value in a file, and the one that should be there."""

    file: str
    place: str
    found: object
    wanted: object

    def holds(self) -> bool:
        return self.found == self.wanted

    def __str__(self) -> str:
        return f"{self.file}: {self.place} is {show(self.found)}, but should be {show(self.wanted)}"


class ReleaseError(Exception):
    """A step of a release cannot be done. The message is for the user of the script."""


def show(value: object) -> str:
    return "missing" if value is None else json.dumps(value, ensure_ascii=False)


class ProjectFiles:
    """The files of the project, and what Cargo.toml says they should agree on."""

    def __init__(self, root: Path) -> None:
        self.root = root
        manifest = self.read("Cargo.toml")
        self.version = self.find(
            manifest,
            "Cargo.toml",
            rf'(?ms)^\[workspace\.package\]$.*?^version = "({NUMBER})"$',
            "version",
        )
        self.crate = self.find(
            manifest, "Cargo.toml", r'(?ms)^\[package\]$.*?^name = "([^"]+)"$', "name"
        )
        # In the order in which they are published, before the crate that depends on them.
        self.libraries = [f"{self.crate}-codegen", f"{self.crate}-team"]
        self.repository = self.find(
            manifest, "Cargo.toml", r'(?m)^repository = "([^"]+)"$', "repository"
        )
        table = self.find(
            manifest,
            "Cargo.toml",
            r"(?ms)^\[package\.metadata\.names\]$(.*?)(?=^\[|\Z)",
            "names",
        )
        self.names = dict(re.findall(r'(?m)^([\w-]+) = "([^"]+)"$', table))
        for name in [
            "pypi",
            "npm",
            "npm-platforms",
            "image",
            "mcp-registry",
            "plugins",
        ]:
            if name not in self.names:
                raise ReleaseError(
                    f"Cargo.toml: `{name}` is missing in [package.metadata.names]"
                )

    def read(self, file: str) -> str:
        try:
            return (self.root / file).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ReleaseError(
                f"{file}: there is no such file in {self.root}"
            ) from None

    def write(self, file: str, text: str) -> None:
        (self.root / file).write_text(text, encoding="utf-8")

    def json(self, file: str) -> Any:
        try:
            return json.loads(self.read(file))
        except json.JSONDecodeError as error:
            raise ReleaseError(f"{file}: not JSON: {error}") from None

    @staticmethod
    def find(text: str, file: str, pattern: str, what: str) -> str:
        found = re.search(pattern, text)
        if not found:
            raise ReleaseError(f"{file}: no {what} found, looked for /{pattern}/")
        return found[1]

    # The places of versions and names, file by file.

    def claims(self) -> Iterator[Claim | ReleaseError]:
        """A file that is missing or no JSON is a problem among the others, so that all are reported at once."""
        for room in [
            self.of_cargo_lock,
            self.of_npm,
            self.of_pypi,
            self.of_plugins,
            self.of_bundle,
            self.of_registry,
            self.of_image,
            self.of_changelog,
        ]:
            try:
                yield from room()
            except ReleaseError as problem:
                yield problem
        for mention in self.mentions():
            yield mention.claim(self.version)

    def of_cargo_lock(self) -> Iterator[Claim]:
        for name in [self.crate, *self.libraries]:
            found = re.search(
                rf'(?m)^name = "{name}"\nversion = "([^"]+)"$',
                self.read("Cargo.lock"),
            )
            yield Claim(
                "Cargo.lock",
                f"the version of `{name}`",
                found and found[1],
                self.version,
            )

    def of_npm(self) -> Iterator[Claim]:
        file = "npm-wrapper/package.json"
        package = self.json(file)
        yield Claim(file, "version", package.get("version"), self.version)
        yield Claim(file, "name", package.get("name"), self.names["npm"])
        yield Claim(file, "mcpName", package.get("mcpName"), self.names["mcp-registry"])
        wanted = {
            f"{self.names['npm-platforms']}/{platform}": self.version
            for platform in PLATFORMS
        }
        yield Claim(
            file, "optionalDependencies", package.get("optionalDependencies"), wanted
        )
        repository = package.get("repository")
        url = repository.get("url") if isinstance(repository, dict) else repository
        # npm compares it with the workflow's repository before it accepts provenance.
        yield Claim(file, "repository.url", url, f"git+{self.repository}.git")

    def of_pypi(self) -> Iterator[Claim]:
        file = "pyproject.toml"
        text = self.read(file)
        table = self.find(text, file, r"(?ms)^\[project\]$(.*?)(?=^\[|\Z)", "[project]")
        name = re.search(r'(?m)^name = "([^"]+)"$', table)
        yield Claim(file, "name", name and name[1], self.names["pypi"])
        version = re.search(r'(?m)^version = "([^"]+)"$', table)
        dynamic = re.search(r'(?m)^dynamic = \[[^\]]*"version"', table)
        # maturin takes a dynamic version from Cargo.toml.
        if version or not dynamic:
            yield Claim(file, "version", version and version[1], self.version)

    def of_plugins(self) -> Iterator[Claim]:
        file = ".claude-plugin/marketplace.json"
        marketplace = self.json(file)
        yield Claim(file, "name", marketplace.get("name"), self.names["plugins"])
        metadata = marketplace.get("metadata", {})
        if "version" in metadata:
            yield Claim(file, "metadata.version", metadata["version"], self.version)
        entries = {
            plugin.get("name"): plugin for plugin in marketplace.get("plugins", [])
        }
        yield Claim(file, "the plugins", sorted(map(str, entries)), sorted(PLUGINS))
        for name, entry in entries.items():
            if "version" in entry:
                yield Claim(
                    file, f"the version of `{name}`", entry["version"], self.version
                )
        for name in PLUGINS:
            file = f"plugins/{name}/.claude-plugin/plugin.json"
            plugin = self.json(file)
            yield Claim(file, "name", plugin.get("name"), name)
            yield Claim(file, "version", plugin.get("version"), self.version)

    def of_bundle(self) -> Iterator[Claim]:
        file = "packaging/mcpb/manifest.json"
        manifest = self.json(file)
        yield Claim(file, "version", manifest.get("version"), self.version)
        yield Claim(file, "name", manifest.get("name"), self.crate)

    def of_registry(self) -> Iterator[Claim]:
        file = "server.json"
        server = self.json(file)
        yield Claim(file, "name", server.get("name"), self.names["mcp-registry"])
        yield Claim(file, "version", server.get("version"), self.version)
        repository = server.get("repository", {})
        yield Claim(file, "repository.url", repository.get("url"), self.repository)
        packages = server.get("packages", [])
        wanted = {
            # None of npm: clients start npx in the project, where code may have planted a package.
            "pypi": self.names["pypi"],
            # An image's version is its tag.
            "oci": f"{self.names['image']}:{self.version}",
        }
        for kind, identifier in wanted.items():
            found = [
                package for package in packages if package.get("registryType") == kind
            ]
            names = [package.get("identifier") for package in found]
            yield Claim(file, f"the identifiers of kind `{kind}`", names, [identifier])
            if kind != "oci":
                versions = [package.get("version") for package in found]
                yield Claim(
                    file, f"the version of kind `{kind}`", versions, [self.version]
                )

    def of_image(self) -> Iterator[Claim]:
        file = "Dockerfile"
        text = self.read(file)
        for label, wanted in {
            "io.modelcontextprotocol.server.name": self.names["mcp-registry"],
            "org.opencontainers.image.version": self.version,
            "org.opencontainers.image.source": self.repository,
        }.items():
            found = re.findall(rf'\b{re.escape(label)}="?([^"\s\\]+)', text)
            yield Claim(file, f"the label `{label}`", found, [wanted])

    def of_changelog(self) -> Iterator[Claim]:
        newest = re.search(rf"(?m)^## ({NUMBER})\b", self.read("CHANGELOG.md"))
        # Before the first release there is but the section `Unreleased`.
        if newest:
            yield Claim("CHANGELOG.md", "the newest version", newest[1], self.version)

    # Versions within text: commands, links, configuration.

    def mentions(self) -> Iterator[Mention]:
        names = {key: re.escape(value) for key, value in self.names.items()}
        crate = re.escape(self.crate)
        file_name = re.escape(self.names["pypi"].replace("-", "_"))
        # The text before a version of ours.
        before = re.compile(
            "(?:"
            + "|".join(
                [
                    # npx -y ipybox@0.1.0, @ipybox-rs/linux-x64@0.1.0
                    rf"(?<![\w./-]){names['npm']}@",
                    rf"{names['npm-platforms']}/[\w-]+@",
                    # uvx ipybox-rs==0.1.0, uvx ipybox-rs@0.1.0, ipybox_rs-0.1.0-py3-none-…
                    rf"(?<![\w./-]){names['pypi']}(?:==|@)",
                    rf"{file_name}-",
                    # ipyboxrs/ipybox:0.1.0
                    rf"{names['image']}:v?",
                    # https://github.com/ipybox-rs/ipybox/releases/download/v0.1.0/…, releases/tag/v0.1.0
                    r"releases/(?:download|tag)/v",
                    # ipybox = "0.1", ipybox = { version = "0.1", … }
                    rf'(?<![\w-]){crate}(?:-codegen|-team)? = (?:\{{[^}}]*?version = )?"',
                    # ipybox 0.1.0 (what `--version` prints)
                    rf"(?<![\w./@-]){crate} ",
                    r'org\.opencontainers\.image\.version="?',
                ]
            )
            + ")$"
        )
        for file in self.searched():
            try:
                lines = self.read(file).split("\n")
            except UnicodeDecodeError:
                continue
            start = 0
            for number, line in enumerate(lines, 1):
                for found in re.finditer(r"\d+(?:\.\d+){1,2}", line):
                    if before.search(line[: found.start()]):
                        span = (start + found.start(), start + found.end())
                        yield Mention(file, number, span, found[0])
                start += len(line) + 1

    def searched(self) -> Iterator[str]:
        for directory, below, files in os.walk(self.root):
            below[:] = sorted(
                name for name in below if name not in UNSEARCHED_DIRECTORIES
            )
            for name in sorted(files):
                path = Path(directory, name)
                if (
                    name not in UNSEARCHED_FILES
                    and path.suffix in SEARCHED_ENDINGS
                    and not path.is_symlink()
                ):
                    yield path.relative_to(self.root).as_posix()

    # Setting

    def set(self, version: str) -> None:
        old = self.version
        for file in sorted({mention.file for mention in self.mentions()}):
            text = self.read(file)
            # From the end, so that the places before stay where they were.
            for mention in sorted(
                (m for m in self.mentions() if m.file == file),
                key=lambda m: m.span,
                reverse=True,
            ):
                start, end = mention.span
                text = text[:start] + mention.spelt(version) + text[end:]
            self.write(file, text)
        self.replace(
            "Cargo.toml",
            rf'(?ms)(^\[workspace\.package\]$.*?^version = ")({NUMBER})"',
            version,
        )
        self.replace(
            "Cargo.lock",
            rf'(?m)(^name = "{self.crate}(?:-codegen|-team)?"\nversion = ")([^"]+)"',
            version,
            3,
        )
        if re.search(r'(?m)^version = "', self.read("pyproject.toml")):
            self.replace(
                "pyproject.toml",
                r'(?ms)(^\[project\]$.*?^version = ")([^"]+)"',
                version,
            )
        self.replace("npm-wrapper/package.json", r'("version":\s*")([^"]+)"', version)
        platforms = re.escape(self.names["npm-platforms"])
        self.replace(
            "npm-wrapper/package.json",
            rf'("{platforms}/[\w-]+":\s*")([^"]+)"',
            version,
            len(PLATFORMS),
        )
        for file in [".claude-plugin/marketplace.json", "server.json"]:
            count = len(
                re.findall(rf'"version":\s*"{re.escape(old)}"', self.read(file))
            )
            if count:
                self.replace(
                    file, rf'("version":\s*")({re.escape(old)})"', version, count
                )
        for file in [f"plugins/{name}/.claude-plugin/plugin.json" for name in PLUGINS]:
            self.replace(file, r'("version":\s*")([^"]+)"', version)
        self.replace(
            "packaging/mcpb/manifest.json", r'(?<!_)("version":\s*")([^"]+)"', version
        )
        self.date_changelog(version)

    def replace(self, file: str, pattern: str, version: str, count: int = 1) -> None:
        text, replaced = re.subn(
            pattern, lambda found: f'{found[1]}{version}"', self.read(file)
        )
        if replaced != count:
            raise ReleaseError(
                f"{file}: {replaced} instead of {count} places match /{pattern}/"
            )
        self.write(file, text)

    def date_changelog(self, version: str) -> None:
        text = self.read("CHANGELOG.md")
        if re.search(rf"(?m)^## {re.escape(version)}\b", text):
            return
        today = datetime.date.today().isoformat()
        text, replaced = re.subn(
            r"(?m)^## Unreleased$", f"## Unreleased\n\n## {version} - {today}", text
        )
        if replaced != 1:
            raise ReleaseError(
                "CHANGELOG.md: there must be one section `## Unreleased`, which becomes the version's"
            )
        self.write("CHANGELOG.md", text)

    def notes(self) -> str:
        text = self.read("CHANGELOG.md")
        found = re.search(
            rf"(?ms)^## {re.escape(self.version)} - \d{{4}}-\d\d-\d\d$(.*?)(?=^## |\Z)",
            text,
        )
        if not found or not found[1].strip():
            hint = f"`packaging/version.py set {self.version}` makes it of `Unreleased`"
            raise ReleaseError(
                f"CHANGELOG.md: no section `## {self.version} - YEAR-MONTH-DAY` with text; {hint}"
            )
        return found[1].strip() + "\n"


@dataclass(frozen=True)
class Mention:
    """A version within text."""

    file: str
    line: int
    span: tuple[int, int]
    found: str

    def spelt(self, version: str) -> str:
        """The version with as many numbers as are here: dependencies in Rust are often named by the first two."""
        return ".".join(version.split(".")[: self.found.count(".") + 1])

    def claim(self, version: str) -> Claim:
        return Claim(self.file, f"line {self.line}", self.found, self.spelt(version))


def check(tree: ProjectFiles, tag: str | None) -> None:
    claims = list(tree.claims())
    wrong = [
        str(claim)
        for claim in claims
        if isinstance(claim, ReleaseError) or not claim.holds()
    ]
    if tag is not None:
        if tag != f"v{tree.version}":
            wrong.append(
                f"the tag is {tag}, but Cargo.toml's version needs v{tree.version}"
            )
        try:
            tree.notes()
        except ReleaseError as problem:
            wrong.append(str(problem))
    if wrong:
        hint = f"hint: `packaging/version.py set {tree.version}` writes the version everywhere; names are fixed by hand"
        raise ReleaseError("\n".join([*wrong, hint]))
    files = len({claim.file for claim in claims if isinstance(claim, Claim)})
    print(f"{tree.version} and its names: {len(claims)} places in {files} files agree")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--root", type=Path, default=Path(__file__).resolve().parent.parent
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check").add_argument("--tag")
    commands.add_parser("set").add_argument("version")
    commands.add_parser("show")
    commands.add_parser("notes")
    arguments = parser.parse_args()
    try:
        tree = ProjectFiles(arguments.root)
        if arguments.command == "check":
            check(tree, arguments.tag)
        elif arguments.command == "set":
            if not re.fullmatch(NUMBER, arguments.version):
                raise ReleaseError(
                    f"`{arguments.version}` is no version: three numbers are, as in 1.2.3"
                )
            tree.set(arguments.version)
            check(ProjectFiles(arguments.root), tag=None)
        elif arguments.command == "show":
            print(tree.version)
        else:
            print(tree.notes(), end="")
    except ReleaseError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
