"""The sandbox's policy in the workspace, as the plugin `codeact-sandbox` has it used: taken if it is there, and never
written by code inside.

    mcp1/bin/python workspace_policy.py --ipybox PATH --python KERNEL_PYTHON [--backend bwrap]

The server is started by the plugin's own `.mcp.json` and script. Run by a Python with the MCP SDK 1.x.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/clients"))

import session
from report import Steps, expect, run

PLUGIN = ROOT / "plugins/codeact-sandbox"
NAME = "sandbox-config.json"
POLICY = json.loads((ROOT / "sandbox-default.json").read_text())
POLICY["filesystem"]["denyRead"].append("hidden.txt")

ATTACKS = {
    "it is opened for writing": f"open({NAME!r}, 'w').write('{{}}')",
    "another file is renamed to it": f"open('other', 'w').write('{{}}')\nimport os\nos.rename('other', {NAME!r})",
    "a link is made of it": f"import os\nos.symlink('other', {NAME!r})",
    "a directory is made of it": f"import os\nos.mkdir({NAME!r})",
}
"""Ways to a policy of one's own, each in a cell."""

ATTACKS_ON_FILE = {
    **ATTACKS,
    "it is removed": f"import os\nos.remove({NAME!r})",
    "it is moved away": f"import os\nos.rename({NAME!r}, 'other')",
}
"""Those that need the file."""


class Plugin:
    """The plugin's server, with a workspace."""

    def __init__(self, options, scratch):
        self.options = options
        self.scratch = scratch
        self.workspace = scratch / "workspace"
        self.workspace.mkdir()
        (self.workspace / "hidden.txt").write_text("what the policy hides")

    @property
    def file(self):
        """The path of the policy."""
        return self.workspace / NAME

    def command(self):
        """As Claude Code starts it, in the workspace; the Python environment is the tests'."""
        server = json.loads((PLUGIN / ".mcp.json").read_text())["mcpServers"]["ipybox"]
        known = {
            "${CLAUDE_PLUGIN_ROOT}": str(PLUGIN),
            "${user_config.approval}": "auto",
        }
        words = [server["command"], *server["args"]]
        for name, value in known.items():
            words = [word.replace(name, value) for word in words]
        words += [
            "--python",
            str(self.options.python),
            "--state-dir",
            str(self.scratch / "state"),
        ]
        words += ["--sandbox-backend", self.options.backend]
        program = f"IPYBOX_PROGRAM={self.options.ipybox}"
        return ["env", "-C", str(self.workspace), program, *words]

    @contextlib.asynccontextmanager
    async def session(self):
        """A session with a server that has started its kernel."""
        started = False
        with tempfile.TemporaryFile("w+", dir=self.scratch) as log:
            try:
                async with session.connect(self.command(), log=log) as server:
                    started = True
                    cell = await server.cell("print('ready')")
                    expect(not cell.is_error, cell.text)
                    yield server
            except Exception as error:
                if started:
                    raise
                log.seek(0)
                problem = f"the server does not start: {log.read()}"
                raise AssertionError(problem) from error

    def end_kept(self):
        """Ends the sessions that the plugin keeps for the next client."""
        state = ["--state-dir", str(self.scratch / "state")]
        run([str(self.options.ipybox), "sessions", "end", "--all", *state])

    async def reads_hidden(self, server):
        """True if the policy in force is not the one that hides the file."""
        cell = await server.cell("print(open('hidden.txt').read())")
        return "what the policy hides" in cell.text

    async def attack(self, server, attacks):
        """None of the attacks succeeds."""
        for name, code in attacks.items():
            cell = await server.cell(code)
            expect(cell.is_error, f"it succeeds: {name}")

    def without(self):
        """Without the file, the default holds, and code cannot make one."""

        async def play():
            async with self.session() as server:
                expect(
                    await self.reads_hidden(server),
                    "another policy is in force than the default",
                )
                await self.attack(server, ATTACKS)

        asyncio.run(play())
        self.end_kept()
        expect(not os.path.lexists(self.file), f"{NAME} is left after the session")

    def beside(self):
        """The file in the place of the missing one in a session is no policy for another."""

        async def play():
            async with self.session() as first, self.session() as second:
                expect(
                    await self.reads_hidden(first),
                    "the first has another policy than the default",
                )
                expect(
                    await self.reads_hidden(second),
                    "the second has another policy than the default",
                )

        asyncio.run(play())
        self.end_kept()
        expect(not os.path.lexists(self.file), f"{NAME} is left after the sessions")

    def with_file(self):
        """With the file, it is the policy, and code cannot change it."""
        self.file.write_text(json.dumps(POLICY))

        async def play():
            async with self.session() as server:
                expect(
                    not await self.reads_hidden(server),
                    "the policy of the workspace is not in force",
                )
                await self.attack(server, ATTACKS_ON_FILE)

        asyncio.run(play())
        self.end_kept()
        expect(json.loads(self.file.read_text()) == POLICY, "the policy was changed")

    def refused(self):
        """A file that is no policy keeps the server from starting, and is named, though a session with another is kept."""

        async def play():
            async with self.session() as server:
                expect(
                    await self.reads_hidden(server),
                    "another policy is in force than the default",
                )

        self.file.unlink()
        asyncio.run(play())
        problems = {
            "no JSON": lambda: self.file.write_text("{"),
            "empty": lambda: self.file.write_text(""),
            "a directory": self.file.mkdir,
            "a link": lambda: self.file.symlink_to(self.scratch / "other.json"),
        }
        (self.scratch / "other.json").write_text(json.dumps(POLICY))
        for name, make in problems.items():
            with contextlib.suppress(FileNotFoundError):
                self.file.unlink()
            make()
            # At the end of the input a server ends by itself, with 0.
            said = run(self.command(), fails=True)
            expect(NAME in said, f"{name}: the error does not name the file: {said}")
            if self.file.is_dir():
                self.file.rmdir()
        self.file.unlink()
        self.end_kept()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--ipybox", type=Path, required=True)
    parser.add_argument(
        "--python", type=Path, required=True, help="a kernel's interpreter"
    )
    parser.add_argument("--backend", choices=["srt", "bwrap"], default="srt")
    options = parser.parse_args()
    options.ipybox = options.ipybox.resolve()
    options.python = options.python.absolute()
    steps = Steps()
    with tempfile.TemporaryDirectory(prefix="ipybox-") as scratch:
        plugin = Plugin(options, Path(scratch).resolve())
        steps.step(
            "without a file the default holds, and code cannot make one", plugin.without
        )
        steps.step("sessions side by side take no stub for a policy", plugin.beside)
        steps.step("a file is the policy, and code cannot change it", plugin.with_file)
        steps.step(
            "a file that is no policy is reported, and nothing starts", plugin.refused
        )
    steps.end()


if __name__ == "__main__":
    main()
