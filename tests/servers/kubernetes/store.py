"""All objects of the API server, with one counter of versions and the history that watches are served from.

A stored object is never changed in place: a writer copies it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from kinds import STORED, ResourceKind

HISTORY = 10_000
"""Changes that can be watched from; older versions are expired."""

Key = tuple[str, str]
"""Namespace, or nothing, and name."""


class ClusterClock:
    """The server's time, which a fault makes wrong."""

    def __init__(self) -> None:
        self.skew = timedelta()

    def now(self) -> datetime:
        return datetime.now(timezone.utc) + self.skew

    def stamp(self, later: float = 0) -> str:
        return (self.now() + timedelta(seconds=later)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def until(self, stamp: str) -> float:
        """Seconds until a time; less than nothing if it has passed."""
        return (
            datetime.fromisoformat(stamp.replace("Z", "+00:00")) - self.now()
        ).total_seconds()


@dataclass(frozen=True)
class StoreChange:
    """One change of one object; `previous` is what it was before, if it was."""

    version: int
    kind: ResourceKind
    object: dict[str, Any] | None
    previous: dict[str, Any] | None
    key: Key
    removed: dict[str, Any] | None = None
    """The object as its removal is reported."""


class Store:
    """Objects by kind, namespace and name."""

    def __init__(self) -> None:
        self.version = 1000
        self.oldest = 1000
        """The oldest version that a watch can begin at."""
        self.objects: dict[ResourceKind, dict[Key, dict[str, Any]]] = {
            kind: {} for kind in STORED
        }
        self.history: deque[StoreChange] = deque()
        self.watchers: set[asyncio.Queue[StoreChange | None]] = set()
        self.on_change: Callable[[], None] = lambda: None

    def get(self, kind: ResourceKind, namespace: str, name: str) -> dict | None:
        return self.objects[kind].get((namespace, name))

    def all_of(self, kind: ResourceKind, namespace: str = "") -> list[dict[str, Any]]:
        """In the order of namespaces and names, as etcd has them."""
        found = sorted(self.objects[kind].items())
        return [object for key, object in found if not namespace or key[0] == namespace]

    def at(self, kind: ResourceKind, version: int) -> dict[Key, dict[str, Any]]:
        """The objects of a kind as they were at a version that is not expired."""
        objects = dict(self.objects[kind])
        for change in reversed(self.history):
            if change.version <= version:
                break
            if change.kind is kind:
                if change.previous is None:
                    objects.pop(change.key, None)
                else:
                    objects[change.key] = change.previous
        return objects

    def put(self, kind: ResourceKind, object: dict[str, Any]) -> dict[str, Any]:
        """Stores an object under a new version."""
        self.version += 1
        object["metadata"]["resourceVersion"] = str(self.version)
        key = key_of(object)
        previous = self.objects[kind].get(key)
        self.objects[kind][key] = object
        self.record(StoreChange(self.version, kind, object, previous, key))
        return object

    def remove(self, kind: ResourceKind, object: dict[str, Any]) -> None:
        self.version += 1
        key = key_of(object)
        previous = self.objects[kind].pop(key)
        metadata = {**previous["metadata"], "resourceVersion": str(self.version)}
        last = {**previous, "metadata": metadata}
        self.record(StoreChange(self.version, kind, None, previous, key, last))

    def record(self, change: StoreChange) -> None:
        self.history.append(change)
        if len(self.history) > HISTORY:
            self.oldest = self.history.popleft().version
        for queue in self.watchers:
            queue.put_nowait(change)
        self.on_change()

    def expire(self) -> None:
        """Forgets the history: no version before the present one can be watched from, and running watches end."""
        self.version += 1
        self.oldest = self.version
        self.history.clear()
        for queue in self.watchers:
            queue.put_nowait(None)


def key_of(object: dict[str, Any]) -> Key:
    metadata = object["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
