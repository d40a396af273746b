"""Steps of npm.py about the launcher: what it starts, and that it stands in for it."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import time

import npm_programs as programs
from npm_bench import (
    HERE,
    VERSION,
    descendants,
    expect_gone,
    shown,
)
from report import StepSkipped, collected, expect

ARGUMENTS = [
    "",
    " ",
    "two words",
    "'single' \"double\" `back`",
    "$HOME ${HOME} $(id) %PATH% !1",
    "a\\b\\",
    "line\nbreak\ttab",
    "Grüße 日本 🦀",
    "*",
    "-",
    "--",
    "--workspace=/a b",
    "#;&|<>",
]

END_SECS = 300
"""The longest time that a session takes to end after a signal, however slow the machine is."""

GONE_SECS = 300
"""The longest time that processes below a launcher outlive it, however slow the machine is."""

steps, step = collected()


@step(
    "arguments arrive unchanged: empty, spaces, quotes, dollars, line breaks, Unicode"
)
def arguments(bench):
    launcher = bench.with_program(programs.PRINT_ARGUMENTS)
    done = bench.run("node", launcher, *ARGUMENTS)
    expect(json.loads(done.stdout) == ARGUMENTS, shown(done))
    done = bench.run(launcher, *ARGUMENTS)
    expect(json.loads(done.stdout) == ARGUMENTS, shown(done))
    expect(done.stderr == "", "the launcher wrote to stderr\n" + shown(done))


@step("arguments arrive unchanged through `npx`")
def arguments_npx(bench):
    launcher = bench.with_program(programs.PRINT_ARGUMENTS)
    prefix = launcher.parents[3]
    (prefix / "node_modules/.bin").mkdir()
    (prefix / "node_modules/.bin/ipybox").symlink_to("../ipybox/bin/ipybox.js")
    # npx hands a line break to a shell that ends the command there: its own doing.
    passed = [one for one in ARGUMENTS if "\n" not in one]
    done = bench.run("npx", "ipybox", *passed, cwd=prefix)
    expect(json.loads(done.stdout) == passed, shown(done))


@step("a package in the workspace does not start a sandbox for code there")
def in_workspace(bench):
    launcher = bench.with_program(programs.PRINT_ARGUMENTS)
    project, elsewhere = launcher.parents[3], bench.directory("workspace")
    for words in (
        ["--sandbox"],
        ["--workspace", project, "--sandbox"],
        ["--sandbox", f"--workspace={project}"],
    ):
        done = bench.run(launcher, *words, cwd=project, code=126)
        expect("could replace it" in done.stderr and "cd /" in done.stderr, shown(done))
    for words in (
        ["--sandbox", "--workspace", str(elsewhere)],
        ["--workspace", str(project)],
    ):
        done = bench.run(launcher, *words, cwd=project)
        expect(json.loads(done.stdout) == words, shown(done))


@step("a binary that is not beside the package is not taken")
def beside(bench):
    launcher = bench.with_program(programs.PRINT_ARGUMENTS)
    modules = launcher.parents[2]
    above = bench.directory("above")
    (modules / "@ipybox-rs").rename(above / "@ipybox-rs")
    bench.run(launcher, code=127, env={"NODE_PATH": str(above)})


@step("the environment and the working directory are the user's, stdin is handed on")
def surroundings(bench):
    launcher = bench.with_program(
        programs.script(
            "print(json.dumps([os.getcwd(), os.environ.get('LANG'), sys.stdin.read()]))"
        )
    )
    done = subprocess.run(
        [launcher],
        cwd=bench.home,
        env=bench.env,
        input="a line\n" * 20_000,
        capture_output=True,
        text=True,
        check=True,
        timeout=END_SECS,
    )
    expected = [str(bench.home.resolve()), "C.UTF-8", "a line\n" * 20_000]
    expect(json.loads(done.stdout) == expected, done.stdout[:300])


@step("exit codes are mirrored")
def exit_codes(bench):
    for code in [0, 1, 2, 42, 126, 255]:
        bench.run(bench.with_program(programs.end_with(code)), code=code)
    launcher = bench.installed(HERE) / "node_modules/ipybox/bin/ipybox.js"
    done = bench.run(launcher, "--bogus", code=2)
    expect("unexpected argument '--bogus'" in done.stderr, shown(done))


@step("signals that end the binary end the launcher")
def end_by_signal(bench):
    for number in [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL]:
        bench.run(bench.with_program(programs.end_by(int(number))), code=-number)
    # Node.js keeps these for itself; shells call such an end 128 and more.
    for number in [signal.SIGPIPE, signal.SIGSEGV]:
        done = bench.run(bench.with_program(programs.end_by(int(number))), code=None)
        expect(done.returncode in (-number, 128 + number), shown(done))


@step("the launcher waits for a binary that takes its time after SIGTERM")
def waits(bench):
    launcher = bench.with_program(programs.slow_to_end(5, 1))
    running = bench.start(launcher)
    expect(running.stdout.readline() == b"ready\n", "the binary did not start")
    begin = time.monotonic()
    running.terminate()
    running.communicate(timeout=END_SECS)
    took = time.monotonic() - begin
    expect(running.returncode == 5, f"ended with {running.returncode}")
    expect(took >= 1, f"ended {took:.1f} s after the signal, before the binary")


def request(running, number, method, params):
    """Writes a request of MCP and gives the answer to it."""
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    running.stdin.write(json.dumps(message).encode() + b"\n")
    running.stdin.flush()
    for line in running.stdout:
        answer = json.loads(line)
        if answer.get("id") == number:
            return answer["result"]
    raise AssertionError(f"no answer to {method}")


def initialize(running):
    """Opens the session of a server that was started."""
    params = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "npm.py", "version": "1"},
    }
    request(running, 1, "initialize", params)
    running.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    running.stdin.flush()


@contextlib.contextmanager
def session(bench, *command):
    """A session with a kernel that runs; gives the process, all below it, and what it says on stderr."""
    command = [*command, "--workspace", bench.directory("workspace")]
    log = bench.scratch / "stderr"
    with log.open("w") as stderr:
        running = bench.start(*command, "--python", bench.options.python, stderr=stderr)
    below = []
    try:
        initialize(running)
        called = {"name": "execute_ipython_cell", "arguments": {"code": "6 * 7"}}
        result = request(running, 2, "tools/call", called)
        expect("42" in result["content"][0]["text"], f"answered {result}")
        below = descendants(running.pid)
        # The binary, its guardian, the kernel.
        expect(len(below) >= 3, f"only {below} below the launcher")
        yield running, below
    finally:
        running.stdin.close()
        running.stdout.close()
        for pid in [running.pid, *below]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running.wait()


def launcher_of(bench):
    """The launcher beside the real binary."""
    return bench.installed(HERE) / "node_modules/ipybox/bin/ipybox.js"


@step("SIGINT, SIGTERM and SIGHUP to the launcher end the session, with nothing left")
def signals(bench):
    for number in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]:
        with session(bench, launcher_of(bench)) as (running, below):
            running.send_signal(number)
            code = running.wait(END_SECS)
            expect(code == 0, f"{number.name}: ended with {code}, the binary with 0")
            expect_gone(below, GONE_SECS)


@step("the end of stdin ends the session, with nothing left")
def end_of_input(bench):
    with session(bench, launcher_of(bench)) as (running, below):
        running.stdin.close()
        code = running.wait(END_SECS)
        expect(code == 0, f"ended with {code}")
        expect_gone(below, GONE_SECS)


@step("SIGKILL to the launcher: the client's end of the pipe ends the rest")
def killed(bench):
    with session(bench, launcher_of(bench)) as (running, below):
        running.kill()
        expect(running.wait(END_SECS) == -signal.SIGKILL, "was not killed")
        running.stdin.close()
        expect_gone(below, GONE_SECS)


@step("SIGKILL to the binary: the launcher ends like it, with nothing left")
def binary_killed(bench):
    with session(bench, launcher_of(bench)) as (running, below):
        os.kill(below[0], signal.SIGKILL)
        code = running.wait(END_SECS)
        expect(code == -signal.SIGKILL, f"ended with {code}")
        expect_gone(below, GONE_SECS)


@step("Ctrl-C on a terminal, which signals both, ends both")
def terminal(bench):
    program = str(bench.node_dir / "node")
    workspace = str(bench.directory("workspace"))
    arguments = [program, str(launcher_of(bench)), "--workspace", workspace]
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.execve(program, arguments, bench.env)
        finally:
            os._exit(1)
    said = b""
    with os.fdopen(terminal, "r+b", buffering=0) as screen:
        while b"end with Ctrl-C" not in said:
            part = screen.read(4096)
            expect(part, f"ended: {said!r}")
            said += part
        below = descendants(pid)
        # Else the terminal would stop it when it reads, and Ctrl-Z the launcher alone.
        groups = {os.getpgid(one) for one in [pid, below[0]]}
        expect(groups == {pid}, f"{pid} and {below[0]} are in the groups {groups}")
        screen.write(b"\x03")
        # Reading until it ends: else it would wait for us.
        with contextlib.suppress(OSError):
            while screen.read(4096):
                pass
    _, status = os.waitpid(pid, 0)
    expect(os.waitstatus_to_exitcode(status) == 0, f"ended with {status}")
    expect_gone(below, GONE_SECS)


def preloaded(bench, lines):
    """An environment that first gives Node.js false facts about the machine."""
    path = bench.directory("preload") / "preload.js"
    path.write_text(lines)
    return {"NODE_OPTIONS": f"--require={path}"}


def loaders(*existing):
    """JavaScript that makes a machine have these loaders, of the two that there are."""
    return (
        "const fs = require('fs'); const real = fs.existsSync;\n"
        "fs.existsSync = (path) => {\n"
        "  const loader = /ld-(linux|musl)/.exec(path);\n"
        f"  return loader ? {json.dumps(existing)}.includes(loader[1]) : real(path);\n"
        "};\n"
    )


@step("Linux: the binary that fits the C library runs, the static one where it must")
def libc(bench):
    if not HERE.startswith("linux"):
        raise StepSkipped("not on Linux")
    musl = f"{HERE}-musl"
    version = f"ipybox {VERSION}\n"
    static = programs.STATIC_EXIT_CODE
    for packages, found, code in [
        ((HERE, musl), ["linux"], 0),
        ((HERE, musl), ["musl"], static),
        ((HERE, musl), ["linux", "musl"], static),
        ((HERE, musl), [], static),
        ((musl,), ["linux"], static),
        ((musl,), ["musl"], static),
        ((HERE,), ["linux"], 0),
    ]:
        launcher = bench.installed(*packages) / "node_modules/ipybox/bin/ipybox.js"
        env = preloaded(bench, loaders(*found))
        done = bench.run(launcher, "--version", code=None, env=env)
        right = done.returncode == code and done.stdout == ("" if code else version)
        expect(right, f"{packages} with loaders {found}: {shown(done)}")
    # Linked to what is not there.
    launcher = bench.installed(HERE) / "node_modules/ipybox/bin/ipybox.js"
    done = bench.run(launcher, code=127, env=preloaded(bench, loaders("musl")))
    for part in [f"`@ipybox-rs/{musl}`", f"`@ipybox-rs/{HERE}`", "--libc=musl"]:
        expect(part in done.stderr, f"no {part}: {shown(done)}")


@step("a missing platform package is named, with what to do; so is what came instead")
def missing(bench):
    launcher = bench.installed() / "node_modules/ipybox/bin/ipybox.js"
    done = bench.run(launcher, "--version", code=127)
    expect(done.stdout == "", "stdout is the protocol's\n" + shown(done))
    hint = f"npm install --include=optional ipybox@{VERSION}"
    for part in [f"`@ipybox-rs/{HERE}`", "--omit=optional", "package-lock.json", hint]:
        expect(part in done.stderr, f"no {part}: {shown(done)}")
    expect("Installed is" not in done.stderr, shown(done))
    other = "darwin-arm64" if HERE.startswith("linux") else "linux-x64"
    launcher = bench.installed(other) / "node_modules/ipybox/bin/ipybox.js"
    done = bench.run(launcher, "--version", code=127)
    expect(f"Installed is `@ipybox-rs/{other}`" in done.stderr, shown(done))


@step(
    "a platform without a package is reported, for Windows with a hint at its subsystem for Linux"
)
def unsupported(bench):
    launcher = launcher_of(bench)
    for system, cpu, hint in [
        ("win32", "x64", "Windows Subsystem for Linux"),
        ("win32", "arm64", "Windows Subsystem for Linux"),
        ("freebsd", "x64", "cargo install ipybox"),
        ("linux", "ppc64", "cargo install ipybox"),
    ]:
        lie = "Object.defineProperty(process, '{}', {{ value: '{}' }});\n"
        lies = lie.format("platform", system) + lie.format("arch", cpu)
        done = bench.run(launcher, code=127, env=preloaded(bench, lies))
        expect(f"does not run on {system} {cpu}" in done.stderr, shown(done))
        expect(hint in done.stderr, shown(done))
        expect(not re.search(r"\n\s+at ", done.stderr), shown(done))


@step("a binary that cannot be started is named, with the system's reason")
def not_started(bench):
    launcher = bench.with_program("")
    binary = launcher.parents[2] / "@ipybox-rs" / HERE / "bin/ipybox"
    binary.chmod(0o644)
    done = bench.run(launcher, code=126)
    for part in [str(binary.resolve()), "EACCES", "chmod +x"]:
        expect(part in done.stderr, f"no {part}: {shown(done)}")
