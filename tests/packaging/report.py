"""Steps of a packaging test: run in order, reported on one line each."""

import subprocess
import sys
import time
import traceback


class StepFailure(AssertionError):
    """A step found something else than it should."""


class StepSkipped(Exception):
    """A step cannot be tried here. The message says why."""


class Steps:
    """Runs steps and counts those that failed."""

    def __init__(self):
        self.failures = 0

    def step(self, sentence, function, *arguments):
        """Runs a step; gives its result back, or `None` if it failed."""
        begin = time.monotonic()
        word, result, problem = "ok", None, None
        try:
            result = function(*arguments)
        except StepSkipped as reason:
            word, sentence = "skip", f"{sentence}: {reason}"
        except Exception as error:  # noqa: BLE001 - whatever it is, the next step runs
            word, problem = "FAIL", problem_of(error)
        took = time.monotonic() - begin
        print(f"{word:4} {took:7.2f} s  {sentence}", flush=True)
        if problem:
            self.failures += 1
            print("    " + problem.strip().replace("\n", "\n    "), flush=True)
        return result

    def end(self):
        """Ends the process: with 1 if a step failed."""
        sys.exit(1 if self.failures else 0)


def collected():
    """A list of steps, and a decorator that adds a function to it under the sentence that the step shows."""
    steps = []

    def step(sentence):
        def add(function):
            steps.append((sentence, function))
            return function

        return add

    return steps, step


def problem_of(error):
    """The text to print for a step's exception."""
    # The task groups of an MCP session wrap what is raised inside it.
    while (wrapped := getattr(error, "exceptions", None)) and len(wrapped) == 1:
        error = wrapped[0]
    if isinstance(error, AssertionError):
        return str(error)
    return "".join(traceback.format_exception(error))


def expect(condition, message):
    """Fails the step with `message`."""
    if not condition:
        raise StepFailure(message)


def run(command, *, fails=False, **options):
    """Runs a program to its end, at most a quarter of an hour; gives its output, both streams. It must fail, or must not."""
    options = {"stdin": subprocess.DEVNULL, "timeout": 900, **options}
    done = subprocess.run(
        [str(part) for part in command],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )
    expected = "to fail" if fails else "to succeed"
    expect(
        (done.returncode != 0) == fails,
        f"expected {expected}, ended with {done.returncode}: {' '.join(map(str, command))}\n{done.stdout}",
    )
    return done.stdout
