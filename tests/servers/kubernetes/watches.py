"""Lists and watches: pages, versions to begin at, bookmarks, and what is too old."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web
from kinds import ResourceKind
from selections import ObjectSelection
from statuses import ApiError, bad_request, expired, invalid
from statuses import cause as invalid_cause
from store import Store, StoreChange

BOOKMARK_SECONDS = 10
"""Kubernetes sends one about every minute."""

DEFAULT_SECONDS = 1800
TOO_OLD_PAGE = (
    "The provided continue parameter is too old to display a consistent list result."
)


class Watches:
    """Answers to lists and watches, and the connections of the watches that run."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.transports: dict[web.StreamResponse, asyncio.Transport] = {}

    def drop(self) -> None:
        """Breaks off the connections of all watches."""
        for transport in list(self.transports.values()):
            transport.abort()

    def page(
        self, kind: ResourceKind, selection: ObjectSelection, query: Any
    ) -> dict[str, Any]:
        """A list, or one page of it."""
        version, start = self.store.version, ("", "")
        exact = query.get("resourceVersionMatch") == "Exact"
        if query.get("continue"):
            version, start = decode(query["continue"])
            if version < self.store.oldest:
                raise expired(TOO_OLD_PAGE)
        elif query.get("resourceVersion", "0") not in ("0", ""):
            asked = number(query, "resourceVersion")
            if asked > self.store.version:
                message = f"Too large resource version: {asked}, current: {self.store.version}"
                raise ApiError(504, "Timeout", message, {"retryAfterSeconds": 1})
            if exact and asked < self.store.oldest:
                raise expired(
                    f"The resourceVersion for the provided list is too old: {asked}"
                )
            version = asked if exact else version
        found = [
            (key, object)
            for key, object in sorted(self.store.at(kind, version).items())
            if key > start and selection.takes(object)
        ]
        limit = number(query, "limit") or len(found)
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if limit < len(found):
            metadata["continue"] = encode(version, found[limit - 1][0])
            if not selection.tests:
                metadata["remainingItemCount"] = len(found) - limit
        return {
            "apiVersion": kind.api_version,
            "kind": f"{kind.kind}List",
            "metadata": metadata,
            "items": [as_item(kind, object) for _, object in found[:limit]],
        }

    async def serve(
        self,
        request: web.Request,
        kind: ResourceKind,
        selection: ObjectSelection,
    ) -> web.StreamResponse:
        """Answers a watch until its time is up, or something ends it."""
        query = request.query
        seconds = number(query, "timeoutSeconds") or DEFAULT_SECONDS
        queue: asyncio.Queue[StoreChange | None] = asyncio.Queue()
        first = self.first_events(kind, selection, query)
        self.store.watchers.add(queue)
        response = web.StreamResponse(
            headers={
                "Content-Type": "application/json",
                "Cache-Control": "no-cache, private",
            }
        )
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            self.transports[response] = request.transport
            bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
            events = self.events(kind, selection, queue, seconds, bookmarks)
            for event in first:
                await write(response, event)
            if not (first and first[-1]["type"] == "ERROR"):
                async for event in events:
                    await write(response, event)
            await response.write_eof()
        except (ConnectionError, RuntimeError):
            # The client has gone, or a fault has broken the connection off.
            pass
        finally:
            self.store.watchers.discard(queue)
            self.transports.pop(response, None)
        return response

    def first_events(
        self, kind: ResourceKind, selection: ObjectSelection, query: Any
    ) -> list[dict[str, Any]]:
        """The events at the beginning: all objects, or the changes since a version."""
        asked = number(query, "resourceVersion")
        initial = query.get("sendInitialEvents")
        if initial and query.get("resourceVersionMatch") != "NotOlderThan":
            text = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            field = invalid_cause("resourceVersionMatch", "FieldValueForbidden", text)
            raise invalid(kind, "", [field])
        if initial == "true" or (not asked and initial != "false"):
            events = [
                {"type": "ADDED", "object": object}
                for object in self.store.all_of(kind, selection.namespace)
                if selection.takes(object)
            ]
            if initial:
                end = {"k8s.io/initial-events-end": "true"}
                events.append(bookmark(kind, self.store.version, end))
            return events
        if asked < self.store.oldest:
            return [too_old(asked, self.store.oldest)]
        changes = (
            change
            for change in self.store.history
            if change.version > asked and change.kind is kind
        )
        events = (event_of(change, selection) for change in changes)
        return [event for event in events if event]

    async def events(
        self,
        kind: ResourceKind,
        selection: ObjectSelection,
        queue: asyncio.Queue[StoreChange | None],
        seconds: float,
        bookmarks: bool,
    ) -> AsyncIterator[dict[str, Any]]:
        end = time.monotonic() + seconds
        marked = time.monotonic() + BOOKMARK_SECONDS
        while (left := end - time.monotonic()) > 0:
            wait = min(left, max(marked - time.monotonic(), 0)) if bookmarks else left
            try:
                change = await asyncio.wait_for(queue.get(), wait)
            except (TimeoutError, asyncio.TimeoutError):
                if bookmarks:
                    yield bookmark(kind, self.store.version)
                    marked = time.monotonic() + BOOKMARK_SECONDS
                continue
            if change is None:
                yield too_old(self.store.oldest - 1, self.store.oldest)
                return
            event = event_of(change, selection) if change.kind is kind else None
            if event:
                yield event


def as_item(kind: ResourceKind, object: dict[str, Any]) -> dict[str, Any]:
    """An object in a list: Kubernetes' own ones do not say there what they are."""
    if kind.is_custom:
        return object
    return {
        name: value
        for name, value in object.items()
        if name not in ("apiVersion", "kind")
    }


async def write(response: web.StreamResponse, event: dict[str, Any]) -> None:
    await response.write(json.dumps(event).encode() + b"\n")


def event_of(change: StoreChange, selection: ObjectSelection) -> dict[str, Any] | None:
    """A change as a watch with this selection sees it."""
    was = selection.takes(change.previous)
    if selection.takes(change.object):
        kind = "MODIFIED" if was else "ADDED"
        return {"type": kind, "object": change.object}
    if was:
        last = change.removed
        if last is None:
            # It is not selected any more.
            version = {"resourceVersion": str(change.version)}
            last = {
                **change.previous,
                "metadata": change.previous["metadata"] | version,
            }
        return {"type": "DELETED", "object": last}
    return None


def bookmark(
    kind: ResourceKind, version: int, annotations: dict[str, str] | None = None
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if annotations:
        metadata["annotations"] = annotations
    object = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    return {"type": "BOOKMARK", "object": object}


def too_old(asked: int, oldest: int) -> dict[str, Any]:
    error = expired(f"too old resource version: {asked} ({oldest})")
    return {"type": "ERROR", "object": error.status()}


def number(query: Any, name: str) -> int:
    text = query.get(name) or "0"
    if not text.isascii() or not text.isdigit():
        raise bad_request(f'{name}: Invalid value: "{text}": it is no number')
    return int(text)


def encode(version: int, key: tuple[str, str]) -> str:
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": key})
    return base64.urlsafe_b64encode(text.encode()).decode()


def decode(token: str) -> tuple[int, tuple[str, str]]:
    try:
        page = json.loads(base64.urlsafe_b64decode(token))
        return page["rv"], tuple(page["start"])
    except (ValueError, KeyError, TypeError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error
