"""The controller of `SandboxClaim`: each claim gets a warm sandbox of its pool or a new one, until it ends."""

import re
from typing import Any

from faults import ClusterFaults
from kinds import CLAIMS, POOLS, SANDBOXES, TEMPLATES
from pods import set_condition
from pools import BLUEPRINT_HASH, LAUNCH_TYPE, TEMPLATE_REF, blueprint
from registry import ObjectRegistry, controller_of, is_controlled_by, owner_reference
from sandboxes import (
    CREATED_BY,
    DOMAIN,
    POOL_LABEL,
    TEMPLATE_HASH,
    condition,
    is_sandbox_ready,
    name_hash,
)

ASSIGNED = f"{DOMAIN}/sandbox-name"
CLAIM_UID = f"{DOMAIN}/claim-uid"
LABEL_DOMAIN = "sandbox.users.io"
"""The only domain, with those below it, of labels that claims may give to pods."""

RESTRICTED = re.compile(r"(.*\.)?(kubernetes\.io|k8s\.io|agents\.x-k8s\.io)")
EXEMPT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
WAIT_FOR_ADDRESS = 2
"""Seconds that a new claim waits for a warm sandbox that has no address yet."""


class ClaimRejected(Exception):
    """A claim that cannot be served as it is; the reason is that of its `Ready` condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ClaimController:
    """Gives each claim its sandbox, mirrors its state, and ends claims whose time has come."""

    def __init__(self, registry: ObjectRegistry, faults: ClusterFaults) -> None:
        self.registry = registry
        self.faults = faults

    def reconcile(self, claim: dict[str, Any]) -> float | None:
        """Brings one claim on; seconds until it is to be done again."""
        if "deletionTimestamp" in claim["metadata"] or self.faults.never_bind:
            return None
        left = self.time_left(claim)
        if left is not None and left <= 0:
            self.expire(claim)
            return None
        sandbox, fault = None, None
        try:
            check_metadata(claim["spec"].get("additionalPodMetadata", {}))
            sandbox = self.find(claim)
            if sandbox is None:
                sandbox = self.adopt(claim)
            if sandbox is None and self.is_address_awaited(claim):
                return 0.5
            if sandbox is None:
                sandbox = self.create(claim)
        except ClaimRejected as error:
            fault = (error.reason, str(error))
        waits = self.report(claim, sandbox, fault)
        return min((one for one in (left, waits) if one is not None), default=None)

    def time_left(self, claim: dict[str, Any]) -> float | None:
        lifecycle = claim["spec"].get("lifecycle", {})
        left = []
        if lifecycle.get("shutdownTime"):
            left.append(self.registry.clock.until(lifecycle["shutdownTime"]))
        finished = condition(claim, "Finished")
        seconds = lifecycle.get("ttlSecondsAfterFinished")
        if finished and seconds is not None:
            since = self.registry.clock.until(finished["lastTransitionTime"])
            left.append(since + seconds)
        return min(left, default=None)

    def expire(self, claim: dict[str, Any]) -> None:
        """Ends a claim as its policy says."""
        text = "Claim expired. Sandbox cleanup initiated."
        try:
            sandbox = self.find(claim)
        except ClaimRejected:
            # One of the same name is somebody else's.
            sandbox = None
        self.write(claim, sandbox, ("ClaimExpired", text))
        policy = claim["spec"]["lifecycle"]["shutdownPolicy"]
        ways = {"Delete": "Background", "DeleteForeground": "Foreground"}
        if policy in ways:
            self.registry.delete(CLAIMS, claim, ways[policy])
        elif sandbox and "deletionTimestamp" not in sandbox["metadata"]:
            self.registry.delete(SANDBOXES, sandbox)

    def find(self, claim: dict[str, Any]) -> dict[str, Any] | None:
        """The sandbox that a claim already has."""
        metadata = claim["metadata"]
        names = (
            claim.get("status", {}).get("sandbox", {}).get("name"),
            metadata.get("annotations", {}).get(ASSIGNED),
            metadata["name"],
        )
        for name in filter(None, names):
            found = self.registry.store.get(SANDBOXES, metadata["namespace"], name)
            if found and is_controlled_by(found, claim):
                return found
            if found and name == metadata["name"]:
                text = (
                    f'Error seen: sandbox "{name}" is not controlled by claim "{name}". '
                    "Please use a different claim name or delete the sandbox manually"
                )
                raise ClaimRejected("ReconcilerError", text)
        return None

    def candidates(self, claim: dict[str, Any]) -> list[dict[str, Any]]:
        """The warm sandboxes of a claim's pool: the ready ones first, of these the oldest."""
        spec = claim["spec"]
        if spec.get("env") or spec.get("volumeClaimTemplates"):
            return []
        namespace = claim["metadata"]["namespace"]
        label = name_hash(spec["warmPoolRef"]["name"])
        found = [
            sandbox
            for sandbox in self.registry.store.all_of(SANDBOXES, namespace)
            if "deletionTimestamp" not in sandbox["metadata"]
            and sandbox["metadata"].get("labels", {}).get(POOL_LABEL) == label
            and (controller_of(sandbox) or {}).get("kind") == POOLS.kind
        ]
        found.sort(key=lambda one: one["metadata"]["creationTimestamp"])
        found.sort(key=is_sandbox_ready, reverse=True)
        return found

    def adopt(self, claim: dict[str, Any]) -> dict[str, Any] | None:
        """Takes a sandbox over from the pool: it becomes the claim's, whose name is noted first."""
        found = [
            one for one in self.candidates(claim) if one.get("status", {}).get("podIPs")
        ]
        if not found:
            return None
        sandbox = found[0]
        name = sandbox["metadata"]["name"]

        def note(new: dict[str, Any]) -> None:
            new["metadata"].setdefault("annotations", {})[ASSIGNED] = name

        def take(new: dict[str, Any]) -> None:
            labels = new["metadata"]["labels"]
            for key in (POOL_LABEL, BLUEPRINT_HASH, CREATED_BY):
                labels.pop(key, None)
            labels |= identity(claim) | {LAUNCH_TYPE: "warm"}
            new["metadata"]["ownerReferences"] = [owner_reference(CLAIMS, claim)]
            self.add_pod_metadata(new, claim)

        self.registry.change(CLAIMS, claim, note)
        return self.registry.change(SANDBOXES, sandbox, take)

    def is_address_awaited(self, claim: dict[str, Any]) -> bool:
        age = -self.registry.clock.until(claim["metadata"]["creationTimestamp"])
        return age < WAIT_FOR_ADDRESS and bool(self.candidates(claim))

    def add_pod_metadata(self, sandbox: dict[str, Any], claim: dict[str, Any]) -> None:
        """Adds what the claim wants on its pod; it cannot override the template."""
        template = sandbox["spec"]["podTemplate"].setdefault("metadata", {})
        wanted = claim["spec"].get("additionalPodMetadata", {})
        for part in ("labels", "annotations"):
            there = template.setdefault(part, {})
            for key, value in (wanted.get(part) or {}).items():
                if there.get(key, value) != value:
                    text = (
                        f'Error seen: metadata override conflict: {part[:-1]} "{key}" is defined in '
                        f'template with value "{there[key]}", but claim requests "{value}"'
                    )
                    raise ClaimRejected("ReconcilerError", text)
                there[key] = value
        template["labels"] |= identity(claim)

    def create(self, claim: dict[str, Any]) -> dict[str, Any]:
        """Makes a cold sandbox, of the claim's name."""
        metadata, spec = claim["metadata"], claim["spec"]
        store, namespace = self.registry.store, metadata["namespace"]
        pool_name = spec["warmPoolRef"]["name"]
        pool = store.get(POOLS, namespace, pool_name)
        if pool is None:
            text = f'SandboxWarmPool "{pool_name}" not found'
            raise ClaimRejected("WarmPoolNotFound", text)
        template_name = pool["spec"]["sandboxTemplateRef"]["name"]
        template = store.get(TEMPLATES, namespace, template_name)
        if template is None:
            text = f'SandboxTemplate "{template_name}" not found'
            raise ClaimRejected("TemplateNotFound", text)
        if spec.get("volumeClaimTemplates"):
            text = "volume claim templates are disallowed by the template"
            if template["spec"]["volumeClaimTemplatesPolicy"] != "Disallowed":
                text = "this server has no volumes"
            raise ClaimRejected("VolumeClaimTemplatesError", text)
        sandbox = {
            "metadata": {
                "name": metadata["name"],
                "labels": identity(claim)
                | {LAUNCH_TYPE: "cold", TEMPLATE_HASH: name_hash(template_name)},
                "annotations": {TEMPLATE_REF: template_name},
                "ownerReferences": [owner_reference(CLAIMS, claim)],
            },
            "spec": blueprint(template),
        }
        self.add_pod_metadata(sandbox, claim)
        policy = template["spec"]["envVarsInjectionPolicy"]
        inject(sandbox["spec"]["podTemplate"]["spec"], spec.get("env", []), policy)
        return self.registry.create(SANDBOXES, namespace, sandbox)

    def report(
        self,
        claim: dict[str, Any],
        sandbox: dict[str, Any] | None,
        fault: tuple[str, str] | None,
    ) -> float | None:
        """Writes the status; seconds until a delayed one may be ready."""
        waits = None
        if sandbox and is_sandbox_ready(sandbox) and self.faults.ready_delay:
            age = -self.registry.clock.until(claim["metadata"]["creationTimestamp"])
            waits = self.faults.ready_delay - age
            was_ready = (condition(claim, "Ready") or {}).get("status") == "True"
            if waits > 0 and not was_ready:
                fault = ("DependenciesNotReady", "Pod is Running but not Ready")
        self.write(claim, sandbox, fault)
        return waits if waits and waits > 0 else None

    def write(
        self,
        claim: dict[str, Any],
        sandbox: dict[str, Any] | None,
        fault: tuple[str, str] | None,
    ) -> None:
        reason, text = fault or ("SandboxMissing", "Sandbox does not exist")
        ready = {"status": "False", "reason": reason, "message": text}
        finished = None
        if sandbox and not fault:
            reason, text = "SandboxNotReady", "Sandbox is not ready"
            ready = {"status": "False", "reason": reason, "message": text}
            ready = condition(sandbox, "Ready") or ready
            if ready["reason"] == "SandboxExpired":
                text = "Underlying Sandbox resource has expired independently of the Claim."
                ready = {**ready, "message": text}
            finished = condition(sandbox, "Finished")

        def write(new: dict[str, Any]) -> None:
            old = new.get("status", {})
            conditions = [
                one
                for one in old.get("conditions", [])
                if one["type"] != "Finished" or finished or not sandbox
            ]
            generation = {"observedGeneration": new["metadata"]["generation"]}
            fact = {**ready, "type": "Ready", **generation}
            set_condition(conditions, fact, self.registry.clock)
            if finished:
                set_condition(conditions, finished, self.registry.clock)
            # Without one it is empty, as Go writes a structure.
            status: dict[str, Any] = {"conditions": conditions, "sandbox": {}}
            if sandbox:
                status["sandbox"] = {"name": sandbox["metadata"]["name"]}
                addresses = sandbox.get("status", {}).get("podIPs")
                if addresses:
                    status["sandbox"]["podIPs"] = addresses
            new["status"] = status

        self.registry.change(CLAIMS, claim, write)


