"""Claims, pools, pods and the router of the cluster that tests use, also seen by agent-sandbox's client."""

import json
import subprocess
import sys
import time

import pytest
from kubernetes_cluster import (
    CLAIMS,
    PODS,
    POOLS,
    PYTHON,
    SANDBOXES,
    TEMPLATES,
    StartedCluster,
    ready,
    sandbox_of,
)
from support import SECONDS

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="pods are processes in namespaces of Linux"
)

SERVER = ["python3", "-m", "http.server", "--bind", "$(POD_IP)", "8888"]
SLEEP = ["sleep", "100000"]


def test_a_claim_takes_a_warm_sandbox_and_the_pool_is_refilled(cluster, workspace):
    cluster.make_pool(SERVER, replicas=2)
    full = cluster.until(
        f"{POOLS}/pool", lambda pool: pool["status"]["readyReplicas"] == 2
    )
    assert full["status"]["replicas"] == 2
    warm = {one["metadata"]["name"] for one in cluster.get(SANDBOXES)["items"]}
    claim = cluster.until_ready(cluster.claim("mine"))
    name = sandbox_of(claim)
    assert name in warm
    assert ready(claim)["reason"] == "DependenciesReady"
    sandbox = cluster.get(f"{SANDBOXES}/{name}")
    assert sandbox["metadata"]["ownerReferences"][0]["kind"] == "SandboxClaim"
    assert sandbox["metadata"]["labels"]["agents.x-k8s.io/launch-type"] == "warm"
    assert claim["status"]["sandbox"]["podIPs"] == sandbox["status"]["podIPs"]
    status, answer = cluster.through_router(name)
    assert (status, "Directory listing" in answer) == (200, True)
    cluster.until(SANDBOXES, lambda found: len(found["items"]) == 3)
    cluster.request("DELETE", f"{CLAIMS}/mine")
    for path in (f"{SANDBOXES}/{name}", f"{PODS}/{name}"):
        cluster.until_gone(path)
    cluster.request("DELETE", f"{POOLS}/pool")
    cluster.until(PODS, lambda found: not found["items"])
    served = [line for line in workspace.processes().values() if "http.server" in line]
    assert not served


def test_a_pool_replaces_what_is_not_of_its_template_any_more(cluster):
    cluster.make_pool(SLEEP, replicas=2)
    cluster.patch(f"{POOLS}/pool", {"spec": {"updateStrategy": {"type": "Recreate"}}})
    cluster.until(f"{POOLS}/pool", lambda pool: pool["status"]["readyReplicas"] == 2)
    claimed = sandbox_of(cluster.until_ready(cluster.claim("mine")))
    container = {"name": "main", "image": "none", "command": ["sleep", "99999"]}
    pod = {"podTemplate": {"spec": {"containers": [container]}}}
    cluster.patch(f"{TEMPLATES}/pool", {"spec": pod})

    def is_replaced(found):
        old = [
            one["metadata"]["name"]
            for one in found["items"]
            if "100000" in json.dumps(one["spec"])
        ]
        return old == [claimed] and len(found["items"]) == 3

    cluster.until(SANDBOXES, is_replaced)


def test_claims_at_once_get_sandboxes_of_their_own_from_their_pool(cluster):
    for name in ("other", "pool"):
        cluster.make_pool(SLEEP, replicas=4, name=name)
    for path in (f"{POOLS}/other", f"{POOLS}/pool"):
        cluster.until(path, lambda pool: pool["status"]["readyReplicas"] == 4)
    paths = [cluster.claim(f"claim-{number}") for number in range(12)]
    names = {sandbox_of(cluster.until_ready(path)) for path in paths}
    assert len(names) == 12
    assert all(name.startswith(("pool-", "claim-")) for name in names), names


def test_a_claim_with_variables_starts_cold_if_the_template_allows_it(cluster):
    cluster.make_pool(["sh", "-c", "echo $COLOUR; sleep 100000"], name="closed")
    cluster.make_pool(
        ["sh", "-c", "echo $COLOUR; sleep 100000"],
        name="open",
        envVarsInjectionPolicy="Allowed",
    )
    env = [{"name": "COLOUR", "value": "blue"}]
    refused = cluster.until_reason(
        cluster.claim("refused", "closed", env=env), "EnvVarsInjectionRejected"
    )
    assert "not allowed by the template policy" in ready(refused)["message"]
    claim = cluster.until_ready(cluster.claim("cold", "open", env=env))
    assert sandbox_of(claim) == "cold"
    cluster.until_log("cold", "blue\n")


