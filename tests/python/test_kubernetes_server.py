"""The API server of Kubernetes that tests use, seen by `kubectl` and by plain requests."""

import http.client
import json
import sys

import pytest
from kubernetes_cluster import (
    CLAIMS,
    PODS,
    POOLS,
    ROLES,
    SECRETS,
)
from support import SECONDS

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="pods are processes in namespaces of Linux"
)


def test_kubectl_works(cluster):
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}}
    text = json.dumps({**secret, "data": {"key": "dmFsdWU="}})
    assert "created" in cluster.kubectl("apply", "-f", "-", text=text)
    assert "unchanged" in cluster.kubectl("apply", "-f", "-", text=text)
    path = "-o=jsonpath={.data.key}"
    assert cluster.kubectl("get", "secret", "one", path) == "dmFsdWU="
    cluster.kubectl("label", "secret", "one", "team=red")
    assert "one" in cluster.kubectl("get", "secrets", "-l", "team in (red, blue)")
    assert "one" not in cluster.kubectl("get", "secrets", "-l", "team!=red")
    cluster.kubectl("create", "-f", "-", text=json.dumps(namespace("spare")))
    assert "default" in cluster.kubectl("get", "serviceaccounts", "-n", "spare")
    cluster.kubectl("delete", "namespace", "spare")
    assert "NotFound" in cluster.kubectl("get", "ns", "spare", status=1)
    pod = {"containers": [{"name": "a", "image": "b", "command": ["echo", "hello"]}]}
    pod = {"restartPolicy": "Never", **pod}
    cluster.create(PODS, "talker", spec=pod)
    wait = ("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/talker")
    cluster.kubectl(*wait, f"--timeout={SECONDS}s")
    assert cluster.kubectl("logs", "talker") == "hello\n"


def namespace(name):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def test_kubectl_says_what_is_wrong_with_a_claim(cluster):
    claim = {
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxClaim",
        "metadata": {"name": "wrong"},
        "spec": {"warmPoolRef": {"name": "pool"}, "sandboxTemplateRef": {"name": "x"}},
    }
    said = cluster.kubectl("create", "-f", "-", text=json.dumps(claim), status=1)
    assert 'strict decoding error: unknown field "spec.sandboxTemplateRef"' in said
    claim["spec"] = {"lifecycle": {"shutdownPolicy": "Never"}}
    said = cluster.kubectl("create", "-f", "-", text=json.dumps(claim), status=1)
    assert "spec.warmPoolRef: Required value" in said
    policies = '"Delete", "DeleteForeground", "Retain"'
    assert f'Unsupported value: "Never": supported values: {policies}' in said


