"""The entries for clients in `docs/clients.md`, started as a client starts them.

    clients.py --ipybox PATH

The formats are those of several clients. `uvx` and `npx` are stand-ins that start ipybox if they are called as the
page says at its beginning. What `${workspaceFolder}` and `/path/to/workspace` stand for is a fresh directory.
"""

import argparse
import json
import re
import subprocess
import tempfile
from pathlib import Path

from report import Steps, expect

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/clients.md"
FENCE = re.compile(r"^```(json|toml)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
KEYS = ("mcpServers", "servers", "context_servers")
CLIENTS = {
    "Claude Desktop",
    "Visual Studio Code",
    "Cursor",
    "Zed",
    "Codex",
    "Gemini CLI",
}
"""Clients with an entry on the page."""

STAND_IN = """#!/bin/sh
case "$*" in
'{prefix} '*) shift {words}; exec '{ipybox}' --state-dir '{state}' "$@" ;;
*) echo "called otherwise than the documentation says: $*" >&2; exit 1 ;;
esac
"""

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "clients", "version": "1"},
    },
}


def entries():
    """Each entry of the page: the client it is for, and what it says."""
    text = PAGE.read_text()
    for match in FENCE.finditer(text):
        client = HEADING.findall(text, 0, match.start())[-1]
        language, block = match.groups()
        yield client, toml_entry(block) if language == "toml" else json_entry(block)


def json_entry(block):
    """The server in a JSON configuration."""
    value = json.loads(block)
    servers = [value[key] for key in KEYS if key in value]
    expect(len(value) == len(servers) == 1, f"no key of {KEYS} alone: {list(value)}")
    return servers[0]["ipybox"]


def toml_entry(block):
    """The server in a configuration in TOML; Python reads TOML from 3.11 on only."""
    table, *lines = block.strip().splitlines()
    expect(table == "[mcp_servers.ipybox]", f"another table: {table}")
    return {
        key: json.loads(value)
        for key, value in (line.split(" = ", 1) for line in lines)
    }


def start(entry, ipybox, scratch):
    """Starts the entry's command, has it initialized, and lets it end."""
    workspace = scratch / "workspace"
    workspace.mkdir(exist_ok=True)
    programs = scratch / "programs"
    programs.mkdir(exist_ok=True)
    for name, prefix in (("uvx", "ipybox-rs"), ("npx", "-y ipybox")):
        words = len(prefix.split())
        text = STAND_IN.format(
            prefix=prefix, words=words, ipybox=ipybox, state=scratch / "state"
        )
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    arguments = [
        argument.replace("${workspaceFolder}", str(workspace)).replace(
            "/path/to/workspace", str(workspace)
        )
        for argument in entry["args"]
    ]
    done = subprocess.run(
        [entry["command"], *arguments],
        check=False,
        cwd=workspace,
        env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(scratch)},
        input=json.dumps(INITIALIZE) + "\n",
        capture_output=True,
        text=True,
        timeout=900,
    )
    expect(done.stdout.strip(), f"no answer:\n{done.stderr}")
    answer = json.loads(done.stdout.splitlines()[0])
    name = answer.get("result", {}).get("serverInfo", {}).get("name")
    expect(name == "ipybox", f"answered: {answer}")


def end(ipybox, scratch):
    """Ends the sessions that the entries kept, which would run on for half an hour."""
    command = [ipybox, "sessions", "end", "--all", "--state-dir", scratch / "state"]
    subprocess.run(command, check=True)


def check_clients(found):
    """Each client has its entry: else a block that is not found would be no failure."""
    expect(
        set(found) == CLIENTS,
        f"the page has entries for {sorted(found)}, not for {sorted(CLIENTS)}",
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--ipybox", type=Path, required=True)
    options = parser.parse_args()
    ipybox = options.ipybox.resolve()
    steps = Steps()
    found = (
        steps.step("the entries of the page can be read", lambda: list(entries())) or []
    )
    clients = [client for client, _entry in found]
    steps.step("each client has its entry", check_clients, clients)
    with tempfile.TemporaryDirectory(prefix="ipybox-") as scratch:
        for client, entry in found:
            steps.step(
                f"{client}: ipybox answers",
                start,
                entry,
                ipybox,
                Path(scratch).resolve(),
            )
        steps.step("what they kept is ended", end, ipybox, Path(scratch))
    steps.end()


if __name__ == "__main__":
    main()
