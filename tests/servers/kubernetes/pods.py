"""The kubelet: runs pods as local processes, each with a loopback address of its own, and reports their states."""

import asyncio
import random
import shutil
import signal
from pathlib import Path
from typing import Any

from containers import (
    ContainerNotStarted,
    ContainerProcess,
    command_of,
    environment_of,
    is_ready,
)
from kinds import PODS
from registry import ObjectRegistry
from store import ClusterClock

HOST = "127.0.0.1"
RETRY_SECONDS = 1
"""Between attempts to start a container that lacks something."""

LONGEST_BACKOFF = 300
EVICTED = (
    "The node was low on resource: memory. Threshold quantity: 100Mi, available: 64Mi. "
)


class RunningContainer:
    """The state of one container of a pod over its restarts."""

    def __init__(self, description: dict[str, Any]) -> None:
        self.description = description
        self.starting: asyncio.Task[ContainerProcess] | None = None
        """The start of the present process, which is not to be given up half way."""
        self.state: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}
        self.is_ready = False
        self.is_done = False
        self.restarts = 0

    @property
    def name(self) -> str:
        return self.description["name"]

    def status(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "image": self.description.get("image", ""),
            "imageID": "",
            "ready": self.is_ready,
            "started": "running" in self.state,
            "restartCount": self.restarts,
            "state": self.state,
        }


