"""Fixtures for the tests of the Python library: a workspace each, and no process that outlives its test."""

import asyncio
import contextlib
import gc
import inspect
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from pathlib import Path

import pytest
from kubernetes_cluster import StartedCluster
from support import SECONDS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python"
TOOLS = Path(os.environ.get("IPYBOX_TEST_TOOLS", ROOT / "target/test-tools"))
os.environ.setdefault("IPYBOX_PROGRAM", str(ROOT / "target/debug/ipybox"))
sys.path.insert(0, str(PACKAGE))

BOOT = re.compile(r"(\S+)/boot\.py")
"""The program of a kernel, in the command lines of its processes."""

MARK = "IPYBOX_TEST_OF"
"""The variable that distinguishes the processes of a test from others."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Runs tests that are coroutines."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), 2 * SECONDS))
    return True


class Workspace:
    """A directory of a test, and the processes that work in it or were started from it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.mark = uuid.uuid4().hex

    def processes(self) -> dict[int, str]:
        """Their ids and command lines, without this process."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if entry.name == str(os.getpid()):
                    continue
                if (
                    entry.joinpath("stat").read_text().rpartition(")")[2].split()[0]
                    == "Z"
                ):
                    continue
                inside = os.readlink(entry / "cwd").startswith(str(self.directory))
                marked = (
                    f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes()
                )
                if inside or marked:
                    line = entry.joinpath("cmdline").read_bytes()
                    found[int(entry.name)] = line.replace(b"\0", b" ").decode(
                        errors="replace"
                    )
        return found

    def hosts(self) -> list[int]:
        """The host processes."""
        return [
            number for number, line in self.processes().items() if " json-rpc " in line
        ]

    def kernels(self) -> set[str]:
        """The directories of the kernels, and of what is left of them: a kernel's forks have its own."""
        found = (BOOT.search(line) for line in self.processes().values())
        return {directory.group(1) for directory in found if directory}

    def assert_empty(self) -> None:
        """Waits until no process is left."""
        until = time.monotonic() + SECONDS
        while left := self.processes():
            assert time.monotonic() < until, f"processes are left: {left}"
            time.sleep(0.02)

    def write(self, name: str, text: str) -> Path:
        """Writes a file."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def command(self, code: str, *options: str) -> list[str]:
        """The command that runs an application with this code."""
        return [sys.executable, *options, str(self.write("application.py", code))]

    def run(self, code: str, *options: str, **more):
        """Runs an application to its end."""
        more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        return subprocess.run(
            self.command(code, *options),
            text=True,
            timeout=2 * SECONDS,
            check=False,
            **more,
        )

    def start(self, code: str, *options: str) -> "StartedApplication":
        """Starts an application."""
        return StartedApplication(self.command(code, *options))


class StartedApplication:
    """A running application in a process group of its own."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, line: str) -> None:
        """Waits until it prints a line."""
        for printed in self.process.stdout:
            if printed.strip() == line:
                return
        raise AssertionError(f"it never printed {line!r}: {self.process.stderr.read()}")

    def interrupt(self) -> None:
        """Does as Ctrl-C does: every process of the group gets the signal."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> tuple[int, str, str]:
        """Waits for its end. Its status and what it printed."""
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, out, err


@pytest.fixture(autouse=True)
def workspace(tmp_path_factory, monkeypatch):
    """A directory of its own, which is the current one; no process is left in it afterwards."""
    directory = tmp_path_factory.mktemp("workspace").resolve()
    # Not below the workspace, so that its programs are no processes of it.
    state = tmp_path_factory.mktemp("state")
    made = Workspace(directory)
    monkeypatch.chdir(directory)
    monkeypatch.setenv("IPYBOX_STATE_DIR", str(state))
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))
    monkeypatch.setenv(MARK, made.mark)
    yield made
    # A test that has failed may have left a cycle.
    gc.collect()
    made.assert_empty()


@pytest.fixture
def probe():
    """The parameters of an MCP server whose tools answer, fail and stall."""
    python = TOOLS / "mcp1/bin/python"
    script = str(ROOT / "tests/servers/probe.py")
    return {"command": str(python), "args": [script], "timeout": SECONDS}


@pytest.fixture
def cluster(workspace):
    """A server of Kubernetes."""
    started = StartedCluster(workspace.directory)
    yield started
    if started.process.poll() is None:
        started.end()
