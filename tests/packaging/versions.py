"""One version, one set of names: packaging/version.py, on the project and on copies with errors.

    tests/packaging/versions.py [--root DIR]

In a copy, each place that has the version is made to say another, one after the other: none may go unnoticed. Then the
names. Then the version is set, and nothing may be left of the old one.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from report import StepFailure, Steps

ROOT = Path(__file__).resolve().parent.parent.parent

# What must be among the files that carry the version, whatever else does.
CARRIERS = {
    "Cargo.toml",
    "Cargo.lock",
    "npm-wrapper/package.json",
    "server.json",
    "packaging/mcpb/manifest.json",
    "Dockerfile",
    "plugins/codeact-default/.claude-plugin/plugin.json",
    "plugins/codeact-sandbox/.claude-plugin/plugin.json",
    "plugins/codeact-docker/.claude-plugin/plugin.json",
}

# Where the same three numbers mean something else.
UNRELATED = [
    (r"src/.*\.rs", r"."),
    # A recording keeps the version that wrote it.
    (r".*\.jsonl", r"."),
    (r"docs/.*\.(svg|md)", r"mcp-server-|srt |uv "),
    # Examples of usage.
    (r"packaging/\w+\.py", r"."),
    (r"Cargo\.lock", r"."),
    (r"CHANGELOG\.md", r"."),
]

# A name, where it is, and what somebody could write there instead. On PyPI, `ipybox` is the Python original.
NAMES = [
    ("Cargo.toml", 'image = "ipyboxrs/ipybox"', 'image = "ipybox/ipybox"'),
    ("pyproject.toml", 'name = "ipybox-rs"', 'name = "ipybox"'),
    ("npm-wrapper/package.json", '"name": "ipybox"', '"name": "ipybox-rs"'),
    (
        "npm-wrapper/package.json",
        '"mcpName": "io.github.ipybox-rs/ipybox"',
        '"mcpName": "io.github.ipybox/ipybox"',
    ),
    (
        "npm-wrapper/package.json",
        '"@ipybox-rs/linux-x64-musl"',
        '"@ipybox/linux-x64-musl"',
    ),
    (
        "npm-wrapper/package.json",
        "git+https://github.com/ipybox-rs/",
        "git+https://github.com/other/",
    ),
    (".claude-plugin/marketplace.json", '"name": "ipybox-rs"', '"name": "ipybox"'),
    (
        ".claude-plugin/marketplace.json",
        '"name": "codeact-docker"',
        '"name": "codeact-podman"',
    ),
    (
        "server.json",
        '"name": "io.github.ipybox-rs/ipybox"',
        '"name": "io.github.ipybox/ipybox"',
    ),
    ("server.json", '"identifier": "ipybox-rs"', '"identifier": "ipybox"'),
    ("server.json", '"identifier": "ipyboxrs/ipybox:', '"identifier": "ipybox/ipybox:'),
    (
        "Dockerfile",
        'server.name="io.github.ipybox-rs/ipybox"',
        'server.name="io.github.ipybox/ipybox"',
    ),
    ("packaging/mcpb/manifest.json", '"name": "ipybox"', '"name": "ipybox-rs"'),
]


class CopiedTree:
    """A copy of the files that can carry the version."""

    def __init__(self, root: Path, directory: Path) -> None:
        self.root = directory / "tree"
        ignored = shutil.ignore_patterns(
            ".git", "target", "node_modules", "tests", "__pycache__", ".ruff_cache"
        )
        shutil.copytree(root, self.root, ignore=ignored, symlinks=True)

    def run(self, *words: str) -> tuple[int, str]:
        command = [sys.executable, str(self.root / "packaging/version.py"), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        output = done.stdout + done.stderr
        if "Traceback" in output:
            raise StepFailure(output)
        return done.returncode, output

    def expect(self, status: int, *words: str, containing: str = "") -> str:
        found, text = self.run(*words)
        if found != status or containing not in text:
            raise StepFailure(
                f"`version.py {' '.join(words)}`: exit status {found}, and output: {text}"
            )
        return text

    def files(self) -> Iterator[tuple[str, str]]:
        for path in sorted(self.root.rglob("*")):
            if path.is_file() and not path.is_symlink():
                try:
                    yield (
                        path.relative_to(self.root).as_posix(),
                        path.read_text(encoding="utf-8"),
                    )
                except UnicodeDecodeError:
                    continue

    def occurrences(self, version: str) -> Iterator[tuple[str, int, str]]:
        """Files and places within them that have the version, but for those where it is something else's."""
        pattern = re.compile(rf"(?<![\d.]){re.escape(version)}(?![\d.]*\d)")
        for file, text in self.files():
            for found in pattern.finditer(text):
                line = text[text.rfind("\n", 0, found.start()) + 1 :].split("\n", 1)[0]
                is_unrelated = any(
                    re.fullmatch(name, file) and re.search(words, line)
                    for name, words in UNRELATED
                )
                if not is_unrelated:
                    yield file, found.start(), line.strip()

    def with_change(self, file: str, text: str, check) -> None:
        path = self.root / file
        original = path.read_text(encoding="utf-8")
        path.write_text(text, encoding="utf-8")
        try:
            check()
        finally:
            path.write_text(original, encoding="utf-8")


