"""The controller of `Sandbox`: one pod and, if wanted, one headless service for each, and their state."""

from typing import Any

from kinds import PODS, SANDBOXES, SERVICES
from pods import set_condition
from registry import ObjectRegistry, is_controlled_by, owner_reference

DOMAIN = "agents.x-k8s.io"
NAME_HASH = f"{DOMAIN}/sandbox-name-hash"
POD_NAME = f"{DOMAIN}/pod-name"
POOL_LABEL = f"{DOMAIN}/warm-pool-sandbox"
TEMPLATE_HASH = f"{DOMAIN}/sandbox-template-ref-hash"
CREATED_BY = f"{DOMAIN}/created-by"
RESERVED = f"{DOMAIN}/"
"""The beginning of keys that no template sets on pods."""


def name_hash(text: str) -> str:
    """FNV-1a of 32 bits, in hexadecimal digits."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{value:08x}"


def condition(sandbox: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """A condition of a sandbox or a claim."""
    for one in sandbox.get("status", {}).get("conditions", []):
        if one["type"] == kind:
            return one
    return None


def is_sandbox_ready(sandbox: dict[str, Any]) -> bool:
    return (condition(sandbox, "Ready") or {}).get("status") == "True"


class SandboxController:
    """Reconciles sandboxes one by one."""

    def __init__(self, registry: ObjectRegistry) -> None:
        self.registry = registry

    def reconcile(self, sandbox: dict[str, Any]) -> float | None:
        """Brings the state of one sandbox on; seconds until it is to be done again."""
        metadata, spec = sandbox["metadata"], sandbox["spec"]
        if "deletionTimestamp" in metadata:
            return None
        left = None
        if spec.get("shutdownTime"):
            left = self.registry.clock.until(spec["shutdownTime"])
            if left <= 0:
                self.expire(sandbox)
                return None
        problem = ""
        pod = self.registry.store.get(PODS, metadata["namespace"], metadata["name"])
        if pod and not is_controlled_by(pod, sandbox):
            pod, problem = None, f'pod "{metadata["name"]}" is not owned by the sandbox'
        elif spec["operatingMode"] == "Suspended":
            if pod and "deletionTimestamp" not in pod["metadata"]:
                pod = self.registry.delete(PODS, pod)
            if pod is None:
                self.registry.change(
                    SANDBOXES,
                    sandbox,
                    lambda new: new["metadata"].get("annotations", {}).pop(POD_NAME, 0),
                )
        elif pod is None:
            pod = self.create_pod(sandbox)
        else:
            wanted = pod_metadata(sandbox)
            pod = self.registry.change(
                PODS, pod, lambda new: new["metadata"].update(wanted)
            )
        service = self.reconcile_service(sandbox)
        self.report(sandbox, pod, service, problem)
        return left

    def expire(self, sandbox: dict[str, Any]) -> None:
        metadata = sandbox["metadata"]
        for kind in (PODS, SERVICES):
            found = self.registry.store.get(
                kind, metadata["namespace"], metadata["name"]
            )
            if (
                found
                and is_controlled_by(found, sandbox)
                and "deletionTimestamp" not in found["metadata"]
            ):
                self.registry.delete(kind, found)
        if sandbox["spec"].get("shutdownPolicy") == "Delete":
            self.registry.delete(SANDBOXES, sandbox)
            return

        def mark(new: dict[str, Any]) -> None:
            conditions = [
                one
                for one in new.get("status", {}).get("conditions", [])
                if one["type"] != "PodScheduled"
            ]
            ready = self.fact(
                new, "Ready", "False", "SandboxExpired", "Sandbox has expired"
            )
            set_condition(conditions, ready, self.registry.clock)
            new["status"] = {"conditions": conditions}

        self.registry.change(SANDBOXES, sandbox, mark)

    def create_pod(self, sandbox: dict[str, Any]) -> dict[str, Any]:
        metadata = sandbox["metadata"]
        owned = {"ownerReferences": [owner_reference(SANDBOXES, sandbox)]}
        named = {"name": metadata["name"], **owned, **pod_metadata(sandbox)}
        body = {"metadata": named, "spec": sandbox["spec"]["podTemplate"]["spec"]}
        pod = self.registry.create(PODS, metadata["namespace"], body)

        def track(new: dict[str, Any]) -> None:
            new["metadata"].setdefault("annotations", {})[POD_NAME] = metadata["name"]

        self.registry.change(SANDBOXES, sandbox, track)
        return pod

    def reconcile_service(self, sandbox: dict[str, Any]) -> dict[str, Any] | None:
        """Makes or removes the service as the sandbox wants it."""
        metadata, wanted = sandbox["metadata"], sandbox["spec"].get("service")
        found = self.registry.store.get(
            SERVICES, metadata["namespace"], metadata["name"]
        )
        if found and not is_controlled_by(found, sandbox):
            return None
        if found and wanted is False:
            self.registry.delete(SERVICES, found)
            return None
        if found or not wanted:
            return found
        selector = {NAME_HASH: name_hash(metadata["name"])}
        ports = {
            (port["containerPort"], port.get("protocol", "TCP")): port.get("name")
            for container in sandbox["spec"]["podTemplate"]["spec"]["containers"]
            for port in container.get("ports", [])
        }
        served = [
            {
                "name": name or f"{protocol.lower()}-{number}",
                "port": number,
                "protocol": protocol,
                "targetPort": number,
            }
            for (number, protocol), name in sorted(ports.items())
        ]
        body = {
            "metadata": {
                "name": metadata["name"],
                "labels": selector,
                "ownerReferences": [owner_reference(SANDBOXES, sandbox)],
            },
            "spec": {"clusterIP": "None", "selector": selector, "ports": served},
        }
        return self.registry.create(SERVICES, metadata["namespace"], body)

    def fact(
        self, sandbox: dict[str, Any], kind: str, status: str, reason: str, text: str
    ) -> dict[str, Any]:
        return {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": text,
            "observedGeneration": sandbox["metadata"]["generation"],
        }

    def report(
        self,
        sandbox: dict[str, Any],
        pod: dict[str, Any] | None,
        service: dict[str, Any] | None,
        problem: str,
    ) -> None:
        """Writes the status."""

        def write(new: dict[str, Any]) -> None:
            old = new.get("status", {})
            facts = [
                self.fact(new, *suspended(new, pod)),
                self.fact(new, *ready(new, pod, service, problem)),
            ]
            phase = (pod or {}).get("status", {}).get("phase")
            if phase in ("Succeeded", "Failed"):
                text = (
                    "Pod completed successfully"
                    if phase == "Succeeded"
                    else "Pod failed"
                )
                facts.append(self.fact(new, "Finished", "True", f"Pod{phase}", text))
            if pod:
                facts.append(self.fact(new, *scheduled(pod)))
            present = {fact["type"] for fact in facts}
            conditions = [
                one for one in old.get("conditions", []) if one["type"] in present
            ]
            for fact in facts:
                set_condition(conditions, fact, self.registry.clock)
            status: dict[str, Any] = {"conditions": conditions}
            if "selector" in old or pod:
                hash_of = name_hash(new["metadata"]["name"])
                status["selector"] = f"{NAME_HASH}={hash_of}"
            addresses = (pod or {}).get("status", {}).get("podIPs", [])
            if addresses:
                status["podIPs"] = [one["ip"] for one in addresses]
            if pod:
                status["nodeName"] = pod["spec"]["nodeName"]
            if service:
                name, place = service["metadata"]["name"], new["metadata"]["namespace"]
                status["service"] = name
                status["serviceFQDN"] = f"{name}.{place}.svc.cluster.local"
            new["status"] = status

        self.registry.change(SANDBOXES, sandbox, write)


def pod_metadata(sandbox: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Labels and annotations of a sandbox's pod: the template's without reserved ones, and the controller's own."""
    metadata, given = sandbox["metadata"], sandbox["spec"]["podTemplate"]
    given = given.get("metadata", {})
    parts = {
        part: {
            key: value
            for key, value in (given.get(part) or {}).items()
            if not key.startswith((RESERVED, f"extensions.{RESERVED}"))
        }
        for part in ("labels", "annotations")
    }
    parts["labels"][NAME_HASH] = name_hash(metadata["name"])
    for key in (POOL_LABEL, TEMPLATE_HASH, CREATED_BY):
        if key in metadata.get("labels", {}):
            parts["labels"][key] = metadata["labels"][key]
    if not parts["annotations"]:
        del parts["annotations"]
    return parts


