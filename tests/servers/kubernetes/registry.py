"""Creation, change and removal of objects under Kubernetes' rules: metadata, versions, schemas, finalizers, owners."""

import base64
import copy
import random
import re
import uuid
from collections.abc import Callable
from typing import Any

import schemas
from kinds import ACCOUNTS, NAMESPACES, PODS, SECRETS, STORED, ResourceKind
from statuses import (
    already_exists,
    cause,
    conflict,
    forbidden,
    invalid,
    not_found,
)
from store import ClusterClock, Store

LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names, without vowels."""

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
NAME_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
GRACE = 30
"""Seconds that a pod has to end, if it says nothing else."""

FOREGROUND = "foregroundDeletion"
KEPT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
"""Fields of the metadata that no client changes; the name and the namespace are in the path."""

Change = Callable[[dict[str, Any]], None]


class ObjectRegistry:
    """The only writer of the store."""

    def __init__(self, store: Store, clock: ClusterClock) -> None:
        self.store = store
        self.clock = clock

    def get(self, kind: ResourceKind, namespace: str, name: str) -> dict[str, Any]:
        found = self.store.get(kind, namespace, name)
        if found is None:
            raise not_found(kind, name)
        return found

    def create(
        self,
        kind: ResourceKind,
        namespace: str,
        body: dict[str, Any],
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Stores a new object; unknown fields are pruned before."""
        body = copy.deepcopy(body)
        metadata = self.new_metadata(kind, namespace, body)
        name = metadata["name"]
        if kind.namespaced:
            self.check_namespace(kind, namespace, name)
        if kind.has_status:
            body.pop("status", None)
        self.complete(kind, body)
        self.check(kind, body)
        if self.store.get(kind, namespace, name):
            raise already_exists(kind, name)
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = self.clock.stamp()
        if kind.is_custom:
            metadata["generation"] = 1
        if kind is PODS:
            body["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
            body["spec"].setdefault("restartPolicy", "Always")
            body["spec"].setdefault("terminationGracePeriodSeconds", GRACE)
            # The scheduler is never late.
            body["spec"]["nodeName"] = "node-1"
        if kind is NAMESPACES:
            body.setdefault("spec", {})["finalizers"] = ["kubernetes"]
            body["status"] = {"phase": "Active"}
        if dry_run:
            return body
        self.store.put(kind, body)
        if kind is NAMESPACES:
            self.create(ACCOUNTS, name, {"metadata": {"name": "default"}})
        return body

    def new_metadata(
        self, kind: ResourceKind, namespace: str, body: dict[str, Any]
    ) -> dict[str, Any]:
        body["apiVersion"], body["kind"] = kind.api_version, kind.kind
        metadata = body.setdefault("metadata", {})
        for field in (*KEPT, "resourceVersion", "generation", "managedFields"):
            metadata.pop(field, None)
        prefix = metadata.get("generateName")
        if prefix and not metadata.get("name"):
            ending = "".join(random.choice(LETTERS) for _ in range(5))
            metadata["name"] = prefix[:58] + ending
        if not metadata.get("name"):
            missing = cause(
                "metadata.name",
                "FieldValueRequired",
                "Required value: name or generateName is required",
            )
            raise invalid(kind, "", [missing])
        if kind.namespaced:
            metadata["namespace"] = namespace
        return metadata

    def check_namespace(self, kind: ResourceKind, namespace: str, name: str) -> None:
        found = self.get(NAMESPACES, "", namespace)
        if "deletionTimestamp" in found["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise forbidden(kind, name, why)

    def complete(self, kind: ResourceKind, body: dict[str, Any]) -> None:
        schemas.complete(kind, body)
        if kind is SECRETS:
            for name, text in (body.pop("stringData", None) or {}).items():
                data = base64.b64encode(text.encode()).decode()
                body.setdefault("data", {})[name] = data
            body.setdefault("type", "Opaque")

    def check(self, kind: ResourceKind, body: dict[str, Any]) -> None:
        metadata = body["metadata"]
        causes = schemas.check(kind, body)
        name = metadata["name"]
        if not NAME.fullmatch(str(name)) or len(name) > 253:
            text = f'Invalid value: "{name}": {NAME_RULE}'
            causes.append(cause("metadata.name", "FieldValueInvalid", text))
        if causes:
            raise invalid(kind, name, causes)

    def update(
        self,
        kind: ResourceKind,
        old: dict[str, Any],
        new: dict[str, Any],
        of_status: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Stores what an object is to be; the status only by its subresource, and the rest not by that."""
        name = old["metadata"]["name"]
        given = new["metadata"].get("resourceVersion")
        if given and given != old["metadata"]["resourceVersion"]:
            raise conflict(kind, name)
        if new["metadata"].get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            why = f"Precondition failed: UID in precondition: {new['metadata']['uid']}, UID in object meta: {old['metadata']['uid']}"
            raise conflict(kind, name, why)
        if of_status:
            new = {**copy.deepcopy(old), "status": copy.deepcopy(new.get("status", {}))}
        else:
            new = copy.deepcopy(new)
            self.keep(kind, old, new)
        self.complete(kind, new)
        self.check(kind, new)
        causes = schemas.check_change(kind, old, new)
        if kind is PODS and new["spec"] != old["spec"]:
            text = "Forbidden: pod updates may not change fields other than metadata"
            causes.append(cause("spec", "FieldValueForbidden", text))
        if causes:
            raise invalid(kind, name, causes)
        if kind.is_custom and content(new) != content(old):
            new["metadata"]["generation"] = old["metadata"]["generation"] + 1
        if new == old or dry_run:
            return new
        self.store.put(kind, new)
        self.remove_if_done(kind, new)
        return new

    def keep(
        self, kind: ResourceKind, old: dict[str, Any], new: dict[str, Any]
    ) -> None:
        """Puts back what a change cannot reach."""
        new["apiVersion"], new["kind"] = kind.api_version, kind.kind
        metadata = new["metadata"]
        metadata.pop("managedFields", None)
        fields = (*KEPT, "name", "namespace", "generation", "resourceVersion")
        for field in fields:
            metadata.pop(field, None)
            if field in old["metadata"]:
                metadata[field] = old["metadata"][field]
        for empty in [name for name, value in metadata.items() if value in ({}, [])]:
            del metadata[empty]
        if kind.has_status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = copy.deepcopy(old["status"])

    def change(
        self, kind: ResourceKind, object: dict[str, Any], change: Change
    ) -> dict[str, Any]:
        """Changes the newest version of an object by a function, its status too: for controllers."""
        namespace = object["metadata"].get("namespace", "")
        old = self.get(kind, namespace, object["metadata"]["name"])
        new = copy.deepcopy(old)
        change(new)
        if new == old:
            return old
        status = new.get("status")
        stored = self.update(kind, old, new)
        if status is not None and kind.has_status:
            changed = {**stored, "status": status}
            stored = self.update(kind, stored, changed, of_status=True)
        return stored

    def delete(
        self,
        kind: ResourceKind,
        object: dict[str, Any],
        policy: str = "Background",
        grace: float | None = None,
    ) -> dict[str, Any] | None:
        """Removes an object, or marks it where something is to be done before. What is left of it."""
        metadata = object["metadata"]
        old = self.get(kind, metadata.get("namespace", ""), metadata["name"])
        if policy == "Orphan":
            self.orphan(old)
        finalizers = list(old["metadata"].get("finalizers", []))
        if (
            policy == "Foreground"
            and FOREGROUND not in finalizers
            and self.dependents(old)
        ):
            finalizers.append(FOREGROUND)
        waits = kind is NAMESPACES or (kind is PODS and grace != 0)
        if not finalizers and not waits:
            self.store.remove(kind, old)
            return None
        if "deletionTimestamp" in old["metadata"]:
            return old
        new = copy.deepcopy(old)
        if finalizers:
            new["metadata"]["finalizers"] = finalizers
        if kind is PODS:
            if grace is None:
                grace = new["spec"]["terminationGracePeriodSeconds"]
            new["metadata"]["deletionGracePeriodSeconds"] = int(grace)
        new["metadata"]["deletionTimestamp"] = self.clock.stamp(grace or 0)
        if kind is NAMESPACES:
            new["status"]["phase"] = "Terminating"
        return self.store.put(kind, new)

    def remove_if_done(self, kind: ResourceKind, object: dict[str, Any]) -> None:
        """Removes an object that was only kept by finalizers."""
        metadata = object["metadata"]
        if (
            "deletionTimestamp" in metadata
            and not metadata.get("finalizers")
            and kind not in (PODS, NAMESPACES)
        ):
            self.store.remove(kind, object)

    def finish(self, kind: ResourceKind, object: dict[str, Any]) -> None:
        """Removes an object for which all is done, unless finalizers keep it."""
        if not object["metadata"].get("finalizers"):
            self.store.remove(kind, object)

    def dependents(
        self, owner: dict[str, Any]
    ) -> list[tuple[ResourceKind, dict[str, Any]]]:
        """Objects that an object owns."""
        uid = owner["metadata"]["uid"]
        return [
            (kind, object)
            for kind in STORED
            for object in self.store.all_of(kind)
            if uid in owners(object)
        ]

    def orphan(self, owner: dict[str, Any]) -> None:
        uid = owner["metadata"]["uid"]

        def release(object: dict[str, Any]) -> None:
            kept = [
                one
                for one in object["metadata"]["ownerReferences"]
                if one["uid"] != uid
            ]
            object["metadata"]["ownerReferences"] = kept

        for kind, object in self.dependents(owner):
            self.change(kind, object, release)

    def collect_garbage(self) -> None:
        """Removes objects whose owners are gone, and contents of namespaces that are to go."""
        live = {
            object["metadata"]["uid"]: object
            for kind in STORED
            for object in self.store.all_of(kind)
        }
        leaving = {
            name
            for (_, name), object in self.store.objects[NAMESPACES].items()
            if "deletionTimestamp" in object["metadata"]
        }
        for kind in STORED:
            for object in self.store.all_of(kind):
                if "deletionTimestamp" in object["metadata"]:
                    self.finish_foreground(kind, object)
                    continue
                present = [live[uid] for uid in owners(object) if uid in live]
                orphaned = owners(object) and not present
                cascading = present and all(
                    FOREGROUND in owner["metadata"].get("finalizers", [])
                    and "deletionTimestamp" in owner["metadata"]
                    for owner in present
                )
                if orphaned or object["metadata"].get("namespace") in leaving:
                    self.delete(kind, object)
                elif cascading:
                    self.delete(kind, object, "Foreground")
        for name in leaving:
            if not any(self.store.all_of(kind, name) for kind in STORED):
                self.store.remove(NAMESPACES, self.get(NAMESPACES, "", name))

    def finish_foreground(self, kind: ResourceKind, object: dict[str, Any]) -> None:
        finalizers = object["metadata"].get("finalizers", [])
        if FOREGROUND in finalizers and not self.dependents(object):
            kept = [one for one in finalizers if one != FOREGROUND]
            self.change(
                kind, object, lambda new: new["metadata"].update(finalizers=kept)
            )


def content(object: dict[str, Any]) -> dict[str, Any]:
    """An object without what does not count for its generation."""
    return {
        name: value
        for name, value in object.items()
        if name not in ("metadata", "status")
    }


def owners(object: dict[str, Any]) -> list[str]:
    return [owner["uid"] for owner in object["metadata"].get("ownerReferences", [])]


def owner_reference(kind: ResourceKind, owner: dict[str, Any]) -> dict[str, Any]:
    """The reference of an object to the one that controls it."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(object: dict[str, Any]) -> dict[str, Any] | None:
    for owner in object["metadata"].get("ownerReferences", []):
        if owner.get("controller"):
            return owner
    return None


def is_controlled_by(object: dict[str, Any], owner: dict[str, Any]) -> bool:
    reference = controller_of(object)
    return reference is not None and reference["uid"] == owner["metadata"]["uid"]
