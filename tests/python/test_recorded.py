"""Tests that are recorded at their first run, and replayed afterwards without their servers."""

import os
import subprocess
import sys
import textwrap

import pytest
from conftest import PACKAGE, ROOT, TOOLS

TEST = """
import sys
from ipybox_rs.testing import recorded

SERVER = {{"command": {command!r}, "args": [{probe!r}, "--transport", "stdio"], "timeout": 300}}

@recorded("cassettes/probe.jsonl", python={python!r})
async def test_probe(executor, tmp_path):
    await executor.register_mcp_server("probe", SERVER)
    code = "import random\\nfrom mcptools.probe import echo\\n" + {code!r}
    result = await executor.execute(code)
    assert (result.text or {text!r}).startswith({text!r})
"""


class Suite:
    """A file of tests, run by a pytest of its own."""

    def __init__(self, directory):
        self.directory = directory
        self.cassette = directory / "cassettes" / "probe.jsonl"
        self.text = "a"
        self.code = "print(echo.run(text=TEXT + str(random.random())))"
        self.command = str(TOOLS / "mcp1/bin/python")

    def run(self, *flags):
        """Runs the test. Returns whether it passed, and the output."""
        probe = str(ROOT / "tests/servers/probe.py")
        python = str(TOOLS / "kernel/bin/python")
        text = TEST.format(
            command=self.command,
            probe=probe,
            python=python,
            text=self.text,
            code=self.code.replace("TEXT", repr(self.text)),
        )
        (self.directory / "test_it.py").write_text(textwrap.dedent(text))
        plugin = ["-p", "ipybox_rs.testing._plugin", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *plugin, *flags, "test_it.py"],
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": str(PACKAGE)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def tests(tmp_path):
    return Suite(tmp_path)


def passed(done):
    assert done[0], done[1]


def failed(done, *words):
    assert not done[0], done[1]
    for word in words:
        assert word in done[1]


def test_a_test_is_recorded_once_and_replayed_without_its_server(tests):
    failed(tests.run("--record-mode", "none"), "there is no recording")
    passed(tests.run())
    recording = tests.cassette.read_bytes()
    # From here on there is no server.
    tests.command = "/nonexistent/server"
    passed(tests.run())
    passed(tests.run("--record-mode", "none"))
    assert tests.cassette.read_bytes() == recording


def test_another_call_fails_with_the_difference(tests):
    passed(tests.run())
    recording = tests.cassette.read_bytes()
    tests.text = "b"
    failed(
        tests.run(),
        "ReplayDifference",
        "the recording does not have this call",
        'text = "a0.',
        'text = "b0.',
    )
    assert tests.cassette.read_bytes() == recording


def test_new_episodes_keeps_what_is_there_and_adds_calls(tests):
    passed(tests.run())
    recorded = tests.cassette.read_text().splitlines()
    tests.text = "b"
    passed(tests.run("--record-mode", "new_episodes"))
    added = tests.cassette.read_text().splitlines()
    assert len(added) == len(recorded) + 1
    assert set(recorded) < set(added)
    # Now both are in it, and there is no server.
    tests.command = "/nonexistent/server"
    passed(tests.run("--record-mode", "none"))
    passed(tests.run("--record-mode", "new_episodes"))
    tests.text = "a"
    passed(tests.run("--record-mode", "none"))
    assert tests.cassette.read_text().splitlines() == added


def test_calls_in_another_order_fail(tests):
    tests.code = "for text in ('a', 'b'): echo.run(text=text)"
    passed(tests.run())
    tests.code = "for text in ('b', 'a'): echo.run(text=text)"
    failed(
        tests.run(),
        '`probe.echo` with {"text": "b"} was called before',
        "which it had followed",
    )


def test_all_records_anew(tests):
    passed(tests.run())
    recording = tests.cassette.read_bytes()
    passed(tests.run("--record-mode", "all"))
    assert tests.cassette.read_bytes() != recording
    tests.command = "/nonexistent/server"
    failed(tests.run("--record-mode", "all"))
    passed(tests.run("--record-mode", "none"))


def test_the_option_of_pytest_recording_is_the_same(tests):
    (tests.directory / "pytest_recording.py").write_text(
        "def pytest_addoption(parser):\n"
        "    parser.getgroup('recording').addoption('--record-mode', default=None)\n"
    )
    theirs = ["-p", "pytest_recording", "--record-mode"]
    failed(tests.run(*theirs, "none"), "there is no recording")
    passed(tests.run(*theirs, "once"))
    passed(tests.run(*theirs, "none"))
