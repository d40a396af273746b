#!/usr/bin/env python3
"""Measures kernels in pods, and kills pods under a session with a checkpoint.

    python3 benches/pods.py PYTHON [--rounds 10] [--cycles 100] [--program target/release/ipybox]

PYTHON is the interpreter of the kernels, with ipython, pydantic and cloudpickle. A pod is `ipybox pod` in a PID namespace of its
own, as in a container; Linux, and root. First sessions take pods that wait: one whose settings are those of the pod's template, one
with a variable of its own, so that its kernel is started from scratch, and one on this machine, in turn; the time is that from the
start of the session's program to the end of its first cell. Then a pod is killed again and again, each time another one takes its
place, and the session gets its variables back.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from mcp_session import McpSession, ipybox_command

NAMESPACE = ("unshare", "--pid", "--mount-proc", "--fork", "--kill-child")
RESTORE = "import ipybox_checkpoint\nipybox_checkpoint.restore()"


class Pod:
    """A pod that waits for a session."""

    def __init__(self, options, directory, address="127.0.0.1:0"):
        words = [
            *NAMESPACE,
            options.program,
            "pod",
            "--first-come",
            "--listen",
            address,
        ]
        words += ["--python", options.python, "--workspace", directory]
        self.process = subprocess.Popen(
            [str(word) for word in [*words, "--log-level", "ERROR"]],
            stdout=subprocess.PIPE,
        )
        self.address = json.loads(self.process.stdout.readline())["address"]

    def kill(self):
        self.process.kill()
        self.process.wait()


def first_cell(options, directory, *flags, **session):
    """The time until the first cell of a new session has ended, in milliseconds."""
    command = ipybox_command(options.program, directory, *flags)
    session = McpSession(command, **session)
    session.cell("1 + 1")
    took = (time.perf_counter() - session.begun) * 1000
    session.stop()
    return took


def measure_starts(options):
    took = {"warm": [], "from scratch": [], "on this machine": []}
    for _ in range(options.rounds):
        for way, times in took.items():
            with tempfile.TemporaryDirectory() as directory:
                if way == "on this machine":
                    times.append(
                        first_cell(options, directory, "--python", options.python)
                    )
                    continue
                pod = Pod(options, f"{directory}/pod")
                own = {} if way == "warm" else {"KERNEL_ENV_OWN": "1"}
                flags = ("--kernel-pod-url", f"http://{pod.address}")
                times.append(
                    first_cell(options, directory, *flags, env={**os.environ, **own})
                )
                pod.process.wait()
    for way, times in took.items():
        print(f"first cell of a session, {way}: {statistics.median(times):.0f} ms")


def is_saved(directory, name):
    manifests = Path(directory, "state").glob(
        "workspaces/*/checkpoints/*/manifest.json"
    )
    with contextlib.suppress(FileNotFoundError):
        return any(
            f'"name": "{name}"' in manifest.read_text() for manifest in manifests
        )
    return False


def kill_and_restore(options):
    with tempfile.TemporaryDirectory() as directory:
        pod = Pod(options, f"{directory}/pod")
        flags = ("--checkpoint", "--kernel-pod-url", f"http://{pod.address}")
        session = McpSession(ipybox_command(options.program, directory, *flags))
        took = []
        for cycle in range(options.cycles):
            session.cell(f"value_{cycle} = {cycle}")
            while not is_saved(directory, f"value_{cycle}"):
                time.sleep(0.01)
            pod.kill()
            pod = Pod(options, f"{directory}/pod", pod.address)
            begun = time.perf_counter()
            expected = sum(range(cycle + 1))
            names = " + ".join(f"value_{number}" for number in range(cycle + 1))
            text = session.cell(f"{RESTORE}\nprint('sum:', {names})")
            took.append((time.perf_counter() - begun) * 1000)
            assert f"sum: {expected}" in text, text
        session.stop()
        middle = statistics.median(took)
        print(
            f"{options.cycles} pods killed, no variable lost; back after {middle:.0f} ms"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--program", type=Path, default=Path("target/release/ipybox"))
    options = parser.parse_args()
    options.program = options.program.absolute()
    options.python = options.python.absolute()
    measure_starts(options)
    kill_and_restore(options)


main()
