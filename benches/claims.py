#!/usr/bin/env python3
"""Measures what a session adds to the time in which a cluster gives it a sandbox, warm and cold.

    target/test-tools/kubernetes/bin/python benches/claims.py PYTHON [--rounds 10] [--program target/release/ipybox]

PYTHON is the interpreter of the kernels, with ipython and pydantic. The cluster is the API server of the tests, whose pods are
processes of this machine. In turn, a plain client claims a sandbox and watches until it is ready, and a session claims one and runs
its first cell; the time is that from the start of the session's program to the end of the cell. Warm pools have a sandbox that is
ready; cold ones have none, so that its pod is started.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from mcp_session import McpSession, ipybox_command

SERVER = Path(__file__).resolve().parent.parent / "tests/servers/kubernetes"
GROUP = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default"
CLAIMS = f"{GROUP}/sandboxclaims"


class ClaimCluster:
    """The API server, and a plain client of it."""

    def __init__(self, directory):
        self.kubeconfig = f"{directory}/kubeconfig"
        self.process = subprocess.Popen(
            [sys.executable, SERVER, "--kubeconfig", self.kubeconfig],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        about = json.loads(self.process.stdout.readline())
        self.address = urlsplit(about["url"]).netloc
        self.headers = {
            "Authorization": f"Bearer {about['token']}",
            "Content-Type": "application/json",
        }

    def open(self, method, path, body=None):
        connection = http.client.HTTPConnection(self.address)
        connection.request(method, path, body and json.dumps(body), self.headers)
        answer = connection.getresponse()
        assert answer.status < 300, answer.read()
        return connection, answer

    def ask(self, method, path, body=None):
        connection, answer = self.open(method, path, body)
        found = json.loads(answer.read())
        connection.close()
        return found

    def make_pool(self, name, replicas, command):
        container = {
            "name": "ipybox",
            "image": "none",
            "command": command,
            "env": [
                {
                    "name": "POD_IP",
                    "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
                }
            ],
            "ports": [{"containerPort": 8888}],
            "readinessProbe": {"tcpSocket": {"port": 8888}, "periodSeconds": 1},
        }
        pod = {"containers": [container], "terminationGracePeriodSeconds": 1}
        metadata = {"name": name}
        template = {"podTemplate": {"spec": pod}, "service": True}
        pool = {"replicas": replicas, "sandboxTemplateRef": metadata}
        self.ask(
            "POST",
            f"{GROUP}/sandboxtemplates",
            {"metadata": metadata, "spec": template},
        )
        self.ask(
            "POST", f"{GROUP}/sandboxwarmpools", {"metadata": metadata, "spec": pool}
        )

    def until_quiet(self, pool, replicas):
        """Waits until no claim is left, and the pool is full."""
        path = f"{GROUP}/sandboxwarmpools/{pool}"
        while (
            self.ask("GET", CLAIMS)["items"]
            or self.ask("GET", path).get("status", {}).get("readyReplicas", 0)
            < replicas
        ):
            time.sleep(0.05)

    def claim(self, pool):
        """The time until a claim is ready, in milliseconds. The claim is deleted afterwards."""
        begun = time.perf_counter()
        body = {"metadata": {"name": "plain"}, "spec": {"warmPoolRef": {"name": pool}}}
        made = self.ask("POST", CLAIMS, body)
        version = made["metadata"]["resourceVersion"]
        query = f"watch=1&resourceVersion={version}"
        connection, events = self.open("GET", f"{CLAIMS}?{query}")
        for line in events:
            status = json.loads(line)["object"].get("status", {})
            found = {one["type"]: one["status"] for one in status.get("conditions", [])}
            if found.get("Ready") == "True":
                break
        took = (time.perf_counter() - begun) * 1000
        connection.close()
        self.ask("DELETE", f"{CLAIMS}/plain")
        return took


def first_cell(options, cluster, pool):
    """The time until the first cell of a new session has ended, in milliseconds."""
    with tempfile.TemporaryDirectory() as directory:
        command = ipybox_command(options.program, directory, "--kernel-pool", pool)
        environment = {**os.environ, "KUBECONFIG": cluster.kubeconfig}
        session = McpSession(command, env=environment)
        session.cell("1 + 1")
        took = (time.perf_counter() - session.begun) * 1000
        session.stop()
        return took


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--program", type=Path, default=Path("target/release/ipybox"))
    options = parser.parse_args()
    options.program = options.program.absolute()
    command = [
        str(options.program),
        "pod",
        "--first-come",
        "--listen",
        "$(POD_IP):8888",
    ]
    command += ["--python", str(options.python.absolute())]
    with tempfile.TemporaryDirectory() as directory:
        cluster = ClaimCluster(directory)
        pools = {"warm": 1, "cold": 0}
        for pool, replicas in pools.items():
            cluster.make_pool(pool, replicas, command)
        took = {(pool, who): [] for pool in pools for who in ("plain", "session")}
        for _ in range(options.rounds):
            for pool, replicas in pools.items():
                cluster.until_quiet(pool, replicas)
                took[pool, "plain"].append(cluster.claim(pool))
                cluster.until_quiet(pool, replicas)
                took[pool, "session"].append(first_cell(options, cluster, pool))
        for pool in pools:
            plain, session = (
                statistics.median(took[pool, who]) for who in ("plain", "session")
            )
            print(
                f"{pool}: a claim is ready after {plain:.0f} ms, the first cell has ended after "
                f"{session:.0f} ms: {session - plain:.0f} ms more"
            )
        cluster.process.stdin.close()
        cluster.process.wait()


main()
