"""The controller of `SandboxWarmPool`: keeps as many sandboxes ready as each pool wants."""

import copy
import hashlib
import json
from typing import Any

from faults import ClusterFaults
from kinds import POOLS, SANDBOXES, TEMPLATES
from registry import ObjectRegistry, is_controlled_by, owner_reference
from sandboxes import (
    CREATED_BY,
    DOMAIN,
    POOL_LABEL,
    TEMPLATE_HASH,
    is_sandbox_ready,
    name_hash,
)

BLUEPRINT_HASH = f"{DOMAIN}/sandbox-template-hash"
LAUNCH_TYPE = f"{DOMAIN}/launch-type"
TEMPLATE_REF = f"{DOMAIN}/sandbox-template-ref"
READINESS_GRACE = 300
"""Seconds after which a warm sandbox that never got ready is replaced."""

BLUEPRINT = ("podTemplate", "volumeClaimTemplates", "service")


def blueprint(template: dict[str, Any]) -> dict[str, Any]:
    """The part of a template that a sandbox takes over, with secure defaults."""
    spec = template["spec"]
    taken = {name: copy.deepcopy(spec[name]) for name in BLUEPRINT if name in spec}
    pod = taken["podTemplate"]["spec"]
    pod.setdefault("automountServiceAccountToken", False)
    is_managed = spec["networkPolicyManagement"] == "Managed"
    if is_managed and "networkPolicy" not in spec and "dnsPolicy" not in pod:
        pod["dnsPolicy"] = "None"
        pod["dnsConfig"] = {"nameservers": ["8.8.8.8", "1.1.1.1"]}
    return taken


def blueprint_hash(template: dict[str, Any]) -> str:
    text = json.dumps(blueprint(template), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


class PoolController:
    """Keeps as many sandboxes in each pool as it wants."""

    def __init__(self, registry: ObjectRegistry, faults: ClusterFaults) -> None:
        self.registry = registry
        self.faults = faults

    def reconcile(self, pool: dict[str, Any]) -> float | None:
        metadata, spec = pool["metadata"], pool["spec"]
        if "deletionTimestamp" in metadata:
            return None
        namespace = metadata["namespace"]
        name = spec["sandboxTemplateRef"]["name"]
        template = self.registry.store.get(TEMPLATES, namespace, name)
        members = [
            sandbox
            for sandbox in self.registry.store.all_of(SANDBOXES, namespace)
            if is_controlled_by(sandbox, pool)
        ]
        kept = [one for one in members if self.is_kept(pool, template, one)]
        wanted = spec["replicas"]
        if template and not self.faults.no_refill:
            for _ in range(wanted - len(kept)):
                kept.append(self.add(pool, template))
        # Those that are not ready go first, of these the newest.
        kept.sort(key=lambda one: one["metadata"]["creationTimestamp"], reverse=True)
        kept.sort(key=is_sandbox_ready)
        while len(kept) > wanted:
            self.registry.delete(SANDBOXES, kept.pop(0))
        status = {
            "replicas": len(kept),
            "readyReplicas": sum(map(is_sandbox_ready, kept)),
            "selector": f"{POOL_LABEL}={name_hash(metadata['name'])}",
            "observedGeneration": metadata["generation"],
        }
        self.registry.change(POOLS, pool, lambda new: new.update(status=status))
        is_waiting = any(not is_sandbox_ready(one) for one in kept)
        return READINESS_GRACE / 10 if is_waiting else None

    def is_kept(
        self,
        pool: dict[str, Any],
        template: dict[str, Any] | None,
        sandbox: dict[str, Any],
    ) -> bool:
        """Tells whether a member stays; removes it otherwise."""
        metadata = sandbox["metadata"]
        if "deletionTimestamp" in metadata:
            return False
        strategy = pool["spec"].get("updateStrategy", {}).get("type", "OnReplenish")
        is_stale = (
            strategy == "Recreate"
            and template is not None
            and metadata["labels"].get(BLUEPRINT_HASH) != blueprint_hash(template)
        )
        age = -self.registry.clock.until(metadata["creationTimestamp"])
        if is_stale or (age > READINESS_GRACE and not is_sandbox_ready(sandbox)):
            self.registry.delete(SANDBOXES, sandbox)
            return False
        return True

    def add(self, pool: dict[str, Any], template: dict[str, Any]) -> dict[str, Any]:
        metadata = pool["metadata"]
        labels = {
            POOL_LABEL: name_hash(metadata["name"]),
            TEMPLATE_HASH: name_hash(template["metadata"]["name"]),
            BLUEPRINT_HASH: blueprint_hash(template),
            LAUNCH_TYPE: "warm",
            CREATED_BY: "controller",
        }
        body = {
            "metadata": {
                "generateName": f"{metadata['name']}-",
                "labels": labels,
                "annotations": {TEMPLATE_REF: template["metadata"]["name"]},
                "ownerReferences": [owner_reference(POOLS, pool)],
            },
            "spec": blueprint(template),
        }
        return self.registry.create(SANDBOXES, metadata["namespace"], body)
