"""Steps of a scenario: how they are written down, run in order, and reported on one line each.

Every script here is called as `SCRIPT [OPTION …] -- COMMAND [ARG …]`, where COMMAND is the server under test and
`{workspace}` in an ARG or in a server's parameters is a fresh directory. Exit code: 0 all steps passed, 1 some
failed, 2 wrong usage.
"""

import argparse
import asyncio
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import session

STEP_DEADLINE_SECS = 600
"""A step that takes longer hangs; the slowest installs a package or waits for a cold kernel."""

LOG_LINES_SHOWN = 40
EXCERPT_CHARS = 1500


def expect(condition, message, outcome=None):
    """Fails the step with `message`, and with what the server said."""
    if condition:
        return
    if outcome is not None:
        kind = (
            "refused" if outcome.is_refused else "error" if outcome.is_error else "ok"
        )
        text = outcome.text
        if len(text) > EXCERPT_CHARS:
            half = EXCERPT_CHARS // 2
            text = f"{text[:half]}\n[…]\n{text[-half:]}"
        message = f"{message}\n--- the server's answer ({kind}) ---\n{text}\n---"
    raise AssertionError(message)


def expect_success(outcome):
    """Fails the step unless the call succeeded; gives its text back."""
    expect(not outcome.is_error, "the call failed", outcome)
    return outcome.text


def expect_error(outcome, *fragments):
    """Fails the step unless the call failed and its text has every fragment, whatever their case."""
    expect(outcome.is_error, "the call succeeded", outcome)
    for fragment in fragments:
        expect(
            fragment.lower() in outcome.text.lower(),
            f"the error does not say {fragment!r}",
            outcome,
        )
    return outcome.text


async def until(condition, *, deadline_secs=300):
    """Waits for `condition()`, which watches something outside this process."""
    end = time.monotonic() + deadline_secs
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(
                f"did not happen within {deadline_secs} s: {condition.__doc__ or condition}"
            )
        await asyncio.sleep(0.01)


@dataclass
class StepBench:
    """The session and the files that a step works with."""

    server: session.Session
    workspace: Path
    options: argparse.Namespace
    command: list[str]
    log: TextIO

    def filled(self, text):
        """`text` with the workspace in its place."""
        return text.replace("{workspace}", str(self.workspace))

    def connect_again(self, *flags, on_question=None):
        """A second session with a new server process, which has further flags, on the same workspace."""
        return session.connect(
            [*self.command, *flags],
            protocol=self.options.protocol,
            log=self.log,
            on_question=on_question,
        )


@dataclass
class Scenario:
    """Steps in the order of their definition; a failed one does not stop the next."""

    description: str
    steps: list = field(default_factory=list)
    prepare: object = None
    """Called with the workspace before the server starts."""
    on_question: object = None
    """The function that answers elicitations; see `session.connect`."""

    def step(self, sentence):
        """Makes a coroutine function that takes a `StepBench` a step."""

        def add(function):
            self.steps.append((sentence, function))
            return function

        return add

    def arguments(self):
        """The options that every script has; a script may add its own."""
        parser = argparse.ArgumentParser(
            description=self.description, epilog="Put the server's command after `--`."
        )
        parser.add_argument(
            "--protocol",
            choices=session.PROTOCOLS,
            default="initialize",
            help="default: initialize",
        )
        parser.add_argument(
            "--only",
            metavar="WORDS",
            help="run the steps whose sentence has these words",
        )
        return parser

    def parse(self, parser):
        """The options and the server's command from the command line; ends the process where they are wrong."""
        cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
        options = parser.parse_args(sys.argv[1:cut])
        command = sys.argv[cut + 1 :]
        if not command:
            parser.error("no server command after `--`")
        return options, command

    def run(self, options, command):
        """Runs the steps against the server; gives the exit code."""
        return asyncio.run(self._run(options, command))

    def main(self):
        """Runs the script; ends the process."""
        sys.exit(self.run(*self.parse(self.arguments())))

    async def _run(self, options, command):
        with tempfile.TemporaryDirectory(prefix="ipybox-") as scratch:
            workspace = Path(scratch).resolve() / "workspace"
            workspace.mkdir()
            if self.prepare:
                self.prepare(workspace)
            command = [
                argument.replace("{workspace}", str(workspace)) for argument in command
            ]
            log_path = Path(scratch) / "stderr"
            with log_path.open("w") as log:
                failures = await self._session(options, command, workspace, log)
            if failures:
                lines = log_path.read_text(errors="replace").splitlines()[
                    -LOG_LINES_SHOWN:
                ]
                print(
                    "\nthe server's last lines on standard error:", *lines, sep="\n  "
                )
            return 1 if failures else 0

    async def _session(self, options, command, workspace, log):
        failures = 0
        try:
            async with session.connect(
                command,
                protocol=options.protocol,
                log=log,
                on_question=self.on_question,
            ) as server:
                print(f"connected: {server.protocol_version}")
                bench = StepBench(server, workspace, options, command, log)
                chosen = [
                    step
                    for step in self.steps
                    if not options.only or options.only in step[0]
                ]
                if not chosen:
                    raise ValueError(f"no step's sentence has {options.only!r}")
                for sentence, function in chosen:
                    failures += not await run_step(sentence, function, bench)
        except Exception as error:  # noqa: BLE001 - a session that cannot be opened is a failure like a step's
            print(f"FAIL  the session: {problem_of(error)}")
            failures += 1
        return failures


def problem_of(error):
    """The text to print for a step's exception."""
    # The SDK's task groups wrap what is raised inside a session.
    while (wrapped := getattr(error, "exceptions", None)) and len(wrapped) == 1:
        error = wrapped[0]
    if isinstance(error, AssertionError):
        return str(error)
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        return f"no end within {STEP_DEADLINE_SECS} s"
    return "".join(traceback.format_exception(error))


async def run_step(sentence, function, bench):
    """Runs one step and prints its line; says whether it passed."""
    begin = time.monotonic()
    try:
        await asyncio.wait_for(function(bench), STEP_DEADLINE_SECS)
        problem = None
    except Exception as error:  # noqa: BLE001 - whatever it is, the next step runs
        problem = problem_of(error)
    took = time.monotonic() - begin
    print(f"{'FAIL' if problem else 'ok':4} {took:7.2f} s  {sentence}", flush=True)
    if problem:
        print("    " + problem.replace("\n", "\n    "), flush=True)
    return problem is None
