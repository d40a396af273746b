"""The npm packages as their users have them: built, packed, installed by the real npm, run by npx, spoken to by a client.

Run it with a Python that has an MCP SDK. Exit code: 0 all steps passed, 1 some failed, 2 wrong usage. It asks no other
registry than one of its own on loopback.
"""

import argparse
import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import sys
import tarfile
import tempfile
from pathlib import Path

import npm_launcher
import npm_programs as programs
import npm_registry
from npm_bench import (
    HERE,
    REPOSITORY,
    TARGETS,
    VERSION,
    WRAPPER,
    NpmBench,
    expect_gone,
    fake_binary,
    platforms_in,
    shown,
)
from report import Steps, StepSkipped, collected, expect

sys.path.insert(0, str(REPOSITORY / "tests/clients"))
import session

steps, step = collected()


@step("platform.mjs writes the package of each platform")
def build(bench):
    directories = {"ipybox": WRAPPER}
    for name in TARGETS:
        if name == HERE:
            done = bench.platform_package(name, bench.options.binary, "--any-glibc")
        else:
            done = bench.platform_package(name, fake_binary(name))
        directory = Path(done.stdout.strip())
        expect(directory.name == name, f"written to {directory}")
        mode = (directory / "bin/ipybox").stat().st_mode & 0o777
        expect(mode == 0o755, f"{name}: the binary's mode is {mode:o}")
        manifest = json.loads((directory / "package.json").read_text())
        found = (manifest["name"], manifest["version"])
        expect(found == (f"@ipybox-rs/{name}", VERSION), f"{name} is {found}")
        system, cpu = name.split("-")[:2]
        libc = ["musl" if name.endswith("musl") else "glibc"]
        narrowed = (manifest["os"], manifest["cpu"], manifest.get("libc"))
        right = ([system], [cpu], libc if system == "linux" else None)
        expect(narrowed == right, f"{name} is for {narrowed}, not {right}")
        directories[name] = directory
    bench.tarballs = bench.pack(directories)


@step("platform.mjs refuses a binary that is for another platform, or for none")
def refuse_binaries(bench):
    newer = programs.glibc_elf("x64", "2.18")
    for name, binary, words in [
        ("linux-x64", fake_binary("linux-arm64"), "is for linux arm64"),
        ("linux-arm64", fake_binary("linux-x64"), "is for linux x64"),
        ("linux-x64", fake_binary("darwin-x64"), "is for darwin x64"),
        ("darwin-arm64", fake_binary("darwin-x64"), "is for darwin x64"),
        ("linux-x64-musl", fake_binary("linux-x64"), "is linked to /lib64/ld-linux"),
        ("linux-x64", fake_binary("linux-x64-musl"), "is static"),
        ("linux-x64", b"#!/bin/sh\n", "no program of 64 bits"),
        ("linux-x64", newer, "needs glibc 2.18"),
        ("linux-x64", bench.home / "nowhere", "there is no file"),
    ]:
        done = bench.platform_package(name, binary, code=1)
        expect(words in done.stderr, f"no {words!r}: {shown(done)}")
    bench.platform_package("linux-x64", newer, "--any-glibc")
    done = bench.platform_package("sparc-sun-solaris", b"", code=2)
    expect("unknown target" in done.stderr, shown(done))


@step("platform.mjs refuses names and versions that differ from Cargo.toml's")
def refuse_names(bench):
    cargo = f'\nversion = "{VERSION}"'
    for file, old, new, words in [
        ("Cargo.toml", cargo, '\nversion = "9.9.9"', "`version`"),
        ("Cargo.toml", '"@ipybox-rs"', '"@other"', "the names in"),
        (
            "npm-wrapper/package.json",
            f'"{VERSION}",\n  "desc',
            '"9.9.9",\n  "desc',
            "`version`",
        ),
        (
            "npm-wrapper/package.json",
            f'x64": "{VERSION}"',
            f'x64": "^{VERSION}"',
            "x64`",
        ),
        (
            "npm-wrapper/package.json",
            "linux-arm64-musl",
            "linux-riscv64",
            "the names in",
        ),
        ("npm-wrapper/package.json", '"io.github', '"io.gitlab', "`mcpName`"),
        ("npm-wrapper/LICENSE", "Apache", "Comanche", "LICENSE is not a copy"),
    ]:
        copy = bench.directory("repository")
        (copy / "npm-wrapper").mkdir()
        for path in ["Cargo.toml", "LICENSE"]:
            shutil.copy(REPOSITORY / path, copy)
        for path in ["package.json", "LICENSE", "platform.mjs", "program.mjs"]:
            shutil.copy(WRAPPER / path, copy / "npm-wrapper")
        check = ["node", copy / "npm-wrapper/platform.mjs", "--check"]
        bench.run(*check)
        text = (copy / file).read_text()
        expect(old in text, f"{file} has no {old!r}")
        (copy / file).write_text(text.replace(old, new, 1))
        done = bench.run(*check, code=1)
        expect(words in done.stderr, f"no {words!r}: {shown(done)}")


