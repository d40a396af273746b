"""The wheel as its users have it: built, looked into, run by uvx, installed by uv and pip, spoken to by a client.

Run it with a Python that has an MCP SDK. Give it a wheel, or a maturin that makes one from this repository in the dev
profile, in Cargo's own target directory. Exit code: 0 all steps passed, 1 some failed, 2 wrong usage. The packages that
the wheel depends on come from the package index.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from report import Steps, expect, run
from wheel_file import REPOSITORY, Wheel, library_files

sys.path.insert(0, str(REPOSITORY / "tests/clients"))
import session

INSTALL_SECS = 900
"""The longest time of an installation that downloads its requirements."""
BUILD_SECS = 3_600
"""The longest time of a build that finds nothing built before."""
END_SECS = 300
"""The longest time that a session takes to end, on a machine that has much to do."""

APPLICATION = Path(__file__).with_name("application.py")

WHERE = "import sys; print([sys.prefix, sys.base_prefix, sys.version_info[:3]])"


class WheelBench:
    """A user's home, in which nothing is installed yet."""

    def __init__(self, scratch, options):
        self.scratch = scratch
        self.options = options
        self.python = os.path.realpath(sys._base_executable)
        self.rooms = 0
        self.log = (scratch / "log").open("a+")
        home = self.room("home")
        own = {
            "HOME": str(home),
            "PATH": f"{options.uv_bin}:/usr/local/bin:/usr/bin:/bin",
            "UV_CACHE_DIR": str(scratch / "cache"),
            "UV_TOOL_DIR": str(home / "tools"),
            "UV_TOOL_BIN_DIR": str(home / "bin"),
            "UV_PYTHON": self.python,
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_NO_PROGRESS": "1",
        }
        # As they are: where this machine's package index and certificates are.
        passed = ("PIP_", "UV_", "SSL_", "HTTP_", "HTTPS_", "http_", "https_", "LANG")
        outer = {k: v for k, v in os.environ.items() if k.startswith(passed)}
        os.environ.clear()
        os.environ.update(outer | own)
        for name in ["XDG_DATA_HOME", "UV_OFFLINE", "UV_FIND_LINKS"]:
            os.environ.pop(name, None)

    def room(self, name):
        """A fresh directory."""
        self.rooms += 1
        directory = self.scratch / f"{name}-{self.rooms}"
        directory.mkdir()
        return directory

    def uvx(self):
        """The command that runs what the wheel holds."""
        return ["uvx", "--from", self.wheel.path]


def make(bench):
    """Builds the wheel, if none was given."""
    wheel = bench.options.wheel
    if not wheel:
        out = bench.room("out")
        command = [bench.options.maturin, "build", "--profile", "dev", "--out", out]
        run(command, cwd=REPOSITORY, env=bench.outer, timeout=BUILD_SECS)
        (wheel,) = out.iterdir()
    bench.wheel = Wheel(wheel)


