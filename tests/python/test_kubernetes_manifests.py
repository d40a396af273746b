"""The manifests for sandboxes of agent-sandbox, as the API server of the tests takes them from `kubectl`."""

import sys

import pytest
from kubernetes_cluster import EXTENSIONS, SANDBOXES
from support import ROOT

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="pods are processes in namespaces of Linux"
)

MANIFESTS = ROOT / "packaging/kubernetes/agent-sandbox"
NAMESPACE = "ipybox-sandboxes"
RIGHTS = {
    "sandboxes": {"get", "patch"},
    "sandboxclaims": {"create", "list", "watch", "patch", "delete"},
    "sandboxwarmpools": {"get", "list"},
}


def test_the_manifests_are_applied_without_unknown_fields(cluster):
    for name in ("template", "pool", "role"):
        said = cluster.kubectl("apply", "-f", str(MANIFESTS / f"{name}.yaml"))
        assert "created" in said
    place = EXTENSIONS.replace("/default", f"/{NAMESPACE}")
    template = cluster.get(f"{place}/sandboxtemplates/ipybox")["spec"]
    pod = template["podTemplate"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    [container] = pod["containers"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["ports"][0]["containerPort"] == 8888
    assert template["networkPolicy"]["ingress"][0]["ports"][0]["port"] == 8888
    pool = cluster.get(f"{place}/sandboxwarmpools/ipybox")["spec"]
    assert pool["sandboxTemplateRef"]["name"] == "ipybox"
    cluster.until(
        SANDBOXES.replace("/default", f"/{NAMESPACE}"),
        lambda found: len(found["items"]) == pool["replicas"],
    )


def test_the_role_has_the_rights_that_a_session_needs_and_no_others(cluster):
    for name in ("template", "role"):
        cluster.kubectl("apply", "-f", str(MANIFESTS / f"{name}.yaml"))
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles"
    rules = cluster.get(f"{roles}/ipybox")["rules"]
    groups = {rule["resources"][0]: rule["apiGroups"] for rule in rules}
    assert groups.pop("sandboxes") == ["agents.x-k8s.io"]
    assert all(group == ["extensions.agents.x-k8s.io"] for group in groups.values())
    found = {rule["resources"][0]: set(rule["verbs"]) for rule in rules}
    assert found == RIGHTS