@step(
    "the tarballs hold what they should and nothing else; no script runs at installation"
)
def contents(bench):
    expected = {"package.json", "README.md", "LICENSE", "bin/ipybox"}
    for name, tarball in bench.tarballs.items():
        with tarfile.open(tarball) as archive:
            modes = {
                member.name.removeprefix("package/"): member.mode
                for member in archive.getmembers()
            }
        program = "bin/ipybox.js" if name == "ipybox" else "bin/ipybox"
        right = expected - {"bin/ipybox"} | {program}
        expect(set(modes) == right, f"{name} holds {sorted(modes)}")
        if name != "ipybox":
            expect(modes[program] & 0o111, f"{name}: not executable")
        manifest = npm_registry.manifest_of(tarball.read_bytes())
        expect("scripts" not in manifest, f"{name} has scripts")
        expect("dependencies" not in manifest, f"{name} has dependencies")


@step("installed from the tarballs, offline: `npx`, `npm exec`, the linked command")
def from_tarballs(bench):
    bench.use_registry("http://127.0.0.1:9/")
    prefix = bench.directory("project")
    tarballs = [bench.tarballs["ipybox"], bench.tarballs[HERE]]
    bench.run("npm", "install", "--offline", "--prefix", prefix, *tarballs)
    expect(platforms_in(prefix) == [HERE], f"installed {platforms_in(prefix)}")
    for command in [
        ["npx", "ipybox", "--version"],
        ["npm", "exec", "--", "ipybox", "--version"],
        ["node_modules/.bin/ipybox", "--version"],
    ]:
        done = bench.run(*command, cwd=prefix)
        expect(done.stdout == f"ipybox {VERSION}\n", shown(done))
    prefix = bench.directory("global")
    bench.run("npm", "install", "-g", "--offline", "--prefix", prefix, *tarballs)
    done = bench.run(prefix / "bin/ipybox", "--version")
    expect(done.stdout == f"ipybox {VERSION}\n", shown(done))


@step(
    "installed without optional dependencies, it says which package is missing; its hint fixes it"
)
def omitted(bench):
    with serving(bench):
        project = bench.directory("project")
        bench.run("npm", "install", "--omit=optional", "ipybox", cwd=project)
        expect(platforms_in(project) == [], f"installed {platforms_in(project)}")
        done = bench.run("npx", "ipybox", "--version", code=127, cwd=project)
        expect(f"`@ipybox-rs/{HERE}`" in done.stderr, shown(done))
        follow_hint(bench, done, "npm install", project)
        done = bench.run("npx", "ipybox", "--version", cwd=project)
        expect(done.stdout == f"ipybox {VERSION}\n", shown(done))


@step(
    "npx that leaves out optional dependencies on request: its hint fixes what npx keeps"
)
def omitted_npx(bench):
    bench.forget_cache()
    with serving(bench):
        command = ["npx", "-y", f"ipybox@{VERSION}"]
        omit = {"npm_config_omit": "optional"}
        bench.run(*command, "--version", code=127, env=omit)
        done = bench.run(*command, "--version", code=127)
        kept = re.search(r"hint: delete `([^`]+)`", done.stderr)
        expect(kept, shown(done))
        expect(Path(kept[1]).is_relative_to(bench.home / ".npm/_npx"), shown(done))
        shutil.rmtree(kept[1])
        done = follow_hint(bench, done, "npx", bench.home, "--version")
        expect(done.stdout == f"ipybox {VERSION}\n", shown(done))
        bench.run(*command, "--version")


