#!/usr/bin/env python3
"""Floods a session from the inside and from MCP servers, and measures what its host takes and how soon it answers.

    python3 benches/floods.py PYTHON [--program target/release/ipybox] [--only WORD]

PYTHON has ipykernel and pydantic. Linux only. The memory is the proportional set size of the host's process, looked at
every 20 ms; the pings are requests of its client, one after the other. The figure for pings is set beside the one of the same
session while only an honest load of the machine runs: as many processes that just compute as the attack has.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future
from pathlib import Path

from mcp_session import McpSession, ipybox_command

SERVER = Path(__file__).resolve().parent.parent / "tests/servers/hostile.py"
MIB = 1 << 20

# Code that all attacks from the inside begin with.
PRELUDE = """
import http.client, json, os, socket, threading, time
HOST, PORT = os.environ["IPYBOX_TOOL_SERVER"].rsplit(":", 1)
HEAD = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["IPYBOX_TOOL_SERVER_TOKEN"]}
answers = {}
def send(body, path="/run", head={}):
    connection = http.client.HTTPConnection(HOST, int(PORT))
    try:
        try:
            connection.request("POST", path, body, {**HEAD, **head})
        except (BrokenPipeError, ConnectionResetError):
            pass
        response = connection.getresponse()
        text = f"{response.status} {response.read(150).decode()[:150]}"
    except Exception as error:
        text = type(error).__name__
    finally:
        connection.close()
    answers[text] = answers.get(text, 0) + 1
def body(server, args, tool="echo"):
    return b'{"server_name":"%s","tool_name":"%s","tool_args":{"text":%s}}' % (server.encode(), tool.encode(), args)
