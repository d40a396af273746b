"""The Claude Code plugins, by the real `claude`: validated, installed in an empty home, their servers started.

    claude.py --claude PATH --ipybox PATH --tools TEST_TOOLS

The marketplace is added as a user adds it, from a git repository, which is served on loopback. The model of the
session follows a script (`model.py`), and nothing is sent to anybody. `uvx`, `npx` and `docker` are stand-ins that
write down what they are asked and then start ipybox: what they do in earnest is tested with the wheel, the npm package
and the image.
"""

import argparse
import contextlib
import http.server
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

from claude_sessions import Sessions
from model import ScriptedModel
from report import Steps, expect, run

ROOT = Path(__file__).resolve().parents[2]
# The notebook of each session.
NOTEBOOK = ["--notebook", "auto"]
# The flags of sessions that outlive the client, too.
LASTING = ["--keep-session", "30m", "--long-cells", *NOTEBOOK]

MARKETPLACE = "ipybox-rs"
FLAVOURS = ("default", "sandbox", "docker")
VERSION = json.loads(
    (ROOT / "plugins/codeact-default/.claude-plugin/plugin.json").read_text()
)["version"]

STAND_IN = """#!/bin/sh
printf '%s\\n' {name} "$@" >'{record}'
echo $$ >>'{record}.processes'
while [ $# -gt 0 ]; do
    case $1 in
    --package=*) echo '{ipybox}'; exit ;;
    ipybox-rs|ipybox-rs@*|ipybox|ipybox@*|*/ipybox|*/ipybox:*) shift; break ;;
    *) shift ;;
    esac
done
exec '{ipybox}' --state-dir '{state}' --python '{python}' "$@"
"""
"""Records what it is called with and the process that ipybox will be, and starts ipybox with what comes after the
package's name.
"""


