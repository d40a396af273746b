"""Kinds of resources that the API server has: a few of Kubernetes' own, and agent-sandbox's from their schemas."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

CRDS = Path(__file__).parent / "crds"


@dataclass(frozen=True)
class ResourceKind:
    """One kind of resource in one version of its group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    schema: dict[str, Any] | None = field(default=None, compare=False, repr=False)
    """The published schema; without one, fields are neither pruned nor checked."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def is_custom(self) -> bool:
        return self.group.endswith("agents.x-k8s.io")

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources


RBAC = "rbac.authorization.k8s.io"

NAMESPACES = ResourceKind(
    "", "v1", "namespaces", "Namespace", False, ("ns",), frozenset({"status"})
)
SECRETS = ResourceKind("", "v1", "secrets", "Secret")
SERVICES = ResourceKind(
    "", "v1", "services", "Service", True, ("svc",), frozenset({"status"})
)
ACCOUNTS = ResourceKind(
    "", "v1", "serviceaccounts", "ServiceAccount", True, ("sa",), frozenset({"token"})
)
CONFIG_MAPS = ResourceKind("", "v1", "configmaps", "ConfigMap", True, ("cm",))


def named(*required: str) -> dict[str, Any]:
    text = {name: {"type": "string"} for name in ("apiGroup", "kind", "name")}
    more = {"namespace": {"type": "string"}}
    return {"type": "object", "required": [*required], "properties": text | more}


TEXTS = {"type": "array", "items": {"type": "string"}}
RULE_FIELDS = ("apiGroups", "resources", "verbs", "resourceNames", "nonResourceURLs")
RULE = {
    "type": "object",
    "required": ["verbs"],
    "properties": dict.fromkeys(RULE_FIELDS, TEXTS),
}
ROLE = {"type": "object", "properties": {"rules": {"type": "array", "items": RULE}}}
SUBJECTS = {"type": "array", "items": named("kind", "name")}
BINDING = {
    "type": "object",
    "required": ["roleRef"],
    "properties": {"roleRef": named("apiGroup", "kind", "name"), "subjects": SUBJECTS},
}
NOTHING: frozenset[str] = frozenset()

ROLES = ResourceKind(RBAC, "v1", "roles", "Role", True, (), NOTHING, ROLE)
ROLE_BINDINGS = ResourceKind(
    RBAC, "v1", "rolebindings", "RoleBinding", True, (), NOTHING, BINDING
)
CLUSTER_ROLES = ResourceKind(
    RBAC, "v1", "clusterroles", "ClusterRole", False, (), NOTHING, ROLE
)
CLUSTER_BINDINGS = ResourceKind(
    RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False, (), NOTHING, BINDING
)
REVIEWS = ResourceKind(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    False,
)
"""Questions that are answered and not stored."""


def custom_kinds() -> dict[str, ResourceKind]:
    """The kinds of agent-sandbox by plural, one for each file in `crds`."""
    found = {}
    for path in sorted(CRDS.glob("*.yaml")):
        with path.open() as file:
            spec = yaml.load(file, yaml.CSafeLoader)["spec"]
        names, version = spec["names"], spec["versions"][0]
        found[names["plural"]] = ResourceKind(
            spec["group"],
            version["name"],
            names["plural"],
            names["kind"],
            spec["scope"] == "Namespaced",
            tuple(names.get("shortNames", ())),
            frozenset(version.get("subresources", {})) & {"status"},
            version["schema"]["openAPIV3Schema"],
        )
    return found


CUSTOM = custom_kinds()
SANDBOXES = CUSTOM["sandboxes"]
TEMPLATES = CUSTOM["sandboxtemplates"]
POOLS = CUSTOM["sandboxwarmpools"]
CLAIMS = CUSTOM["sandboxclaims"]

PODS = ResourceKind(
    "",
    "v1",
    "pods",
    "Pod",
    True,
    ("po",),
    frozenset({"status", "log"}),
    {
        "type": "object",
        "required": ["spec"],
        "properties": {
            # The schema of a pod is that of a sandbox's template.
            "spec": SANDBOXES.schema["properties"]["spec"]["properties"]["podTemplate"][
                "properties"
            ]["spec"],
            "status": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
            },
        },
    },
)

STORED = [
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICES,
    ACCOUNTS,
    CONFIG_MAPS,
    ROLES,
    ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTER_BINDINGS,
    SANDBOXES,
    TEMPLATES,
    POOLS,
    CLAIMS,
]
SERVED = [*STORED, REVIEWS]


def find_kind(group: str, version: str, plural: str) -> ResourceKind | None:
    """The kind that a path names."""
    for kind in SERVED:
        if (kind.group, kind.version, kind.plural) == (group, version, plural):
            return kind
    return None