def test_a_claim_says_what_is_missing_and_goes_on_when_it_comes(cluster):
    path = cluster.claim("early")
    missing = cluster.until_reason(path, "WarmPoolNotFound")
    assert ready(missing)["message"] == 'SandboxWarmPool "pool" not found'
    spec = {"sandboxTemplateRef": {"name": "pool"}}
    cluster.create(POOLS, "pool", spec=spec)
    cluster.until_reason(path, "TemplateNotFound")
    cluster.request("DELETE", f"{POOLS}/pool")
    cluster.make_pool(SLEEP)
    cluster.until_ready(path)


def test_labels_that_claims_may_not_give_are_rejected(cluster):
    cluster.make_pool(SLEEP)
    wrong = {"labels": {"team": "red"}}
    path = cluster.claim("wrong", additionalPodMetadata=wrong)
    cluster.until_reason(path, "InvalidMetadata")
    right = {"labels": {"sandbox.users.io/team": "red"}}
    path = cluster.claim("right", additionalPodMetadata=right)
    name = sandbox_of(cluster.until_ready(path))
    cluster.until(
        f"{PODS}/{name}",
        lambda pod: pod["metadata"]["labels"]["sandbox.users.io/team"] == "red",
    )


def test_a_suspended_sandbox_has_no_pod_until_it_is_resumed(cluster):
    cluster.make_pool(SLEEP)
    claim = cluster.claim("mine")
    name = sandbox_of(cluster.until_ready(claim))
    cluster.patch(f"{SANDBOXES}/{name}", {"spec": {"operatingMode": "Suspended"}})
    cluster.until_gone(f"{PODS}/{name}")
    suspended = cluster.until_reason(claim, "SandboxSuspended")
    assert "podIPs" not in suspended["status"]["sandbox"]
    cluster.patch(f"{SANDBOXES}/{name}", {"spec": {"operatingMode": "Running"}})
    cluster.until_ready(claim)


def test_claims_end_at_their_time_as_their_policy_says(cluster):
    cluster.make_pool(SLEEP, replicas=0)
    later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    paths = {
        policy: cluster.claim(
            policy.lower(), lifecycle={"shutdownTime": later, "shutdownPolicy": policy}
        )
        for policy in ("Delete", "DeleteForeground", "Retain")
    }
    for path in paths.values():
        cluster.until_ready(path)
    cluster.fault("clock_skew", seconds=7200)
    for path in (paths["Delete"], paths["DeleteForeground"]):
        cluster.until_gone(path)
    retained = cluster.until_reason(paths["Retain"], "ClaimExpired")
    assert retained["spec"]["lifecycle"]["shutdownTime"] == later
    cluster.until(paths["Retain"], lambda claim: not claim["status"]["sandbox"])
    cluster.until(PODS, lambda found: not found["items"])


def test_a_finished_claim_goes_after_its_time(cluster):
    spec = {"containers": [{"name": "a", "image": "b", "command": ["true"]}]}
    spec["restartPolicy"] = "Never"
    cluster.create(TEMPLATES, "once", spec={"podTemplate": {"spec": spec}})
    reference = {"sandboxTemplateRef": {"name": "once"}}
    cluster.create(POOLS, "once", spec={"replicas": 0, **reference})
    path = cluster.claim("done", "once", lifecycle={"ttlSecondsAfterFinished": 3600})
    done = cluster.until_reason(path, "PodSucceeded")
    assert "Finished" in {one["type"] for one in done["status"]["conditions"]}
    cluster.patch(path, {"spec": {"lifecycle": {"ttlSecondsAfterFinished": 0}}})
    cluster.until_reason(path, "ClaimExpired")


def test_pods_are_restarted_with_pauses(cluster):
    container = {"name": "a", "image": "b", "command": ["sh", "-c", "exit 3"]}
    cluster.create(PODS, "crashing", spec={"containers": [container]})

    def is_backing_off(pod):
        status = pod["status"]["containerStatuses"][0]
        waiting = status["state"].get("waiting", {})
        return waiting.get("reason") == "CrashLoopBackOff" and status["restartCount"]

    cluster.until(f"{PODS}/crashing", is_backing_off)
    container = {"name": "a", "image": "none:1"}
    cluster.create(PODS, "imageless", spec={"containers": [container]})
    waiting = cluster.until(
        f"{PODS}/imageless",
        lambda pod: pod["status"]["containerStatuses"][0]["state"]["waiting"][
            "message"
        ],
    )
    assert waiting["status"]["phase"] == "Pending"
    assert "none:1" in json.dumps(waiting["status"])


