"""Selectors of labels and fields."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kinds import PODS, SECRETS, ResourceKind
from statuses import bad_request

LABEL = re.compile(
    r"\s*(?:(?P<absent>!)?\s*(?P<key>[\w./-]+)\s*"
    r"(?:(?P<sign>=|==|!=)\s*(?P<value>[\w.-]*)|\s(?P<word>in|notin)\s*\((?P<set>[^)]*)\))?)\s*(?:,|$)"
)
FIELDS = {
    PODS: {"status.phase", "status.podIP", "spec.nodeName", "spec.restartPolicy"},
    SECRETS: {"type"},
}
ALWAYS = {"metadata.name", "metadata.namespace"}

Test = Callable[[dict[str, Any]], bool]


@dataclass(frozen=True)
class ObjectSelection:
    """The objects that a list or a watch is about."""

    namespace: str = ""
    tests: tuple[Test, ...] = ()

    def takes(self, object: dict[str, Any] | None) -> bool:
        if object is None:
            return False
        metadata = object["metadata"]
        if self.namespace and metadata.get("namespace") != self.namespace:
            return False
        return all(test(object) for test in self.tests)


def select(
    kind: ResourceKind, namespace: str, labels: str, fields: str
) -> ObjectSelection:
    """The selection that a request asks for."""
    return ObjectSelection(
        namespace, (*label_tests(labels), *field_tests(kind, fields))
    )


def label_tests(text: str) -> list[Test]:
    tests, position = [], 0
    while position < len(text):
        found = LABEL.match(text, position)
        if not found:
            raise bad_request(f"unable to parse requirement: {text[position:]!r}")
        tests.append(label_test(found))
        position = found.end()
    return tests


def label_test(found: re.Match[str]) -> Test:
    key, values = found["key"], {found["value"] or ""}
    if found["word"]:
        values = {value.strip() for value in found["set"].split(",")}
    sign = found["sign"] or found["word"]

    def test(object: dict[str, Any]) -> bool:
        labels = object["metadata"].get("labels") or {}
        if sign is None:
            return (key in labels) != bool(found["absent"])
        if sign in ("!=", "notin"):
            return labels.get(key) not in values
        return key in labels and labels[key] in values

    return test


def field_tests(kind: ResourceKind, text: str) -> list[Test]:
    tests = []
    for part in filter(None, text.split(",")):
        path, sign, value = re.split(r"(!=|==|=)", part + "=", maxsplit=1)
        value = value.removesuffix("=")
        if path not in ALWAYS | FIELDS.get(kind, set()):
            raise bad_request(
                f'Unable to find "{kind.api_version}, Resource={kind.plural}" that match label selector "", '
                f'field selector "{text}": field label not supported: {path}'
            )
        tests.append(field_test(path, value, sign != "!="))
    return tests


def field_test(path: str, value: str, wanted: bool) -> Test:
    def test(object: dict[str, Any]) -> bool:
        found: Any = object
        for part in path.split("."):
            found = found.get(part, {})
        return ((found or "") == value) == wanted

    return test
