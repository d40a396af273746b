"""A model that follows a script, for a client of the Messages API on loopback: what a client does with an answer can be
tried without a model, and without the internet.
"""

import http.server
import json
import threading


class Model:
    """Answers each request with the next step of a script, and keeps what it was told.

    A step is a function that gets the results of the tools so far, the newest last, and gives what is answered: the
    name of a tool and its arguments. After the last one the answer is a text, which ends the client's turn.
    """

    def __init__(self, script):
        self.script = script
        self.requests = []
        self.problems = []
        self.server = None

    def __enter__(self):
        model = self

        class Handler(http.server.BaseHTTPRequestHandler):
            """One request."""

            def do_POST(self):
                request = json.loads(
                    self.rfile.read(int(self.headers["Content-Length"]))
                )
                if "count_tokens" in self.path:
                    return self.answer("application/json", '{"input_tokens": 1}')
                return self.answer(
                    "text/event-stream",
                    events(model.next(request), len(model.requests)),
                )

            def do_GET(self):
                self.answer("application/json", "{}")

            do_HEAD = do_GET

            def answer(self, kind, text):
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                """Says nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self):
        """Where it is."""
        return f"http://127.0.0.1:{self.server.server_port}"

    def next(self, request):
        """The content of the answer to a request."""
        self.requests.append(request)
        results = list(tool_results(request))
        if len(results) >= len(self.script):
            return {"type": "text", "text": "The end."}
        try:
            name, arguments = self.script[len(results)](results)
        except Exception as error:  # noqa: BLE001 - in a thread of the server's; the test asks for it
            self.problems.append(error)
            return {"type": "text", "text": "The script does not go on."}
        return {
            "type": "tool_use",
            "id": f"toolu_{len(results)}",
            "name": name,
            "input": arguments,
        }

    def results(self):
        """What the tools have answered, in the end."""
        if self.problems:
            raise self.problems[0]
        return list(tool_results(self.requests[-1]))


def tool_results(request):
    """Each tool's result, with the texts beside it in the same message."""
    for message in request["messages"]:
        content = message["content"] if isinstance(message["content"], list) else []
        kinds = [part["type"] for part in content]
        for _ in range(kinds.count("tool_result")):
            yield json.dumps(content, ensure_ascii=False)


def events(block, number):
    """An answer with one block, as a stream of events; answers of the same number would be taken for one."""
    is_tool = block["type"] == "tool_use"
    if is_tool:
        begin = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        begin = {**block, "text": ""}
        delta = {"type": "text_delta", "text": block["text"]}
    message = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "script",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    end = {"stop_reason": "tool_use" if is_tool else "end_turn", "stop_sequence": None}
    told = [
        ("message_start", {"message": message}),
        ("content_block_start", {"index": 0, "content_block": begin}),
        ("content_block_delta", {"index": 0, "delta": delta}),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": end, "usage": {"output_tokens": 1}}),
        ("message_stop", {}),
    ]
    return "".join(
        f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n"
        for name, data in told
    )
