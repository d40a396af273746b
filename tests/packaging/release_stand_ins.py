"""Stand-ins that `publish.py` publishes to in the tests: programs that note their arguments, and an npm registry on loopback."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

# One program for cargo, gh, docker and mcp-publisher: it notes how it was called in $STAND_IN/calls, and finds what is
# published in $STAND_IN/published, one name in a line.
PROGRAM = r"""
import json, os, sys
from pathlib import Path
program, words, place = Path(sys.argv[0]).name, sys.argv[1:], Path(os.environ["STAND_IN"])
with (place / "calls").open("a") as calls:
    calls.write(" ".join([program, *words]) + "\n")
published = place / "published"
known = dict(line.split("\t") for line in published.read_text().splitlines())
def publish(name, what=""):
    with published.open("a") as file:
        file.write(f"{name}\t{what}\n")
def fail(text):
    sys.exit(text)
if os.environ.get("STAND_IN_BROKEN"):
    fail("error: connection refused")
if program == "cargo" and words[0] == "info":
    if words[2] not in known:
        fail(f"error: could not find `{words[2]}` in registry")
elif program == "cargo" and words[0] == "publish" and "--dry-run" not in words:
    for option, name in zip(words, words[1:]):
        if option == "--package":
            publish(f"{name}@{os.environ['VERSION']}")
elif program == "gh" and words[1] == "view":
    if words[2] not in known:
        fail("release not found")
    print(json.dumps({"isDraft": known[words[2]] == "draft"}))
elif program == "gh" and words[1] == "create":
    publish(words[2], "draft")
elif program == "gh" and words[1] == "edit":
    publish(words[2], "public")
elif program == "docker" and words[2] == "inspect":
    if words[3] not in known:
        fail(f"ERROR: {words[3]}: not found")
elif program == "docker" and words[2] == "create":
    publish(words[4])
elif program == "mcp-publisher":
    if "server.json" in known:
        fail("Error: publish failed: invalid version: cannot publish duplicate version")
    publish("server.json")
"""


class StandInRegistry(ThreadingHTTPServer):
    """As much of an npm registry as publishing needs: packages by name, and the order in which they came."""

    def __init__(self, directory: Path) -> None:
        super().__init__(("127.0.0.1", 0), StandInRequest)
        self.packages: dict[str, dict] = {}
        self.published: list[str] = []
        self.broken = False
        settings = directory / "npmrc"
        place = f"//127.0.0.1:{self.server_port}/"
        # Anybody may publish, but npm asks for a token.
        settings.write_text(
            f"registry=http:{place}\n{place}:_authToken=any\nfetch-retries=0\nupdate-notifier=false\n"
        )
        self.variables = {
            "npm_config_userconfig": str(settings),
            "npm_config_cache": str(directory / "cache"),
        }
        threading.Thread(target=self.serve_forever, daemon=True).start()


class StandInRequest(BaseHTTPRequestHandler):
    """Gives what is known of a package, and takes a new version of it."""

    server: StandInRegistry

    def do_GET(self) -> None:
        package = self.server.packages.get(unquote(self.path[1:]))
        if self.server.broken:
            self.answer(500, {"error": "broken"})
        elif package is None:
            self.answer(404, {"error": "not found"})
        else:
            self.answer(200, package)

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        known = self.server.packages.setdefault(
            body["name"], {"name": body["name"], "versions": {}}
        )
        if known["versions"].keys() & body["versions"].keys():
            return self.answer(
                403,
                {"error": "You cannot publish over the previously published versions"},
            )
        known["versions"] |= body["versions"]
        known["dist-tags"] = body["dist-tags"]
        self.server.published.append(body["name"])
        return self.answer(201, {"ok": True})

    def answer(self, status: int, body: dict) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass
