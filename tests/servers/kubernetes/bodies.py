"""Bodies of requests: objects in JSON and YAML, and patches."""

import copy
import json
from typing import Any

import yaml
from kinds import ResourceKind
from statuses import ApiError, bad_request, unsupported_media_type

JSON = "application/json"
YAML = "application/yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


def parse(text: bytes, media_type: str) -> dict[str, Any]:
    """The object of a request's body."""
    if media_type not in (JSON, YAML, "application/octet-stream", ""):
        raise unsupported_media_type([JSON, YAML])
    try:
        body = yaml.safe_load(text) if media_type == YAML else json.loads(text)
    except (ValueError, yaml.YAMLError) as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from error
    if not isinstance(body, dict):
        raise bad_request("the object provided is unrecognized: it is no object")
    return body


def check_type(kind: ResourceKind, body: dict[str, Any]) -> None:
    """Raises an error for an object of another kind than that of the path."""
    given = body.get("apiVersion", kind.api_version)
    if given != kind.api_version:
        raise bad_request(
            f"the API version in the data ({given}) does not match the expected API version ({kind.api_version})"
        )
    given = body.get("kind", kind.kind)
    if given != kind.kind:
        raise bad_request(
            f"the kind in the data ({given}) does not match the expected kind ({kind.kind})"
        )
    metadata = body.get("metadata", {})
    if not isinstance(metadata, dict):
        raise bad_request("json: cannot unmarshal metadata: it is no object")


def accepted_patches(kind: ResourceKind) -> list[str]:
    accepted = [JSON_PATCH, MERGE_PATCH, APPLY_PATCH]
    return accepted if kind.is_custom else [*accepted, STRATEGIC_PATCH]


def apply_patch(
    kind: ResourceKind, old: dict[str, Any], text: bytes, media_type: str
) -> dict[str, Any]:
    """An object as it is after a patch."""
    if media_type not in accepted_patches(kind):
        raise unsupported_media_type(accepted_patches(kind))
    if media_type == JSON_PATCH:
        return json_patch(old, text)
    body = parse(text, YAML if media_type == APPLY_PATCH else JSON)
    check_type(kind, body)
    return merge(old, body)


def merge(old: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7386); directives of strategic patches are left out."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def json_patch(old: dict[str, Any], text: bytes) -> dict[str, Any]:
    """A JSON patch (RFC 6902) without `move` and `copy`."""
    new = copy.deepcopy(old)
    try:
        for operation in json.loads(text):
            apply_operation(new, operation)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        message = "the server rejected our request due to an error in our request"
        raise ApiError(422, "Invalid", message) from error
    return new


def apply_operation(object: dict[str, Any], operation: dict[str, Any]) -> None:
    action = operation["op"]
    first, *path = operation["path"].split("/")
    if first or not path:
        raise ValueError(operation["path"])
    *above, last = (part.replace("~1", "/").replace("~0", "~") for part in path)
    place: Any = object
    for part in above:
        place = place[int(part)] if isinstance(place, list) else place[part]
    index: Any = last
    if isinstance(place, list):
        index = len(place) if last == "-" else int(last)
    if action == "test":
        if place[index] != operation["value"]:
            raise ValueError("test failed")
    elif action == "remove":
        del place[index]
    elif action == "add" and isinstance(place, list):
        place.insert(index, operation["value"])
    elif action in ("add", "replace"):
        if action == "replace":
            place[index]
        place[index] = operation["value"]
    else:
        raise ValueError(action)
