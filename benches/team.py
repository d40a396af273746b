#!/usr/bin/env python3
"""Loads a team server on loopback with many users, attacks it from a user's cell, and kills it at random moments.

    python3 benches/team.py PYTHON [--program target/release/ipybox] [--users 200] [--active 20] [--cells 50] [--kills 200]
                                   [--only PART]

PYTHON has ipython and pydantic, and can be run by any user of the machine. Linux only. Times are in milliseconds, and
beside those of a session on stdio in the same run. Ends with 1 if anything was lost or done twice.
"""

import argparse
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from limits import ATTACKS
from mcp_session import McpSession, ipybox_command, text_of

PATIENCE_SECS = 300
# Enough to save small variables in.
SAVED_SECS = 5
# Agents take longer to write their next cell.
PAUSE_SECS = 0.2
# As long as a fast one takes, at least and at most.
AGENT_SECS = (1.0, 3.0)
LEGACY = "2025-11-25"
# Speaks what a client of tools needs, so that the SDK of a server takes no part of the time.
SERVER = """
import json, sys
schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "echo", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "say", "description": "Says it.", "inputSchema": schema}]}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": params["arguments"]["text"]}]}
    elif method == "ping":
        result = {}
    else:
        if "id" in message:
            answer = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no such method"}}
            print(json.dumps(answer), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
TOOL_CALL = "from mcptools import echo\necho.say.run(text='{}')"


class TeamServer:
    """A server of its own directory, whose users have tokens."""

    def __init__(self, options, root, users, more=""):
        self.options, self.root = options, root
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        (root / "echo.py").write_text(SERVER)
        server = {"command": options.python, "args": [str(root / "echo.py")]}
        (root / "servers.json").write_text(json.dumps({"mcpServers": {"echo": server}}))
        self.config = root / "team.toml"
        self.config.write_text(
            f'[server]\nlisten = "127.0.0.1:{self.port}"\nstate_dir = "state"\n'
            f'[login]\nresource = "http://127.0.0.1:{self.port}/mcp"\ntokens_file = "tokens.json"\n'
            f'[sessions]\npython = "{options.python}"\nmcp_config = ["{root}/servers.json"]\nlimit_disk = "256M"\n'
            f"[users]\nrequests_per_minute = 1000000\n{more}"
        )
        self.tokens = [
            self.json("user", "add", f"user{number}")["token"]
            for number in range(users)
        ]
        self.process = None

    def run(self, *arguments):
        command = [self.options.program, "team", *arguments, "--config", self.config]
        return subprocess.run(
            command, check=True, text=True, stdout=subprocess.PIPE
        ).stdout

    def json(self, *arguments):
        return json.loads(self.run(*arguments, "--json"))

    def start(self):
        """Starts it; returns when it serves."""
        command = [self.options.program, "team", "serve", "--config", self.config]
        self.process = subprocess.Popen(command, text=True, stderr=subprocess.PIPE)
        said = []
        for line in self.process.stderr:
            said.append(line)
            if line.startswith("ipybox: serving "):
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return
        sys.exit(f"error: it does not serve: {''.join(said)}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE_SECS)

    def end_sessions(self):
        for session in self.json("sessions"):
            self.run("end", session["user"], session["id"])

    def memory(self):
        """The bytes that the front alone holds in memory that it shares with no other process."""
        text = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        return sum(
            int(size) * 1024 for size in re.findall(r"Private_\w+:\s+(\d+)", text)
        )


class TeamClient:
    """A client of 2025-11-25 with a connection of its own."""

    def __init__(self, server, number):
        self.server, self.token = server, server.tokens[number]
        self.session, self.connection, self.requests = None, None, 0

    def post(self, message):
        """Sends a message. Returns the status and the text of the response."""
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        if self.session:
            headers |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": LEGACY}
        if self.connection is None:
            self.connection = http.client.HTTPConnection(
                "127.0.0.1", self.server.port, timeout=PATIENCE_SECS
            )
        try:
            body = json.dumps({"jsonrpc": "2.0", **message})
            self.connection.request("POST", "/mcp", body, headers)
            response = self.connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException):
            self.connection.close()
            self.connection = None
            raise
        self.session = response.headers.get("Mcp-Session-Id", self.session)
        return response.status, text

    def request(self, method, **params):
        self.requests += 1
        message = {"id": self.requests, "method": method, "params": params}
        status, text = self.post(message)
        if status != 200:
            raise ConnectionError(f"status {status}: {text}")
        events = [line[5:] for line in text.splitlines() if line.startswith("data:")]
        for event in reversed(events or [text]):
            answer = json.loads(event) if event.strip() else {}
            if answer.get("id") == self.requests and "method" not in answer:
                if "error" in answer:
                    raise ConnectionError(answer["error"]["message"])
                return answer["result"]
        raise ConnectionError("the stream broke off")

    def begin(self):
        client = {"name": "bench", "version": "1"}
        self.request(
            "initialize", protocolVersion=LEGACY, capabilities={}, clientInfo=client
        )
        self.post({"method": "notifications/initialized"})
        return self

    def delete(self):
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Mcp-Session-Id": self.session,
        }
        self.connection.request("DELETE", "/mcp", None, headers)
        self.connection.getresponse().read()

    def cell(self, code, **arguments):
        arguments = {"code": code, **arguments}
        result = self.request(
            "tools/call", name="execute_ipython_cell", arguments=arguments
        )
        return text_of(result)


def timed(action):
    begun = time.perf_counter()
    result = action()
    return (time.perf_counter() - begun) * 1000, result


def quantiles(times):
    times = sorted(times)
    return times[len(times) // 2], times[len(times) * 99 // 100]


def show(name, times):
    p50, p99 = quantiles(times)
    print(f"{name:<44}{p50:>9.2f}{p99:>9.2f}  of {len(times)}", flush=True)
    return p50, p99


def repeated(sessions, count, least=0.0, most=0.0):
    """The times of cells and of calls of a tool, for each session; they take turns, so that the machine is as busy for all.

    least, most: seconds before each, in which the variables of the one before are saved
    """
    for session in sessions:
        session.cell(TOOL_CALL.format("first"))

    def pause():
        time.sleep(random.uniform(least, most))

    times = [([], []) for _ in sessions]
    for number in range(count):
        for session, (cells, calls) in zip(sessions, times):
            pause()
            took, text = timed(lambda s=session, n=number: s.cell(f"{n} + 1"))
            assert text.endswith(str(number + 1)), text
            cells.append(took)
            pause()
            took, text = timed(lambda s=session, n=number: s.cell(TOOL_CALL.format(n)))
            assert str(number) in text, text
            calls.append(took)
    return times


def load(options, root):
    """Times of active users beside idle ones, and the memory of the front."""
    server = TeamServer(options, root, options.users)
    server.start()
    try:
        return measure_load(options, server, root)
    finally:
        server.kill()
        server.end_sessions()


def measure_load(options, server, root):
    empty = server.memory()
    idle = []
    for number in range(options.active, options.users):
        client = TeamClient(server, number).begin()
        client.connection.close()
        client.connection = None
        idle.append(client)
        if options.idle_ends:
            for session in server.json("sessions", f"user{number}"):
                server.run("end", session["user"], session["id"])
    if idle:
        each = (server.memory() - empty) / len(idle)
        print(
            f"memory of the front: {empty / 1e6:.1f} MB, and {each / 1e6:.3f} MB for each of {len(idle)} idle users"
        )
    cold = [
        timed(lambda number=number: TeamClient(server, number).begin())
        for number in range(options.active)
    ]
    clients = [client for _, client in cold]
    first = [
        timed(lambda client=client: client.cell("x = 1; 1"))[0] for client in clients
    ]
    show("first request to first cell, cold", [a + b for (a, _), b in zip(cold, first)])
    warm = []
    for number in range(options.active):
        client = TeamClient(server, number)
        warm.append(timed(lambda client=client: client.begin().cell("1"))[0])
        # The first session saves variables again.
        client.delete()
    show("first request to first cell, a new session", warm)
    (root / "log").mkdir()
    one = McpSession(
        ipybox_command(
            options.program,
            root / "one",
            *("--python", options.python, "--sandbox", "--sandbox-backend", "bwrap"),
            *("--keep-session", "1h", "--mcp-config", root / "servers.json"),
            # As the server starts sessions.
            *("--checkpoint", "--audit-log", root / "log/audit.jsonl"),
        )
    )
    for client in clients:
        # The server may have closed it meanwhile, as it does with idle ones.
        client.connection.close()
    alone, front = repeated([one, clients[0]], options.cells, PAUSE_SECS, PAUSE_SECS)
    for client in clients:
        client.connection.close()
    with concurrent.futures.ThreadPoolExecutor(options.active) as pool:

        def at_once(*pause):
            all_times = pool.map(
                lambda c: repeated([c], options.cells, *pause)[0], clients
            )
            return [list(itertools.chain(*times)) for times in zip(*all_times)]

        as_agents, unceasing = at_once(*AGENT_SECS), at_once()
    for kind, word in enumerate(("cell", "tool call")):
        base = show(f"{word}, one session on stdio", alone[kind])
        p50, p99 = show(f"{word}, one user of the server", front[kind])
        print(f"{'':<44}{p50 - base[0]:>+9.2f}{p99 / base[1]:>8.1f}×")
        p50, p99 = show(f"{word}, {options.active} users as agents", as_agents[kind])
        print(f"{'':<44}{p50 - base[0]:>+9.2f}{p99 / base[1]:>8.1f}×")
        show(f"{word}, {options.active} users without a pause", unceasing[kind])
    one.stop()
    subprocess.run(
        [
            options.program,
            "sessions",
            "end",
            "--all",
            "--state-dir",
            root / "one/state",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # As in a machine that has lost them. Variables are saved while no cell runs.
    for client in clients:
        client.cell("x = 1")
    time.sleep(SAVED_SECS)
    for session in server.json("sessions"):
        os.kill(session["process"], signal.SIGKILL)
    restored = []
    for client in clients:
        # The first request learns of the death.
        with contextlib.suppress(ConnectionError):
            client.cell("1")
        took, text = timed(lambda client=client: client.cell("print(x)"))
        if text.endswith("1"):
            restored.append(took)
    print(f"{len(restored)} of {len(clients)} have their variables back")
    if restored:
        show("first cell of a session that died, restored", restored)
    return True


class KilledUser:
    """A user whose cells count up: in a variable, in a file, and by an effect that each cell has once."""

    def __init__(self, server, number):
        self.client = TeamClient(server, number).begin()
        self.client.cell("n = 0; log = open('log.txt', 'a', buffering=1); secret = []")
        self.sent, self.wrong = 0, []
        self.broken = 0

    def work(self, done):
        pending = None
        while not done.is_set() or pending is not None:
            if pending is None:
                self.sent += 1
                pending = self.sent
                code = f"n += 1; log.write('{pending}\\n'); print(f'answer-{pending}-{{n}}')"
            else:
                # The cell may have run, and its answer comes with the next one.
                code = "print(f'state-{n}')"
            try:
                text = self.client.cell(code)
            except (OSError, http.client.HTTPException):
                self.broken += 1
                time.sleep(0.05)
                continue
            if code.startswith("n += 1"):
                if f"answer-{pending}-{pending}" not in text:
                    self.wrong.append(f"cell {pending}: {text[-300:]!r}")
                pending = None
            else:
                self.recovered(pending, text)
                pending = None

    def recovered(self, pending, text):
        state = re.findall(r"state-(\d+)", text)
        if not state:
            self.wrong.append(f"after cell {pending}: {text[-300:]!r}")
        elif int(state[-1]) == pending - 1:
            # It never began: the request did not arrive.
            self.sent -= 1
        elif int(state[-1]) != pending:
            self.wrong.append(f"cell {pending} ran {state[-1]} times in all")
        elif f"answer-{pending}-{pending}" not in text:
            self.wrong.append(f"the answer of cell {pending} is lost: {text[-300:]!r}")

    def check(self):
        code = "print(n, open('log.txt').read().split())"
        text = self.client.cell(code, max_output_chars=10_000_000)
        expected = f"{self.sent} {[str(n + 1) for n in range(self.sent)]}"
        if not text.endswith(expected):
            self.wrong.append(
                f"at the end: {text[-300:]!r}, expected {expected[-100:]}"
            )


def kills(options, root):
    """Kills the front while users work."""
    server = TeamServer(options, root, options.active)
    server.start()
    chance = random.Random(options.seed)
    done = threading.Event()
    users = [KilledUser(server, number) for number in range(options.active)]
    threads = [threading.Thread(target=user.work, args=(done,)) for user in users]
    try:
        for thread in threads:
            thread.start()
        for _ in range(options.kills):
            time.sleep(chance.uniform(0.05, 1.5))
            server.kill()
            server.start()
        done.set()
        for thread in threads:
            thread.join(PATIENCE_SECS)
        for user in users:
            user.check()
    finally:
        done.set()
        server.kill()
        server.end_sessions()
    wrong = [line for user in users for line in user.wrong]
    print(
        f"{options.kills} kills, {sum(user.sent for user in users)} cells, "
        f"{sum(user.broken for user in users)} broken requests, {len(wrong)} violations"
    )
    for line in wrong[:20]:
        print(f"  {line}")
    return not wrong


def attempt(client, code):
    """Runs a cell whose kernel may not live to answer."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        client.cell(code, timeout=20)