class GitServer(http.server.BaseHTTPRequestHandler):
    """Serves the repositories in `directory` to git."""

    directory = None

    def answer(self):
        """Has git's own program answer."""
        path, _, query = self.path.partition("?")
        length = int(self.headers.get("Content-Length") or 0)
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.directory),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(length),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        body = self.rfile.read(length)
        done = subprocess.run(
            ["git", "http-backend"],
            input=body,
            env=environment,
            stdout=subprocess.PIPE,
            check=True,
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = [line.split(": ", 1) for line in head.decode().split("\r\n")]
        status = next((value for name, value in headers if name == "Status"), "200")
        self.send_response(int(status.split()[0]))
        for name, value in headers:
            if name != "Status":
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = answer

    def log_message(self, *_):
        """Says nothing."""


class ClaudeHome:
    """An empty home with a project, and `claude` in it."""

    def __init__(self, options, scratch):
        self.options = options
        self.scratch = scratch
        self.home = scratch / "home"
        self.project = scratch / "project"
        self.programs = scratch / "programs"
        self.record = scratch / "record"
        for directory in (self.home, self.project, self.programs, scratch / "tmp"):
            directory.mkdir()

    def environment(self, *, path=None):
        """The environment of programs: nothing of ours."""
        tools = self.options.tools / "bin"
        return {
            "HOME": str(self.home),
            "PATH": path or f"{self.programs}:{tools}:/usr/bin:/bin",
            "TMPDIR": str(self.scratch / "tmp"),
            "CLAUDE_CODE_TMPDIR": str(self.scratch / "tmp"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }

    def claude(self, *arguments, **options):
        """Runs `claude` in the project."""
        options = {"cwd": self.project, "env": self.environment(), **options}
        return run([self.options.claude, *arguments], **options)

    def stand_in(self, name):
        """Puts a stand-in for a program on PATH."""
        path = self.programs / name
        text = STAND_IN.format(
            name=name,
            record=self.record,
            ipybox=self.options.ipybox,
            state=self.scratch / "state",
            python=self.options.tools / "kernel/bin/python",
        )
        path.write_text(text)
        path.chmod(0o755)

    def recorded(self):
        """The arguments of a stand-in's calls."""
        expect(self.record.is_file(), "none of the stand-ins was started")
        words = self.record.read_text().splitlines()
        self.record.unlink()
        return words

    def servers(self):
        """The processes of ipybox that `claude` has started until now, the newest last."""
        path = self.record.with_name(f"{self.record.name}.processes")
        return [int(line) for line in path.read_text().split()]

    def sessions(self, *words):
        """Runs `ipybox sessions`."""
        return run(
            [
                self.options.ipybox,
                "sessions",
                *words,
                "--state-dir",
                self.scratch / "state",
            ]
        )

    def kept(self):
        """The sessions that there are."""
        return json.loads(self.sessions("--json"))

    def end_sessions(self):
        """Ends what the servers have left behind, which they are asked to do."""
        if kept := [session["id"] for session in self.kept()]:
            self.sessions("end", *kept)

    @contextlib.contextmanager
    def enabled(self, flavour):
        """One of the plugins is enabled."""
        name = f"codeact-{flavour}@{MARKETPLACE}"
        self.claude("plugin", "enable", name)
        try:
            yield
        finally:
            self.claude("plugin", "disable", name)
            self.record.unlink(missing_ok=True)

    def converse(self, model, prompt, *tools, flags=(), **variables):
        """A session of Claude Code with a model, which ends with the model's turn; gives what it printed."""
        return self.claude(
            "-p",
            prompt,
            "--allowedTools",
            ",".join(tools),
            *flags,
            env=self.with_model(model, **variables),
            timeout=300,
        )

    def with_model(self, model, **variables):
        """The environment of a `claude` that asks `model`."""
        return {
            **self.environment(),
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": "none",
            **variables,
        }

    def validate(self):
        """The marketplace and each plugin, warnings being errors."""
        self.claude("plugin", "validate", "--strict", ROOT)
        for flavour in FLAVOURS:
            plugin = ROOT / f"plugins/codeact-{flavour}"
            report = self.claude(
                "plugin", "validate", "--strict", "--profile", "directory", plugin
            )
            for part in (
                "mcpServers: ipybox stdio",
                f"skills: codeact-{flavour}:codeact",
            ):
                expect(
                    part in report,
                    f"codeact-{flavour} does not provide {part!r}:\n{report}",
                )

    def refuse(self):
        """A fault in a plugin is reported: otherwise the step before would prove nothing."""
        broken = self.scratch / "broken"
        shutil.copytree(ROOT / "plugins/codeact-default", broken)
        manifest = json.loads((broken / ".claude-plugin/plugin.json").read_text())
        manifest["userConfig"]["approval"]["type"] = "choice"
        (broken / ".claude-plugin/plugin.json").write_text(json.dumps(manifest))
        report = self.claude("plugin", "validate", "--strict", broken, fails=True)
        expect("approval" in report, f"the report does not name the option:\n{report}")

    def add_marketplace(self):
        """From a git repository with what is in the working tree."""
        source = self.scratch / "git/ipybox"
        for part in (".claude-plugin", "plugins"):
            shutil.copytree(ROOT / part, source / part)
        git = [
            "git",
            "-C",
            source,
            "-c",
            "user.name=someone",
            "-c",
            "user.email=someone@example.com",
        ]
        run(["git", "init", "--quiet", source])
        run([*git, "add", "--all"])
        run([*git, "commit", "--quiet", "--message", "As it is"])
        GitServer.directory = source.parent
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), GitServer)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/ipybox/.git"
            said = self.claude("plugin", "marketplace", "add", url)
            expect(MARKETPLACE in said, f"another marketplace was added:\n{said}")
            for flavour in FLAVOURS:
                self.claude("plugin", "install", f"codeact-{flavour}@{MARKETPLACE}")
                self.claude("plugin", "disable", f"codeact-{flavour}@{MARKETPLACE}")
        finally:
            server.shutdown()
            server.server_close()

    def installed(self, flavour):
        """The directory that a plugin was installed to."""
        return (
            self.home
            / f".claude/plugins/cache/{MARKETPLACE}/codeact-{flavour}/{VERSION}"
        )

    def look_at_installed(self):
        """The installed files are those that are here, skill and program included."""
        for flavour in FLAVOURS:
            source = ROOT / f"plugins/codeact-{flavour}"
            files = [
                path.relative_to(source) for path in source.rglob("*") if path.is_file()
            ]
            expect(
                Path("skills/codeact/SKILL.md") in files,
                f"codeact-{flavour} has no skill",
            )
            for file in files:
                ours, theirs = source / file, self.installed(flavour) / file
                expect(theirs.is_file(), f"{theirs} is missing")
                expect(
                    theirs.read_bytes() == ours.read_bytes(),
                    f"{theirs} is another than {ours}",
                )

    def start(self, flavour):
        """Enables one plugin and has `claude` connect to its server; gives what was started."""
        name = f"codeact-{flavour}@{MARKETPLACE}"
        self.claude("plugin", "enable", name)
        try:
            listed = self.claude("mcp", "list")
        finally:
            self.claude("plugin", "disable", name)
        line = next(
            (
                line
                for line in listed.splitlines()
                if f"codeact-{flavour}:ipybox" in line
            ),
            listed,
        )
        log = self.start_by_hand(flavour) if "Connected" not in line else ""
        expect("Connected" in line, f"{line}\n{log}")
        return self.recorded()

    def start_by_hand(self, flavour):
        """The messages of the server, since `claude` does not show them."""
        script = self.installed(flavour) / "scripts/start.sh"
        if not script.is_file():
            return ""
        server = json.loads((self.installed(flavour) / ".mcp.json").read_text())[
            "mcpServers"
        ]["ipybox"]
        arguments = [
            word.replace("${user_config.approval}", "auto")
            for word in server["args"][1:]
        ]
        done = subprocess.run(
            ["sh", script, *arguments],
            check=False,
            cwd=self.project,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
        )
        return done.stderr

    def start_default(self):
        """`uvx` is preferred, and gets the plugin's own version."""
        expected = [
            "uvx",
            f"ipybox-rs@{VERSION}",
            "--workspace",
            ".",
            "--approval",
            "auto",
            *LASTING,
        ]
        words = self.start("default")
        expect(words == expected, f"started as {words}")

    def configure(self):
        """The plugin's option reaches ipybox."""
        name = f"codeact-default@{MARKETPLACE}"
        self.claude("plugin", "install", name, "--config", "approval=deny")
        # It enables the plugin, too.
        self.claude("plugin", "disable", name)
        words = self.start("default")
        expected = ["--approval", "deny", *LASTING]
        expect(words[-len(expected) :] == expected, f"started as {words}")

    def act(self):
        """A session of Claude Code in which the skill is read, and its advice followed, by a model with a script."""
        cell = "mcp__plugin_codeact-default_ipybox__execute_ipython_cell"
        register = cell.replace("execute_ipython_cell", "register_mcp_server")
        time = {
            "command": str(self.options.tools / "servers/bin/mcp-server-time"),
            "args": [],
        }
        code = (
            "from mcptools.time import convert_time\n"
            "noon = convert_time.run(source_timezone='UTC', time='12:00', target_timezone='Asia/Tokyo')\n"
            "print('noon is', noon.target.datetime[11:16])"
        )
        skill = self.installed("default") / "skills/codeact"
        script = [
            lambda _: ("Skill", {"skill": "codeact-default:codeact"}),
            lambda _: (
                "Read",
                {"file_path": str(skill / "references/typed-results.md")},
            ),
            lambda _: ("ToolSearch", {"query": f"select:{register},{cell}"}),
            lambda _: (register, {"server_name": "time", "server_params": time}),
            lambda _: (cell, {"code": code}),
        ]
        with self.enabled("default"), ScriptedModel(script) as model:
            said = self.converse(
                model,
                "Use codeact: when it is noon in UTC, what time is it in Tokyo?",
                "Skill",
                "Read",
                "ToolSearch",
                register,
                cell,
            )
            results = model.results()
        expect(
            len(results) == len(script),
            f"the script ended after {len(results)} results:\n{results[-1:]}\n{said}",
        )
        first = json.dumps(model.requests[0])
        expect(
            "codeact-default:codeact: Act by writing Python" in first,
            "the skill is not offered to the model",
        )
        wanted = (
            "# Act by code",
            "# Typed results",
            cell,
            "convert_time",
            "noon is 21:00",
        )
        for result, text in zip(results, wanted, strict=True):
            expect(text in result, f"{text!r} is not in the answer:\n{result[:2000]}")

    def start_sandbox(self):
        """The sandbox's plugin asks for the sandbox, and for the policy of the workspace."""
        words = self.start("sandbox")
        expected = ["--sandbox", "--sandbox-workspace-config", *LASTING]
        expect(words[-len(expected) :] == expected, f"started as {words}")

    def start_docker(self):
        """The container gets the project directory and nothing else."""
        expected = [
            "docker",
            "run",
            "--interactive",
            "--rm",
            "--volume",
            f"{self.project}:/app/workspace",
        ]
        expected += [f"ipyboxrs/ipybox:{VERSION}", "--approval", "auto", *NOTEBOOK]
        words = self.start("docker")
        expect(words == expected, f"started as {words}")

    def add_server(self):
        """The commands of the documentation for the server alone."""
        text = (ROOT / "docs/clients.md").read_text()
        commands = re.findall(r"^claude mcp add (\S+) -- (.*)$", text, re.MULTILINE)
        programs = sorted(command.split()[0] for _name, command in commands)
        expect(
            programs == ["docker", "sh", "uvx"], f"the page adds servers by {programs}"
        )
        for name, command in commands:
            words = shlex.split(command.replace("$PWD", str(self.project)))
            self.claude("mcp", "add", name, "--", *words)
            output = self.claude("mcp", "get", name)
            expect("Connected" in output, output)
            if words[0] == "sh":
                # The shell's line: `cd / && exec npx -y ipybox "$@"`.
                words = [*words[2].split("exec ")[1].split()[:-1], *words[4:]]
            expect(self.recorded() == words, f"{name} was called otherwise")
            self.claude("mcp", "remove", name)

    def choose(self):
        """The program that `start.sh` takes where something is missing."""
        few = self.scratch / "few"
        few.mkdir()
        for name in ("sh", "sed", "dirname", "cat", "env"):
            (few / name).symlink_to(shutil.which(name))
        beyond = [
            name
            for name in ("uvx", "npx", "ipybox")
            if shutil.which(name, path="/usr/local/bin:/opt/homebrew/bin")
        ]
        script = self.installed("default") / "scripts/start.sh"

        def started(*names, **variables):
            for name in ("uvx", "npx", "ipybox"):
                (few / name).unlink(missing_ok=True)
            for name in names:
                (few / name).symlink_to(self.programs / name)
            environment = {**self.environment(path=str(few)), **variables}
            return run(
                [few / "sh", script, "--version"],
                env=environment,
                fails=not names and not variables,
            )

        version = f"ipybox {VERSION}"
        expect(version in started("uvx", "npx"), "uvx does not start ipybox")
        expect(self.recorded()[0] == "uvx", "uvx is not preferred")
        expect(
            version in started(IPYBOX_PROGRAM=str(self.options.ipybox)),
            "IPYBOX_PROGRAM is not taken",
        )
        if "uvx" in beyond:
            return print(
                f"    not tried, since they are where `start.sh` looks too: {beyond}"
            )
        expect(version in started("npx"), "npx does not start ipybox")
        expect(
            self.recorded()
            == ["npx", "-y", f"--package=ipybox@{VERSION}", "-c", "command -v ipybox"],
            "npx is called otherwise",
        )
        if "npx" in beyond:
            return print(
                f"    not tried, since they are where `start.sh` looks too: {beyond}"
            )
        (self.programs / "ipybox").unlink(missing_ok=True)
        (self.programs / "ipybox").symlink_to(self.options.ipybox)
        expect(version in started("ipybox"), "an ipybox on PATH is not taken")
        message = started()
        expect(
            "uvx" in message and "npx" in message and VERSION in message,
            f"the error does not say what is missing: {message}",
        )
        return None

    def copies(self):
        """The plugins have what the script makes, and the script reports what differs."""
        run(["python3", ROOT / "packaging/plugins/build.py", "--check"])
        copy = self.scratch / "copy"
        for part in ("packaging/plugins", "packaging/icon", "plugins"):
            shutil.copytree(ROOT / part, copy / part)
        changed = copy / "plugins/codeact-docker/skills/codeact/SKILL.md"
        changed.write_text(changed.read_text() + "\n")
        (copy / "plugins/codeact-default/scripts/old.sh").write_text("")
        (copy / "plugins/codeact-sandbox/scripts/start.sh").unlink()
        script = copy / "packaging/plugins/build.py"
        output = run(["python3", script, "--check"], fails=True)
        for name in (
            "codeact-docker/skills/codeact/SKILL.md",
            "old.sh",
            "codeact-sandbox/scripts/start.sh is missing",
        ):
            expect(name in output, f"nothing is said of {name}:\n{output}")
        run(["python3", script])
        run(["python3", script, "--check"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--claude", type=Path, required=True, help="the program of Claude Code"
    )
    parser.add_argument("--ipybox", type=Path, required=True)
    parser.add_argument(
        "--tools", type=Path, required=True, help="the test tools' directory"
    )
    options = parser.parse_args()
    for name in ("claude", "ipybox", "tools"):
        setattr(options, name, getattr(options, name).resolve())
    steps = Steps()
    with tempfile.TemporaryDirectory(
        prefix="ipybox-", ignore_cleanup_errors=True
    ) as scratch:
        home = ClaudeHome(options, Path(scratch).resolve())
        for name in ("uvx", "npx", "docker"):
            home.stand_in(name)
        steps.step("each plugin has its copy of what they share", home.copies)
        steps.step(
            "the marketplace and its plugins are valid, to the last warning",
            home.validate,
        )
        steps.step("a plugin that is not is refused", home.refuse)
        steps.step(
            "the plugins are installed from a git repository", home.add_marketplace
        )
        steps.step("what is installed is all that is here", home.look_at_installed)
        steps.step(
            "Claude Code reads the skill, registers a server and runs a cell", home.act
        )
        home.end_sessions()
        sessions = Sessions(home)
        sessions.run(steps)
        steps.step("codeact-default connects", home.start_default)
        steps.step("codeact-default connects with another approval", home.configure)
        steps.step("codeact-docker connects", home.start_docker)
        steps.step("servers that are added by hand connect", home.add_server)
        steps.step(
            "the plugin starts ipybox with what is there, or says what is missing",
            home.choose,
        )
        steps.step("codeact-sandbox connects", home.start_sandbox)
        steps.step(
            "no client that only looked has left a session", sessions.none_are_left
        )
    steps.end()


if __name__ == "__main__":
    main()
