"""The client that the official conformance suite tests: ipybox with an MCP client before it and a browser beside it.

    conformance client --command "PYTHON client.py" --scenario SCENARIO

The suite starts a server, calls this with its URL as the last argument, and then says what it saw of the client.
`$IPYBOX_PROGRAM` is the program and `$IPYBOX_OPTIONS` are options for the server, such as `--python PATH`;
`$IPYBOX_CONFORMANCE_LOGIN` says which way a user logs in:

- `command` (default): by `ipybox login` before the registration; for more scopes by elicitation in the URL mode.
- `elicitation`: in the URL mode alone.
- `retry`: as `command`, but the client has no URL mode: after an error that names `ipybox login`, that is run again.

Exit code: 0 when what should succeed did, and what should be refused was.
"""

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import mcp
from mcp import StdioServerParameters, types
from mcp.client.stdio import stdio_client

DEADLINE_SECS = 600
"""Below the time limit that `run.py` gives the suite, which kills nothing but a shell."""

LOGIN_SECS = 300
HERE = Path(__file__).resolve().parent
METADATA_URL = "https://conformance-test.local/client-metadata.json"
"""The one that `auth/basic-cimd` expects."""

CALLS = {
    "initialize": None,
    "tools_call": "add_numbers.run(a=5, b=3)",
    "elicitation-sep1034-client-defaults": "test_client_elicitation_defaults.run()",
    "sse-retry": "test_reconnection.run()",
}
"""The tool to call; in the other scenarios it is `test-tool`."""

EXPECTED = {
    "tools_call": "The sum of 5 and 3 is 8",
    "elicitation-sep1034-client-defaults": "John Doe",
    "sse-retry": "Reconnection test completed",
}
"""The text that a cell has to print; in the other scenarios it is `test`."""

REFUSED = {"auth/resource-mismatch", "auth/scope-retry-limit"}
"""Scenarios in which there is no way to the tool."""

OAUTH = {
    "auth/basic-cimd": {"client_metadata_url": METADATA_URL},
    "auth/pre-registration": {
        "client_id": "${CONTEXT_CLIENT_ID}",
        "client_secret": "${CONTEXT_CLIENT_SECRET}",
    },
    "auth/client-credentials-jwt": {
        "grant": "client_credentials",
        "client_id": "${CONTEXT_CLIENT_ID}",
        "private_key": "${CONTEXT_PRIVATE_KEY_PEM}",
        # Checked before placeholders are filled; it is what the suite says.
        "signing_algorithm": "ES256",
    },
    "auth/client-credentials-basic": {
        "grant": "client_credentials",
        "client_id": "${CONTEXT_CLIENT_ID}",
        "client_secret": "${CONTEXT_CLIENT_SECRET}",
    },
    "auth/cross-app-access-complete-flow": {
        "grant": "enterprise",
        "client_id": "${CONTEXT_CLIENT_ID}",
        "client_secret": "${CONTEXT_CLIENT_SECRET}",
        "identity_provider": {
            "token_endpoint": "${CONTEXT_IDP_TOKEN_ENDPOINT}",
            "client_id": "${CONTEXT_IDP_CLIENT_ID}",
            "id_token": "${CONTEXT_IDP_ID_TOKEN}",
            "issuer": "${CONTEXT_IDP_ISSUER}",
        },
    },
}
"""`oauth` of the server's parameters; `${CONTEXT_…}` is what the suite says in `$MCP_CONFORMANCE_CONTEXT`."""


class Failure(Exception):
    """The scenario went otherwise than it should."""


def environment(scratch):
    """The environment of ipybox: the browser, and what the suite says about the client."""
    browser = scratch / "browser"
    script = shlex.join([sys.executable, str(HERE / "browser.py")])
    browser.write_text(f'#!/bin/sh\nexec {script} "$@"\n')
    browser.chmod(0o755)
    log = str(scratch / "browser.log")
    values = dict(os.environ, BROWSER=str(browser), BROWSER_LOG=log)
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    for key, value in context.items():
        values[f"CONTEXT_{key.upper()}"] = value
    return values


