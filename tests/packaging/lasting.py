"""Sessions that last, with the MCP SDKs and the Inspector: a client whose time limit is shorter than its cells, and one that
starts a server for each call.

    lasting.py --ipybox PATH --tools TEST_TOOLS

The scenes of the SDKs are `tests/clients/long_cells.py` and `long_cells.mjs`; those of Claude Code are in
`claude_sessions.py`.
"""

import argparse
import json
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from report import Steps, expect, run

CLIENTS = Path(__file__).resolve().parents[1] / "clients"
FLAGS = ["--keep-session", "30m", "--long-cells"]
DEADLINE_SECS = 600
"""For something that happens in another process."""

SDKS = {
    "the Python SDK 1": ("mcp1", "initialize"),
    "the Python SDK 2 with `initialize`": ("mcp2", "initialize"),
    "the Python SDK 2 with `server/discover`": ("mcp2", "discover"),
    "the TypeScript SDK 1": ("sdk", None),
    "the TypeScript SDK 2": ("client", None),
}


class LastingPlace:
    """A directory with the state of some servers."""

    def __init__(self, options, scratch):
        self.options = options
        self.tools = options.tools
        self.scratch = scratch
        self.states = scratch / "state"
        (scratch / "workspace").mkdir(parents=True)

    def server(self, workspace):
        """The command of a server."""
        python = self.tools / "kernel/bin/python"
        own = ["--workspace", workspace, "--state-dir", self.states, "--python", python]
        return [self.options.ipybox, *own, *FLAGS]

    def kept(self):
        """The ids of the sessions that there are."""
        states = ["--state-dir", self.states]
        output = run([self.options.ipybox, "sessions", "--json", *states])
        return [session["id"] for session in json.loads(output)]

    def end_sessions(self):
        """Ends what the servers have left behind, which they are asked to do."""
        if kept := self.kept():
            states = ["--state-dir", self.states]
            run([self.options.ipybox, "sessions", "end", *kept, *states])

    def has_kept(self, number):
        """Waits until so many sessions are kept."""
        end = time.monotonic() + DEADLINE_SECS
        while len(kept := self.kept()) != number:
            expect(time.monotonic() < end, f"{kept} are kept, not {number} sessions")
            time.sleep(0.05)

    def sdk(self, package, protocol):
        """The scenes of one SDK."""
        if protocol:
            program = [self.tools / package / "bin/python", CLIENTS / "long_cells.py"]
            program += ["--protocol", protocol]
        else:
            modules = self.tools / "npm/node_modules"
            program = [self.tools / "bin/node", CLIENTS / "long_cells.mjs"]
            program += [modules, package]
        return run([*program, "--", *self.server("{workspace}")])

    def inspect(self, era, *request):
        """One run of the Inspector, which starts a server and ends it."""
        package = self.tools / "npm/node_modules/@modelcontextprotocol/inspector"
        program = [
            self.tools / "bin/node",
            package / "clients/launcher/build/index.js",
            *("--cli", "--quiet", "--format", "json", "--connect-timeout", "300000"),
            *("--protocol-era", era, *request),
        ]
        return run(
            [*program, "--", *self.server(self.scratch / "workspace")],
            env={**os.environ, "HOME": str(self.scratch)},
        )

    def cell(self, era, code, **arguments):
        """The text of the answer to a cell, in a run of its own."""
        return self.called(
            era, "execute_ipython_cell", json.dumps({"code": code, **arguments})
        )

    def called(self, era, tool, arguments):
        """The text of the answer to a call."""
        request = ("--method", "tools/call", "--tool-name", tool)
        output = self.inspect(era, *request, "--tool-args-json", arguments)
        # What the server logs may be around it.
        answer, _ = json.JSONDecoder().raw_decode(output, output.index('{"result"'))
        answer = answer["result"]
        expect(not answer.get("isError"), f"the call failed: {answer}")
        return answer["content"][0]["text"]

    def inspector(self, era):
        """Each run is another client; those that only look leave nothing."""
        listed = self.inspect(era, "--method", "tools/list")
        expect("wait_for_cell" in listed, f"the tool is missing: {listed}")
        self.has_kept(0)
        self.cell(era, "import pathlib, time\nx = 6 * 7")
        self.has_kept(1)
        self.inspect(era, "--method", "tools/list")
        self.has_kept(1)
        text = self.cell(era, "print('x is', x)")
        taken_over = "[This session was taken over as it was"
        expect(text.startswith(taken_over), f"it is not said: {text}")
        expect(text.endswith("\nx is 42"), f"x is lost: {text}")
        code = "while not pathlib.Path('go').exists(): time.sleep(0.01)\nprint('the', 'end')"
        text = self.cell(era, code, wait=0.5)
        expect("still runs" in text, f"it does not run: {text}")
        (self.scratch / "workspace/go").touch()
        number = text.rpartition("[`")[2].partition("`")[0]
        rest = json.dumps({"cell": number, "timeout": DEADLINE_SECS})
        text = self.called(era, "wait_for_cell", rest)
        expect(f"- `{number}`, " in text, f"the cell is not named: {text}")
        expect(text.endswith("\nthe end"), f"its end is lost: {text}")
        self.has_kept(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--ipybox", type=Path, required=True)
    parser.add_argument(
        "--tools", type=Path, required=True, help="the test tools' directory"
    )
    options = parser.parse_args()
    for name in ("ipybox", "tools"):
        setattr(options, name, getattr(options, name).absolute())
    scenes = [(f"long cells by {name}", "sdk", how) for name, how in SDKS.items()]
    scenes += [
        (f"the Inspector finds `x` again ({era})", "inspector", (era,))
        for era in ("legacy", "modern")
    ]
    steps = Steps()

    def scene(number, sentence, method, arguments):
        place = LastingPlace(options, scratch / str(number))
        try:
            steps.step(sentence, getattr(place, method), *arguments)
        finally:
            place.end_sessions()

    with tempfile.TemporaryDirectory(prefix="ipybox-") as directory:
        scratch = Path(directory).resolve()
        # They wait most of the time.
        with ThreadPoolExecutor(4) as pool:
            running = [
                pool.submit(scene, number, *scene_)
                for number, scene_ in enumerate(scenes)
            ]
            for future in running:
                future.result()
    steps.end()


if __name__ == "__main__":
    main()