def test_a_pod_gets_the_signal_to_end_and_time_for_it(cluster, workspace):
    mark = workspace.directory / "ended"
    code = f"trap 'echo ended > {mark}; exit' TERM; echo begun; while :; do sleep 0.05; done"
    container = {"name": "a", "image": "b", "command": ["sh", "-c", code]}
    cluster.create(PODS, "polite", spec={"containers": [container]})
    cluster.until_log("polite", "begun\n")
    left = cluster.request("DELETE", f"{PODS}/polite")
    assert left["metadata"]["deletionGracePeriodSeconds"] == 30
    cluster.until_gone(f"{PODS}/polite")
    assert mark.read_text() == "ended\n"


def test_pods_die_with_a_server_that_is_killed(cluster, workspace):
    # What a pod starts in a session of its own dies too.
    command = ["sh", "-c", "setsid sleep 100000 & echo begun; sleep 100000"]
    container = {"name": "a", "image": "b", "command": command}
    cluster.create(PODS, "one", spec={"containers": [container]})
    cluster.until(f"{PODS}/one", lambda pod: pod["status"]["phase"] == "Running")
    until = time.monotonic() + SECONDS
    while len([one for one in workspace.processes().values() if "sleep" in one]) < 3:
        assert time.monotonic() < until
        time.sleep(0.02)
    cluster.process.kill()
    cluster.process.communicate()
    workspace.assert_empty()


def test_no_pod_is_left_when_the_server_ends_while_pods_start(workspace):
    for number in range(3):
        directory = workspace.directory / str(number)
        directory.mkdir()
        cluster = StartedCluster(directory)
        cluster.make_pool(SLEEP, replicas=10)
        cluster.until(PODS, lambda found: found["items"])
        cluster.end()
        assert not list((directory / "pods").glob("*-*"))
    workspace.assert_empty()


def test_pools_and_claims_can_fail(cluster):
    cluster.fault("no_refill")
    cluster.make_pool(SLEEP)
    cold = cluster.until_ready(cluster.claim("cold"))
    assert sandbox_of(cold) == "cold"
    assert cluster.get(f"{POOLS}/pool")["status"]["replicas"] == 0
    cluster.fault("no_refill", enabled=False)
    cluster.until(f"{POOLS}/pool", lambda pool: pool["status"]["readyReplicas"] == 1)

    cluster.fault("never_bind")
    path = cluster.claim("waiting")
    # Whatever else happens: the claim stays as it is.
    cluster.patch(f"{POOLS}/pool", {"spec": {"replicas": 2}})
    cluster.until(f"{POOLS}/pool", lambda pool: pool["status"]["readyReplicas"] == 2)
    assert "status" not in cluster.get(path)
    cluster.fault("ready_delay", seconds=3600)
    cluster.fault("never_bind", enabled=False)
    late = cluster.until_reason(path, "DependenciesNotReady")
    assert sandbox_of(late).startswith("pool-")
    cluster.fault("ready_delay", seconds=0)
    cluster.until_ready(path)


def test_a_pod_can_be_evicted(cluster, workspace):
    cluster.make_pool(SLEEP)
    path = cluster.claim("mine")
    name = sandbox_of(cluster.until_ready(path))
    cluster.fault("evict", namespace="default", pod=name)
    cluster.until_reason(path, "PodFailed")
    pod = cluster.get(f"{PODS}/{name}")
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "Evicted")
    address = cluster.get(f"{SANDBOXES}/{name}")["status"]["podIPs"][0]
    assert not [line for line in workspace.processes().values() if address in line]


def test_the_router_says_what_is_wrong(cluster):
    cluster.make_pool(SERVER)
    claim = cluster.until_ready(cluster.claim("mine"))
    name, address = sandbox_of(claim), claim["status"]["sandbox"]["podIPs"][0]

    def check(wanted, detail, sandbox=name, **headers):
        status, answer = cluster.through_router(sandbox, **headers)
        assert (status, json.loads(answer)["detail"]) == (wanted, detail)

    check(401, "Invalid token.", Authorization="Bearer wrong")
    check(401, "Missing or invalid Authorization header.", Authorization="wrong")
    check(400, "X-Sandbox-ID header is required.", "")
    check(400, "Invalid sandbox ID format.", "A.b")
    check(400, "Invalid namespace format.", X_Sandbox_Namespace="a b")
    check(400, "Invalid port format.", X_Sandbox_Port="70000")
    check(400, "Invalid target IP address.", X_Sandbox_Pod_IP="127.0.0.1")
    lost = "Could not connect to the backend sandbox: "
    check(502, f"{lost}none", "none")
    check(502, f"{lost}{name}", X_Sandbox_Namespace="kube-system")
    check(502, f"{lost}{name}", X_Sandbox_Port="8889")
    assert cluster.through_router("any", X_Sandbox_Pod_IP=address)[0] == 200


