"""The MCP bundle: built and validated with the real `mcpb`, unpacked, and started as its manifest says.

    mcp1/bin/python mcpb.py --ipybox PATH --mcpb PATH/TO/mcpb/dist/cli/cli.js --python KERNEL_PYTHON [--node NODE]

Run by a Python with the MCP SDK 1.x, which is the client. The command is made by the tool's own code from the manifest
and the settings of a user, as an app does it.
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/clients"))

import session
from report import Steps, expect, run

PROCESSORS = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}
OTHER = {"x64": "arm64", "arm64": "x64"}

CONFIGURE = """
import { readFileSync } from "node:fs";
const [library, directory, settings] = process.argv.slice(1);
const { getMcpConfigForManifest } = await import(library);
const manifest = JSON.parse(readFileSync(`${directory}/manifest.json`, "utf8"));
const config = await getMcpConfigForManifest({
  manifest, extensionPath: directory, systemDirs: {}, userConfig: JSON.parse(settings), pathSeparator: "/",
});
process.stdout.write(JSON.stringify(config ?? null));
"""
"""Does as an app does: manifest and settings → command, arguments, environment."""


class Bundle:
    """A bundle on its way from program to session."""

    def __init__(self, options, scratch):
        self.options = options
        self.scratch = scratch
        self.file = scratch / "ipybox.mcpb"
        self.directory = scratch / "unpacked"
        self.workspace = scratch / "workspace"

    def mcpb(self, *arguments):
        """Runs the tool."""
        return run([self.options.node, self.options.mcpb, *arguments])

    def build(self, *, target=None, out=None, binary=None, fails=False):
        """Runs our script."""
        command = [
            self.options.node,
            ROOT / "packaging/mcpb/build.mjs",
            "--mcpb",
            self.options.mcpb,
        ]
        command += ["--binary", binary or self.options.ipybox]
        command += ["--target", target or self.target(), "--out", out or self.file]
        return run(command, fails=fails)

    @staticmethod
    def target():
        """This machine's."""
        return f"{platform.system().lower()}-{PROCESSORS[platform.machine()]}"

    def refusals(self):
        """The script refuses wrong input in words that name it."""
        system, processor = self.target().split("-")
        other = f"{system}-{OTHER[processor]}"
        expect(
            other in self.build(target=other, fails=True),
            "another processor's program is taken",
        )
        expect(
            "windows-x64" in self.build(target="windows-x64", fails=True),
            "an unknown target is taken",
        )
        expect(
            "/nonexistent" in self.build(binary="/nonexistent", fails=True),
            "no program is taken",
        )
        script = ROOT / "packaging/mcpb/start.sh"
        expect(
            "no program" in self.build(binary=script, fails=True),
            "a script is taken for the program",
        )

    def unpack(self):
        """Has the tool unpack it, and looks at what is there."""
        self.mcpb("unpack", self.file, self.directory)
        found = {
            str(path.relative_to(self.directory))
            for path in self.directory.rglob("*")
            if path.is_file()
        }
        expected = {
            "manifest.json",
            "icon.png",
            "LICENSE",
            "server/ipybox",
            "server/start.sh",
        }
        expect(found == expected, f"the bundle has {sorted(found)}")
        expect(
            os.access(self.directory / "server/ipybox", os.X_OK),
            "the program is not executable",
        )
        platforms = self.manifest()["compatibility"]["platforms"]
        expect(
            platforms == [platform.system().lower()], f"it says it is for {platforms}"
        )

    def manifest(self):
        """As it is in the bundle."""
        return json.loads((self.directory / "manifest.json").read_text())

    def validate_strictly(self):
        """The tool accepts the manifest in the bundle, and would not accept every one."""
        self.mcpb("validate", self.directory / "manifest.json")
        broken = self.scratch / "broken"
        shutil.copytree(self.directory, broken, ignore=shutil.ignore_patterns("server"))
        manifest = self.manifest()
        manifest["server"]["type"] = "rust"
        (broken / "manifest.json").write_text(json.dumps(manifest))
        run(
            [
                self.options.node,
                self.options.mcpb,
                "validate",
                broken / "manifest.json",
            ],
            fails=True,
        )

    def command(self, **settings):
        """The command, arguments and environment that an app starts with these settings."""
        library = self.options.mcpb.resolve().parent.parent / "index.js"
        program = [self.options.node, "--input-type=module", "--eval", CONFIGURE]
        return json.loads(
            run([*program, library, self.directory, json.dumps(settings)])
        )

    def hold_session(self):
        """A session, with the least environment that an app could have."""
        config = self.command(workspace=str(self.workspace))
        listed, outcome = asyncio.run(self._session(config))
        stated = {tool["name"] for tool in self.manifest()["tools"]}
        expect(
            listed == stated,
            f"the manifest states {sorted(stated)}, the server has {sorted(listed)}",
        )
        expect(
            outcome == str(self.workspace.resolve()), f"the cell printed {outcome!r}"
        )

    async def _session(self, config):
        # The kernel's interpreter is ours: to make one is another test's.
        command = [
            config["command"],
            *config["args"],
            "--python",
            str(self.options.python),
        ]
        command += ["--state-dir", str(self.scratch / "state")]
        settings = [f"{key}={value}" for key, value in config["env"].items()]
        least = ["PATH=/usr/bin:/bin", f"HOME={self.scratch}", *settings]
        with (self.scratch / "stderr").open("w") as log:
            async with session.connect(
                ["env", "-i", *least, *command], log=log
            ) as server:
                tools = {tool["name"] for tool in await server.tools()}
                cell = await server.cell("import os; print(os.getcwd())")
        expect(not cell.is_error, cell.text)
        return tools, cell.text.strip()

    def settings(self):
        """Each setting reaches the program."""
        expect(self.command() is None, "a workspace is not required")
        config = self.command(workspace="/w", approval="ask", sandbox=True)
        received = self.received(config)
        expect(
            received == ["--workspace", "/w", "--approval", "ask", "--sandbox"],
            f"ipybox gets {received}",
        )
        received = self.received(self.command(workspace="/w"))
        expect(
            received == ["--workspace", "/w", "--approval", "auto"],
            f"ipybox gets {received}",
        )
        config["env"]["IPYBOX_BUNDLE_SANDBOX"] = "perhaps"
        output = run(
            [config["command"], *config["args"]], env=config["env"], fails=True
        )
        expect("perhaps" in output, f"a wrong value is not named: {output}")

    def received(self, config):
        """The arguments that the program of the bundle gets."""
        copy = self.scratch / "received"
        shutil.copytree(self.directory, copy)
        program = copy / "server/ipybox"
        program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        # An app that does not keep modes.
        program.chmod(0o644)
        arguments = [
            argument.replace(str(self.directory), str(copy))
            for argument in config["args"]
        ]
        try:
            return run(
                [config["command"], *arguments],
                env={"PATH": "/usr/bin:/bin", **config["env"]},
            ).splitlines()
        finally:
            shutil.rmtree(copy)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--ipybox", type=Path, required=True)
    parser.add_argument("--mcpb", type=Path, required=True, help="the tool's cli.js")
    parser.add_argument(
        "--python", type=Path, required=True, help="a kernel's interpreter"
    )
    parser.add_argument("--node", default=shutil.which("node"))
    steps = Steps()
    with tempfile.TemporaryDirectory(prefix="ipybox-") as scratch:
        bundle = Bundle(parser.parse_args(), Path(scratch).resolve())
        steps.step("a bundle is built and passes the tool's validation", bundle.build)
        steps.step("what cannot start is not bundled", bundle.refusals)
        steps.step("unpacked, it has its files and their modes", bundle.unpack)
        steps.step(
            "the tool accepts this manifest, and not every one",
            bundle.validate_strictly,
        )
        steps.step("the settings reach ipybox", bundle.settings)
        steps.step(
            "started as the manifest says, it holds a session", bundle.hold_session
        )
    steps.end()


if __name__ == "__main__":
    main()
