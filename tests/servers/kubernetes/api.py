"""The HTTP of the API server: paths, verbs, authentication, authorization, and answers."""

import copy
import json
from dataclasses import dataclass
from email.utils import format_datetime
from typing import Any

import bodies
import discovery
import schemas
from access import Access, AccessRequest, ApiUser
from aiohttp import web
from faults import ClusterFaults
from kinds import ACCOUNTS, NAMESPACES, PODS, REVIEWS, ResourceKind, find_kind
from pods import Kubelet
from registry import ObjectRegistry
from selections import select
from statuses import (
    ApiError,
    bad_request,
    cause,
    conflict,
    details_of,
    forbidden,
    invalid,
    method_not_allowed,
)
from watches import Watches

LARGEST_BODY = 3 << 20
"""Bytes, as in Kubernetes."""

VERBS = {
    "GET": ("list", "get"),
    "POST": ("create", "create"),
    "PUT": ("", "update"),
    "PATCH": ("", "patch"),
    "DELETE": ("deletecollection", "delete"),
}
"""The verb of a method on a collection, and on one object."""


@dataclass(frozen=True)
class ResourcePath:
    """The parts of a path that names resources."""

    kind: ResourceKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def resource(self) -> str:
        ending = f"/{self.subresource}" if self.subresource else ""
        return self.kind.plural + ending


def parse_path(path: str) -> ResourcePath | None:
    """The resource of a path, or nothing."""
    parts = [part for part in path.split("/") if part]
    if parts[:2] == ["api", "v1"]:
        group, version, rest = "", "v1", parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    if not 1 <= len(rest) <= 3:
        return None
    kind = find_kind(group, version, rest[0])
    if kind is None or (namespace and not kind.namespaced):
        return None
    name, subresource = (*rest[1:], "", "")[:2]
    if name and kind.namespaced and not namespace:
        return None
    if subresource and subresource not in kind.subresources:
        return None
    return ResourcePath(kind, namespace, name, subresource)


