"""An MCP server whose tools tell its version, `server.py VERSION`; it needs the secret that goes with it."""

import json
import os
import sys

VERSION = sys.argv[1]
if os.environ["PROBE_TOKEN"] != f"the-secret-of-{VERSION}":
    sys.exit(f"PROBE_TOKEN is not the secret of {VERSION}")
NAMES = ["version", "only_in_" + VERSION]
TOOLS = [
    {"name": name, "inputSchema": {"type": "object", "properties": {}}}
    for name in NAMES
]

for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    answer = {"jsonrpc": "2.0", "id": request["id"]}
    match request["method"]:
        case "initialize":
            answer["result"] = {
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "probe", "version": VERSION},
                "instructions": f"A probe of version {VERSION}.",
            }
        case "tools/list":
            answer["result"] = {"tools": TOOLS}
        case "tools/call":
            text = json.dumps({"version": VERSION, "tool": request["params"]["name"]})
            answer["result"] = {"content": [{"type": "text", "text": text}]}
        case method:
            answer["error"] = {"code": -32601, "message": f"no {method}"}
    print(json.dumps(answer), flush=True)
