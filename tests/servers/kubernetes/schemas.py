"""Structural schemas: unknown fields are found and pruned, defaults filled in, values checked, as Kubernetes does it."""

import copy
import json
from datetime import datetime
from functools import cache
from typing import Any

from jsonschema import Draft4Validator, FormatChecker
from kinds import ResourceKind
from statuses import cause

FREE = "x-kubernetes-preserve-unknown-fields"
FORMATS = FormatChecker(formats=())
ENVELOPE = {"apiVersion", "kind", "metadata"}


@FORMATS.checks("date-time", raises=ValueError)
def is_date_time(value: Any) -> bool:
    if isinstance(value, str):
        return (
            datetime.fromisoformat(value.replace("Z", "+00:00")).tzinfo is not None
            and "T" in value
        )
    return True


def same_claim_templates(old: dict[str, Any], new: dict[str, Any]) -> bool:
    return old.get("volumeClaimTemplates") == new.get("volumeClaimTemplates")


TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
LABEL_VALUE = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
LABELS = {"type": "string", "pattern": LABEL_VALUE, "maxLength": 63}
OWNER = {"type": "object", "required": ["apiVersion", "kind", "name", "uid"]}
METADATA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "labels": {"type": "object", "additionalProperties": LABELS},
        "annotations": TEXTS,
        "finalizers": {"type": "array", "items": {"type": "string"}},
        "ownerReferences": {"type": "array", "items": OWNER},
    },
}
OF_METADATA = Draft4Validator({"properties": {"metadata": METADATA}})

RULES = {"volumeClaimTemplates is immutable": same_claim_templates}
"""The rules of `x-kubernetes-validations` of `spec` by their messages, on its old and new value."""


def complete(kind: ResourceKind, body: dict[str, Any]) -> list[str]:
    """Prunes unknown fields and fills in defaults, in place. The paths of the pruned fields."""
    unknown: list[str] = []
    if kind.schema:
        walk(kind.schema, body, "", unknown)
    return unknown


def walk(schema: dict[str, Any], value: Any, path: str, unknown: list[str]) -> None:
    if isinstance(value, list):
        for index, item in enumerate(value):
            walk(schema.get("items", {FREE: True}), item, f"{path}[{index}]", unknown)
    if not isinstance(value, dict):
        return
    properties = schema.get("properties", {})
    rest = schema.get("additionalProperties")
    for name in list(value):
        place = f"{path}.{name}" if path else name
        if not path and name in ENVELOPE:
            continue
        if name in properties:
            if (
                value[name] is None
                and not properties[name].get("nullable")
                and "default" in properties[name]
            ):
                del value[name]
            else:
                walk(properties[name], value[name], place, unknown)
        elif isinstance(rest, dict):
            walk(rest, value[name], place, unknown)
        elif not schema.get(FREE) and properties:
            unknown.append(place)
            del value[name]
    for name, below in properties.items():
        if "default" in below and name not in value:
            value[name] = copy.deepcopy(below["default"])


@cache
def validator(kind: ResourceKind) -> Draft4Validator:
    return Draft4Validator(kind.schema, format_checker=FORMATS)


def check(kind: ResourceKind, body: dict[str, Any]) -> list[dict[str, str]]:
    """Violations of the schema, as the causes of a status."""
    checked = without_nulls(body)
    errors = [*OF_METADATA.iter_errors(checked)]
    if kind.schema:
        errors += validator(kind).iter_errors(checked)
    return [found for error in errors for found in causes_of(error)]


def check_change(
    kind: ResourceKind, old: dict[str, Any], new: dict[str, Any]
) -> list[dict[str, str]]:
    """Violations of the rules that compare an object with the one before."""
    spec = (kind.schema or {}).get("properties", {}).get("spec", {})
    found = []
    for rule in spec.get("x-kubernetes-validations", []):
        if not RULES[rule["message"]](old["spec"], new["spec"]):
            text = f"Invalid value: {json.dumps('object')}: {rule['message']}"
            found.append(cause("spec", "FieldValueInvalid", text))
    return found


def without_nulls(value: Any) -> Any:
    """Kubernetes reads a null as a field that is not there."""
    if isinstance(value, dict):
        return {
            name: without_nulls(item)
            for name, item in value.items()
            if item is not None
        }
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def dotted(path: Any) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".") or "<nil>"


def causes_of(error: Any) -> list[dict[str, str]]:
    """One error of the validator in Kubernetes' words."""
    place = dotted(error.absolute_path)
    value = json.dumps(error.instance)
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        prefix = "" if place == "<nil>" else f"{place}."
        # The validator reports each missing name by itself.
        name = next(name for name in missing if repr(name) in error.message)
        return [cause(prefix + name, "FieldValueRequired", "Required value")]
    if error.validator == "enum":
        supported = ", ".join(json.dumps(value) for value in error.validator_value)
        text = f"Unsupported value: {value}: supported values: {supported}"
        return [cause(place, "FieldValueNotSupported", text)]
    words = {
        "type": f"{place} in body must be of type {error.validator_value}: {json.dumps(type_of(error.instance))}",
        "pattern": f"{place} in body should match '{error.validator_value}'",
        "minimum": f"{place} in body should be greater than or equal to {error.validator_value}",
        "maximum": f"{place} in body should be less than or equal to {error.validator_value}",
        "format": f"{place} in body must be of type {error.validator_value}: {value}",
    }
    if error.validator == "type":
        value = json.dumps(type_of(error.instance))
        reason = "FieldValueTypeInvalid"
    else:
        reason = "FieldValueInvalid"
    text = words.get(error.validator, f"{place} in body: {error.message}")
    return [cause(place, reason, f"Invalid value: {value}: {text}")]


def type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = {str: "string", int: "integer", float: "number", list: "array"}
    return names.get(type(value), "object")