def source(bench):
    """The source distribution holds what the crate does, and what makes a wheel of it."""
    out = bench.room("out")
    command = [bench.options.maturin, "sdist", "--out", out]
    run(command, cwd=REPOSITORY, env=bench.outer)
    (path,) = out.iterdir()
    stem = f"ipybox_rs-{bench.wheel.version}"
    expect(path.name == f"{stem}.tar.gz", f"it is called {path.name}")
    with tarfile.open(path) as archive:
        names = {name.removeprefix(f"{stem}/") for name in archive.getnames()}
    listing = ["cargo", "package", "--list", "--locked", "--allow-dirty", "--quiet"]
    done = subprocess.run(
        listing,
        cwd=REPOSITORY,
        env=bench.outer,
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    right = set(done.stdout.split()) - {".cargo_vcs_info.json", "Cargo.toml.orig"}
    right |= {"PKG-INFO", "pyproject.toml"}
    right |= {
        ".cargo/config.toml",
        "packaging/wheel/README.md",
        "packaging/wheel/backend.py",
        "packaging/wheel/data/scripts/ipybox-rs",
    }
    right |= {f"python/{name}" for name in library_files()}
    expect(names == right, f"too much or too little: {sorted(names ^ right)}")


def check_version(command, bench):
    """Runs a command that prints its version."""
    output = run([*command, "--version"], timeout=INSTALL_SECS)
    # uv reports what it installs, here too.
    line = output.strip().splitlines()[-1]
    expect(line == f"ipybox {bench.wheel.version}", f"it says {output!r}")


def both_commands(bench):
    """`uvx --from WHEEL` runs either name, and an error of ours is its exit code."""
    for name in ["ipybox-rs", "ipybox"]:
        check_version([*bench.uvx(), name], bench)
    wrong = [*bench.uvx(), "ipybox-rs", "--no-such-flag"]
    done = subprocess.run(
        wrong, check=False, capture_output=True, stdin=subprocess.DEVNULL
    )
    expect(done.returncode == 2, f"a wrong flag ended with {done.returncode}")


def files_below(directory):
    """The files below a directory: names, sizes and times. A changed file has another time, or it was changed back."""
    found = {}
    for path in Path(directory).rglob("*"):
        status = path.lstat()
        found[str(path)] = (status.st_size, status.st_mtime_ns, status.st_mode)
    return found


def own_environment(bench):
    """The environment that uvx made for the wheel, and the Python that it is made from."""
    output = run([*bench.uvx(), "python", "-I", "-B", "-c", WHERE])
    prefix, base, version = re.search(
        r"\['(.*?)', '(.*?)', (.*?)\]", output.splitlines()[-1]
    ).groups()
    return Path(prefix), base, version


def readme_entry(bench, workspace):
    """The command of the README's entry for clients."""
    readme = (REPOSITORY / "packaging/wheel/README.md").read_text()
    (block,) = re.findall(r"```json\n(.*?)```", readme, re.DOTALL)
    configured = json.loads(block)["mcpServers"]["ipybox"]
    args = [
        one.replace("/path/to/workspace", str(workspace)) for one in configured["args"]
    ]
    expect(str(workspace) in args, f"the entry has no workspace: {args}")
    return [configured["command"], *args]


async def cell(server, code):
    """Runs a cell that must succeed."""
    outcome = await server.cell(code)
    expect(not outcome.is_error, outcome.text)
    return outcome.text


async def call(server, tool, arguments=None):
    """Calls a tool that must succeed."""
    outcome = await server.call(tool, arguments)
    expect(not outcome.is_error, outcome.text)
    return outcome.text


async def converse(bench, workspace):
    """A session as an agent has it; nothing but the index of `--find-links` knows our wheel."""
    command = readme_entry(bench, workspace)
    begin = time.monotonic()
    async with session.connect(command, log=bench.log) as server:
        greeted = time.monotonic() - begin
        where = await cell(server, WHERE)
        answered = time.monotonic() - begin
        params = {
            "command": bench.options.time_server,
            "args": ["--local-timezone=UTC"],
        }
        registration = {"server_name": "time", "server_params": params}
        modules = await call(server, "register_mcp_server", registration)
        expect("convert_time" in modules, modules)
        text = await cell(
            server,
            "from mcptools.time import convert_time\n"
            "print(convert_time.run(source_timezone='UTC', time='12:00', target_timezone='Asia/Tokyo'))",
        )
        expect("21:00:00+09:00" in text, text)
        await call(server, "reset")
        text = await cell(server, "'convert_time' in globals()")
        expect("False" in text, text)
    print(
        f"             initialize after {greeted:.2f} s, a cell after {answered:.2f} s"
    )
    return where


def entry(bench):
    """The README's entry works without a network, and nothing happens to uvx's own environment."""
    os.environ["UV_FIND_LINKS"] = str(bench.wheel.path.parent)
    run(["uvx", "ipybox-rs", "--version"], timeout=INSTALL_SECS)
    prefix, base, version = own_environment(bench)
    before = files_below(prefix)
    expect(
        any(name.endswith("/bin/ipybox") for name in before), f"no wheel in {prefix}"
    )
    # The packages of the workspace's environment are in uv's cache already.
    os.environ["UV_OFFLINE"] = "1"
    try:
        workspace = bench.room("workspace")
        where = asyncio.run(converse(bench, workspace))
    finally:
        del os.environ["UV_OFFLINE"], os.environ["UV_FIND_LINKS"]
    expect(
        f"'{base}', {version}" in where, f"uvx's Python is {base}, the kernel's {where}"
    )
    expect(str(prefix) not in where, f"the kernel runs in {prefix}")
    after = files_below(prefix)
    changed = {name for name, _ in before.items() ^ after.items()}
    expect(not changed, f"changed in uvx's environment: {sorted(changed)}")


def children(pid):
    """All processes below one, whichever of its threads has started them."""
    below = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in listed.read_text().split():
                below += [int(child), *children(int(child))]
    return below


def is_there(pid):
    """True if a process runs."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    return False


def ended(bench, number, closes_input):
    """Starts a session with a kernel, sends a signal to uvx, and waits for the end of all below it."""
    workspace = bench.room("workspace")
    command = [*bench.uvx(), "ipybox-rs", "--workspace", workspace]
    command += ["--python", bench.options.kernel_python]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        requests = [
            (
                "initialize",
                {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": {"name": "test", "version": "1"},
                },
            ),
            (
                "tools/call",
                {"name": "execute_ipython_cell", "arguments": {"code": "1"}},
            ),
        ]
        for identifier, (method, params) in enumerate(requests):
            message = {"jsonrpc": "2.0", "id": identifier, "method": method}
            process.stdin.write(json.dumps(message | {"params": params}) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            expect("result" in answer, f"the answer is {answer}")
        below = children(process.pid)
        expect(len(below) >= 2, f"there are no ipybox and kernel: {below}")
        process.send_signal(number)
        if closes_input:
            process.stdin.close()
        code = process.wait(END_SECS)
        deadline = time.monotonic() + END_SECS
        while left := [pid for pid in below if is_there(pid)]:
            expect(time.monotonic() < deadline, f"{number.name} left {left}")
            time.sleep(0.02)
        return code
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in [process.stdin, process.stdout]:
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def signals(bench):
    """SIGTERM and SIGINT end a session below uvx; if uvx is killed, the end of input does."""
    ended(bench, signal.SIGTERM, closes_input=False)
    ended(bench, signal.SIGINT, closes_input=True)
    ended(bench, signal.SIGKILL, closes_input=True)


def tool(bench):
    """`uv tool install` links both commands; `ipybox-rs` is its own program, whatever else is called `ipybox`."""
    run(["uv", "tool", "install", bench.wheel.path], timeout=INSTALL_SECS)
    links = Path(os.environ["UV_TOOL_BIN_DIR"])
    found = {path.name for path in links.iterdir()}
    expect(found == {"ipybox", "ipybox-rs"}, f"linked were {found}")
    for name in found:
        check_version([links / name], bench)
    (links / "ipybox").unlink()
    (links / "ipybox").write_text("#!/bin/sh\necho somebody else\n")
    (links / "ipybox").chmod(0o755)
    check_version([links / "ipybox-rs"], bench)
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{links}:{path}"
    try:
        check_version(["ipybox-rs"], bench)
    finally:
        os.environ["PATH"] = path
    further = bench.room("further") / "link"
    further.symlink_to(os.path.relpath(links / "ipybox-rs", further.parent))
    check_version([further], bench)
    shutil.copy(further.resolve(), links / "copied")
    (links / "ipybox").unlink()
    output = run([links / "copied", "--version"], fails=True)
    expect(f"{links}/ipybox" in output, f"it does not say what is missing: {output}")
    (links / "copied").unlink()
    (links / "ipybox").symlink_to(
        Path(os.environ["UV_TOOL_DIR"]) / "ipybox-rs/bin/ipybox"
    )
    run(["uv", "tool", "uninstall", "ipybox-rs"])
    expect(not list(links.iterdir()), f"left: {list(links.iterdir())}")


def pip(bench):
    """`pip install` into a virtual environment; a workspace gets another one, and this one stays as it is."""
    place = bench.room("venv")
    run([bench.python, "-m", "venv", place], timeout=INSTALL_SECS)
    python = place / "bin/python"
    install = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
    ]
    run([*install, bench.wheel.path], timeout=INSTALL_SECS)
    for name in ["ipybox", "ipybox-rs"]:
        check_version([place / "bin" / name], bench)
    before = files_below(place)
    where = asyncio.run(one_cell([str(place / "bin/ipybox-rs")], bench))
    base = os.path.dirname(os.path.dirname(bench.python))
    expect(base in where and f"{place}'" not in where, f"the kernel is {where}")
    changed = {name for name, _ in before.items() ^ files_below(place).items()}
    expect(not changed, f"changed in the environment: {sorted(changed)}")
    run([python, "-m", "pip", "uninstall", "--quiet", "--yes", "ipybox-rs"])
    left = [path for path in place.rglob("*") if "ipybox" in path.name]
    expect(not left, f"left after uninstallation: {left}")


def library(bench):
    """The Python library works where pip, `uv add` or uvx install it, by the Python that it is installed for."""
    place = bench.room("venv")
    run([bench.python, "-m", "venv", place], timeout=INSTALL_SECS)
    pip = [place / "bin/python", "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "install", "--quiet", bench.wheel.path], timeout=INSTALL_SECS)
    project = bench.room("project")
    for command in (["init", "--bare", "--name=app"], ["add", bench.wheel.path]):
        run(["uv", *command], cwd=project, timeout=INSTALL_SECS)
    aside = bench.room("aside")
    into = ["install", "--quiet", "--target", aside, bench.wheel.path]
    run([*pip, *into], timeout=INSTALL_SECS)
    for command, variables in (
        ([place / "bin/python"], {}),
        (["uv", "run", "--project", project, "python"], {}),
        (["uvx", "--from", bench.wheel.path, "python"], {}),
        ([bench.python], {"PYTHONPATH": str(aside)}),
    ):
        output = run(
            [*command, APPLICATION, bench.options.time_server],
            cwd=bench.room("application"),
            env={**os.environ, **variables},
            timeout=INSTALL_SECS,
        )
        expect("21:00:00+09:00" in output, f"{command} printed {output!r}")
        expect(
            output.strip().endswith("True"), f"the kernel has another Python: {output}"
        )


async def one_cell(command, bench):
    """Runs one cell in a workspace's own environment, and returns the Python of its kernel."""
    workspace = bench.room("workspace")
    command = [*command, "--workspace", str(workspace)]
    async with session.connect(command, log=bench.log) as server:
        return await cell(server, WHERE)


def main():
    """Runs the steps; ends the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument("--wheel", help="for this machine")
    either.add_argument("--maturin", help="the program that builds one")
    parser.add_argument(
        "--uv-bin", required=True, help="the directory of `uv` and `uvx`"
    )
    parser.add_argument("--kernel-python", required=True, help="a Python for kernels")
    parser.add_argument("--time-server", required=True, help="`mcp-server-time`")
    parser.add_argument("--only", help="run the steps whose sentence has these words")
    options = parser.parse_args()
    for name in ["uv_bin", "kernel_python", "time_server", "maturin"]:
        # Not resolved: a virtual environment's Python is a link.
        if path := getattr(options, name):
            setattr(options, name, os.path.abspath(path))
    outer = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="ipybox-wheel-") as scratch:
        bench = WheelBench(Path(scratch).resolve(), options)
        bench.outer = outer
        steps = Steps()
        steps.step("the wheel is there", make, bench)
        if steps.failures:
            steps.end()
        on_wheel = [
            Wheel.check_name,
            Wheel.check_files,
            Wheel.check_record,
            Wheel.check_metadata,
        ]
        chosen = [(function, bench.wheel) for function in on_wheel]
        if options.maturin:
            chosen.append((source, bench))
        chosen += [
            (f, bench) for f in [both_commands, entry, signals, tool, pip, library]
        ]
        for function, subject in chosen:
            words = sentence(function)
            if not options.only or options.only in words:
                steps.step(words, function, subject)
        if steps.failures:
            bench.log.seek(0)
            print("what the servers logged:", bench.log.read()[-4000:], sep="\n")
        bench.log.close()
    steps.end()


def sentence(function):
    """The sentence of a step, from its documentation."""
    return function.__doc__.strip().rstrip(".")


if __name__ == "__main__":
    main()