class RunningPod:
    """One pod from its start to its end."""

    def __init__(
        self, registry: ObjectRegistry, pod: dict[str, Any], place: Path
    ) -> None:
        self.registry = registry
        self.pod = pod
        self.place = place
        self.home = place / "home"
        self.address = "127." + ".".join(str(random.randint(2, 250)) for _ in range(3))
        self.init = [
            RunningContainer(one) for one in pod["spec"].get("initContainers", [])
        ]
        self.main = [RunningContainer(one) for one in pod["spec"]["containers"]]
        self.is_initialized = not self.init
        self.failure: tuple[str, str] | None = None
        self.stopping: asyncio.Task[None] | None = None
        self.killing = asyncio.Event()
        self.home.mkdir(parents=True)
        self.running = asyncio.create_task(self.run())

    async def run(self) -> None:
        self.publish()
        for container in self.init:
            await self.run_container(container, "OnFailure")
        self.is_initialized = True
        policy = self.pod["spec"]["restartPolicy"]
        await asyncio.gather(*(self.run_container(one, policy) for one in self.main))

    async def run_container(self, container: RunningContainer, policy: str) -> None:
        """Runs a container again and again, as the policy says."""
        while True:
            code = await self.run_once(container)
            ends = policy == "Never" or (policy == "OnFailure" and code == 0)
            container.is_done = ends or self.stopping is not None
            self.publish()
            if container.is_done:
                return
            container.restarts += 1
            # The first restart is at once.
            pause = (
                min(5 * 2 ** (container.restarts - 1), LONGEST_BACKOFF)
                if container.restarts > 1
                else 0
            )
            if pause:
                message = f"back-off {pause}s restarting failed container={container.name} pod={self.pod['metadata']['name']}"
                waiting = {"reason": "CrashLoopBackOff", "message": message}
                container.state = {"waiting": waiting}
                self.publish()
            await asyncio.sleep(pause)

    async def run_once(self, container: RunningContainer) -> int:
        """Runs a container to its exit, whose code it returns."""
        clock = self.registry.clock
        process = await self.start(container)
        begun = clock.stamp()
        container.state = {"running": {"startedAt": begun}}
        probing = None
        if "readinessProbe" in container.description:
            probing = asyncio.create_task(self.probe(container))
        else:
            container.is_ready = True
        self.publish()
        try:
            code = await process.wait()
        finally:
            if probing:
                probing.cancel()
        container.starting = None
        container.is_ready = False
        ended = {
            "exitCode": code,
            "reason": "Completed" if code == 0 else "Error",
            "startedAt": begun,
            "finishedAt": clock.stamp(),
        }
        container.state = {"terminated": ended}
        return code

    async def start(self, container: RunningContainer) -> ContainerProcess:
        """Starts the process, as soon as there is all that it needs."""
        description = container.description
        place = Path(description.get("workingDir") or self.home)
        while True:
            seen = {**self.pod, "status": self.status()}
            try:
                environment = environment_of(
                    self.registry, seen, description, self.home
                )
                command = command_of(description, environment)
                log = self.place / f"{container.name}.log"
                start = ContainerProcess.start(command, environment, place, log)
                container.starting = asyncio.create_task(start)
                return await asyncio.shield(container.starting)
            except ContainerNotStarted as error:
                waiting = {"reason": error.reason, "message": str(error)}
            except OSError as error:
                waiting = {"reason": "RunContainerError", "message": str(error)}
            container.state = {"waiting": waiting}
            self.publish()
            await asyncio.sleep(RETRY_SECONDS)

    async def probe(self, container: RunningContainer) -> None:
        """Keeps the readiness of a container up to date while it runs."""
        probe = container.description["readinessProbe"]
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        counts = {True: 0, False: 0}
        while True:
            result = await is_ready(container.description, self.address)
            counts = {result: counts[result] + 1, not result: 0}
            threshold = probe.get("successThreshold", 1)
            if not result:
                threshold = probe.get("failureThreshold", 3)
            if counts[result] >= threshold and container.is_ready != result:
                container.is_ready = result
                self.publish()
            await asyncio.sleep(probe.get("periodSeconds", 10))

    def phase(self) -> str:
        if self.failure:
            return "Failed"
        if any(one.is_done for one in self.main) and all(
            one.is_done for one in self.main
        ):
            codes = [
                one.state.get("terminated", {}).get("exitCode", 137)
                for one in self.main
            ]
            return "Failed" if any(codes) else "Succeeded"
        begun = all("waiting" not in one.state or one.restarts for one in self.main)
        return "Running" if begun else "Pending"

    def status(self) -> dict[str, Any]:
        """The status of the pod; times of conditions are kept where nothing has changed."""
        phase = self.phase()
        ready = phase == "Running" and all(one.is_ready for one in self.main)
        unready = "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"
        conditions = list(self.pod.get("status", {}).get("conditions", []))
        for kind, holds in (
            ("PodScheduled", True),
            ("Initialized", self.is_initialized),
            ("ContainersReady", ready),
            ("Ready", ready),
        ):
            new = {"type": kind, "status": str(holds)}
            if not holds:
                new["reason"] = unready
            set_condition(conditions, new, self.registry.clock)
        status: dict[str, Any] = {
            "phase": phase,
            "qosClass": "BestEffort",
            "hostIP": HOST,
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "startTime": self.pod["metadata"]["creationTimestamp"],
            "conditions": conditions,
            "containerStatuses": [one.status() for one in self.main],
        }
        if self.init:
            status["initContainerStatuses"] = [one.status() for one in self.init]
        if self.failure:
            reason, message = self.failure
            status |= {"reason": reason, "message": message}
        return status

    def publish(self) -> None:
        """Writes the status to the pod, if there still is one."""
        metadata = self.pod["metadata"]
        found = self.registry.store.get(PODS, metadata["namespace"], metadata["name"])
        if not found or found["metadata"]["uid"] != metadata["uid"]:
            return
        self.pod = found
        status = self.status()
        self.pod = self.registry.change(
            PODS, found, lambda new: new.update(status=status)
        )

    def stop(self, grace: float) -> asyncio.Task[None]:
        """Ends all processes: asks first, and kills after the time of grace, or when asked again without one."""
        if self.stopping is None:
            self.stopping = asyncio.create_task(self.end(grace))
        elif grace == 0:
            self.killing.set()
        return self.stopping

    async def end(self, grace: float) -> None:
        # Nothing is started again. What is being started has to be there before it can be killed.
        self.running.cancel()
        await asyncio.wait([self.running])
        containers = [one for one in (*self.init, *self.main) if one.starting]
        starts = (one.starting for one in containers)
        started = await asyncio.gather(*starts, return_exceptions=True)
        processes = [one for one in started if isinstance(one, ContainerProcess)]
        ended = asyncio.gather(*(one.wait() for one in processes))
        if grace:
            for process in processes:
                await process.signal(signal.SIGTERM)
            killing = asyncio.create_task(self.killing.wait())
            first = asyncio.FIRST_COMPLETED
            await asyncio.wait([ended, killing], timeout=grace, return_when=first)
            killing.cancel()
        for process in processes:
            await process.signal(signal.SIGKILL)
        await ended
        for container in self.main:
            container.is_ready = False
            container.is_done = True
            if "terminated" not in container.state:
                killed = {"exitCode": 137, "reason": "Error"}
                times = {"finishedAt": self.registry.clock.stamp()}
                container.state = {"terminated": killed | times}