def test_unknown_fields_are_pruned_and_defaults_filled_in(cluster):
    spec = {"warmPoolRef": {"name": "a"}, "lifecycle": {}, "colour": 1}
    with cluster.open("POST", CLAIMS, {"metadata": {"name": "b"}, "spec": spec}) as got:
        assert got.headers["Warning"] == '299 - "unknown field \\"spec.colour\\""'
        made = json.loads(got.read())
    assert made["spec"] == {
        "warmPoolRef": {"name": "a"},
        "lifecycle": {"shutdownPolicy": "Retain"},
    }
    assert made["metadata"]["generation"] == 1
    assert cluster.patch(f"{CLAIMS}/b", {"spec": {"colour": 2}})["spec"] == made["spec"]
    env = {"spec": {"env": [{"name": "A", "value": "1"}]}}
    assert cluster.patch(f"{CLAIMS}/b", env)["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    ("method", "path", "body", "media_type", "code", "reason", "message"),
    [
        ("GET", f"{PODS}/x", None, "", 404, "NotFound", 'pods "x" not found'),
        (
            "GET",
            f"{CLAIMS}/x",
            None,
            "",
            404,
            "NotFound",
            'sandboxclaims.extensions.agents.x-k8s.io "x" not found',
        ),
        (
            "POST",
            SECRETS.replace("default", "none"),
            {"metadata": {"name": "x"}},
            "application/json",
            404,
            "NotFound",
            'namespaces "none" not found',
        ),
        (
            "PUT",
            PODS,
            {},
            "application/json",
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        ),
        (
            "POST",
            SECRETS,
            {"metadata": {"name": "taken"}},
            "application/json",
            409,
            "AlreadyExists",
            'secrets "taken" already exists',
        ),
        (
            "PUT",
            f"{SECRETS}/taken",
            {"metadata": {"name": "taken", "resourceVersion": "1"}},
            "application/json",
            409,
            "Conflict",
            (
                'Operation cannot be fulfilled on secrets "taken": the object has been modified; '
                "please apply your changes to the latest version and try again"
            ),
        ),
        (
            "POST",
            SECRETS,
            {},
            "application/vnd.kubernetes.protobuf",
            415,
            "UnsupportedMediaType",
            (
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json, application/yaml"
            ),
        ),
        (
            "PATCH",
            f"{CLAIMS}/taken",
            {},
            "application/strategic-merge-patch+json",
            415,
            "UnsupportedMediaType",
            (
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
            ),
        ),
        (
            "POST",
            POOLS,
            {
                "metadata": {"name": "x"},
                "spec": {"replicas": -1, "sandboxTemplateRef": {"name": "t"}},
            },
            "application/json",
            422,
            "Invalid",
            (
                'SandboxWarmPool.extensions.agents.x-k8s.io "x" is invalid: spec.replicas: Invalid value: -1: '
                "spec.replicas in body should be greater than or equal to 0"
            ),
        ),
        (
            "POST",
            SECRETS,
            {"metadata": {"name": "x", "labels": {"a": "b c"}}},
            "application/json",
            422,
            "Invalid",
            (
                'Secret "x" is invalid: metadata.labels.a: Invalid value: "b c": metadata.labels.a in body '
                "should match '^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$'"
            ),
        ),
        (
            "POST",
            f"{CLAIMS}/taken/status",
            {},
            "application/json",
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        ),
        (
            "POST",
            POOLS,
            {"kind": "Sandbox", "metadata": {"name": "x"}},
            "application/json",
            400,
            "BadRequest",
            "the kind in the data (Sandbox) does not match the expected kind (SandboxWarmPool)",
        ),
    ],
)
def test_errors_are_statuses(
    cluster, method, path, body, media_type, code, reason, message
):
    cluster.create(SECRETS, "taken")
    cluster.claim("taken")
    with cluster.open(method, path, body, media_type=media_type or "x/y") as answer:
        status = json.loads(answer.read())
    assert (answer.status, status["code"]) == (code, code)
    assert (status["kind"], status["reason"]) == ("Status", reason)
    assert status["message"] == message


def test_owners_finalizers_and_names(cluster):
    owner = cluster.create(SECRETS, "owner")
    reference = {"apiVersion": "v1", "kind": "Secret", "name": "owner"}
    reference["uid"] = owner["metadata"]["uid"]
    owned = {"ownerReferences": [reference], "generateName": "owned-"}
    made = cluster.request("POST", SECRETS, {"metadata": owned})
    path = f"{SECRETS}/{made['metadata']['name']}"
    assert len(made["metadata"]["name"]) == len("owned-") + 5
    cluster.patch(path, {"metadata": {"finalizers": ["tests/hold"]}})
    wrong = {"preconditions": {"uid": "other"}}
    refused = cluster.request("DELETE", f"{SECRETS}/owner", wrong)
    assert (refused["code"], refused["reason"]) == (409, "Conflict")
    foreground = {"propagationPolicy": "Foreground"}
    kept = cluster.request("DELETE", f"{SECRETS}/owner", foreground)
    assert kept["metadata"]["finalizers"] == ["foregroundDeletion"]
    cluster.until(path, lambda found: found["metadata"]["deletionTimestamp"])
    assert cluster.get(f"{SECRETS}/owner")["metadata"]["deletionTimestamp"]
    cluster.patch(path, {"metadata": {"finalizers": None}})
    cluster.until_gone(path)
    cluster.until_gone(f"{SECRETS}/owner")


