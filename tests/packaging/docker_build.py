"""`docker-build.sh` with a `docker` that writes down how it is called, and what the Dockerfile says of itself.

No engine is needed, and nothing but Python's standard library. Exit code: 0 all steps passed, 1 some failed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from report import Steps, collected

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "docker-build.sh"
ENGINE = """#!/usr/bin/env python3
import json, os, sys
with open(os.environ["RECORD"], "w") as record:
    json.dump(sys.argv[1:], record)
sys.exit(int(os.environ.get("CODE", "0")))
"""
NEEDED = ["sh", "dirname", "id", "python3", "env"]

steps, step = collected()


def expect(found, wanted):
    """Fails the step unless both are the same."""
    if found != wanted:
        raise AssertionError(f"expected {wanted!r}\n        found {found!r}")


class DockerBuild:
    """A directory with programs of ours, which alone are on PATH."""

    def __init__(self, directory):
        self.directory = directory
        self.programs = directory / "bin"
        self.programs.mkdir()
        for name in NEEDED:
            # The program itself: a version manager's shim needs more than these.
            program = sys.executable if name == "python3" else shutil.which(name)
            (self.programs / name).symlink_to(program)
        self.program("docker", ENGINE)

    def program(self, name, text):
        """Puts a program on PATH."""
        path = self.programs / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def user(self, uid, gid):
        """Has `id` say who we are."""
        self.program(
            "id", f"#!/bin/sh\ncase $1 in -u) echo {uid} ;; -g) echo {gid} ;; esac\n"
        )

    def run(self, *arguments, script=SCRIPT, **variables):
        """Runs the script; gives how it ended and what `docker` was called with, or None."""
        record = self.directory / "record.json"
        record.unlink(missing_ok=True)
        environment = {"PATH": str(self.programs), "RECORD": str(record), **variables}
        ended = subprocess.run(
            [script, *arguments],
            env=environment,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        called = json.loads(record.read_text()) if record.exists() else None
        return ended, called


def call(uid, gid, *rest, context=ROOT):
    """The arguments that `docker` is to be called with."""
    ids = ["--build-arg", f"UID={uid}", "--build-arg", f"GID={gid}"]
    return ["build", *ids, *rest, str(context)]


@step(
    "the image gets the ids of who builds it, a tag, and this repository from anywhere"
)
def ids(place):
    place.user(501, 20)
    ended, called = place.run()
    expect((ended.returncode, ended.stderr), (0, ""))
    expect(called, call(501, 20, "--tag", "ipybox"))


@step("the ids are those of `id`")
def real_ids(place):
    _, called = place.run()
    expect(called[:3], ["build", "--build-arg", f"UID={os.getuid()}"])


@step("arguments are passed on as they are, after ours")
def arguments(place):
    place.user(501, 20)
    given = ["--no-cache", "--label", "a b=c * d", "--build-arg", "UID=7", ""]
    _, called = place.run(*given)
    expect(called, call(501, 20, "--tag", "ipybox", *given))


@step("another tag replaces the default one")
def tags(place):
    place.user(501, 20)
    for given in (["-t", "x"], ["-tx"], ["--tag", "x"], ["--tag=x"]):
        _, called = place.run(*given)
        expect(called, call(501, 20, *given))


@step("what docker ends with, the script ends with")
def code(place):
    ended, _ = place.run(CODE="37")
    expect(ended.returncode, 37)


@step(
    "root is warned that the container will be root; below sudo it is who called sudo"
)
def root(place):
    place.user(0, 0)
    ended, called = place.run()
    expect(called, call(0, 0, "--tag", "ipybox"))
    expect("you are root" in ended.stderr, True)
    ended, called = place.run(SUDO_UID="1234", SUDO_GID="99")
    expect(called, call(1234, 99, "--tag", "ipybox"))
    expect(ended.stderr, "")


@step("sudo's variables mean nothing to other users")
def stale_sudo(place):
    place.user(501, 20)
    _, called = place.run(SUDO_UID="1234", SUDO_GID="99")
    expect(called, call(501, 20, "--tag", "ipybox"))


@step("$DOCKER names another program")
def other_program(place):
    place.user(501, 20)
    (place.programs / "docker").rename(place.programs / "podman")
    _, called = place.run(DOCKER="podman")
    expect(called, call(501, 20, "--tag", "ipybox"))


@step("without docker it says so, and what would help")
def missing(place):
    (place.programs / "docker").unlink()
    ended, called = place.run()
    expect((ended.returncode, called), (1, None))
    expect("there is no program `docker`" in ended.stderr, True)
    expect("hint: install Docker" in ended.stderr, True)


@step("it works in a directory with blanks, called from beside it")
def blanks(place):
    place.user(501, 20)
    directory = place.directory / "a b"
    directory.mkdir()
    script = shutil.copy(SCRIPT, directory)
    _, called = place.run(script=script)
    expect(called, call(501, 20, "--tag", "ipybox", context=directory.resolve()))


def dockerfile():
    """The Dockerfile, with its continued lines joined."""
    return (ROOT / "Dockerfile").read_text().replace("\\\n", " ")


def manifest(pattern):
    """The text that `pattern` finds in Cargo.toml."""
    return re.search(pattern, (ROOT / "Cargo.toml").read_text(), re.MULTILINE).group(1)


@step("every base has a version and a digest, and can be replaced")
def bases(_place):
    pinned = re.findall(r"^ARG (\w+)_IMAGE=(\S+)$", dockerfile(), re.MULTILINE)
    expect(sorted(name for name, _ in pinned), ["DEBIAN", "NODE", "RUST", "UV"])
    for name, image in pinned:
        if not re.fullmatch(r"[a-z/]+:[a-z]*-?\d[\w.-]*@sha256:[0-9a-f]{64}", image):
            raise AssertionError(f"{name}: {image} is not NAME:VERSION@sha256:DIGEST")
    wanted = {f"${{{name}_IMAGE}}" for name, _ in pinned}
    expect(set(re.findall(r"^FROM (\S+)", dockerfile(), re.MULTILINE)), wanted)


@step("Rust is of the version that Cargo.toml asks for")
def rust(_place):
    version = re.search(r"RUST_IMAGE=rust:(\d+\.\d+)\.", dockerfile()).group(1)
    expect(version, manifest(r'^rust-version = "(.+)"'))


@step("the labels say what Cargo.toml says")
def labels(_place):
    found = dict(re.findall(r'([a-z.]+)="([^"]*)"', dockerfile().split("LABEL")[1]))
    image = "org.opencontainers.image."
    expect(found[image + "version"], manifest(r'^version = "(.+)"'))
    expect(found[image + "description"], manifest(r'^description = "(.+)"'))
    expect(found[image + "licenses"], manifest(r'^license = "(.+)"'))
    expect(found[image + "source"], manifest(r'^repository = "(.+)"'))
    expect(found[image + "url"], manifest(r'^homepage = "(.+)"'))
    server = found["io.modelcontextprotocol.server.name"]
    expect(server, manifest(r'^mcp-registry = "(.+)"'))


@step("what the program embeds gets into the build")
def embedded(_place):
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    expect("*" in ignored, True)
    given = [line[1:] for line in ignored if line.startswith("!")]
    for path in given:
        expect((path, (ROOT / path).exists()), (path, True))
    for source in [*(ROOT / "src").rglob("*.rs"), *(ROOT / "crates").rglob("*.rs")]:
        for name in re.findall(r'include_\w+!\("(.+?)"\)', source.read_text()):
            file = (source.parent / name).resolve().relative_to(ROOT)
            # Documentation is embedded in tests only.
            if file.parts[0] in ("docs", "README.md"):
                continue
            if not any(file.is_relative_to(path) for path in given):
                raise AssertionError(f"{source}: {file} is not in .dockerignore")


def main():
    """Runs the steps, each in a place of its own."""
    run = Steps()
    for sentence, function in steps:
        with tempfile.TemporaryDirectory(prefix="ipybox-") as directory:
            build = DockerBuild(Path(directory).resolve())
            run.step(sentence, function, build)
    run.end()


main()
