#!/usr/bin/env python3
"""Measures the time from the first command of each channel to the first answered cell, on a machine that has nothing yet.

    python3 benches/first_minutes.py --binary target/release/ipybox --wheel dist/ipybox_rs-….whl \
        --npm ipybox-….tgz ipybox-rs-linux-x64-….tgz --uv-bin DIR [--cargo] [--rounds 3]

Each round begins with an empty home and empty caches of uv, pip and npm for each channel; the packages come from the
index and registry that these are configured for. Then the same is timed once more for another workspace, with what is
installed and cached by now. The channels alternate, because neither machine nor network is equally fast all the time;
the figures are medians over the rounds, the ratios are to the plain program of the same round.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mcp_session import McpSession

REPOSITORY = Path(__file__).resolve().parents[1]

CODE = "6 * 7"


class EmptyHome:
    """A user's home with nothing in it, and what its programs see of the environment."""

    def __init__(self, directory, path):
        self.directory = directory
        self.workspaces = 0
        # The addresses of the index and the registry, and the certificates, of this machine.
        passed = ("PIP_", "UV_INDEX", "UV_DEFAULT_INDEX", "SSL_", "NODE_EXTRA", "LANG")
        passed += ("HTTP_", "HTTPS_", "NO_PROXY", "http_", "https_", "no_proxy", "npm_")
        self.environment = {k: v for k, v in os.environ.items() if k.startswith(passed)}
        self.environment |= {
            "HOME": str(directory),
            "PATH": path,
            "UV_CACHE_DIR": str(directory / "uv"),
            "UV_PYTHON": os.path.realpath(sys._base_executable),
            "UV_PYTHON_DOWNLOADS": "never",
            "PIP_CACHE_DIR": str(directory / "pip"),
            "npm_config_cache": str(directory / "npm"),
        }

    def run(self, *command, **options):
        """Runs a command to its end."""
        subprocess.run(
            [str(part) for part in command],
            env=self.environment,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=True,
            **options,
        )

    def session(self, begin, *command):
        """The seconds from `begin` until `initialize` and a cell are answered, in a new workspace."""
        self.workspaces += 1
        workspace = self.directory / f"workspace-{self.workspaces}"
        session = McpSession(
            [*command, "--workspace", workspace],
            env=self.environment,
            cwd=self.directory,
            stderr=subprocess.DEVNULL,
        )
        greeted = time.perf_counter() - begin
        answer = session.cell(CODE)
        answered = time.perf_counter() - begin
        if "42" not in answer:
            sys.exit(f"the cell was answered by {answer}")
        session.stop()
        return greeted, answered


class InstallChannels:
    """Ways to get the program. Each installs it in a home and returns the command that starts it."""

    def __init__(self, options):
        self.options = options

    def plain(self, home):
        """the program itself"""
        return [self.options.binary]

    def uvx(self, home):
        """`uvx`"""
        return ["uvx", "--from", self.options.wheel, "ipybox-rs"]

    def uv_tool(self, home):
        """`uv tool install`"""
        home.run("uv", "tool", "install", self.options.wheel)
        return [home.directory / ".local/bin/ipybox-rs"]

    def pip(self, home):
        """`venv` and `pip install`, no uv"""
        home.run(home.environment["UV_PYTHON"], "-m", "venv", "venv")
        home.run("venv/bin/python", "-m", "pip", "install", self.options.wheel)
        return [home.directory / "venv/bin/ipybox-rs"]

    def npx(self, home):
        """`npm install` and `npx`"""
        home.run("npm", "install", *self.options.npm)
        return ["npx", "ipybox"]

    def cargo(self, home):
        """`cargo install`"""
        target = home.directory / "target"
        home.environment |= {"CARGO_TARGET_DIR": str(target)}
        home.environment |= {
            k: os.environ.get(k, str(Path.home() / directory))
            for k, directory in [("RUSTUP_HOME", ".rustup")]
        }
        home.environment["CARGO_HOME"] = str(home.directory / "cargo")
        home.run("cargo", "install", "--locked", "--path", REPOSITORY)
        return [home.directory / "cargo/bin/ipybox"]

    def chosen(self):
        """The ways whose packages the arguments name."""
        yield self.plain
        if self.options.wheel:
            yield from [self.uvx, self.uv_tool, self.pip]
        if self.options.npm:
            yield self.npx
        if self.options.cargo:
            yield self.cargo


def measure(channel, options):
    """Seconds to `initialize` and to the cell with nothing there, and to the cell in the next workspace.

    Those of the processor are of the whole first session.
    """
    system = "/usr/local/bin:/usr/bin:/bin"
    directories = [options.node_bin, options.cargo_bin]
    if channel.__name__ != "pip":
        directories.append(options.uv_bin)
    path = ":".join([*(str(each) for each in directories if each), system])
    with tempfile.TemporaryDirectory(
        prefix="first-", ignore_cleanup_errors=True
    ) as name:
        home = EmptyHome(Path(name).resolve(), path)
        begin, used = time.perf_counter(), processor_time()
        command = channel(home)
        greeted, answered = home.session(begin, *command)
        used = processor_time() - used
        _, again = home.session(time.perf_counter(), *command)
    figures = {
        "initialize": greeted,
        "first cell": answered,
        "processor": used,
        "next workspace": again,
    }
    summary = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in figures.items())
    print(f"{channel.__name__}: {summary}", file=sys.stderr, flush=True)
    return figures


def processor_time():
    """The processor time of all children that have ended. Other work of the machine does not change it."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path, required=True, help="the program")
    parser.add_argument("--wheel", type=Path, help="the wheel with the same program")
    parser.add_argument("--npm", type=Path, nargs=2, help="both tarballs of npm")
    parser.add_argument(
        "--uv-bin", type=Path, required=True, help="where uv and uvx are"
    )
    parser.add_argument("--node-bin", type=Path, help="where node, npm and npx are")
    parser.add_argument("--cargo-bin", type=Path, help="where cargo is")
    parser.add_argument("--cargo", action="store_true", help="also build it: minutes")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for name in ["binary", "wheel", "uv_bin", "node_bin", "cargo_bin"]:
        if path := getattr(options, name):
            setattr(options, name, path.absolute())
    options.npm = options.npm and [path.absolute() for path in options.npm]
    channels = list(InstallChannels(options).chosen())
    rounds = [
        {channel.__name__: measure(channel, options) for channel in channels}
        for _ in range(options.rounds)
    ]
    print(
        "| channel | `initialize` | first cell | ratio | processor time | next workspace |"
    )
    print("|---|---|---|---|---|---|")
    for channel in channels:
        figures = [each[channel.__name__] for each in rounds]
        ratio = statistics.median(
            figure["first cell"] / each["plain"]["first cell"]
            for figure, each in zip(figures, rounds)
        )
        columns = [
            f"{statistics.median(f[key] for f in figures):.2f} s" for key in figures[0]
        ]
        columns.insert(2, f"{ratio:.1f}×")
        print(f"| {channel.__doc__} | {' | '.join(columns)} |")


main()
