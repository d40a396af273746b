"""Kernels in a pod, and in sandboxes that are claimed from a pool."""

import json
import os
import subprocess

import pytest
from kubernetes_cluster import CLAIMS
from support import ECHO, SECONDS, TOOLS

from ipybox_rs import CodeExecutor, StartError

PROGRAM = os.environ["IPYBOX_PROGRAM"]
PYTHON = str(TOOLS / "kernel/bin/python")
TOKEN = "token-of-pods-in-tests"


@pytest.fixture
def pod(tmp_path):
    """The URL of a pod, which has to end with its session."""
    variables = {name: os.environ[name] for name in os.environ if name != "PYTHONPATH"}
    command = [PROGRAM, "pod", "--listen", "127.0.0.1:0", "--token-env", "POD_TOKEN"]
    process = subprocess.Popen(
        [*command, "--python", PYTHON, "--workspace", tmp_path / "work"],
        env={**variables, "POD_TOKEN": TOKEN},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield f"http://{json.loads(process.stdout.readline())['address']}"
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def test_a_pod_runs_code_that_calls_tools(pod, probe):
    access = {"kernel_pod_url": pod, "kernel_pod_token": TOKEN}
    with pytest.raises(StartError, match="name it by `kernel_pod_token`"):
        await CodeExecutor(kernel_pod_url=pod).start()
    with pytest.raises(StartError, match="the pod does not have this token"):
        await CodeExecutor(kernel_pod_url=pod, kernel_pod_token="wrong").start()
    async with CodeExecutor(**access) as executor:
        await executor.register_mcp_server("probe", probe)
        assert (await executor.execute(ECHO)).text == "hi"
        await executor.execute("x = 1")
        async with await executor.copy() as copy:
            assert (await copy.execute("x + 1")).text == "2"


def make_pool(cluster):
    command = [PROGRAM, "pod", "--first-come", "--listen", "$(POD_IP):8888"]
    cluster.make_pool([*command, "--python", PYTHON])


async def test_sandboxes_are_claimed_from_a_pool(cluster, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(cluster.config))
    with pytest.raises(StartError, match="another namespace by `kernel_namespace`"):
        await CodeExecutor(kernel_pool="pool").start()
    make_pool(cluster)
    async with CodeExecutor(kernel_pool="pool", kernel_claim_lease=60) as executor:
        assert (await executor.execute("1 + 1")).text == "2"
        (claim,) = cluster.get(CLAIMS)["items"]
        assert claim["spec"]["warmPoolRef"]["name"] == "pool"
    cluster.until(CLAIMS, lambda claims: not claims["items"])


async def test_sandboxes_are_reached_through_a_router(cluster, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(cluster.config))
    make_pool(cluster)
    about = cluster.about
    router = {"kernel_router_url": about["router"]}
    router["kernel_router_token"] = about["router_token"]
    async with CodeExecutor(
        kernel_pool="pool", kernel_namespace="default", **router
    ) as executor:
        assert (await executor.execute("1 + 1")).text == "2"
    cluster.until(CLAIMS, lambda claims: not claims["items"])