def identity(claim: dict[str, Any]) -> dict[str, str]:
    """The labels of a claim's sandbox that say whose it is."""
    metadata = claim["metadata"]
    labels = {CLAIM_UID: metadata["uid"]}
    if metadata.get("labels", {}).get(CREATED_BY):
        labels[CREATED_BY] = metadata["labels"][CREATED_BY]
    return labels


def check_metadata(wanted: dict[str, Any]) -> None:
    """Raises the error for labels and annotations that a claim may not give to its pod."""
    wrong = "invalid additionalPodMetadata: failed to validate"
    for key in wanted.get("labels") or {}:
        domain, slash, _ = key.partition("/")
        if not slash:
            text = f'{wrong} label "{key}": label "{key}" must have a domain prefix (e.g. \'sandbox.users.io/my-label\') to prevent opting into unintended policy domains'
            raise ClaimRejected("InvalidMetadata", text)
        if domain != LABEL_DOMAIN and not domain.endswith(f".{LABEL_DOMAIN}"):
            text = f'{wrong} label "{key}": label domain "{domain}" is not in the allowlist'
            raise ClaimRejected("InvalidMetadata", text)
    for key in wanted.get("annotations") or {}:
        if key != EXEMPT and "/" in key and RESTRICTED.fullmatch(key.partition("/")[0]):
            text = f'{wrong} annotation "{key}": restricted system domain: "{key}" is not allowed in AdditionalPodMetadata'
            raise ClaimRejected("InvalidMetadata", text)


def inject(pod: dict[str, Any], variables: list[dict[str, Any]], policy: str) -> None:
    """Adds a claim's variables to the containers of its pod, as the template's policy allows."""
    if variables and policy == "Disallowed":
        text = "environment variable injection is not allowed by the template policy"
        raise ClaimRejected(
            "EnvVarsInjectionRejected",
            f"environment variable injection rejected: {text}",
        )
    containers = [*pod.get("initContainers", []), *pod["containers"]]
    for variable in variables:
        name = variable.get("containerName") or pod["containers"][0]["name"]
        container = next((one for one in containers if one["name"] == name), None)
        if container is None:
            text = f'Error seen: target container "{name}" not found in template for environment variable "{variable["name"]}"'
            raise ClaimRejected("ReconcilerError", text)
        there = container.setdefault("env", [])
        taken = [one for one in there if one["name"] == variable["name"]]
        if taken and policy != "Overrides":
            text = f'Error seen: environment variable override is not allowed by the template policy for variable "{variable["name"]}"'
            raise ClaimRejected("ReconcilerError", text)
        rest = [one for one in there if one not in taken]
        new = {"name": variable["name"], "value": variable["value"]}
        container["env"] = [*rest, new]
