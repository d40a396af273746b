"""Makes a kernel's environment, as the first cell in a new workspace does, and packs it for later workspaces.

Run while the image is built: `pack-environment.py WORKSPACE DESTINATION`. WORKSPACE is where containers will have
theirs, because environments hold absolute paths; it is gone afterwards. In DESTINATION there are then `kernel.tar.zst`
and `kernel.place`, the directory that it is to be unpacked in.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

PRIVATE = ".ipybox"


def answer_to(server, number, method, params):
    """Sends a request and waits for its answer; notifications in between are nothing to us."""
    request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    print(json.dumps(request), file=server.stdin, flush=True)
    for line in server.stdout:
        message = json.loads(line)
        if message.get("id") == number:
            return message
    raise SystemExit(f"ipybox ended before it answered `{method}`")


def run_a_cell(workspace, state):
    """A session whose first cell needs the environment."""
    environment = {**os.environ, "IPYBOX_STATE_DIR": str(state)}
    command = ["ipybox", "--workspace", str(workspace)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, **pipes) as server:
        client = {"name": "pack-environment", "version": "0"}
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": client,
        }
        answer_to(server, 1, "initialize", hello)
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        print(json.dumps(ready), file=server.stdin, flush=True)
        cell = {"name": "execute_ipython_cell", "arguments": {"code": "6 * 7"}}
        answer = answer_to(server, 2, "tools/call", cell)
        server.stdin.close()
    content = answer.get("result", {}).get("content", [])
    if [part.get("text") for part in content] != ["42"]:
        raise SystemExit(f"the cell came to something else than 42: {answer}")


def main():
    """Makes, packs and removes the environment."""
    workspace, destination = map(Path, sys.argv[1:])
    state = workspace / PRIVATE / "state"
    run_a_cell(workspace, state)
    (place,) = (state / "workspaces").iterdir()
    destination.mkdir(parents=True)
    (destination / "kernel.place").write_text(f"{place}\n")
    # The user who unpacks has a uid of its own.
    options = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--zstd"]
    archive = destination / "kernel.tar.zst"
    subprocess.run(
        ["tar", *options, "-C", place, "-cf", archive, "python", "python.json"],
        check=True,
        env={**os.environ, "ZSTD_CLEVEL": "10", "ZSTD_NBTHREADS": "0"},
    )
    shutil.rmtree(workspace)
    shutil.rmtree(Path.home() / ".cache", ignore_errors=True)


main()