def empty(size):
    return b"[" + b"[]," * (size // 3) + b"[]]"
def at_once(work, times=10, seconds=20):
    threads = [threading.Thread(target=work, daemon=True) for _ in range(times)]
    for thread in threads: thread.start()
    end = time.time() + seconds
    for thread in threads: thread.join(max(0, end - time.time()))
    return answers
def endless():
    end = time.time() + 5
    while time.time() < end: yield b"[]," * 20000
def slowly():
    yield b'{"server_name":'
    time.sleep(4)
def call(tool, **args):
    send(json.dumps({"server_name": "hostile", "tool_name": tool, "tool_args": args}))
"""

INSIDE = {
    "39 MB of `[]` to an unknown server, 10 times": 'b = body("no", empty(39_000_000)); at_once(lambda: send(b))',
    "39 MB of `[]` to a known server, 10 times": 'b = body("hostile", empty(39_000_000)); at_once(lambda: send(b))',
    "800 kB of `[]` to a known server, 100 times": 'b = body("hostile", empty(800_000)); at_once(lambda: send(b), 100)',
    "a text of 39 MB, 10 times": "b = body('hostile', b'\"' + b'\\\\n' * 19_500_000 + b'\"'); at_once(lambda: send(b))",
    "100 MB": 'b = body("hostile", empty(100_000_000)); at_once(lambda: send(b), 3)',
    "bodies in pieces without end": "at_once(lambda: send(endless()), 10)",
    "bodies that do not come": "at_once(lambda: send(slowly()), 200)",
    "nested 100,000 deep": 'b = body("hostile", b"[" * 100_000 + b"]" * 100_000); at_once(lambda: send(b), 50)',
    "many names": "b = body('hostile', json.dumps({str(i): i for i in range(500_000)}).encode()); at_once(lambda: send(b), 10)",
    "the same name": "b = body('hostile', b'{' + b'\"a\":1,' * 2_000_000 + b'\"a\":1}'); at_once(lambda: send(b), 10)",
    "long numbers": "b = body('hostile', b'[' + b'1' * 30_000_000 + b']'); at_once(lambda: send(b), 10)",
    "the names of servers": 'b = body("x" * 30_000_000, b"1"); at_once(lambda: send(b), 10)',
    "many headers": "at_once(lambda: send(b'{}', head={f'x-{i}': 'x' * 500 for i in range(90)}), 200)",
    "texts to infer from": "b = json.dumps({'server_name': 'hostile', 'module': 'echo', 'results': ['[' + '[],' * 2_500_000 + '[]]']}).encode(); at_once(lambda: send(b, '/infer'), 10)",
    "2,000 idle connections": "idle = [socket.create_connection((HOST, int(PORT))) for _ in range(2000)]; call('echo', text='x'); answers",
}

# Nobody answers the questions.
WAITING = {
    "12 MB of text that waits for approval, 10 times": "b = body('hostile', b'\"' + b'x' * 12_000_000 + b'\"'); at_once(lambda: send(b), 10, 15)",
    "800 kB of `[]` that waits for approval, 100 times": "b = body('hostile', empty(800_000)); at_once(lambda: send(b), 100, 15)",
    "1,000 calls that wait for approval": "b = body('hostile', b'1'); at_once(lambda: send(b), 1000, 15)",
}

CALLS = {
    "200 MB of `[]`": ("empty", {"bytes": 200_000_000}),
    "30 MB of `[]`": ("empty", {"bytes": 30_000_000}),
    "a text of 39 MB": ("text", {"bytes": 39_000_000, "piece": "\\n"}),
    "an image of 29 MB": ("image", {"bytes": 39_000_000}),
    "an answer without end": ("endless", {}),
    "nested 100,000 deep": ("deep", {"depth": 100_000}),
    "malformed": ("malformed", {}),
}

FLOODS = {
    "pings": {"message": '{"jsonrpc":"2.0","id":ID,"method":"ping"}'},
    "pings with long ids": {
        "message": '{"jsonrpc":"2.0","id":"' + "x" * 200_000 + '","method":"ping"}'
    },
    "requests of 1 MB": {
        "message": '{"jsonrpc":"2.0","id":ID,"method":"sampling/createMessage","params":"'
        + "x" * MIB
        + '"}'
    },
    "log messages": {
        "message": '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"'
        + "x" * 50_000
        + '"}}'
    },
    "progress": {
        "message": '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":ID}}'
    },
    "answers that nobody asked for": {
        "message": '{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}'
    },
    "lines on stderr": {"message": "x" * 100_000, "stderr": True},
    "garbage": {"message": "[" * 100_000},
}


class FloodedSession(McpSession):
    """A session that is asked from several threads. One thread reads, and hands each answer to the one that waits for it."""

    def initialize(self, capabilities):
        self.results, self.lock, self.end = {}, threading.Lock(), None
        threading.Thread(target=self.read, daemon=True).start()
        super().initialize(capabilities)

    def read(self):
        for line in self.process.stdout:
            message = json.loads(line)
            if "method" not in message and message["id"] in self.results:
                self.results[message["id"]].set_result(message.get("result", {}))
        with self.lock:
            self.end = SystemExit(f"the program has ended: {self.process.wait()}")
            for result in list(self.results.values()):
                if not result.done():
                    result.set_exception(self.end)

    def begin(self, method, **params):
        with self.lock:
            if self.end:
                raise self.end
            self.requests += 1
            number = self.requests
            self.results[number] = Future()
            self.send({"id": number, "method": method, "params": params})
        return number

    def result(self, number):
        result = self.results[number].result()
        del self.results[number]
        return result

    def call(self, tool, **arguments):
        """Calls a tool, which may fail. Returns the first part of its text."""
        result = self.request("tools/call", name=tool, arguments=arguments)
        content = result.get("content", [{}])
        return content[0].get("text", "") if content else str(result)

    def cell(self, code):
        return super().cell(code, timeout=60)

    def pss(self):
        lines = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines()
        return next(
            int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")
        )


def start(args, directory, *flags):
    command = ipybox_command(args.program, directory, "--python", args.python, *flags)
    # Questions come, and are not answered.
    return FloodedSession(command, capabilities={"elicitation": {}})


class Watch:
    """Measures while something else happens."""

    def __init__(self, session):
        self.session, self.is_over = session, threading.Event()
        self.sizes, self.pings = [session.pss()], []

    def __enter__(self):
        self.threads = [
            threading.Thread(target=work) for work in (self.weigh, self.ping)
        ]
        for thread in self.threads:
            thread.start()
        return self

    def weigh(self):
        while not self.is_over.wait(0.02):
            self.sizes.append(self.session.pss())

    def ping(self):
        while not self.is_over.wait(0.02):
            begin = time.perf_counter()
            self.session.request("ping")
            self.pings.append(1000 * (time.perf_counter() - begin))

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join()


def loaded(session, processes=2):
    """The pings while others compute."""
    load = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(processes)
    ]
    with Watch(session) as watch:
        time.sleep(4)
    for process in load:
        process.kill()
        process.wait()
    return watch


class FloodReport:
    def __init__(self):
        self.failures = []

    def add(self, name, watch, answers):
        peak, pings = max(watch.sizes) / 1e6, sorted(watch.pings) or [0]
        worst, usual = pings[-1], statistics.median(pings)
        tail = pings[int(0.99 * (len(pings) - 1))]
        print(
            f"| {name} | {peak:.0f} | {usual:.1f} | {tail:.0f} | {worst:.0f} | {answers} |",
            flush=True,
        )
        if peak >= 300:
            self.failures.append(f"{name}: {peak:.0f} MB")


def short(text):
    return " ".join(str(text).split())[:140].replace("|", "/")


def attack_from_inside(report, args, directory):
    session = start(args, directory)
    register(session)
    session.cell(PRELUDE)
    report.add("(idle)", watched(session, lambda: time.sleep(2))[0], "")
    report.add("(two processes compute)", loaded(session), "")
    for name, code in INSIDE.items():
        if args.only in name:
            report.add(
                name,
                *watched(
                    session, lambda code=code: session.cell("answers.clear()\n" + code)
                ),
            )
            session.cell("idle = None")
    session.stop()


def attack_while_asked(report, args, directory):
    policy = directory / "policy.toml"
    policy.write_text(
        'default = "allow"\n[[rule]]\nserver = "hostile"\neffect = "ask"\n'
    )
    flags = ["--approval", "policy", "--approval-policy", policy]
    session = start(args, directory, *flags)
    register(session)
    session.cell(PRELUDE)
    for name, code in WAITING.items():
        if args.only in name:
            report.add(
                name,
                *watched(
                    session, lambda code=code: session.cell("answers.clear()\n" + code)
                ),
            )
    session.stop()


def register(session, name="hostile", *words, **reach):
    command = {"command": sys.executable, "args": [str(SERVER), "stdio", *words]}
    return session.call(
        "register_mcp_server", server_name=name, server_params=reach or command
    )


def watched(session, work):
    with Watch(session) as watch:
        answers = work()
    return watch, short(answers)


def attack_from_servers(report, args, directory):
    session = start(args, directory)
    http = subprocess.Popen(
        [sys.executable, SERVER, "http"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    port = http.stdout.readline().strip()
    session.cell(PRELUDE)
    ways = {"stdio": None, "HTTP": "json", "events": "events", "old SSE": "sse"}
    for way, path in ways.items():
        for name, (tool, arguments) in CALLS.items():
            if args.only not in name:
                continue
            if path is None:
                register(session)
            else:
                kind = "sse" if path == "sse" else "http"
                register(session, url=f"http://127.0.0.1:{port}/{path}", type=kind)
            code = f"answers.clear()\nat_once(lambda: call({tool!r}, **{arguments!r}), 4, 40)"
            report.add(
                f"{way}: {name}, 4 times",
                *watched(session, lambda code=code: session.cell(code)),
            )
            session.call("reset")
            session.cell(PRELUDE)
    http.kill()
    for name, arguments in FLOODS.items():
        if args.only in name:
            register(session)
            code = f"answers.clear()\nat_once(lambda: call('flood', **{arguments!r}), 1, 8)"
            report.add(
                f"flood: {name}",
                *watched(session, lambda code=code: session.cell(code)),
            )
            session.call("reset")
            session.cell(PRELUDE)
    for kind in ["pages", "endless", "deep"]:
        if args.only in kind:
            report.add(
                f"list: {kind}",
                *watched(session, lambda kind=kind: register(session, "listed", kind)),
            )
    session.stop()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("python")
    parser.add_argument("--program", default="target/release/ipybox")
    parser.add_argument(
        "--only", default="", metavar="WORD", help="attacks whose name has it"
    )
    args = parser.parse_args()
    report = FloodReport()
    print(
        "| attack | PSS in MB | ping, median ms | 99 % | worst | what the attacker receives |"
    )
    print("|---|---|---|---|---|---|")
    for attack in [attack_from_inside, attack_while_asked, attack_from_servers]:
        with tempfile.TemporaryDirectory() as directory:
            attack(report, args, Path(directory))
    sys.exit("\n".join(report.failures))


if __name__ == "__main__":
    main()
