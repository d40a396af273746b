"""Runs the official conformance suite for servers against a team server, and prints a line for each scenario.

    server.py --suite DIR --url URL --token TOKEN [--node PATH] [--only WORD]

The suite cannot log in: its requests go through a relay of this program, which adds the token. The server allows web pages
of its own origin (`allowed_origins`), as a scenario expects, and a session for each scenario (`max_sessions`). Exit code: 0 all that apply
passed, 1 a check failed or a scenario that should not apply passed, 2 wrong usage.
"""

import argparse
import http.client
import http.server
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from urllib.parse import urlsplit

from run import bad, suite

SCENARIO_SECS = 600
TOOLS = "needs a tool that only the suite's own server has"
RESOURCES = "needs a resource that only the suite's own server has"
PROMPTS = "the server has no prompts"

NOT_APPLICABLE = {
    "logging-set-level": "the server sends no log messages",
    "completion-complete": "the server has nothing to complete",
    "tools-call-simple-text": TOOLS,
    "tools-call-image": TOOLS,
    "tools-call-audio": TOOLS,
    "tools-call-embedded-resource": TOOLS,
    "tools-call-mixed-content": TOOLS,
    "tools-call-with-logging": TOOLS,
    "tools-call-error": TOOLS,
    "tools-call-with-progress": TOOLS,
    "tools-call-sampling": TOOLS,
    "tools-call-elicitation": TOOLS,
    "json-schema-2020-12": TOOLS,
    "elicitation-sep1034-defaults": TOOLS,
    "elicitation-sep1330-enums": TOOLS,
    "server-sse-polling": TOOLS,
    "resources-read-text": RESOURCES,
    "resources-read-binary": RESOURCES,
    "resources-templates-read": RESOURCES,
    "resources-subscribe": "the server's resources do not change",
    "resources-unsubscribe": "the server's resources do not change",
    "prompts-list": PROMPTS,
    "prompts-get-simple": PROMPTS,
    "prompts-get-with-args": PROMPTS,
    "prompts-get-embedded-resource": PROMPTS,
    "prompts-get-with-image": PROMPTS,
}
"""Scenarios that cannot pass, and why. Each is run: one that passes does apply."""

HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


def relay(url, token):
    """A server that passes requests on with the token, and responses back as they come."""
    target = urlsplit(url)

    class Relay(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {
                name: value
                for name, value in self.headers.items()
                if name.lower() not in HOP_BY_HOP
            }
            headers["Authorization"] = f"Bearer {token}"
            # Another name than the relay's own is what a scenario tries.
            if headers.get("Host", headers.get("host")) in self.server.names:
                headers = {k: v for k, v in headers.items() if k.lower() != "host"}
                headers["Host"] = target.netloc
            for name in [name for name in headers if name.lower() == "origin"]:
                if headers[name].removeprefix("http://") in self.server.names:
                    headers[name] = f"http://{target.netloc}"
            self.close_connection = True
            connection = http.client.HTTPConnection(
                target.netloc, timeout=SCENARIO_SECS
            )
            try:
                connection.putrequest(
                    self.command, self.path, skip_host=True, skip_accept_encoding=True
                )
                for name, value in headers.items():
                    connection.putheader(name, value)
                if body or self.command == "POST":
                    connection.putheader("Content-Length", str(len(body)))
                connection.endheaders(body)
                self.give_back(connection.getresponse())
            except OSError:
                # Either side has gone, and the other one sees the end of its connection.
                return
            finally:
                connection.close()

        def give_back(self, response):
            self.send_response(response.status, response.reason)
            for name, value in response.getheaders():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            while chunk := response.read1(65536):
                self.wfile.write(chunk)
                self.wfile.flush()

        do_GET = do_POST = do_DELETE = do_OPTIONS = pass_on

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Relay)
    server.daemon_threads = True
    server.names = {
        f"{name}:{server.server_port}" for name in ("127.0.0.1", "localhost")
    }
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}{target.path}"


def run_scenario(command, scenario, url, output):
    """Runs a scenario; gives its checks and what the suite printed."""
    place = output / scenario
    place.mkdir()
    arguments = ["server", "--url", url, "--scenario", scenario]
    try:
        done = subprocess.run(
            [*command, *arguments, "--output-dir", str(place)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=SCENARIO_SECS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [], f"it did not end within {SCENARIO_SECS} s"
    found = list(place.rglob("checks.json"))
    return json.loads(found[0].read_text()) if found else [], done.stdout


def report(scenario, checks, text):
    """Prints the line of a scenario; returns whether it is as it should be."""
    failed = bad(checks)
    has_passed = bool(checks) and not failed
    reason = NOT_APPLICABLE.get(scenario)
    if reason and not has_passed:
        print(f"n/a  {scenario}: {reason}", flush=True)
        return True
    said = [
        f"{check['status']} {check['id']}: {check.get('errorMessage', '')}"
        for check in failed
    ]
    if reason:
        said.append(f"it passes, though `{reason}`: take it off the list")
    if not checks:
        said.append(f"no checks were made: {text[-1000:]}")
    passed = sum(check["status"] == "SUCCESS" for check in checks)
    mark = "FAIL" if said else "ok  "
    print(
        f"{mark} {scenario}: {'; '.join([f'{passed} passed', *said])}",
        flush=True,
    )
    return not said


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--suite", type=Path, required=True, metavar="DIR")
    add("--node", help="default: the one in the suite's packages, or in PATH")
    add("--url", required=True, help="of the server, with its path")
    add("--token", required=True)
    add("--only", metavar="WORD", default="", help="scenarios whose name has this")
    options = parser.parse_args()
    command, version = suite(options, parser)
    text = subprocess.check_output([*command, "list", "--server"], text=True)
    names = [line.split()[1] for line in text.splitlines() if line.startswith("  - ")]
    unknown = NOT_APPLICABLE.keys() - names
    if unknown:
        parser.error(f"the suite has no scenario {', '.join(sorted(unknown))}")
    scenarios = [name for name in names if options.only in name]
    if not scenarios:
        parser.error("no such scenario")
    url = relay(options.url, options.token)
    print(f"conformance {version}: {len(scenarios)} scenarios", flush=True)
    with tempfile.TemporaryDirectory(prefix="conformance-") as output:
        results = [
            report(name, *run_scenario(command, name, url, Path(output)))
            for name in scenarios
        ]
    print(f"{sum(results)} of {len(results)} scenarios are as they should be")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