def test_json_and_apply_patches(cluster):
    path = cluster.claim("mine")
    test = [{"op": "test", "path": "/metadata/name", "value": "mine"}]
    add = [{"op": "add", "path": "/metadata/annotations", "value": {"a/b": "1"}}]
    swap = [{"op": "replace", "path": "/metadata/annotations/a~1b", "value": "2"}]
    kind = "application/json-patch+json"
    done = cluster.request("PATCH", path, test + add + swap, media_type=kind)
    assert done["metadata"]["annotations"]["a/b"] == "2"
    test[0]["value"] = "other"
    assert cluster.request("PATCH", path, test, media_type=kind)["code"] == 422
    text = b"metadata: {name: new}\nspec: {warmPoolRef: {name: pool}}"
    apply = "application/apply-patch+yaml"
    new = f"{CLAIMS}/new?fieldManager=tests"
    with cluster.open("PATCH", new, text, media_type=apply) as answer:
        assert answer.status == 201


def test_watches_begin_at_a_version_and_select(cluster):
    begin = cluster.get(SECRETS)["metadata"]["resourceVersion"]
    red = {"labels": {"team": "red"}, "name": "one"}
    cluster.request("POST", SECRETS, {"metadata": red})
    cluster.create(SECRETS, "two")
    cluster.patch(f"{SECRETS}/one", {"metadata": {"labels": {"team": "blue"}}})
    cluster.request("DELETE", f"{SECRETS}/two")

    def seen(**query):
        events = cluster.watch(SECRETS, timeoutSeconds=1, **query)
        return [(one["type"], one["object"]["metadata"]["name"]) for one in events]

    everything = [
        ("ADDED", "one"),
        ("ADDED", "two"),
        ("MODIFIED", "one"),
        ("DELETED", "two"),
    ]
    assert seen(resourceVersion=begin) == everything
    left = [("ADDED", "one"), ("DELETED", "one")]
    assert seen(resourceVersion=begin, labelSelector="team=red") == left
    named = [("ADDED", "two"), ("DELETED", "two")]
    assert seen(resourceVersion=begin, fieldSelector="metadata.name=two") == named
    assert seen() == [("ADDED", "one")]
    initial = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    events = cluster.watch(
        SECRETS, allowWatchBookmarks="true", timeoutSeconds=1, **initial
    )
    types = [one["type"] for one in events]
    # One ends the first events, one the watch.
    assert types == ["ADDED", "BOOKMARK", "BOOKMARK"]


def test_lists_say_what_the_objects_of_custom_kinds_are(cluster):
    cluster.create(SECRETS, "one")
    cluster.claim("two")
    assert "kind" not in cluster.get(SECRETS)["items"][0]
    assert cluster.get(CLAIMS)["items"][0]["kind"] == "SandboxClaim"
    assert cluster.get(SECRETS)["kind"] == "SecretList"


def test_old_versions_expire(cluster):
    begin = cluster.create(SECRETS, "one")["metadata"]["resourceVersion"]
    cluster.create(SECRETS, "two")
    page = cluster.get(f"{SECRETS}?limit=1")
    assert page["metadata"]["remainingItemCount"] == 1
    cluster.request("DELETE", f"{SECRETS}/two")
    more = f"{SECRETS}?limit=1&continue={page['metadata']['continue']}"
    assert [one["metadata"]["name"] for one in cluster.get(more)["items"]] == ["two"]
    running = cluster.watch(SECRETS, resourceVersion=begin)
    assert next(running)["object"]["metadata"]["name"] == "two"
    assert next(running)["type"] == "DELETED"
    cluster.fault("expire_versions")
    ended = list(running)
    assert [(one["type"], one["object"]["code"]) for one in ended] == [("ERROR", 410)]
    error = next(cluster.watch(SECRETS, resourceVersion=begin))
    assert error["type"] == "ERROR"
    assert (error["object"]["code"], error["object"]["reason"]) == (410, "Expired")
    expired = cluster.get(more)
    assert (expired["code"], expired["reason"]) == (410, "Expired")