ECHO = """
import sys
from aiohttp import web

async def answer(request):
    if request.headers.get("Upgrade") != "websocket":
        return web.json_response(dict(request.headers))
    socket = web.WebSocketResponse(protocols=["chat"])
    await socket.prepare(request)
    async for message in socket:
        await socket.send_str(message.data.upper())
    return socket

application = web.Application()
application.router.add_get("/{path:.*}", answer)
web.run_app(application, host=sys.argv[1], port=8888)
"""

TALK = """
import asyncio, json, sys, aiohttp

async def talk(url, headers):
    async with aiohttp.ClientSession(headers=headers) as session:
        async with session.ws_connect(url, protocols=["chat"]) as socket:
            await socket.send_str("hello")
            print(socket.protocol, await socket.receive_str())
        try:
            await session.ws_connect(url, headers={"X-Sandbox-ID": "none"})
        except aiohttp.WSServerHandshakeError as error:
            print(error.status)

asyncio.run(talk(sys.argv[1], json.loads(sys.argv[2])))
"""


def test_the_router_relays_websockets_and_keeps_its_own_headers(cluster):
    cluster.make_pool([str(PYTHON), "-c", ECHO, "$(POD_IP)"])
    name = sandbox_of(cluster.until_ready(cluster.claim("mine")))
    status, answer = cluster.through_router(name, Accept="text/x", X_Mine="1")
    got = {key.lower(): value for key, value in json.loads(answer).items()}
    assert (status, got["x-mine"], got["accept"]) == (200, "1", "text/x")
    assert not {"authorization", "x-sandbox-id"} & set(got)
    token = f"Bearer {cluster.about['router_token']}"
    headers = json.dumps({"X-Sandbox-ID": name, "Authorization": token})
    url = cluster.about["router"].replace("http", "ws") + "/path"
    talked = subprocess.run(
        [PYTHON, "-c", TALK, url, headers], capture_output=True, text=True, check=False
    )
    assert talked.stdout == "chat HELLO\n403\n", talked.stderr


RUNTIME = """
import subprocess, sys
from aiohttp import web

async def execute(request):
    command = (await request.json())["command"]
    ended = subprocess.run(command, shell=True, capture_output=True, text=True)
    said = {"stdout": ended.stdout, "stderr": ended.stderr}
    return web.json_response({**said, "exit_code": ended.returncode})

application = web.Application()
application.router.add_post("/execute", execute)
web.run_app(application, host=sys.argv[1], port=8888)
"""

CLIENT = """
import sys
from k8s_agent_sandbox import SandboxClient
from k8s_agent_sandbox.models import SandboxDirectConnectionConfig

router, token = sys.argv[1:]
headers = {"Authorization": f"Bearer {token}"}
config = SandboxDirectConnectionConfig(api_url=router, extra_headers=headers)
client = SandboxClient(connection_config=config)
sandbox = client.create_sandbox(warmpool="pool", shutdown_after_seconds=3600)
print("said:", sandbox.commands.run("echo hello").stdout.strip())
print("status:", sandbox.status()[0])
print("all:", len(client.list_all_sandboxes()))
client.delete_all()
print("all:", len(client.list_all_sandboxes()))
"""


def test_the_client_of_agent_sandbox_works(cluster, monkeypatch):
    known = subprocess.run([PYTHON, "-c", "import k8s_agent_sandbox"], check=False)
    if known.returncode:
        pytest.skip("agent-sandbox's client needs a newer Python")
    monkeypatch.setenv("KUBECONFIG", str(cluster.config))
    cluster.make_pool([str(PYTHON), "-c", RUNTIME, "$(POD_IP)"])
    places = [cluster.about["router"], cluster.about["router_token"]]
    ended = subprocess.run(
        [PYTHON, "-c", CLIENT, *places], capture_output=True, text=True, check=False
    )
    lines = [one for one in ended.stdout.splitlines() if " - " not in one]
    said = ["said: hello", "status: SandboxReady", "all: 1", "all: 0"]
    assert lines == said, ended