class Kubelet:
    """Makes the processes follow the pods."""

    def __init__(self, registry: ObjectRegistry, home: Path) -> None:
        self.registry = registry
        self.home = home
        self.running: dict[str, RunningPod] = {}
        self.evicting: list[asyncio.Task[None]] = []

    def sync(self) -> None:
        """Starts what is new, stops what is to go, and forgets what has ended."""
        pods = {pod["metadata"]["uid"]: pod for pod in self.registry.store.all_of(PODS)}
        for uid, pod in pods.items():
            running = self.running.get(uid)
            if "deletionTimestamp" in pod["metadata"]:
                if running is None:
                    self.registry.finish(PODS, pod)
                else:
                    self.stop(running, pod["metadata"]["deletionGracePeriodSeconds"])
            elif running is None:
                self.running[uid] = RunningPod(self.registry, pod, self.home / uid)
        for uid in self.running.keys() - pods.keys():
            self.stop(self.running[uid], 0)

    def stop(self, pod: RunningPod, grace: float) -> None:
        begins = pod.stopping is None
        stopping = pod.stop(grace)
        if begins:
            stopping.add_done_callback(lambda _: self.forget(pod))

    def forget(self, pod: RunningPod) -> None:
        """Removes a pod whose processes have ended."""
        metadata = pod.pod["metadata"]
        self.running.pop(metadata["uid"], None)
        shutil.rmtree(pod.place, ignore_errors=True)
        store = self.registry.store
        found = store.get(PODS, metadata["namespace"], metadata["name"])
        if found and found["metadata"]["uid"] == metadata["uid"]:
            self.registry.finish(PODS, found)

    def evict(self, pod: dict[str, Any]) -> None:
        """Ends a pod as a node does that is short of memory: the pod stays, as failed."""
        running = self.running.get(pod["metadata"]["uid"])
        if running is None or running.failure:
            return
        running.failure = ("Evicted", EVICTED)
        task = asyncio.create_task(running.end(0))
        task.add_done_callback(lambda _: running.publish())
        self.evicting.append(task)

    def log(self, pod: dict[str, Any], container: str) -> bytes | None:
        """The output of a container, or nothing if it has not begun."""
        path = self.home / pod["metadata"]["uid"] / f"{container}.log"
        return path.read_bytes() if path.exists() else None

    async def close(self) -> None:
        """Kills all pods."""
        pods = list(self.running.values())
        for pod in pods:
            self.stop(pod, 0)
        await asyncio.gather(*(pod.stopping for pod in pods), return_exceptions=True)


def set_condition(
    conditions: list[dict[str, Any]], new: dict[str, Any], clock: ClusterClock
) -> None:
    """Puts a condition into a list; its time changes with its status."""
    for index, old in enumerate(conditions):
        if old["type"] == new["type"]:
            since = clock.stamp()
            if old["status"] == new["status"]:
                since = old["lastTransitionTime"]
            conditions[index] = {**new, "lastTransitionTime": since}
            return
    conditions.append({**new, "lastTransitionTime": clock.stamp()})
