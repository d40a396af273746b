"""The scripts that make and publish a release, from a built binary of this machine.

    tests/packaging/release.py --binary target/release/ipybox --tools target/test-tools

Archives, what `assemble.py` makes of a wheel, and the session of `smoke.py` are tried for real. `publish.py` publishes
by the real npm to a registry on loopback, and by stand-ins for cargo, gh, docker and mcp-publisher, which keep what
they are given and answer as the real ones do.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from release_stand_ins import PROGRAM, StandInRegistry
from report import Steps, expect

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGING = ROOT / "packaging"
TARGET = f"{'aarch64' if platform.machine() in ['aarch64', 'arm64'] else 'x86_64'}-unknown-linux-gnu"


def run(script: str, *words: object, status: int = 0, **variables: str) -> str:
    command = [sys.executable, str(PACKAGING / script), *map(str, words)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        check=False,
    )
    output = done.stdout + done.stderr
    expect(
        done.returncode == status,
        f"exit status {done.returncode} of {script} {words}: {output}",
    )
    expect("Traceback" not in output, output)
    return output


def version() -> str:
    return run("version.py", "show").strip()


# Archives


def archives(binary: Path, directory: Path) -> None:
    first, second = directory / "first", directory / "second"
    run(
        "archive.py",
        "make",
        "--target",
        TARGET,
        "--binary",
        binary,
        "--out",
        first,
        "--any-glibc",
    )
    run(
        "archive.py",
        "make",
        "--target",
        TARGET,
        "--binary",
        binary,
        "--out",
        second,
        "--any-glibc",
    )
    file = first / f"ipybox-{TARGET}.tar.gz"
    expect(
        file.read_bytes() == (second / file.name).read_bytes(),
        "two archives of the same program differ",
    )
    subprocess.run(["tar", "-xzf", file, "-C", directory], check=True)
    unpacked = directory / f"ipybox-{TARGET}"
    expect(
        sorted(os.listdir(unpacked)) == ["LICENSE", "README.md", "ipybox"],
        os.listdir(unpacked),
    )
    said = subprocess.run(
        [unpacked / "ipybox", "--version"], check=True, capture_output=True, text=True
    ).stdout
    expect(said == f"ipybox {version()}\n", said)


def refusals(binary: Path, directory: Path) -> None:
    other = (
        TARGET.replace("x86_64", "other")
        .replace("aarch64", "x86_64")
        .replace("other", "aarch64")
    )
    script = directory / "script"
    script.write_text("#!/bin/sh\n")
    # A Mach-O header for ARM, and nothing else.
    apple = directory / "apple"
    apple.write_bytes(bytes.fromhex("cffaedfe0c000001") + bytes(56))
    cases = [
        (other, binary, f"but {other} needs"),
        (TARGET.replace("gnu", "musl"), binary, "must be static"),
        (TARGET.replace("unknown-linux-gnu", "apple-darwin"), binary, "is for linux"),
        (TARGET, script, "neither an ELF nor a Mach-O program"),
        ("aarch64-unknown-linux-gnu", apple, "is for darwin"),
        (TARGET, directory / "nothing", "No such file"),
    ]
    for target, program, complaint in cases:
        output = run(
            "archive.py",
            "check",
            "--target",
            target,
            "--binary",
            program,
            "--any-glibc",
            status=1,
        )
        expect(complaint in output, output)
    run("archive.py", "check", "--target", "aarch64-apple-darwin", "--binary", apple)
    # That of a Linux newer than CentOS 7 needs a newer glibc, unless it was linked for the old one.
    newer = directory / "newer"
    newer.write_bytes(binary.read_bytes() + b"\0GLIBC_2.38\0")
    output = run("archive.py", "check", "--target", TARGET, "--binary", newer, status=1)
    expect("needs glibc 2.38" in output, output)


def checksums(directory: Path) -> None:
    output = run("archive.py", "checksums", directory, status=1)
    expect("lacks ipybox-x86_64-unknown-linux-musl.tar.gz" in output, output)
    for target in [
        "x86_64-unknown-linux-musl",
        "aarch64-unknown-linux-musl",
        "x86_64-apple-darwin",
        "aarch64-apple-darwin",
    ]:
        (directory / f"ipybox-{target}.tar.gz").write_text(target)
    run("archive.py", "checksums", directory)
    subprocess.run(
        ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"],
        cwd=directory,
        check=True,
    )
    expect(
        len((directory / "SHA256SUMS").read_text().splitlines()) == 4,
        "not a line for each file",
    )


# What comes out of the wheels


def without_interpreter(binary: Path, directory: Path) -> Path:
    """A file that looks like a static program: the header that asks for a dynamic linker is no header any more."""
    program = bytearray(binary.read_bytes())
    headers = int.from_bytes(program[32:40], "little")
    size, count = (int.from_bytes(program[at : at + 2], "little") for at in [54, 56])
    for at in range(headers, headers + size * count, size):
        if int.from_bytes(program[at : at + 4], "little") == 3:
            program[at : at + 4] = bytes(4)
    path = directory / "static"
    path.write_bytes(program)
    return path


def wheel(binary: Path, directory: Path, system: str = "linux") -> Path:
    number = version()
    tag = f"{system}_{TARGET.split('-')[0]}"
    file = directory / f"ipybox_rs-{number}-py3-none-{tag}.whl"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as packed:
        packed.write(binary, f"ipybox_rs-{number}.data/scripts/ipybox")
    return file


def assembled(binary: Path, directory: Path, mcpb: list[object]) -> None:
    wheels, out = directory / "wheels", directory / "out"
    wheels.mkdir()
    output = run(
        "assemble.py", "--wheels", wheels, "--out", out, "--targets", TARGET, status=1
    )
    expect("must have one wheel" in output and "has nothing" in output, output)
    wheel(binary, wheels)
    output = run(
        "assemble.py", "--wheels", wheels, "--out", out, "--targets", TARGET, status=1
    )
    expect(
        "must have one wheel" in output,
        f"a wheel for this machine alone is no manylinux wheel: {output}",
    )
    static = TARGET.replace("gnu", "musl")
    wheel(without_interpreter(binary, directory), wheels, "musllinux_1_2")
    both = f"{TARGET},{static}"
    run(
        "assemble.py",
        "--wheels",
        wheels,
        "--out",
        out,
        "--targets",
        both,
        "--any-glibc",
        *mcpb,
    )
    program = out / "bin" / TARGET / "ipybox"
    expect(
        program.read_bytes() == binary.read_bytes(),
        "the program is not that of the wheel",
    )
    machine = "arm64" if TARGET.startswith("aarch64") else "x64"
    ends = [f"{machine}-{version()}", f"{machine}-musl-{version()}"]
    names = [f"ipybox-{version()}.tgz", *(f"ipybox-rs-linux-{end}.tgz" for end in ends)]
    packages = sorted(path.name for path in (out / "npm").iterdir())
    expect(packages == names, packages)
    bundle = out / f"release/ipybox-linux-{machine}.mcpb"
    files = sorted(path.name for path in (out / "release").iterdir())
    expect(files == ["SHA256SUMS", bundle.name, f"ipybox-{static}.tar.gz"], files)
    entry = json.loads((out / "server.json").read_text())["packages"][-1]
    expect(
        entry["fileSha256"] == hashlib.sha256(bundle.read_bytes()).hexdigest(), entry
    )
    expect(
        entry["identifier"].endswith(f"/releases/download/v{version()}/{bundle.name}"),
        entry,
    )
    image = out / "image" / machine.replace("x64", "amd64") / "out/ipybox"
    expect(
        os.access(image, os.X_OK) and image.read_bytes() == binary.read_bytes(),
        "the image would get another program",
    )
    output = run(
        "assemble.py",
        "--wheels",
        wheels,
        "--out",
        out,
        "--targets",
        TARGET,
        "--any-glibc",
        status=1,
    )
    expect("is not empty" in output, output)


# Publishing


def packed(directory: Path, name: str, **more: object) -> None:
    manifest = json.dumps({"name": name, "version": "1.2.3", **more}).encode()
    with tarfile.open(
        directory / f"{name.replace('/', '-').strip('@')}.tgz", "w:gz"
    ) as archive:
        entry = tarfile.TarInfo("package/package.json")
        entry.size = len(manifest)
        archive.addfile(entry, io.BytesIO(manifest))


class StandIn:
    """The programs that publish, and what they were asked."""

    def __init__(self, directory: Path) -> None:
        programs = directory / "programs"
        programs.mkdir()
        (directory / "published").touch()
        for name in ["cargo", "gh", "docker", "mcp-publisher"]:
            path = programs / name
            path.write_text(f"#!{sys.executable}\n{PROGRAM}")
            path.chmod(0o755)
        self.directory = directory
        self.variables = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "STAND_IN": str(directory),
            "VERSION": version(),
        }

    def publish(
        self, *words: object, status: int = 0, **variables: str
    ) -> tuple[str, list[str]]:
        (self.directory / "calls").write_text("")
        output = run("publish.py", *words, status=status, **self.variables, **variables)
        changes = ("publish", "create", "upload", "edit")
        calls = (self.directory / "calls").read_text().splitlines()
        return output, [
            call for call in calls if any(word in call.split() for word in changes)
        ]


def npm_publishing(directory: Path) -> None:
    registry = StandInRegistry(directory)

    def publish(*words: object, status: int = 0) -> tuple[str, list[str]]:
        before = len(registry.published)
        output = run("publish.py", "npm", *words, status=status, **registry.variables)
        return output, registry.published[before:]

    packages = directory / "packages"
    packages.mkdir()
    output, _ = publish(packages, status=1)
    expect("has no packed packages" in output, output)
    platforms = {"@scope/one": "1.2.3", "@scope/two": "1.2.3"}
    # Its file's name comes first, but it is to be published last.
    packed(packages, "all", optionalDependencies=platforms)
    packed(packages, "@scope/one")
    output, published = publish(packages, status=1)
    expect("depends on @scope/two" in output and not published, output)
    # As in a release that fails half-way, and is run again.
    rest = (packages / "all.tgz").rename(directory / "all.tgz")
    output, published = publish(packages, "--dry-run")
    expect(not published and "$ npm publish" in output, output)
    _, published = publish(packages)
    expect(published == ["@scope/one"], published)
    packed(packages, "@scope/two")
    rest.rename(packages / "all.tgz")
    output, published = publish(packages)
    expect(
        published == ["@scope/two", "all"]
        and "@scope/one@1.2.3 is published already\n" in output,
        output,
    )
    packed(packages, "@scope/one", description="of another build")
    output, published = publish(packages)
    expect(
        not published
        and "@scope/one@1.2.3 is published already, from another build" in output,
        output,
    )
    expect(output.count("is published already\n") == 2, output)
    registry.broken = True
    output, published = publish(packages, status=1)
    expect("cannot learn whether" in output and not published, output)
    registry.shutdown()
    registry.server_close()


def crate_publishing(directory: Path) -> None:
    stand_in = StandIn(directory)
    output, calls = stand_in.publish("crate", status=1, STAND_IN_BROKEN="1")
    expect("cannot learn whether" in output and not calls, output)
    _, calls = stand_in.publish("crate", "--dry-run")
    publishing = "cargo publish --locked --package ipybox-codegen --package ipybox-team --package ipybox"
    expect(calls == [f"{publishing} --dry-run"], calls)
    _, calls = stand_in.publish("crate")
    expect(calls == [publishing], calls)
    output, calls = stand_in.publish("crate")
    expect(not calls and "is published already" in output, output)


def forge_release(directory: Path) -> None:
    stand_in = StandIn(directory)
    files, notes = directory / "files", directory / "notes"
    files.mkdir()
    notes.write_text("notes")
    output, _ = stand_in.publish("release", "v1.2.3", files, "--notes", notes, status=1)
    expect("no files" in output, output)
    (files / "a").touch()
    output, calls = stand_in.publish(
        "release", "v1.2.3", files, "--notes", notes, status=1, STAND_IN_BROKEN="1"
    )
    expect("cannot learn whether" in output and not calls, output)
    (stand_in.directory / "published").write_text("v1.2.3\tdraft\n")
    _, calls = stand_in.publish("release", "v1.2.3", files, "--notes", notes)
    expect(
        [call.split()[2] for call in calls] == ["upload", "edit"],
        f"a draft is completed: {calls}",
    )
    output, calls = stand_in.publish("release", "v1.2.3", files, "--notes", notes)
    expect(not calls and "released already" in output, output)
    (stand_in.directory / "published").write_text("")
    _, calls = stand_in.publish("release", "v1.2.3", files, "--notes", notes)
    expect([call.split()[2] for call in calls] == ["create", "upload", "edit"], calls)
    expect(
        "--draft" in calls[0].split() and "--verify-tag" in calls[0].split(), calls[0]
    )


def image_tagging(directory: Path) -> None:
    stand_in = StandIn(directory)
    digests = directory / "digests"
    digests.mkdir()
    one, two = (hashlib.sha256(text).hexdigest() for text in [b"1", b"2"])
    (digests / one).touch()
    output, _ = stand_in.publish("image", digests, status=1)
    expect("each of the two machines" in output, output)
    (digests / two).touch()
    _, calls = stand_in.publish("image", digests)
    images = " ".join(
        f"ipyboxrs/ipybox@sha256:{digest}" for digest in sorted([one, two])
    )
    tags = f"--tag ipyboxrs/ipybox:{version()} --tag ipyboxrs/ipybox:latest"
    expect(calls == [f"docker buildx imagetools create {tags} {images}"], calls)
    output, calls = stand_in.publish("image", digests)
    expect(not calls and "published already" in output, output)


def registry_publishing(directory: Path) -> None:
    stand_in = StandIn(directory)
    output, _ = stand_in.publish(
        "registry", "server.json", status=1, STAND_IN_BROKEN="1"
    )
    expect("connection refused" in output, output)
    stand_in.publish("registry", "server.json")
    output, _ = stand_in.publish("registry", "server.json")
    expect("published already" in output, output)


# Sessions


def smoke(binary: Path, tools: Path) -> None:
    command = [binary, "--python", tools / "kernel/bin/python"]
    output = run("smoke.py", "--version", version(), "--", *command)
    expect(output.count("ok ") == 9, output)
    output = run("smoke.py", "--version", "9.9.9", "--", *command, status=1)
    expect("FAILED: 'ipybox 9.9.9' is not in" in output, output)
    output = run("smoke.py", "--", binary, "--python", "/bin/false", status=1)
    expect(
        "FAILED: execute_ipython_cell" in output
        or "FAILED: the server ended" in output,
        output,
    )


def container(directory: Path) -> None:
    docker = directory / "docker"
    docker.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    docker.chmod(0o755)
    command = [PACKAGING / "in_container.sh", "image", "--", "target/a program"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "DOCKER": str(docker)},
        check=False,
    )
    words = done.stdout.splitlines()
    expect(
        words[0] == "run"
        and words[-4:] == ["image", "packaging/smoke.py", "--", "target/a program"],
        words,
    )
    expect(f"{ROOT}:/src:ro" in words, words)
    done = subprocess.run(command[:1], capture_output=True, text=True, check=False)
    expect(done.returncode == 2 and "usage" in done.stderr, done)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument(
        "--tools",
        type=Path,
        required=True,
        help="where tests/tools/install has installed",
    )
    parser.add_argument(
        "--mcpb",
        type=Path,
        help="the program of `@anthropic-ai/mcpb`, else npx fetches it",
    )
    parser.add_argument("--only", default="", help="the steps whose names contain this")
    arguments = parser.parse_args()
    binary, tools = arguments.binary.resolve(), arguments.tools.resolve()
    mcpb: list[object] = ["--mcpb", arguments.mcpb] if arguments.mcpb else []
    # The interpreter that runs this may have no npm beside it.
    os.environ["PATH"] = f"{os.environ['PATH']}:{tools / 'bin'}"
    steps: list[tuple[str, Callable[[Path], None]]] = [
        (
            "archives are the same each time, and hold what runs",
            lambda place: archives(binary, place),
        ),
        ("a program of another kind is refused", lambda place: refusals(binary, place)),
        ("checksums are complete and right", checksums),
        ("a release is made of wheels", lambda place: assembled(binary, place, mcpb)),
        ("npm packages are published once, platforms first", npm_publishing),
        ("the crate is published once", crate_publishing),
        ("a release is a draft until it is complete", forge_release),
        ("the image is tagged once both machines' are there", image_tagging),
        ("a server.json is published once", registry_publishing),
        (
            "a session with the program is held, and failures are reported",
            lambda place: smoke(binary, tools),
        ),
        ("a session can be held in a container", container),
    ]
    run_steps = Steps()
    for name, step in steps:
        if arguments.only in name:
            with tempfile.TemporaryDirectory(prefix="ipybox-release-") as place:
                run_steps.step(name, step, Path(place))
    run_steps.end()


if __name__ == "__main__":
    main()
