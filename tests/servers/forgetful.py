"""An MCP server over HTTP that forgets its sessions and then refuses them in one of many forms. Standard library only.

    python3 forgetful.py          prints its port; the form is the first part of the path: /text/mcp

Its tools: `forget` forgets all sessions, `count` says how often it was called, `expire` counts and then fails with words about
a session of its own.
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

JSON, TEXT, EVENTS = "application/json", "text/plain", "text/event-stream"
OWN = object()


def error(code, message, id=None):
    """An error of JSON-RPC; `OWN` stands for the id of the request."""
    return lambda own: json.dumps(
        {
            "jsonrpc": "2.0",
            "id": own if id is OWN else id,
            "error": {"code": code, "message": message},
        }
    )


FORMS = {
    "text": (400, TEXT, "Bad Request: No valid session ID provided"),
    "uninitialized": (400, JSON, error(-32000, "Bad Request: Server not initialized")),
    "other-id": (400, JSON, error(-32600, "Session not found", "server-error")),
    "own-id": (400, JSON, error(-32600, "Invalid session", OWN)),
    "unauthorized": (401, TEXT, "Unauthorized: Session not found"),
    "not-found": (404, TEXT, ""),
    "not-found-own-id": (404, JSON, error(-32001, "Session not found", OWN)),
    "gone": (410, TEXT, ""),
    "unprocessable": (422, TEXT, "Unexpected message, expect initialize request"),
    "internal": (500, JSON, '{"error": "session_not_found"}'),
    "unavailable": (503, TEXT, "Session 7f3a does not exist any more"),
    "ok-own-id": (200, JSON, error(-32001, "Session not found", OWN)),
    "ok-no-id": (200, JSON, error(-32000, "Server not initialized")),
    "ok-bare": (200, JSON, '{"error": "Session expired"}'),
    "ok-text": (200, TEXT, "Session expired"),
    "ok-events": (200, EVENTS, error(-32600, "Session not found", OWN)),
    "ok-events-no-id": (200, EVENTS, error(-32600, "Session not found")),
}
sessions, counts, begun = set(), {}, 0


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args):
        pass

    def answer(self, status, kind="", body="", session=None):
        if kind == EVENTS:
            body = f"event: message\ndata: {body}\n\n"
        body = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if session:
            self.send_header("Mcp-Session-Id", session)
        self.end_headers()
        self.wfile.write(body)

    def result(self, result, session=None):
        answer = {"jsonrpc": "2.0", "id": self.message["id"], "result": result}
        self.answer(200, JSON, json.dumps(answer), session)

    def do_GET(self):
        self.answer(405)

    def do_DELETE(self):
        self.answer(404)

    def do_POST(self):
        global begun
        form = self.path.split("/")[1]
        text = self.rfile.read(int(self.headers["Content-Length"]))
        self.message = json.loads(text)
        method, params = self.message["method"], self.message.get("params") or {}
        if method == "initialize":
            begun += 1
            sessions.add(f"{form} {begun}")
            result = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "forgetful", "version": "1"},
            }
            self.result(result, f"{form} {begun}")
        elif self.headers["Mcp-Session-Id"] not in sessions:
            status, kind, body = FORMS[form]
            body = body if isinstance(body, str) else body(self.message.get("id"))
            self.answer(status, kind, body)
        elif method == "tools/list":
            names = ["forget", "count", "expire"]
            tools = [{"name": n, "inputSchema": {"type": "object"}} for n in names]
            self.result({"tools": tools})
        elif method == "tools/call":
            self.call(form, params["name"])
        else:
            self.answer(202)

    def call(self, form, tool):
        counts[form] = counts.get(form, 0) + (tool != "forget")
        if tool == "forget":
            sessions.clear()
        if tool == "expire":
            words = error(-32000, "Session expired: log in to the bank again", OWN)
            return self.answer(200, JSON, words(self.message["id"]))
        content = [{"type": "text", "text": str(counts[form])}]
        return self.result({"content": content})


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
server.daemon_threads = True
print(server.server_port, flush=True)
server.serve_forever()
