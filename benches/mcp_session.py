"""A small MCP client for ipybox on stdio: one of an SDK would take most of the time of a fast call."""

import json
import subprocess
import sys
import time


def ipybox_command(program, directory, *flags):
    """The command of a session whose files are below `directory`."""
    places = ["--workspace", f"{directory}/workspace"]
    places += ["--state-dir", f"{directory}/state"]
    return [program, *places, "--log-level", "ERROR", *flags]


def text_of(result):
    """The text of a tool's result."""
    return "\n".join(part.get("text", "") for part in result["content"])


class McpSession:
    """A session of ipybox that has answered `initialize`. `begun` is the time at which its program was started."""

    def __init__(self, command, capabilities=None, **options):
        self.begun = time.perf_counter()
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            **options,
        )
        self.requests = 0
        self.initialize(capabilities or {})

    def initialize(self, capabilities):
        self.request(
            "initialize",
            protocolVersion="2025-11-25",
            capabilities=capabilities,
            clientInfo={"name": "bench", "version": "1"},
        )
        self.send({"method": "notifications/initialized"})

    def send(self, message):
        line = json.dumps({"jsonrpc": "2.0", **message}) + "\n"
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()

    def begin(self, method, **params):
        """Sends a request. Returns the number by which `result` waits for its answer."""
        self.requests += 1
        self.send({"id": self.requests, "method": method, "params": params})
        return self.requests

    def result(self, number):
        for line in self.process.stdout:
            message = json.loads(line)
            if message.get("id") == number and "method" not in message:
                return message["result"]
        sys.exit(f"error: `{self.process.args[0]}` ended before it answered")

    def request(self, method, **params):
        return self.result(self.begin(method, **params))

    def begin_cell(self, code, **arguments):
        """Starts a cell. Returns the number by which `result` waits for its end."""
        arguments = {"code": code, **arguments}
        return self.begin(
            "tools/call", name="execute_ipython_cell", arguments=arguments
        )

    def call(self, tool, **arguments):
        """Calls a tool, which has to succeed. Returns its text."""
        result = self.request("tools/call", name=tool, arguments=arguments)
        if result.get("isError"):
            sys.exit(f"error: `{tool}`: {text_of(result)}")
        return text_of(result)

    def cell(self, code, **arguments):
        """Runs a cell, which has to succeed. Returns its text."""
        return self.call("execute_ipython_cell", code=code, **arguments)

    def stop(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()