def attacks(options, root):
    """One user attacks, another one measures."""
    limits = 'limit_memory = "1G"\nlimit_cpu = 1\nlimit_processes = 300\n'
    server = TeamServer(options, root, 2, limits)
    server.start()
    try:
        attacked, other = (TeamClient(server, number).begin() for number in range(2))
        attacked.cell("1")
        base = None
        for number in range(20):
            other.cell(f"{number}")
        for name, code in ATTACKS.items():
            attack = threading.Thread(target=attempt, args=(attacked, code))
            attack.start()
            times = [
                timed(lambda n=n: other.cell(f"{n}"))[0] for n in range(options.cells)
            ]
            _, p99 = show(f"a cell beside {name}", times)
            base = base or p99
            print(f"{'':<53}{p99 / base:>8.1f}×")
            attack.join(PATIENCE_SECS)
    finally:
        server.kill()
        server.end_sessions()
    return True


PARTS = {"load": load, "kills": kills, "attacks": attacks}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("python")
    add("--program", default="target/release/ipybox")
    add("--users", type=int, default=200)
    add("--active", type=int, default=20)
    add("--cells", type=int, default=50, help="of each active user")
    add("--kills", type=int, default=200)
    add("--seed", type=int, default=1)
    add("--only", choices=PARTS)
    add(
        "--idle-ends",
        action="store_true",
        help="end the sessions of idle users, whose memory a small machine may not have",
    )
    options = parser.parse_args()
    options.program = os.path.abspath(options.program)
    options.active = min(options.active, options.users)
    is_good = True
    for name, part in PARTS.items():
        if options.only in (None, name):
            print(f"== {name}: p50 and p99 in ms", flush=True)
            with tempfile.TemporaryDirectory(prefix="team-") as directory:
                # Users pass through it to what is theirs.
                os.chmod(directory, 0o755)
                is_good &= part(options, Path(directory))
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