def every_place_is_guarded(tree: CopiedTree, version: str) -> None:
    places = list(tree.occurrences(version))
    if missing := CARRIERS - {"Cargo.lock"} - {file for file, _, _ in places}:
        raise StepFailure(f"these do not have the version {version}: {sorted(missing)}")
    other = version.rsplit(".", 1)[0] + ".97"
    for file, start, line in places:
        if file == "Cargo.toml":
            continue
        text = (tree.root / file).read_text(encoding="utf-8")
        changed = text[:start] + other + text[start + len(version) :]

        def check(file=file, line=line) -> None:
            status, output = tree.run("check")
            if status != 1 or file not in output:
                raise StepFailure(
                    f"{file}: nobody notices another version in `{line}`: {output}"
                )

        tree.with_change(file, changed, check)
    lock = (tree.root / "Cargo.lock").read_text()
    changed = lock.replace(
        f'name = "ipybox"\nversion = "{version}"',
        f'name = "ipybox"\nversion = "{other}"',
    )
    tree.with_change(
        "Cargo.lock",
        changed,
        lambda: tree.expect(1, "check", containing="Cargo.lock: the version of"),
    )
    manifest = (tree.root / "Cargo.toml").read_text()
    changed = manifest.replace(f'version = "{version}"', f'version = "{other}"', 1)

    def all_others() -> None:
        output = tree.expect(1, "check")
        if silent := [
            file for file in CARRIERS - {"Cargo.toml"} if f"{file}: " not in output
        ]:
            raise StepFailure(
                f"Cargo.toml has another version, and these are not reported: {sorted(silent)}"
            )

    tree.with_change("Cargo.toml", changed, all_others)


def every_name_is_guarded(tree: CopiedTree) -> None:
    for file, right, wrong in NAMES:
        text = (tree.root / file).read_text(encoding="utf-8")
        if right not in text:
            raise StepFailure(f"{file} does not have `{right}`")
        part = "should be" if file == "Cargo.toml" else f"{file}: "
        check = lambda part=part: tree.expect(1, "check", containing=part)
        tree.with_change(file, text.replace(right, wrong, 1), check)


def missing_files_are_reported(tree: CopiedTree) -> None:
    for file in sorted(
        CARRIERS | {"pyproject.toml", ".claude-plugin/marketplace.json"}
    ):
        moved = tree.root / "moved"
        (tree.root / file).rename(moved)
        try:
            tree.expect(1, "check", containing=f"{file}: there is no such file")
        finally:
            moved.rename(tree.root / file)


def tags(tree: CopiedTree, version: str) -> None:
    tree.expect(1, "check", "--tag", "v9.9.9", containing=f"needs v{version}")
    tree.expect(1, "check", "--tag", version, containing=f"needs v{version}")
    changelog = "# Changelog\n\n## Unreleased\n\n### Added\n\n- News.\n"

    def unreleased() -> None:
        tree.expect(
            1, "check", "--tag", f"v{version}", containing="CHANGELOG.md: no section"
        )
        tree.expect(1, "notes", containing="CHANGELOG.md: no section")

    def released() -> None:
        tree.expect(0, "check", "--tag", f"v{version}")
        if (found := tree.expect(0, "notes")) != "### Added\n\n- News.\n":
            raise StepFailure(f"the notes are {found!r}")

    tree.with_change("CHANGELOG.md", changelog, unreleased)
    dated = (
        changelog.replace("Unreleased\n", f"Unreleased\n\n## {version} - 2026-01-31\n")
        + "\n## 0.0.1 - 2025-01-01\n"
    )
    tree.with_change("CHANGELOG.md", dated, released)


def setting(tree: CopiedTree, version: str) -> None:
    for wrong in ["1.2", "v1.2.3", "1.2.3-rc.1", "1.2.3 "]:
        tree.expect(1, "set", wrong, containing="is no version: three numbers")
    new = "7.81.9"
    tree.expect(0, "set", new)
    tree.expect(0, "check", "--tag", f"v{new}")
    tree.expect(0, "show", containing=new)
    left = [
        f"{file}: {line}"
        for file, _, line in tree.occurrences(version)
        if file not in ["Cargo.lock"]
    ]
    if left:
        raise StepFailure("the old version is left in " + "; ".join(left))
    # cargo would write a lock that is wrong anew, if it may, and not take it under `--locked`.
    command = [
        "cargo",
        "pkgid",
        "--offline",
        "--locked",
        "--manifest-path",
        str(tree.root / "Cargo.toml"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not done.stdout.strip().endswith(f"@{new}"):
        raise StepFailure(f"cargo says {done.stdout}{done.stderr}")
    tree.expect(0, "set", version)
    tree.expect(0, "check")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, default=ROOT)
    root = parser.parse_args().root.resolve()
    steps = Steps()
    with tempfile.TemporaryDirectory(prefix="ipybox-versions-") as directory:
        tree = CopiedTree(root, Path(directory))
        version = tree.run("show")[1].strip()
        steps.step("all versions and names agree", tree.expect, 0, "check")
        steps.step(
            "another version is noticed at every place",
            every_place_is_guarded,
            tree,
            version,
        )
        steps.step(
            "another name is noticed at every place", every_name_is_guarded, tree
        )
        steps.step(
            "a file that is missing is reported", missing_files_are_reported, tree
        )
        steps.step(
            "a tag needs its version, and a section of the changelog",
            tags,
            tree,
            version,
        )
        steps.step(
            "setting a version leaves nothing of the old one", setting, tree, version
        )
    steps.end()


if __name__ == "__main__":
    main()