class ApiServer:
    """Answers each request from the registry."""

    def __init__(
        self,
        registry: ObjectRegistry,
        access: Access,
        watches: Watches,
        faults: ClusterFaults,
        kubelet: Kubelet,
    ) -> None:
        self.registry = registry
        self.access = access
        self.watches = watches
        self.faults = faults
        self.kubelet = kubelet

    def application(self) -> web.Application:
        application = web.Application(client_max_size=LARGEST_BODY)
        application.router.add_route("*", "/faults", self.set_fault)
        application.router.add_route("*", "/{path:.*}", self.answer)
        application.on_response_prepare.append(self.set_date)
        return application

    async def set_date(self, _: web.Request, response: web.StreamResponse) -> None:
        now = self.registry.clock.now()
        response.headers["Date"] = format_datetime(now, usegmt=True)

    async def set_fault(self, request: web.Request) -> web.Response:
        """Sets a fault by `POST`, shows all by `GET`. It is no part of Kubernetes and needs no token."""
        try:
            if request.method == "POST":
                self.faults.set(await request.json())
        except (ValueError, ApiError) as error:
            return web.json_response({"error": str(error)}, status=400)
        return web.json_response(self.faults.described())

    async def answer(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self.dispatch(request)
        except web.HTTPRequestEntityTooLarge:
            message = f"Request entity too large: limit is {LARGEST_BODY}"
            return answer_error(ApiError(413, "RequestEntityTooLarge", message))
        except ApiError as error:
            return answer_error(error)

    async def dispatch(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path in ("/healthz", "/livez", "/readyz"):
            return web.Response(text="ok")
        user = self.access.user(request.headers.get("Authorization"))
        found = parse_path(path)
        if found is None:
            return self.describe(user, path)
        verb = VERBS.get(request.method, ("", ""))[bool(found.name)]
        is_token = found.subresource == "token"
        if not verb or is_token != (verb == "create" and bool(found.name)):
            raise method_not_allowed()
        if request.query.get("watch") in ("true", "1") and verb == "list":
            verb = "watch"
        self.faults.strike(verb, found.kind.plural)
        if found.kind is REVIEWS:
            return await self.review(user, request)
        asked = AccessRequest(
            verb, found.kind.group, found.resource, found.namespace, found.name
        )
        if found.kind is NAMESPACES and found.name:
            asked = AccessRequest(verb, "", found.resource, found.name, found.name)
        self.access.check(user, asked, found.kind)
        if found.subresource == "token":
            return await self.issue_token(found, request)
        if found.subresource == "log":
            return await self.log(found, request)
        return await getattr(self, f"answer_{verb}")(found, request)

    def describe(self, user: ApiUser, path: str) -> web.Response:
        """Answers a path outside of the resources."""
        if "system:unauthenticated" in user.groups and path != "/version":
            message = f'forbidden: User "{user.name}" cannot get path "{path}"'
            raise ApiError(403, "Forbidden", message)
        found = discovery.document(path)
        if found is None:
            return web.Response(text="404 page not found\n", status=404)
        return web.json_response(found)

    async def answer_list(
        self, path: ResourcePath, request: web.Request
    ) -> web.Response:
        return web.json_response(
            self.watches.page(path.kind, selection(path, request), request.query)
        )

    async def answer_watch(
        self, path: ResourcePath, request: web.Request
    ) -> web.StreamResponse:
        return await self.watches.serve(request, path.kind, selection(path, request))

    async def answer_get(
        self, path: ResourcePath, request: web.Request
    ) -> web.Response:
        return web.json_response(self.current(path))

    def current(self, path: ResourcePath) -> dict[str, Any]:
        return self.registry.get(path.kind, path.namespace, path.name)

    async def answer_create(
        self, path: ResourcePath, request: web.Request
    ) -> web.Response:
        if path.kind.namespaced and not path.namespace:
            raise method_not_allowed()
        body = bodies.parse(await request.read(), request.content_type)
        bodies.check_type(path.kind, body)
        given = body.get("metadata", {}).get("namespace") or path.namespace
        if given != path.namespace:
            raise bad_request(
                f"the namespace of the provided object does not match the namespace sent on the request ({given}, {path.namespace})"
            )
        warnings = self.check_fields(path, body, request)
        made = self.registry.create(path.kind, path.namespace, body, is_dry(request))
        return answer_object(made, 201, warnings)

    async def answer_update(
        self, path: ResourcePath, request: web.Request
    ) -> web.Response:
        body = bodies.parse(await request.read(), request.content_type)
        bodies.check_type(path.kind, body)
        name = body.setdefault("metadata", {}).get("name", path.name)
        if name != path.name:
            raise bad_request(
                f"the name of the object ({name}) does not match the name on the URL ({path.name})"
            )
        if path.kind.is_custom and not body["metadata"].get("resourceVersion"):
            text = "Invalid value: 0: must be specified for an update"
            missing = cause("metadata.resourceVersion", "FieldValueInvalid", text)
            raise invalid(path.kind, path.name, [missing])
        return self.store(path, request, body)

    async def answer_patch(
        self, path: ResourcePath, request: web.Request
    ) -> web.Response:
        text, media_type = await request.read(), request.content_type
        applies = media_type == bodies.APPLY_PATCH
        if applies and not request.query.get("fieldManager"):
            raise bad_request("fieldManager is required for apply patch")
        there = self.registry.store.get(path.kind, path.namespace, path.name)
        if applies and not path.subresource and not there:
            body = bodies.parse(text, bodies.YAML)
            bodies.check_type(path.kind, body)
            body.setdefault("metadata", {})["name"] = path.name
            warnings = self.check_fields(path, body, request)
            dry = is_dry(request)
            made = self.registry.create(path.kind, path.namespace, body, dry)
            return answer_object(made, 201, warnings)
        body = bodies.apply_patch(path.kind, self.current(path), text, media_type)
        return self.store(path, request, body)

    def store(
        self, path: ResourcePath, request: web.Request, body: dict[str, Any]
    ) -> web.Response:
        """Stores a changed object."""
        warnings = self.check_fields(path, body, request)
        stored = self.registry.update(
            path.kind,
            self.current(path),
            body,
            path.subresource == "status",
            is_dry(request),
        )
        return answer_object(stored, 200, warnings)

    def check_fields(
        self, path: ResourcePath, body: dict[str, Any], request: web.Request
    ) -> list[str]:
        """Warnings about unknown fields, or an error, as `fieldValidation` asks."""
        kind = path.kind
        unknown = schemas.complete(kind, copy.deepcopy(body))
        texts = [f'unknown field "{field}"' for field in unknown]
        mode = request.query.get("fieldValidation", "Warn")
        if texts and mode == "Strict":
            raise bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                f"strict decoding error: {', '.join(texts)}"
            )
        return texts if mode == "Warn" else []

    async def answer_delete(
        self, path: ResourcePath, request: web.Request
    ) -> web.Response:
        if path.subresource:
            raise method_not_allowed()
        options = await delete_options(request)
        found = self.current(path)
        wanted = options.get("preconditions") or {}
        for field in ("uid", "resourceVersion"):
            is_so = found["metadata"][field]
            if wanted.get(field, is_so) != is_so:
                label = "UID" if field == "uid" else "ResourceVersion"
                why = f"Precondition failed: {label} in precondition: {wanted[field]}, {label} in object meta: {is_so}"
                raise conflict(path.kind, path.name, why)
        left = found
        if not is_dry(request):
            left = self.remove(path.kind, found, options)
        if left:
            return web.json_response(left)
        details = details_of(path.kind, path.name, uid=found["metadata"]["uid"])
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
        return web.json_response({**status, "status": "Success", "details": details})

    def remove(
        self, kind: ResourceKind, object: dict[str, Any], options: dict[str, Any]
    ) -> dict[str, Any] | None:
        if kind is NAMESPACES and object["metadata"]["name"] in (
            "default",
            "kube-system",
        ):
            raise forbidden(
                kind, object["metadata"]["name"], "this namespace may not be deleted"
            )
        policy = options.get("propagationPolicy", "Background")
        return self.registry.delete(
            kind, object, policy, options.get("gracePeriodSeconds")
        )

    async def answer_deletecollection(
        self, path: ResourcePath, request: web.Request
    ) -> web.Response:
        if path.kind is NAMESPACES or (path.kind.namespaced and not path.namespace):
            raise method_not_allowed()
        options = await delete_options(request)
        page = self.watches.page(path.kind, selection(path, request), {})
        for object in page["items"]:
            self.remove(path.kind, object, options)
        return web.json_response(page)

    async def review(self, user: ApiUser, request: web.Request) -> web.Response:
        """Answers a `SelfSubjectAccessReview`."""
        if "system:unauthenticated" in user.groups:
            raise forbidden(REVIEWS, "", f'User "{user.name}" cannot create it')
        if request.method != "POST":
            raise method_not_allowed()
        body = bodies.parse(await request.read(), request.content_type)
        asked = body.get("spec", {}).get("resourceAttributes", {})
        subresource = asked.get("subresource")
        resource = asked.get("resource", "") + (
            f"/{subresource}" if subresource else ""
        )
        wanted = AccessRequest(
            asked.get("verb", ""),
            asked.get("group", ""),
            resource,
            asked.get("namespace", ""),
            asked.get("name", ""),
        )
        status = {"allowed": self.access.allows(user, wanted)}
        return web.json_response({**body, "status": status}, status=201)

    async def issue_token(
        self, path: ResourcePath, request: web.Request
    ) -> web.Response:
        """Answers a `TokenRequest`: `kubectl create token`."""
        account = self.registry.get(ACCOUNTS, path.namespace, path.name)
        body = bodies.parse(await request.read(), request.content_type)
        spec = body.setdefault("spec", {})
        seconds = spec.setdefault("expirationSeconds", None) or 3600
        status = {
            "token": self.access.issue(account, seconds),
            "expirationTimestamp": self.registry.clock.stamp(seconds),
        }
        return web.json_response({**body, "status": status}, status=201)

    async def log(self, path: ResourcePath, request: web.Request) -> web.StreamResponse:
        if request.method != "GET":
            raise method_not_allowed()
        pod = self.registry.get(PODS, path.namespace, path.name)
        names = [one["name"] for one in pod["spec"]["containers"]]
        name = request.query.get("container") or names[0]
        if name not in names:
            raise bad_request(f"container {name} is not valid for pod {path.name}")
        lines = self.kubelet.log(pod, name)
        if lines is None:
            raise bad_request(
                f'container "{name}" in pod "{path.name}" is waiting to start: ContainerCreating'
            )
        tail = request.query.get("tailLines")
        if tail:
            lines = b"".join(lines.splitlines(keepends=True)[-int(tail) :])
        return web.Response(body=lines, content_type="text/plain")


def selection(path: ResourcePath, request: web.Request):
    query = request.query
    fields = query.get("fieldSelector", "")
    if path.name:
        fields = f"metadata.name={path.name}"
    return select(path.kind, path.namespace, query.get("labelSelector", ""), fields)


def is_dry(request: web.Request) -> bool:
    return request.query.get("dryRun") == "All"


async def delete_options(request: web.Request) -> dict[str, Any]:
    """The options of a removal: in its body, or in the query."""
    text = await request.read()
    options = bodies.parse(text, request.content_type) if text else {}
    for field in ("propagationPolicy", "gracePeriodSeconds"):
        if field in request.query:
            value = request.query[field]
            options[field] = int(value) if field.startswith("grace") else value
    return options


def answer_object(
    object: dict[str, Any], code: int, warnings: list[str]
) -> web.Response:
    response = web.json_response(object, status=code)
    for warning in warnings:
        response.headers.add("Warning", f"299 - {json.dumps(warning)}")
    return response


def answer_error(error: ApiError) -> web.Response:
    response = web.json_response(error.status(), status=error.code)
    seconds = (error.details or {}).get("retryAfterSeconds")
    if seconds is not None:
        response.headers["Retry-After"] = str(seconds)
    return response
