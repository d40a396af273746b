"""A tiny MCP server over stdio for the tests of `src/mcp`; it misbehaves as its first argument asks."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

MODE = sys.argv[1] if len(sys.argv) > 1 else "ok"
TOOLS = ["echo", "fail", "die", "sleep", "cancelled", "huge", "where", "ask"]
cancelled = []
answers = {}
lock = threading.Lock()
meeting = threading.Barrier(20)


def send(message):
    if MODE == "all-members" and "method" not in message:
        nothing = dict.fromkeys(["method", "params", "result", "error"])
        message = {**nothing, **message}
    with lock:
        if MODE == "logging":
            for line in [
                {"level": "info", "id": message.get("id"), "msg": "answering"},
                {"id": message.get("id"), "level": "error", "error": {"code": 1}},
                {"id": message.get("id"), "request": {"jsonrpc": "2.0"}},
                {"time": 1, "id": message.get("id"), "result": "ok"},
            ]:
                sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def text(request, text, **more):
    send(
        {
            "id": request["id"],
            "result": {"content": [{"type": "text", "text": text}], **more},
        }
    )


def tool(name):
    return {
        "name": name,
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    }


def list_tools(request):
    cursor = (request.get("params") or {}).get("cursor") or 0
    cursor = int(cursor) if MODE != "deaf-to-cursors" else 0
    page = {"tools": [tool(name) for name in TOOLS[cursor : cursor + 3]]}
    if MODE == "endless":
        page = {"tools": [tool(f"t{cursor}")], "nextCursor": str(cursor + 1)}
    elif MODE == "stuck":
        page["nextCursor"] = "1"
    elif MODE == "circle":
        page["nextCursor"] = str((cursor + 3) % 6)
    elif MODE == "deaf-to-cursors":
        page = {"tools": [tool("echo")], "nextCursor": os.urandom(8).hex()}
    elif MODE == "empty-cursor":
        page["nextCursor"] = ""
    elif cursor + 3 < len(TOOLS):
        page["nextCursor"] = str(cursor + 3)
    send({"id": request["id"], "result": page})


LISTS = {
    "resources/list": ("resources", lambda n: {"uri": f"r://{n}", "name": f"r{n}"}),
    "resources/templates/list": (
        "resourceTemplates",
        lambda n: {"uriTemplate": f"r://{n}/{{a}}", "name": f"t{n}"},
    ),
    "prompts/list": ("prompts", lambda n: {"name": f"p{n}"}),
}


def list_items(request):
    """Lists in two pages, of which the second is too large for rmcp in one mode."""
    name, item = LISTS[request["method"]]
    cursor = int((request.get("params") or {}).get("cursor", 0))
    is_second = cursor > 0
    described = {"description": "x" * 3_000_000} if MODE == "large-lists" else {}
    page = {name: [item(cursor) | (described if is_second else {})]}
    if not is_second or MODE == "endless":
        page["nextCursor"] = str(cursor + 1)
    if MODE == "large-lists":
        page[name][0]["icons"] = [{"src": "data:,"}]
    send({"id": request["id"], "result": page})


def get_prompt(request):
    size = int(request["params"].get("arguments", {}).get("bytes", 1))
    content = {"type": "text", "text": "x" * size}
    messages = [{"role": role, "content": content} for role in ("user", "assistant")]
    send({"id": request["id"], "result": {"messages": messages}})


def ask(request):
    for method in [
        "ping",
        "roots/list",
        "sampling/createMessage",
        "elicitation/create",
    ]:
        params = (
            {"messages": [], "maxTokens": 1} if method.startswith("sampling") else {}
        )
        if method.startswith("elicitation"):
            params = {
                "message": "?",
                "requestedSchema": {"type": "object", "properties": {}},
            }
        answers[method] = threading.Event()
        send({"id": method, "method": method, "params": params})
        answers[method].wait()
    answered = {method: event.answer for method, event in answers.items()}
    text(request, "", structuredContent=answered)


def call(request):
    arguments = request["params"].get("arguments") or {}
    match request["params"]["name"]:
        case "echo":
            text(
                request,
                arguments["text"],
                structuredContent=arguments.get("structured"),
            )
        case "fail":
            text(request, f"it failed: {os.environ.get('SECRET')}", isError=True)
        case "die":
            print("about to die", file=sys.stderr, flush=True)
            if arguments.get("child"):
                # It inherits stdout, so that nobody sees the end of it.
                subprocess.Popen(["sleep", "60"], stderr=subprocess.DEVNULL)
            os._exit(3)
        case "sleep":
            time.sleep(arguments["seconds"])
            text(request, "slept")
        case "meet":
            # Answered once all others have come.
            meeting.wait()
            text(request, "met")
        case "cancelled":
            text(request, json.dumps(cancelled))
        case "huge":
            text(request, "x" * arguments["bytes"])
        case "where":
            text(
                request,
                "",
                structuredContent={"cwd": os.getcwd(), "env": dict(os.environ)},
            )
        case "ask":
            ask(request)
        case other:
            send(
                {
                    "id": request["id"],
                    "error": {"code": -32602, "message": f"no tool {other}"},
                }
            )


def serve():
    for line in sys.stdin:
        message = json.loads(line)
        match message.get("method"):
            case "initialize":
                result = {
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}, "prompts": {}},
                }
                result |= {
                    "serverInfo": {"name": "fake", "version": "1.2"},
                    "instructions": "be kind",
                }
                if MODE == "bare":
                    send(
                        {"id": message["id"], "result": {"capabilities": {"tools": []}}}
                    )
                elif MODE == "no-object":
                    send({"id": message["id"], "result": ["tools"]})
                elif MODE == "old" and result["protocolVersion"] != "2025-03-26":
                    data = {"supported": ["2024-10-07", "2025-03-26"]}
                    send(
                        {
                            "id": message["id"],
                            "error": {
                                "code": -32602,
                                "message": "Unsupported protocol version",
                                "data": data,
                            },
                        }
                    )
                elif MODE == "refuse":
                    send(
                        {
                            "id": message["id"],
                            "error": {"code": -32000, "message": "not today"},
                        }
                    )
                else:
                    send({"id": message["id"], "result": result})
                if MODE == "deaf":
                    time.sleep(60)
            case method if method in LISTS and MODE != "no-tools":
                list_items(message)
            case "prompts/get":
                get_prompt(message)
            case "tools/list" | "prompts/list" | "resources/templates/list" if (
                MODE == "no-tools"
            ):
                send(
                    {"id": message["id"], "error": {"code": -32601, "message": "what?"}}
                )
            case "tools/list" if MODE == "dies-listing":
                os._exit(5)
            case "tools/list":
                list_tools(message)
            case "tools/call":
                threading.Thread(target=call, args=[message], daemon=True).start()
            case "server/discover" if MODE == "refuse":
                send(
                    {"id": message["id"], "error": {"code": -32601, "message": "what?"}}
                )
            case "notifications/cancelled":
                cancelled.append(message["params"]["requestId"])
            case None if message.get("id") in answers:
                answers[message["id"]].answer = message.get(
                    "error", message.get("result")
                )
                answers[message["id"]].set()


match MODE:
    case "exits":
        print(
            "cannot start: SECRET is",
            os.environ.get("SECRET"),
            file=sys.stderr,
            flush=True,
        )
        sys.exit(7)
    case "exits-child-holds-stdout":
        subprocess.Popen(["sleep", "60"])
        sys.exit(7)
    case "silent":
        print("I read nothing", file=sys.stderr, flush=True)
        time.sleep(60)
    case "greeting":
        print("Welcome to the server!", flush=True)
        time.sleep(60)
    case "noisy":
        print("Welcome to the server!\n\n[]\n{}", flush=True)
        serve()
    case "endless-line":
        while True:
            sys.stdout.write("x" * 1_000_000)
    case "waiting":
        # Starts anew are counted in the one file; the other one is waited for.
        started, ready = sys.argv[2:]
        with open(started, "a") as file:
            file.write("started\n")
        print("downloading", file=sys.stderr, flush=True)
        while not os.path.exists(ready):
            time.sleep(0.02)
        if os.path.getsize(ready):
            sys.exit("the download is broken")
        serve()
    case "installing":
        # Takes its time to remove what it has begun.
        def clean(*_):
            time.sleep(4)
            os.remove(sys.argv[2])
            sys.exit(1)

        signal.signal(signal.SIGTERM, clean)
        open(sys.argv[2], "w").close()
        # Not one long sleep: a signal that comes just before it would be handled after it.
        while True:
            time.sleep(0.1)
    case "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        serve()
        time.sleep(60)
    case _:
        serve()