def follow_hint(bench, done, begin, cwd, *more):
    """Runs the command in an error's hint that begins so."""
    hint = re.search(rf"`({begin} [^`]+)`", done.stderr)
    expect(hint, f"no hint `{begin} …`: {shown(done)}")
    return bench.run(*shlex.split(hint[1]), *more, cwd=cwd)


@step("npm installs the package for this platform, and no other one")
def chosen(bench):
    bench.forget_cache()
    with serving(bench) as registry:
        project = bench.directory("project")
        bench.run("npm", "install", "ipybox", cwd=project)
        expect(platforms_in(project) == [HERE], f"installed {platforms_in(project)}")
        fetched = [path for path in registry.requests if path.startswith("/tarballs/")]
        expect(len(fetched) == 2, f"fetched {fetched}")


@step(
    "asked for another platform, npm installs the package for that one; its lock serves here"
)
def chosen_for_others(bench):
    known = bench.run("npm", "config", "list", "-l").stdout
    if not re.search(r"^libc =", known, re.MULTILINE):
        raise StepSkipped("this npm cannot be asked for another platform")
    with serving(bench):
        for name in ["linux-arm64", "linux-x64-musl", "darwin-arm64"]:
            system, cpu = name.split("-")[:2]
            libc = "musl" if name.endswith("musl") else "glibc"
            project = bench.directory("project")
            options = [f"--os={system}", f"--cpu={cpu}", f"--libc={libc}"]
            bench.run("npm", "install", *options, "ipybox", cwd=project)
            found = platforms_in(project)
            expect(found == [name], f"installed {found}")
        # A lock that was made there serves here; npm may not know of each C library from it.
        bench.run("npm", "ci", cwd=project)
        expect(HERE in platforms_in(project), f"installed {platforms_in(project)}")
        expect(name not in platforms_in(project), f"installed {name} here")
        bench.run("node_modules/.bin/ipybox", "--version", cwd=project)


@step(
    "`npx -y ipybox@VERSION` from a cold cache; once there, nothing is downloaded again"
)
def npx(bench):
    bench.forget_cache()
    command = ["npx", "-y", f"ipybox@{VERSION}", "--version"]
    with serving(bench) as registry:
        done = bench.run(*command)
        expect(done.stdout == f"ipybox {VERSION}\n", shown(done))
        fetched = [path for path in registry.requests if path.startswith("/tarballs/")]
        expect(len(fetched) == 2, f"fetched {fetched}")
        registry.requests.clear()
        done = bench.run(*command)
        expect(done.stdout == f"ipybox {VERSION}\n", shown(done))
        # Whether there is something newer, npx asks each time.
        expect(registry.requests in ([], ["/ipybox"]), f"asked for {registry.requests}")


def plant(bench):
    """A project in which code has written what npx would run, and the file that this would leave."""
    project, trace = bench.directory("project"), bench.scratch / "planted-ran"
    script = f"#!/bin/sh\n: > {trace}\nexit 1\n"
    modules = project / "node_modules"
    programs = [f".bin/{name}" for name in ("ipybox", "node", "sh", "npx", "npm")]
    packages = ["ipybox/bin/ipybox.js", f"@ipybox-rs/{HERE}/bin/ipybox"]
    for name in [*programs, *packages, "../tool"]:
        path = modules / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script)
        path.chmod(0o755)
    manifest = {"name": "ipybox", "version": VERSION, "bin": "bin/ipybox.js"}
    (modules / "ipybox/package.json").write_text(json.dumps(manifest))
    workspaces = {"name": "here", "workspaces": ["node_modules/ipybox"]}
    (project / "package.json").write_text(json.dumps(workspaces))
    (project / ".npmrc").write_text(f"script-shell={project}/tool\n")
    return project, trace


@step("a documented start runs nothing of the project, where npx alone would")
def documented(bench):
    readme = (WRAPPER / "README.md").read_text()
    (block,) = re.findall(r"```json\n(.*?)```", readme, re.DOTALL)
    configured = json.loads(block)["mcpServers"]["ipybox"]
    project, trace = plant(bench)
    start = WRAPPER.parent / "plugins/codeact-sandbox/scripts/start.sh"
    with serving(bench):
        entry = [configured["command"], *configured["args"][:3], "--version"]
        for command in (entry, ["sh", start, "--version"]):
            done = bench.run(*command, cwd=project)
            expect(done.stdout == f"ipybox {VERSION}\n", shown(done))
            expect(not trace.exists(), f"{command} ran what was planted")
        bench.run("npx", "-y", f"ipybox@{VERSION}", "--version", cwd=project, code=None)
        expect(trace.exists(), "npx does not run what was planted: this tests nothing")


