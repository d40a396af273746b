"""A server that the real npx downloads from a slow registry: no download is lost, and npx's cache stays whole.

Run it with a Python that has an MCP SDK. Exit code: 0 all steps passed, 1 some failed. It asks no other registry than one
of its own on loopback.
"""

import argparse
import asyncio
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import npm_registry
from npm_bench import npm_beside
from report import Steps, expect

sys.path.insert(0, str(Path(__file__).parents[1] / "clients"))
import session

# The smallest MCP server; without a client, it ends.
SERVER = """#!/usr/bin/env node
require("NAME-part");
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  const results = {
    initialize: () => ({
      protocolVersion: params.protocolVersion,
      capabilities: { tools: {} },
      serverInfo: { name: "NAME", version: "1.0.0" },
    }),
    "tools/list": () => ({ tools: [{ name: "one", inputSchema: { type: "object" } }] }),
  };
  if (results[method]) console.log(JSON.stringify({ jsonrpc: "2.0", id, result: results[method]() }));
});
"""
PATIENCE_SECS = 600


def tarball(directory, manifest, files):
    """The package as `npm pack` makes it."""
    path = directory / f"{manifest['name']}.tgz"
    files = {"package.json": json.dumps(manifest).encode(), **files}
    with tarfile.open(path, "w:gz", compresslevel=0) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size, member.mode = len(content), 0o755
            archive.addfile(member, io.BytesIO(content))
    return path


def packages(directory, name):
    """A server and what it needs, of which a half is more than one packet."""
    part = {"name": f"{name}-part", "version": "1.0.0", "main": "index.js"}
    server = {
        "name": name,
        "version": "1.0.0",
        "bin": {name: "server.js"},
        "dependencies": {part["name"]: "1.0.0"},
    }
    code = SERVER.replace("NAME", name).encode()
    blob = os.urandom(3_000_000)
    return [
        tarball(directory, part, {"blob": blob, "index.js": b"module.exports = 1;\n"}),
        tarball(directory, server, {"server.js": code}),
    ]


class NpxBench:
    """A registry that stops in the middle of tarballs, and homes with caches of npx."""

    def __init__(self, scratch, options, registry):
        self.scratch, self.options, self.registry = scratch, options, registry
        node = (Path(options.node_bin) / "node").resolve()
        npm = npm_beside(Path(options.node_bin))
        programs = scratch / "bin"
        programs.mkdir()
        (programs / "node").symlink_to(node)
        (programs / "npx").symlink_to(npm / "npx-cli.js")
        self.env = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(scratch / "home"),
            "npm_config_registry": registry.url,
            "npm_config_update_notifier": "false",
        }
        (scratch / "home").mkdir()
        # The MCP SDK starts servers with this process's environment.
        os.environ.clear()
        os.environ.update(self.env)

    def connect(self):
        """A session with ipybox."""
        workspace, states = self.scratch / "workspace", self.scratch / "states"
        flags = ["--workspace", workspace, "--state-dir", states]
        flags += ["--python", self.options.python]
        log = (self.scratch / "log").open("a")
        return session.connect([self.options.ipybox, *map(str, flags)], log=log)

    async def half_sent(self, name):
        """Waits until the registry has begun to send the package."""
        end = time.monotonic() + PATIENCE_SECS
        while f"/tarballs/{name}.tgz" not in self.registry.requests:
            expect(time.monotonic() < end, f"npx never asked for {name}")
            await asyncio.sleep(0.01)

    def cached(self, name):
        """The directory of npx's cache that is for the server."""
        for directory in (Path(self.env["HOME"]) / ".npm/_npx").iterdir():
            if (directory / "node_modules" / name).exists():
                return directory
        raise AssertionError(f"npx has no {name}")

    def installing(self, name):
        """The processes of npx that install the server."""
        listed = subprocess.run(
            ["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True
        )
        return [
            line
            for line in listed.stdout.splitlines()
            if "npx" in line or "npm exec" in line
            if line.split()[-1] == name
        ]

    def runs_in_a_shell(self, name):
        """Runs the server as its user would, with nothing to read."""
        return subprocess.run(
            ["npx", "-y", name],
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECS,
        )


async def register(server, name, timeout_secs):
    """Registers a server that npx runs."""
    params = {"command": f"npx -y {name}", "timeout": timeout_secs}
    arguments = {"server_name": name.replace("-", "_"), "server_params": params}
    return await server.call("register_mcp_server", arguments)


async def joined(bench):
    """The next registration joins the download."""
    bench.registry.gate.clear()
    async with bench.connect() as server:
        outcome = await register(server, "slow-first", 0.5)
        expect(
            outcome.is_error and "goes on to start in the background" in outcome.text,
            outcome.text,
        )
        await bench.half_sent("slow-first-part")
        bench.registry.gate.set()
        outcome = await register(server, "slow-first", PATIENCE_SECS)
        expect(not outcome.is_error and "one" in outcome.text, outcome.text)
    count = bench.registry.requests.count("/tarballs/slow-first-part.tgz")
    expect(count == 1, f"it was downloaded {count} times")


async def whole(bench):
    """The end of the session ends npx as npx wants to be ended."""
    bench.registry.gate.clear()
    async with bench.connect() as server:
        await register(server, "slow-second", 0.5)
        await bench.half_sent("slow-second-part")
        installing = bench.installing("slow-second")
        expect(installing, "there is no npx")
    bench.registry.gate.set()
    end = time.monotonic() + PATIENCE_SECS
    while bench.installing("slow-second"):
        expect(time.monotonic() < end, "npx does not end")
        await asyncio.sleep(0.1)
    left = [
        str(path)
        for path in Path(bench.env["HOME"]).glob(".npm/_npx/*/*")
        if path.name == "concurrency.lock" or (path / "slow-second-part").exists()
    ]
    expect(not left, f"npx was killed, and left {left}")
    done = bench.runs_in_a_shell("slow-second")
    expect(done.returncode == 0, f"{done.stdout}\n{done.stderr}")


async def broken(bench):
    """A cache that an earlier kill has broken is reported with what fixes it."""
    directory = bench.cached("slow-first")
    (directory / "node_modules/slow-first-part/index.js").unlink()
    async with bench.connect() as server:
        outcome = await register(server, "slow-first", PATIENCE_SECS)
        expect(outcome.is_error, outcome.text)
        expect(f"remove `{directory}` and register" in outcome.text, outcome.text)
        shutil.rmtree(directory)
        outcome = await register(server, "slow-first", PATIENCE_SECS)
        expect(not outcome.is_error, outcome.text)


def main():
    """Runs the steps; ends the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ipybox", required=True)
    parser.add_argument("--node-bin", required=True, help="the directory of `node`")
    parser.add_argument("--python", required=True, help="a Python for the kernel")
    options = parser.parse_args()
    steps = Steps()
    with tempfile.TemporaryDirectory(prefix="ipybox-npx-") as scratch:
        scratch = Path(scratch).resolve()
        tarballs = packages(scratch, "slow-first") + packages(scratch, "slow-second")
        with npm_registry.serving(tarballs) as registry:
            bench = NpxBench(scratch, options, registry)
            for sentence, function in [
                ("a registration that is too slow is joined by the next", joined),
                ("a session that ends amid a download leaves npx whole", whole),
                ("a broken cache of npx is reported with what fixes it", broken),
            ]:
                steps.step(
                    sentence, lambda function=function: asyncio.run(function(bench))
                )
            registry.gate.set()
    steps.end()


if __name__ == "__main__":
    main()