def test_watches_can_be_dropped(cluster):
    with cluster.open("GET", f"{SECRETS}?watch=true") as running:
        cluster.create(SECRETS, "one")
        assert json.loads(running.readline())["type"] == "ADDED"
        cluster.fault("drop_watches")
        with pytest.raises((ConnectionError, http.client.IncompleteRead)):
            running.read()


def test_roles_decide_about_service_accounts(cluster):
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    cluster.create(accounts, "agent")
    token = cluster.request("POST", f"{accounts}/agent/token", {"spec": {}})
    token = token["status"]["token"]
    refused = cluster.request("GET", CLAIMS, token=token)
    assert (refused["code"], refused["reason"]) == (403, "Forbidden")
    assert refused["message"] == (
        "sandboxclaims.extensions.agents.x-k8s.io is forbidden: "
        'User "system:serviceaccount:default:agent" cannot list resource "sandboxclaims" '
        'in API group "extensions.agents.x-k8s.io" in the namespace "default"'
    )
    group = {
        "apiGroups": ["extensions.agents.x-k8s.io"],
        "resources": ["sandboxclaims"],
    }
    rules = [
        {**group, "verbs": ["create", "list", "watch"]},
        {**group, "verbs": ["get"], "resourceNames": ["mine"]},
    ]
    cluster.create(f"{ROLES}/roles", "claiming", rules=rules)
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "claiming"}
    subject = {"kind": "ServiceAccount", "name": "agent"}
    bound = {"roleRef": role, "subjects": [subject]}
    cluster.create(f"{ROLES}/rolebindings", "claiming", **bound)
    for name in ("mine", "other"):
        claim = {"metadata": {"name": name}, "spec": {"warmPoolRef": {"name": "p"}}}
        made = cluster.request("POST", CLAIMS, claim, token=token)
        assert made["kind"] == "SandboxClaim"
    assert cluster.request("GET", f"{CLAIMS}/mine", token=token)["spec"]
    assert cluster.request("GET", f"{CLAIMS}/other", token=token)["code"] == 403
    assert cluster.request("DELETE", f"{CLAIMS}/mine", token=token)["code"] == 403
    assert cluster.request("GET", PODS, token=token)["code"] == 403
    review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    asked = {"verb": "list", "group": group["apiGroups"][0], "namespace": "default"}
    asked = {"spec": {"resourceAttributes": {**asked, "resource": "sandboxclaims"}}}
    answer = cluster.request("POST", review, asked, token=token)
    assert answer["status"] == {"allowed": True}
    assert cluster.request("GET", CLAIMS, token="wrong")["code"] == 401
    cluster.fault("clock_skew", seconds=4000)
    assert cluster.request("GET", CLAIMS, token=token)["code"] == 401
    cluster.fault("reset")
    assert cluster.request("GET", CLAIMS, token=token)["items"]
    cluster.request("DELETE", f"{accounts}/agent")
    assert cluster.request("GET", CLAIMS, token=token)["code"] == 401


@pytest.mark.parametrize("status", [409, 410, 429, 500, 503])
def test_the_next_requests_can_fail(cluster, status):
    settings = {"count": 2, "verb": "create", "resource": "sandboxclaims"}
    cluster.fault("answer", status=status, retry_after=7, **settings)
    cluster.create(SECRETS, "other")
    claim = {"metadata": {"name": "mine"}, "spec": {"warmPoolRef": {"name": "pool"}}}
    for _ in range(2):
        with cluster.open("POST", CLAIMS, claim) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (status, "7")
            assert json.loads(answer.read())["code"] == status
    assert cluster.request("POST", CLAIMS, claim)["kind"] == "SandboxClaim"


def test_a_wrong_fault_gets_an_error(cluster):
    answer = cluster.request("POST", "/faults", {"fault": "rain"})
    assert "no fault 'rain': `fault` is one of answer, " in answer["error"]
    answer = cluster.request("POST", "/faults", {"fault": "ready_delay", "hours": 1})
    assert "hours" in answer["error"]
    assert cluster.get("/faults")["ready_delay"] == 0