@dataclass
class ConformanceClient:
    """A user with an MCP client, a shell and a browser."""

    scenario: str
    url: str
    scratch: Path
    way: str
    environment: dict
    session: mcp.ClientSession = None
    opened: list = field(default_factory=list)
    """URLs that were opened by elicitation."""
    tasks: set = field(default_factory=set)

    @property
    def program(self):
        return [os.environ["IPYBOX_PROGRAM"]]

    @property
    def places(self):
        workspace, state = self.scratch / "workspace", self.scratch / "state"
        return ["--workspace", str(workspace), "--state-dir", str(state)]

    async def run(self, command):
        """The exit code and the output of a command."""
        process = await asyncio.create_subprocess_exec(
            *command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), LOGIN_SECS)
        except BaseException as error:
            # With what it started: a browser, for one.
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, TimeoutError):
                raise Failure(f"{shlex.join(command)} did not end") from error
            raise
        return process.returncode, output.decode(errors="replace")

    async def login(self, name):
        """`ipybox login` for a server's name or URL; returns whether it succeeded."""
        command = [*self.program, "login", name, *self.places]
        code, output = await self.run(command)
        print(f"$ ipybox login {name}\n{output}[exit code {code}]", flush=True)
        return code == 0

    async def answer(self, _context, params):
        """Answers an elicitation as a user who agrees to everything."""
        if isinstance(params, types.ElicitRequestURLParams):
            print(f"[opens {params.url}: {params.message}]", flush=True)
            if self.way == "retry":
                return types.ElicitResult(action="decline")
            self.opened.append(params.url)
            # Agreed to once it is opened; the end of it is the server's to notice.
            task = asyncio.create_task(
                self.run([self.environment["BROWSER"], params.url])
            )
            self.tasks.add(task)
            return types.ElicitResult(action="accept")
        return types.ElicitResult(action="accept", content={})

    async def call(self, tool, arguments):
        """A call of one of ipybox's tools: whether it succeeded, and its text."""
        result = await self.session.call_tool(
            tool, arguments, read_timeout_seconds=timedelta(seconds=DEADLINE_SECS)
        )
        text = "\n".join(part.text for part in result.content if part.type == "text")
        print(f"[{tool}: {'error' if result.isError else 'ok'}]\n{text}", flush=True)
        return not result.isError, text

    async def call_logged_in(self, tool, arguments):
        """The same; an error that says to log in is followed, once."""
        done, text = await self.call(tool, arguments)
        if not done and "ipybox login" in text:
            named = re.search(r"ipybox login\s+['\"]?([^\s'\"`]+)", text)
            if not await self.login(named[1] if named else self.url):
                return False, "the login failed"
            done, text = await self.call(tool, arguments)
        return done, text

    async def use(self):
        """Registers the suite's server and calls its tool; gives what failed."""
        # Two scenarios have a URL without a path, which does not show the transport.
        params = {"type": "streamable_http", "url": self.url}
        if self.scenario in OAUTH:
            params["oauth"] = OAUTH[self.scenario]
        arguments = {"server_name": "suite", "server_params": params}
        done, text = await self.call_logged_in("register_mcp_server", arguments)
        if not done:
            return f"not registered: {text}"
        call = CALLS.get(self.scenario, "test_tool.run()")
        if call is None:
            return None
        tool = call.partition(".")[0]
        code = f"from mcptools.suite import {tool}\nprint({call})"
        arguments = {"code": code, "timeout": 300}
        done, text = await self.call_logged_in("execute_ipython_cell", arguments)
        expected = EXPECTED.get(self.scenario, "test")
        if not done or expected not in text:
            return f"the cell did not print {expected!r}: {text}"
        return None

    async def serve(self):
        """Opens a session with ipybox, and uses the suite's server in it."""
        options = shlex.split(os.environ.get("IPYBOX_OPTIONS", ""))
        command = [*self.program, *self.places, *options]
        parameters = StdioServerParameters(
            command=command[0], args=command[1:], env=self.environment
        )
        async with (
            stdio_client(parameters) as (read, write),
            self.connection(read, write) as session,
        ):
            self.session = session
            await session.initialize()
            return await self.use()

    def connection(self, read, write):
        if self.way == "retry":
            return WithoutUrls(read, write, elicitation_callback=self.answer)
        return mcp.ClientSession(read, write, elicitation_callback=self.answer)


class WithoutUrls(mcp.ClientSession):
    """A client whose elicitation has the form mode alone: the SDK declares both."""

    async def send_request(self, request, *arguments, **options):
        asked = request.root
        if isinstance(asked, types.InitializeRequest):
            asked.params.capabilities.elicitation = types.ElicitationCapability()
        return await super().send_request(request, *arguments, **options)


async def main(scenario, url, scratch):
    way = os.environ.get("IPYBOX_CONFORMANCE_LOGIN", "command")
    client = ConformanceClient(scenario, url, scratch, way, environment(scratch))
    is_browser = scenario.startswith("auth/") and scenario not in OAUTH
    is_refused = scenario in REFUSED
    if is_browser and way != "elicitation":
        done = await client.login(url)
        if not done and not is_refused:
            raise Failure("`ipybox login` failed")
        if done and scenario == "auth/resource-mismatch":
            raise Failure("`ipybox login` succeeded with another resource's metadata")
    failure = await client.serve()
    for task in client.tasks:
        task.cancel()
    print(f"[{len(client.opened)} URLs were opened by elicitation]")
    if is_refused and failure is None:
        raise Failure("the tool was called, which the server never allows")
    if failure is not None and not is_refused:
        raise Failure(failure)


def run():
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    with tempfile.TemporaryDirectory(prefix="ipybox-conformance-") as scratch:
        place = Path(scratch).resolve()
        (place / "workspace").mkdir()
        limited = asyncio.wait_for(main(scenario, sys.argv[-1], place), DEADLINE_SECS)
        try:
            asyncio.run(limited)
        except (Failure, TimeoutError) as failure:
            log = place / "browser.log"
            if log.exists():
                print(f"--- the browser ---\n{log.read_text()}")
            sys.exit(f"{scenario}: {failure or 'no end'}")


if __name__ == "__main__":
    run()
