"""An MCP server whose tool has an effect that can be counted: a line in the home directory of its user."""

import json
import os
import sys

TOOL = {
    "name": "transfer",
    "description": "Pays an amount",
    "inputSchema": {
        "type": "object",
        "properties": {"amount": {"type": "integer"}},
        "required": ["amount"],
    },
}


def answer(message):
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        server = {"name": "bank", "version": "1"}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": server,
        }
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        amount = params["arguments"]["amount"]
        with open(os.path.join(os.environ["HOME"], "paid"), "a") as file:
            file.write(f"{amount}\n")
        return {"content": [{"type": "text", "text": f"paid {amount}"}]}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = answer(message)
    reply = (
        {"result": result}
        if result is not None
        else {"error": {"code": -32601, "message": "no such method"}}
    )
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)
