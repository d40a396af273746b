"""Descriptions of the API: groups, resources, and as much OpenAPI as `kubectl` asks for."""

from typing import Any

from kinds import NAMESPACES, PODS, REVIEWS, SERVED, SERVICES, ResourceKind

VERSION = {"major": "1", "minor": "33", "gitVersion": "v1.33.0", "platform": "linux"}
VERBS = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
]


def document(path: str) -> dict[str, Any] | None:
    """The document at a path, or nothing."""
    parts = path.strip("/").split("/")
    if parts == ["version"]:
        return VERSION
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"]}
    if parts == ["apis"]:
        groups = [group(name) for name in group_names()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    if len(parts) == 2 and parts[0] == "apis" and parts[1] in group_names():
        return {"kind": "APIGroup", "apiVersion": "v1", **group(parts[1])}
    if parts[:2] == ["openapi", "v3"]:
        return openapi("/".join(parts[2:]))
    if parts == ["api", "v1"]:
        return resources("v1")
    if len(parts) == 3 and parts[0] == "apis":
        return resources("/".join(parts[1:]))
    return None


def group_names() -> list[str]:
    return sorted({kind.group for kind in SERVED if kind.group})


def group(name: str) -> dict[str, Any]:
    version = next(kind.version for kind in SERVED if kind.group == name)
    only = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [only], "preferredVersion": only}


def resources(api_version: str) -> dict[str, Any] | None:
    kinds = [kind for kind in SERVED if kind.api_version == api_version]
    if not kinds:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version,
        "resources": [entry for kind in kinds for entry in entries(kind)],
    }


def entries(kind: ResourceKind) -> list[dict[str, Any]]:
    """A kind and its subresources, as `APIResource`s."""
    common = {
        "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
    }
    verbs = ["create"] if kind is REVIEWS else VERBS
    names: dict[str, Any] = {"shortNames": [*kind.short_names]}
    if kind in (PODS, SERVICES):
        names["categories"] = ["all"]
    found = [{"name": kind.plural, **common, "verbs": verbs, **names}]
    for subresource in sorted(kind.subresources):
        verbs = {"log": ["get"], "token": ["create"]}.get(
            subresource, ["get", "patch", "update"]
        )
        found.append({"name": f"{kind.plural}/{subresource}", **common, "verbs": verbs})
    return found


def base(api_version: str) -> str:
    return f"apis/{api_version}" if "/" in api_version else f"api/{api_version}"


def openapi(path: str) -> dict[str, Any] | None:
    """The index, or the document of a version: only that patches can be validated."""
    versions = {base(kind.api_version): kind.api_version for kind in SERVED}
    if not path:
        return {
            "paths": {
                name: {"serverRelativeURL": f"/openapi/v3/{name}?hash={index}"}
                for index, name in enumerate(versions)
            }
        }
    if path not in versions:
        return None
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string"}}
        for name in ("dryRun", "fieldManager", "fieldValidation", "force")
    ]
    paths = {}
    for kind in SERVED:
        if kind.api_version == versions[path]:
            place = "" if kind is NAMESPACES or not kind.namespaced else "/{namespace}"
            named = {
                "group": kind.group,
                "version": kind.version,
                "kind": kind.kind,
            }
            action = {
                "parameters": parameters,
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-group-version-kind": named,
                "x-kubernetes-action": "patch",
            }
            prefix = f"/namespaces{place}" if place else ""
            paths[f"/{path}{prefix}/{kind.plural}/{{name}}"] = {"patch": action}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
        "paths": paths,
        "components": {"schemas": {}},
    }