def scheduled(pod: dict[str, Any]) -> list[str]:
    for one in pod["status"].get("conditions", []):
        if one["type"] == "PodScheduled":
            return ["PodScheduled", one["status"], "PodScheduled", ""]
    text = "Pod has not reported a PodScheduled condition yet"
    return ["PodScheduled", "Unknown", "PodSchedulingUnknown", text]


def suspended(sandbox: dict[str, Any], pod: dict[str, Any] | None) -> list[str]:
    if sandbox["spec"]["operatingMode"] != "Suspended":
        return ["Suspended", "False", "NotSuspended", "Sandbox is not suspended"]
    if pod is None:
        text = "Pod has been terminated. Sandbox is suspended"
        return ["Suspended", "True", "PodTerminated", text]
    text = "Pod is terminating. Sandbox is suspending"
    return ["Suspended", "False", "PodTerminating", text]


def ready(
    sandbox: dict[str, Any],
    pod: dict[str, Any] | None,
    service: dict[str, Any] | None,
    problem: str,
) -> list[str]:
    if problem:
        return ["Ready", "False", "ReconcilerError", f"Error seen: {problem}"]
    if sandbox["spec"]["operatingMode"] == "Suspended":
        text = "Sandbox is suspending" if pod else "Sandbox is suspended"
        return ["Ready", "False", "SandboxSuspended", text]
    status = (pod or {}).get("status", {})
    phase = status.get("phase")
    if phase == "Succeeded":
        return ["Ready", "False", "PodSucceeded", "Pod completed successfully"]
    if phase == "Failed":
        return ["Ready", "False", "PodFailed", "Pod failed"]
    is_pod_ready = any(
        one["type"] == "Ready" and one["status"] == "True"
        for one in status.get("conditions", [])
    )
    text = f"Pod exists with phase: {phase}"
    if pod is None:
        text = "Pod does not exist"
    elif phase == "Running":
        text = "Pod is Ready" if is_pod_ready else "Pod is Running but not Ready"
    holds = phase == "Running" and is_pod_ready
    if service or sandbox["spec"].get("service"):
        text += "; Service Exists" if service else "; Service does not exist"
        holds = holds and service is not None
    if holds:
        return ["Ready", "True", "DependenciesReady", text]
    return ["Ready", "False", "DependenciesNotReady", text]
