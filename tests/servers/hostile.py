"""An MCP server that floods its client and answers what it cannot use. Standard library only.

    python3 hostile.py stdio [LIST]
    python3 hostile.py http          prints its port; /json answers as JSON, /events by events, /sse in the old way

LIST says what the list of tools is like: `pages` of 40 MB, `thick` ones of 5 MB, `endless` small ones, or `deep`.
"""

import http.server
import json
import os
import queue
import sys
import threading

TOOLS = [
    "text",
    "empty",
    "deep",
    "malformed",
    "image",
    "endless",
    "flood",
    "burst",
    "echo",
]
MIB = 1 << 20


def chunks(piece, size):
    """`size` bytes made of `piece`."""
    block = piece * (MIB // len(piece))
    for _ in range(size // len(block)):
        yield block
    yield piece * (size % len(block) // len(piece))


def answer(id, result):
    """The pieces of an answer whose result is made of pieces."""
    yield b'{"jsonrpc":"2.0","id":%s,"result":' % json.dumps(id).encode()
    yield from result
    yield b"}"


def structured(pieces):
    yield b'{"content":[],"structuredContent":'
    yield from pieces
    yield b"}"


def call(id, name, arguments):
    size = arguments.get("bytes", 0)
    if name == "text":
        piece = arguments.get("piece", "x").encode()
        content = b'{"content":[{"type":"text","text":"'
        return answer(id, [content, *chunks(piece, size), b'"}]}'])
    if name == "empty":
        return answer(id, structured([b'{"a":[', *chunks(b"[],", size), b"[]]}"]))
    if name == "deep":
        depth = arguments["depth"]
        return answer(id, structured([b'{"a":', b"[" * depth, b"]" * depth, b"}"]))
    if name == "malformed":
        return [b'{"jsonrpc":"2.0","result":{"content":7},"id":%d}' % id]
    if name == "image":
        content = b'{"content":[{"type":"image","mimeType":"image/png","data":"'
        return answer(id, [content, *chunks(b"AAAA", size), b'"}]}'])
    if name == "endless":
        return answer(id, endless())
    if name == "burst":
        return burst(id, arguments["count"])
    text = {"type": "text", "text": arguments.get("text", "")}
    return answer(id, [json.dumps({"content": [text]}).encode()])


def burst(id, count):
    """Requests before the answer, as events."""
    for number in range(count):
        yield b'{"jsonrpc":"2.0","id":"ping-%d","method":"ping"}\n\ndata: ' % number
    yield from answer(id, [b'{"content":[{"type":"text","text":"done"}]}'])


def endless():
    yield b'{"content":[{"type":"text","text":"'
    block = b"x" * MIB
    while True:
        yield block


def tools(id, cursor, kind):
    listed = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
    if kind == "pages":
        page = [b'{"tools":[', *chunks(b'{"name":"x","inputSchema":{}},', 40 * MIB)]
        end = b'{"name":"%d","inputSchema":{}}],"nextCursor":"%d"}' % (
            cursor,
            cursor + 1,
        )
        return answer(id, [*page, end])
    if kind == "thick":
        page = [
            b'{"tools":[{"name":"x%d","inputSchema":{},"description":"' % cursor,
            *chunks(b"x", 5 * MIB),
        ]
        end = b'"}],"nextCursor":"%d"}' % (cursor + 1)
        return answer(id, [*page, end])
    if kind == "deep":
        schema = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
        return answer(id, [b'{"tools":[{"name":"x","inputSchema":', schema, b"}]}"])
    page = {"tools": listed}
    if kind == "endless":
        page["nextCursor"] = str(cursor + 1)
    return answer(id, [json.dumps(page).encode()])


def answered(message, kind):
    """The pieces of the answer to a message, or None."""
    method, id = message.get("method"), message.get("id")
    if id is None or method is None:
        return None
    params = message.get("params") or {}
    if method == "initialize":
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "hostile", "version": "1"},
        }
        return answer(id, [json.dumps(result).encode()])
    if method == "tools/list":
        return tools(id, int(params.get("cursor") or 0), kind)
    if method == "tools/call":
        return call(id, params["name"], params.get("arguments") or {})
    return answer(id, [b"{}"])


def flood(arguments, output):
    """Sends one message again and again; it reads nothing meanwhile."""
    message = arguments["message"].encode()
    block = message.replace(b"ID", b"%d")
    number = 0
    while True:
        number += 1
        output.write((block % number if b"%d" in block else block) + b"\n")


def serve_stdio(kind):
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        message = json.loads(line)
        params = message.get("params") or {}
        if params.get("name") == "flood":
            arguments = params["arguments"]
            target = sys.stderr.buffer if arguments.get("stderr") else out
            flood(arguments, target)
        for piece in answered(message, kind) or []:
            out.write(piece)
        if message.get("id") is not None:
            out.write(b"\n")
            out.flush()


# What is still to be sent by each of the old streams.
streams = {}


class HostileHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def begin(self, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def do_GET(self):
        if self.path != "/sse":
            self.send_response(405)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        messages = queue.Queue()
        name = str(id(messages))
        streams[name] = messages
        self.begin("text/event-stream")
        self.wfile.write(b"event: endpoint\ndata: /post/%s\n\n" % name.encode())
        while True:
            self.write_event(messages.get())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        pieces = answered(body, "")
        if pieces is None or self.path.startswith("/post/"):
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()
            if pieces is not None:
                streams[self.path.rpartition("/")[2]].put(pieces)
        elif self.path == "/events":
            self.begin("text/event-stream")
            self.write_event(pieces)
        else:
            self.begin("application/json")
            for piece in pieces:
                self.wfile.write(piece)

    def write_event(self, pieces):
        self.wfile.write(b"data: ")
        for piece in pieces:
            self.wfile.write(piece)
        self.wfile.write(b"\n\n")
        self.wfile.flush()


def serve_http():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), HostileHandler)
    print(server.server_port, flush=True)
    # It ends with whoever has started it.
    threading.Thread(
        target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True
    ).start()
    server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "http":
        serve_http()
    else:
        serve_stdio(sys.argv[2] if len(sys.argv) > 2 else "")
