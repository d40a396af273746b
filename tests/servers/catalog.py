"""A small MCP server on stdio, without an SDK, that has as many tools as one asks for.

`catalog.py NAME COUNT [--secret VARIABLE] [--slow SECONDS] [--until FILE]`; the tool `NAME_0` returns whether VARIABLE is
set, and its length. With `--slow` it answers nothing before these seconds have passed, with `--until` not before the file
exists.
"""

import argparse
import json
import os
import sys
import time

arguments = argparse.ArgumentParser()
arguments.add_argument("name")
arguments.add_argument("count", type=int)
arguments.add_argument("--secret", default="")
arguments.add_argument("--slow", type=float, default=0)
arguments.add_argument("--until", default="/")
arguments = arguments.parse_args()

TOOLS = [
    {
        "name": f"{arguments.name}_{number}",
        "description": f"Entry {number} of {arguments.name}: lists and counts its items.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to look for"},
                "limit": {"type": "integer", "default": 10, "minimum": 1},
                "order": {"enum": ["asc", "desc"], "default": "asc"},
                "labels": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["query"],
        },
    }
    for number in range(arguments.count)
]


def answer(request):
    method = request["method"]
    if method == "initialize":
        return {
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": arguments.name, "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        secret = os.environ.get(arguments.secret, "")
        query = request["params"]["arguments"]["query"]
        text = f"{request['params']['name']}: {query}, secret of {len(secret)}"
        return {"content": [{"type": "text", "text": text}]}
    return {}


time.sleep(arguments.slow)
while not os.path.exists(arguments.until):
    time.sleep(0.02)
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        response = {"jsonrpc": "2.0", "id": request["id"], "result": answer(request)}
        print(json.dumps(response), flush=True)
