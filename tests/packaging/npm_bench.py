"""The packages that the steps of npm.py work with, built from the repository, the environment of a new user, and processes."""

import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

import npm_programs as programs
from report import expect

REPOSITORY = Path(__file__).resolve().parents[2]
WRAPPER = REPOSITORY / "npm-wrapper"
VERSION = json.loads((WRAPPER / "package.json").read_text())["version"]

TARGETS = {
    "linux-x64": "x86_64-unknown-linux-gnu",
    "linux-arm64": "aarch64-unknown-linux-gnu",
    "linux-x64-musl": "x86_64-unknown-linux-musl",
    "linux-arm64-musl": "aarch64-unknown-linux-musl",
    "darwin-x64": "x86_64-apple-darwin",
    "darwin-arm64": "aarch64-apple-darwin",
}

COMMAND_DEADLINE_SECS = 900

CPU = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}[
    platform.machine().lower()
]
HERE = f"{sys.platform}-{CPU}"
"""The platform of this machine, as packages are called; Linux's is the one for glibc."""


def shown(done):
    """A command that ended, for a message."""
    return (
        f"{done.args}\nended with {done.returncode}\nstdout: {done.stdout}\n"
        f"stderr: {done.stderr}"
    )


def fake_binary(name):
    """A program that looks as if it were for the platform."""
    system, cpu = name.split("-")[:2]
    if system == "darwin":
        return programs.mach_o(cpu)
    return (
        programs.static_elf(cpu) if name.endswith("-musl") else programs.glibc_elf(cpu)
    )


def npm_beside(bin_dir):
    """The directory of npm's programs: of the `npm` there, of the one that came with node, or of the one on PATH."""
    beside_node = (bin_dir / "node").resolve().parents[1] / "lib/node_modules/npm/bin"
    places = [(bin_dir / "npm").resolve().parent, beside_node]
    if on_path := shutil.which("npm"):
        places.append(Path(on_path).resolve().parent)
    found = [place for place in places if (place / "npm-cli.js").is_file()]
    expect(found, f"no npm for {bin_dir}/node; looked in {places}")
    return found[0]


class NpmBench:
    """A user's home, with Node.js on PATH and nothing of this machine's npm."""

    def __init__(self, scratch, options):
        self.scratch = scratch
        self.options = options
        self.home = self.directory("home")
        self.node_dir = self.directory("node")
        self._link_node(Path(options.node_bin))
        self.env = {
            "HOME": str(self.home),
            "PATH": f"{self.node_dir}:/usr/local/bin:/usr/bin:/bin",
            "IPYBOX_STATE_DIR": str(self.directory("state")),
            "TMPDIR": str(self.directory("tmp")),
            "LANG": "C.UTF-8",
        }
        self.tarballs = {}

    def directory(self, name):
        """A fresh directory; its name is made unique."""
        for number in range(1000):
            path = self.scratch / (f"{name}-{number}" if number else name)
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                return path
        raise AssertionError(f"too many directories {name}")

    def _link_node(self, bin_dir):
        npm = npm_beside(bin_dir)
        (self.node_dir / "node").symlink_to((bin_dir / "node").resolve())
        (self.node_dir / "npm").symlink_to(npm / "npm-cli.js")
        (self.node_dir / "npx").symlink_to(npm / "npx-cli.js")

    def use_registry(self, url):
        """Names the registry that npm asks, and a place for global packages: npx looks there first."""
        place = self.home / "global"
        (place / "lib").mkdir(parents=True, exist_ok=True)
        quiet = "audit=false\nfund=false\nupdate-notifier=false\n"
        (self.home / ".npmrc").write_text(f"registry={url}\nprefix={place}\n{quiet}")

    def forget_cache(self):
        """Lets npm and npx begin as on a new machine."""
        shutil.rmtree(self.home / ".npm", ignore_errors=True)

    def run(self, *command, code=0, cwd=None, env=None):
        """Runs a command to its end and expects its exit code."""
        done = subprocess.run(
            [str(part) for part in command],
            cwd=cwd or self.home,
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_DEADLINE_SECS,
            check=False,
        )
        if code is not None:
            expect(done.returncode == code, f"expected {code}: {shown(done)}")
        return done

    def start(self, *command, **options):
        """Starts a command with a pipe to its stdin and from its stdout."""
        return subprocess.Popen(
            [str(part) for part in command],
            cwd=self.home,
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            **options,
        )

    def platform_package(self, name, binary, *options, code=0):
        """Has platform.mjs write the package for a platform around a binary, which is a path or bytes."""
        if isinstance(binary, bytes):
            path = self.directory("binary") / "ipybox"
            path.write_bytes(binary)
            binary = path
        target = TARGETS.get(name, name)
        out = self.directory("packages")
        return self.run(
            "node",
            WRAPPER / "platform.mjs",
            *["--target", target, "--binary", binary, "--out", out, *options],
            code=code,
        )

    def pack(self, directories):
        """Packs directories as npm publishes them; gives the tarballs by the same names."""
        out = self.directory("tarballs")
        command = ["npm", "pack", "--silent", "--pack-destination", out]
        self.run(*command, *directories.values())
        tarballs = {}
        for name in directories:
            scope = "" if name == "ipybox" else "ipybox-rs-"
            tarballs[name] = out / f"{scope}{name}-{VERSION}.tgz"
            expect(tarballs[name].is_file(), f"{name}: packed {list(out.iterdir())}")
        return tarballs

    def installed(self, *names):
        """A prefix in which the wrapper and the packages for some platforms lie, unpacked from their tarballs."""
        prefix = self.directory("prefix")
        root = prefix / "node_modules"
        places = {"ipybox": root / "ipybox"}
        places |= {name: root / "@ipybox-rs" / name for name in names}
        for name, place in places.items():
            place.mkdir(parents=True)
            shutil.unpack_archive(self.tarballs[name], place.parent / "unpacked")
            (place.parent / "unpacked/package").rename(
                place.parent / f"{place.name}.new"
            )
            place.rmdir()
            (place.parent / f"{place.name}.new").rename(place)
            (place.parent / "unpacked").rmdir()
        return prefix

    def with_program(self, text):
        """A prefix whose package for this machine has a script for a binary; gives the launcher."""
        prefix = self.installed(HERE)
        binary = prefix / "node_modules/@ipybox-rs" / HERE / "bin/ipybox"
        binary.write_text(text)
        return prefix / "node_modules/ipybox/bin/ipybox.js"


def platforms_in(prefix):
    """The platform packages that are installed below a prefix."""
    return sorted(path.name for path in prefix.glob("node_modules/@ipybox-rs/*"))


def processes():
    """Each process that runs, zombies aside: its parent by its id."""
    lines = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat="],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    rows = [line.split() for line in lines]
    return {int(pid): int(parent) for pid, parent, stat in rows if stat[0] != "Z"}


def descendants(pid):
    """The processes below one."""
    parents = processes()
    found, wave = [], [pid]
    while wave:
        wave = [child for child, parent in parents.items() if parent in wave]
        found += wave
    return found


def expect_gone(pids, within_secs):
    """Waits until none of the processes is there; ends what stays, so that a failed test leaves nothing."""
    end = time.monotonic() + within_secs
    while left := [pid for pid in pids if pid in processes()]:
        if time.monotonic() > end:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
            raise AssertionError(f"still there after {within_secs} s: {left} of {pids}")
        time.sleep(0.02)
