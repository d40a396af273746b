"""Starts the API server of `tests/servers/kubernetes` and talks to it."""

import contextlib
import json
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from support import ROOT, SECONDS, TOOLS

PYTHON = TOOLS / "kubernetes/bin/python"
"""The interpreter that has the libraries of the server and agent-sandbox's client."""

EXTENSIONS = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default"
CLAIMS = f"{EXTENSIONS}/sandboxclaims"
POOLS = f"{EXTENSIONS}/sandboxwarmpools"
TEMPLATES = f"{EXTENSIONS}/sandboxtemplates"
SANDBOXES = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes"
PODS = "/api/v1/namespaces/default/pods"
SECRETS = "/api/v1/namespaces/default/secrets"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
MERGE = "application/merge-patch+json"


class StartedCluster:
    """A running server."""

    def __init__(self, directory: Path) -> None:
        self.config = directory / "kubeconfig"
        script = ROOT / "tests/servers/kubernetes"
        places = ["--kubeconfig", self.config, "--home", directory / "pods"]
        (directory / "pods").mkdir()
        self.process = subprocess.Popen(
            [PYTHON, script, *places],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.about = json.loads(self.process.stdout.readline())

    def end(self) -> None:
        """Ends the server, and with it all pods."""
        self.process.stdin.close()
        assert self.process.wait(SECONDS) == 0
        self.process.stdout.close()

    def open(
        self,
        method: str,
        path: str,
        body: Any = None,
        token: str | None = None,
        media_type: str = "application/json",
    ):
        """The open answer to a request, whatever its status."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token or self.about['token']}"}
        request = urllib.request.Request(
            self.about["url"] + path,
            data=None if body is None else data,
            headers=headers | {"Content-Type": media_type},
            method=method,
        )
        try:
            return urllib.request.urlopen(request, timeout=SECONDS)
        except urllib.error.HTTPError as error:
            return error

    def request(self, *arguments: Any, **more: Any) -> dict[str, Any]:
        """The object that answers a request: a `Status` if it is an error."""
        with self.open(*arguments, **more) as answer:
            return json.loads(answer.read())

    def get(self, path: str) -> dict[str, Any]:
        return self.request("GET", path)

    def create(self, path: str, name: str, **content: Any) -> dict[str, Any]:
        """Makes an object, which has to succeed."""
        made = self.request("POST", path, {"metadata": {"name": name}, **content})
        assert made["kind"] != "Status", made
        return made

    def patch(self, path: str, change: Any) -> dict[str, Any]:
        return self.request("PATCH", path, change, media_type=MERGE)

    def fault(self, name: str, **settings: Any) -> None:
        answer = self.request("POST", "/faults", {"fault": name, **settings})
        assert "error" not in answer, answer

    def until(self, path: str, condition) -> dict[str, Any]:
        """Waits until an object fulfils a condition; the object."""
        end = time.monotonic() + SECONDS
        while True:
            found = self.get(path)
            with contextlib.suppress(KeyError):
                if condition(found):
                    return found
            assert time.monotonic() < end, found
            time.sleep(0.02)

    def until_ready(self, path: str) -> dict[str, Any]:
        return self.until(path, lambda found: ready(found)["status"] == "True")

    def until_reason(self, path: str, reason: str) -> dict[str, Any]:
        return self.until(path, lambda found: ready(found)["reason"] == reason)

    def until_gone(self, path: str) -> None:
        self.until(path, lambda found: found.get("code") == 404)

    def until_log(self, pod: str, text: str) -> None:
        def has_written(_: Any) -> bool:
            with self.open("GET", f"{PODS}/{pod}/log") as log:
                return log.read().decode() == text

        self.until(f"{PODS}/{pod}", has_written)

    def watch(self, path: str, **query: Any):
        """The events of a watch, until it ends."""
        text = "&".join(f"{name}={value}" for name, value in query.items())
        with self.open("GET", f"{path}?watch=true&{text}") as answer:
            for line in answer:
                yield json.loads(line)

    def kubectl(self, *arguments: str, text: str = "", status: int = 0) -> str:
        """The output of `kubectl`."""
        command = ["kubectl", "--kubeconfig", self.config, *arguments]
        ended = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False
        )
        assert ended.returncode == status, ended
        return ended.stdout if status == 0 else ended.stderr

    def make_pool(
        self, command: list[str], replicas: int = 1, name: str = "pool", **template: Any
    ) -> None:
        """Makes a template of this command, and a pool of it of the same name."""
        port = {"containerPort": 8888}
        address = {"name": "POD_IP"}
        address["valueFrom"] = {"fieldRef": {"fieldPath": "status.podIP"}}
        container = {"name": "main", "image": "none", "command": command}
        container |= {"ports": [port], "env": [address]}
        if "$(POD_IP)" in command:
            probe = {"tcpSocket": {"port": 8888}, "periodSeconds": 1}
            container["readinessProbe"] = probe
        pod = {"containers": [container], "terminationGracePeriodSeconds": 1}
        spec = {"podTemplate": {"spec": pod}, "service": True, **template}
        self.create(TEMPLATES, name, spec=spec)
        reference = {"sandboxTemplateRef": {"name": name}}
        self.create(POOLS, name, spec={"replicas": replicas, **reference})

    def claim(self, name: str, pool: str = "pool", **more: Any) -> str:
        """Makes a claim; its path."""
        self.create(CLAIMS, name, spec={"warmPoolRef": {"name": pool}, **more})
        return f"{CLAIMS}/{name}"

    def through_router(self, sandbox: str, path: str = "/", **headers: str):
        """The status of a request to a sandbox, and its answer."""
        sent = {
            "Authorization": f"Bearer {self.about['router_token']}",
            "X-Sandbox-ID": sandbox,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        request = urllib.request.Request(self.about["router"] + path, headers=sent)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


def ready(found: dict[str, Any]) -> dict[str, Any]:
    """The `Ready` condition; a `KeyError` if there is none yet."""
    conditions = {one["type"]: one for one in found["status"]["conditions"]}
    return conditions["Ready"]


def sandbox_of(claim: dict[str, Any]) -> str:
    return claim["status"]["sandbox"]["name"]
