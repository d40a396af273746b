"""A client that uses a session: `session.py CELL STATE IPYBOX FLAGS…`.

It runs the cell, waits until the variable `saved` is saved in the state directory (for some seconds: a fault may prevent it),
and ends the session. Ends with 1 if an answer is missing or an error.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

SAVING_SECS = 5

cell, state, *command = sys.argv[1:]
server = subprocess.Popen(
    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)


def ask(number: int, method: str, params: dict) -> dict:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    server.stdin.write(json.dumps(message) + "\n")
    server.stdin.flush()
    for line in server.stdout:
        answer = json.loads(line)
        if answer.get("id") == number and "method" not in answer:
            return answer["result"]
    sys.exit("there is no answer")


client = {"name": "sweep", "version": "1"}
ask(
    1,
    "initialize",
    {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client},
)
server.stdin.write(
    json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}) + "\n"
)
result = ask(
    2, "tools/call", {"name": "execute_ipython_cell", "arguments": {"code": cell}}
)
print("".join(part.get("text", "") for part in result["content"]))
deadline = time.monotonic() + SAVING_SECS
while (
    "saved" in cell
    and server.poll() is None
    and time.monotonic() < deadline
    and not any(
        '"saved"' in manifest.read_text()
        for manifest in Path(state).glob("workspaces/*/checkpoints/*/manifest.json")
    )
):
    time.sleep(0.01)
server.stdin.close()
server.wait()
sys.exit(result.get("isError", False) or server.returncode != 0)
