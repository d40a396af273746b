"""ipybox in a real Codex whose model is a script: code gets no more than Codex's own commands.

    codex.py --codex PATH --ipybox PATH --python PATH

The model is on loopback, and nothing is sent to anybody. Codex runs without a sandbox around itself: what it says about
its commands' sandbox is what counts.
"""

import argparse
import http.server
import json
import subprocess
import tempfile
import threading
from pathlib import Path

from report import Steps, expect

CONFIGURATION = """
model = "script"
model_provider = "script"
approval_policy = "never"
[model_providers.script]
name = "script"
base_url = "http://127.0.0.1:{port}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[mcp_servers.ipybox]
command = "{ipybox}"
args = ["--workspace", "{project}", "--state-dir", "{state}", "--python", "{python}"]
default_tools_approval_mode = "approve"
startup_timeout_sec = 600
tool_timeout_sec = 600
"""

PROBE = """
import pathlib
def can(what, function):
    try: function()
    except OSError: return
    print('can', what)
can('write project', lambda: pathlib.Path('made').write_text('x'))
can('write git', lambda: pathlib.Path('.git/made').write_text('x'))
can('write home', lambda: pathlib.Path('../home/made').write_text('x'))
can('read home', lambda: pathlib.Path('../home/config.toml').read_text() and None)
print('done')
"""

MODES = {
    "read-only": {"read home"},
    "workspace-write": {"write project", "read home"},
    "danger-full-access": {"write project", "write git", "write home", "read home"},
}
"""The actions that code can do, by mode of Codex's sandbox."""


class CodexModel(http.server.BaseHTTPRequestHandler):
    """Answers the first request of a conversation with a call that runs the probe, and the next one with a word."""

    results = ()

    def do_GET(self):
        self.answer("application/json", '{"data": [], "models": []}')

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        results = [
            item["output"]
            for item in request.get("input", [])
            if item.get("type") == "function_call_output"
        ]
        CodexModel.results = results
        if results:
            text = {"type": "output_text", "text": "done"}
            item = {"type": "message", "role": "assistant", "content": [text]}
        else:
            item = {
                "type": "function_call",
                "call_id": "call",
                "namespace": "mcp__ipybox",
                "name": "execute_ipython_cell",
                "arguments": json.dumps({"code": PROBE}),
            }
        used = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
        events = [
            {"type": "response.created", "response": {"id": "1"}},
            {"type": "response.output_item.done", "item": item},
            {"type": "response.completed", "response": {"id": "1", "usage": used}},
        ]
        lines = [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events]
        self.answer("text/event-stream", "".join(lines))

    def answer(self, kind, text):
        """Sends an answer."""
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        """Says nothing."""


def try_mode(mode, codex, scratch):
    """Runs the probe in one of Codex's modes."""
    for name in ("project/made", "project/.git/made", "home/made"):
        (scratch / name).unlink(missing_ok=True)
    done = subprocess.run(
        [codex, "exec", "--skip-git-repo-check", "--sandbox", mode, "Go on."],
        check=False,
        cwd=scratch / "project",
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(scratch),
            "CODEX_HOME": str(scratch / "home"),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    said = done.stdout + done.stderr
    expect(CodexModel.results, f"nothing was called:\n{said}")
    answer = str(CodexModel.results[-1])
    expect("done" in answer, f"the cell did not end:\n{answer}\n{said}")
    can = {what for what in MODES["danger-full-access"] if f"can {what}" in answer}
    expect(can == MODES[mode], f"code can {sorted(can)}:\n{answer}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name in ("codex", "ipybox", "python"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), CodexModel)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    steps = Steps()
    with tempfile.TemporaryDirectory(prefix="ipybox-") as name:
        scratch = Path(name).resolve()
        for directory in ("home", "project/.git"):
            (scratch / directory).mkdir(parents=True)
        configuration = CONFIGURATION.format(
            port=server.server_port,
            ipybox=options.ipybox.resolve(),
            python=options.python.absolute(),
            project=scratch / "project",
            state=scratch / "state",
        )
        (scratch / "home/config.toml").write_text(configuration)
        for mode in MODES:
            steps.step(
                f"code gets what commands get: {mode}",
                try_mode,
                mode,
                options.codex.resolve(),
                scratch,
            )
    server.shutdown()
    steps.end()


if __name__ == "__main__":
    main()