@step("a session with the entry of the README: a server, a cell that calls it, a reset")
def entry(bench):
    readme = (WRAPPER / "README.md").read_text()
    (block,) = re.findall(r"```json\n(.*?)```", readme, re.DOTALL)
    configured = json.loads(block)["mcpServers"]["ipybox"]
    workspace = bench.directory("workspace")
    args = [
        one.replace("/path/to/workspace", str(workspace)) for one in configured["args"]
    ]
    expect(str(workspace) in args, f"no workspace in {args}")
    with serving(bench):
        command = [configured["command"], *args, "--python", bench.options.python]
        asyncio.run(converse(command, bench.options.time_server, bench))


async def converse(command, time_server, bench):
    """A session as an agent has it."""
    with (bench.scratch / "stderr").open("w") as log:
        async with session.connect(command, log=log) as server:
            parameters = {"command": time_server, "args": ["--local-timezone=UTC"]}
            outcome = await server.call(
                "register_mcp_server",
                {"server_name": "time", "server_params": parameters},
            )
            expect("convert_time" in outcome.text, outcome.text)
            outcome = await server.cell(
                "from mcptools.time import convert_time\n"
                "there = convert_time.run(source_timezone='UTC', time='12:00',\n"
                "    target_timezone='Asia/Tokyo')\n"
                "print(there)"
            )
            right = not outcome.is_error and "21:00:00+09:00" in outcome.text
            expect(right, outcome.text)
            outcome = await server.call("reset")
            expect(not outcome.is_error, outcome.text)
            outcome = await server.cell("'there' in globals()")
            expect("False" in outcome.text, outcome.text)


@step("SIGINT, SIGTERM and SIGHUP to npx, and its sudden death, leave nothing behind")
def npx_signals(bench):
    with serving(bench):
        command = ["npx", "-y", f"ipybox@{VERSION}"]
        for number in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]:
            with npm_launcher.session(bench, *command) as (running, below):
                running.send_signal(number)
                # What a client does with a server that it ends.
                running.stdin.close()
                running.wait(npm_launcher.END_SECS)
                expect_gone(below, npm_launcher.GONE_SECS)


def serving(bench):
    """A registry with all packages, which npm then asks."""
    registry = npm_registry.serving(bench.tarballs.values())

    class Serving:
        def __enter__(self):
            served = registry.__enter__()
            bench.use_registry(served.url)
            return served

        def __exit__(self, *raised):
            return registry.__exit__(*raised)

    return Serving()


def main():
    """Runs the steps; ends the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True, help="ipybox for this machine")
    parser.add_argument(
        "--node-bin", required=True, help="the directory of `node`, to test with"
    )
    parser.add_argument("--python", required=True, help="a Python for the kernel")
    parser.add_argument("--time-server", required=True, help="`mcp-server-time`")
    parser.add_argument("--only", help="run the steps whose sentence has these words")
    parser.add_argument(
        "--part",
        choices=["installation", "launcher"],
        help="run the steps about one of the two, so that both can run at once",
    )
    options = parser.parse_args()
    for name in ["binary", "node_bin", "python", "time_server"]:
        # Not resolved: a virtual environment's Python is a link.
        setattr(options, name, os.path.abspath(getattr(options, name)))
    with tempfile.TemporaryDirectory(prefix="ipybox-npm-") as scratch:
        bench = NpmBench(Path(scratch).resolve(), options)
        # The MCP SDK starts servers with this process's environment.
        os.environ.clear()
        os.environ.update(bench.env)
        run = Steps()
        run.step(*steps[0], bench)
        installation = steps[1:] if options.part != "launcher" else []
        launcher = npm_launcher.steps if options.part != "installation" else []
        for sentence, function in installation + launcher:
            if not options.only or options.only in sentence:
                run.step(sentence, function, bench)
    run.end()


if __name__ == "__main__":
    main()
