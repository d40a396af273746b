"""A model that follows a script, for a client of the Messages API on loopback: what a client does with an answer can be
tried without a model, and without the internet.
"""

import http.server
import json
import threading

from report import expect


class ScriptedModel:
    """Answers each request with the next step of a script, and keeps the requests.

    A step is a function that gets the results of the tools so far, the newest last, and gives what is answered: the
    name of a tool and its arguments, or a list of such pairs for calls at the same time. After the last one, or if one
    gives nothing, the answer is a text, which ends the client's turn. Conversations that begin with one of the words of `others`, as those of
    subagents, follow the script of that word.
    """

    def __init__(self, script, others=None):
        self.script = script
        self.others = others or {}
        self.requests = []
        self.problems = []
        self.server = None

    def __enter__(self):
        model = self

        class ModelHandler(http.server.BaseHTTPRequestHandler):
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

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ModelHandler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self):
        """The address of the model."""
        return f"http://127.0.0.1:{self.server.server_port}"

    def next(self, request):
        """The content of the answer to a request."""
        self.requests.append(request)
        word = self.word_of(request)
        script = self.others.get(word, self.script)
        results, done = list(tool_results(request)), answered(request)
        try:
            calls = script[done](results) if done < len(script) else None
        except Exception as error:  # noqa: BLE001 - in a thread of the server's; the test asks for it
            self.problems.append(error)
            return [{"type": "text", "text": "The script does not go on."}]
        if calls is None:
            return [{"type": "text", "text": "The end."}]
        return [
            {
                "type": "tool_use",
                "id": f"toolu_{word}_{done}_{number}",
                "name": name,
                "input": arguments,
            }
            for number, (name, arguments) in enumerate(
                calls if isinstance(calls, list) else [calls]
            )
        ]

    def word_of(self, request):
        """The other script that a conversation follows, if it does."""
        first = json.dumps(request["messages"][0], ensure_ascii=False)
        return next((word for word in self.others if word in first), "main")

    def results(self, word="main"):
        """The answers of the tools in a whole conversation."""
        if self.problems:
            raise self.problems[0]
        own = [request for request in self.requests if self.word_of(request) == word]
        expect(own, f"no conversation was the one of {word!r}")
        return list(tool_results(own[-1]))


def answered(request):
    """The number of the model's answers that had calls."""
    return sum(
        message["role"] == "assistant" and "tool_use" in kinds_of(message)
        for message in request["messages"]
    )


def kinds_of(message):
    """The kinds of the parts of a message."""
    content = message["content"] if isinstance(message["content"], list) else []
    return [part["type"] for part in content]


def tool_results(request):
    """Each tool's result, with the texts beside it in the same message."""
    for message in request["messages"]:
        for _ in range(kinds_of(message).count("tool_result")):
            yield json.dumps(message["content"], ensure_ascii=False)


def events(blocks, number):
    """An answer with some blocks, as a stream of events; answers of the same number would be taken for one."""
    is_tool = blocks[0]["type"] == "tool_use"
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
    stream = [("message_start", {"message": message})]
    for index, block in enumerate(blocks):
        stream += block_events(block, index)
    end = {"stop_reason": "tool_use" if is_tool else "end_turn", "stop_sequence": None}
    stream += [
        ("message_delta", {"delta": end, "usage": {"output_tokens": 1}}),
        ("message_stop", {}),
    ]
    return "".join(
        f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n"
        for name, data in stream
    )


def block_events(block, index):
    """The events of one block."""
    if block["type"] == "tool_use":
        begin = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        begin = {**block, "text": ""}
        delta = {"type": "text_delta", "text": block["text"]}
    return [
        ("content_block_start", {"index": index, "content_block": begin}),
        ("content_block_delta", {"index": index, "delta": delta}),
        ("content_block_stop", {"index": index}),
    ]
