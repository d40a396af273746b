"""Authentication and authorization: bearer tokens of an administrator and of service accounts, roles and their bindings."""

import secrets
from dataclasses import dataclass
from typing import Any

from kinds import (
    ACCOUNTS,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
    ResourceKind,
)
from statuses import forbidden, unauthorized
from store import ClusterClock, Store

MASTERS = "system:masters"


@dataclass(frozen=True)
class ApiUser:
    """The user of a token."""

    name: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class AccessRequest:
    """An action that somebody asks for, as roles describe it."""

    verb: str
    group: str
    resource: str
    """With its subresource: `pods/log`."""
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True)
class AccountToken:
    namespace: str
    account: str
    uid: str
    expires: str


class Access:
    """Tokens and the decisions by roles."""

    def __init__(self, store: Store, clock: ClusterClock, admin_token: str) -> None:
        self.store = store
        self.clock = clock
        self.admin_token = admin_token
        self.tokens: dict[str, AccountToken] = {}

    def issue(self, account: dict[str, Any], seconds: int) -> str:
        """A new token of a service account."""
        metadata = account["metadata"]
        token = AccountToken(
            metadata["namespace"],
            metadata["name"],
            metadata["uid"],
            self.clock.stamp(seconds),
        )
        value = secrets.token_urlsafe(32)
        self.tokens[value] = token
        return value

    def user(self, header: str | None) -> ApiUser:
        """The user of a request, by its `Authorization`."""
        if header is None:
            return ApiUser("system:anonymous", ("system:unauthenticated",))
        scheme, _, value = header.partition(" ")
        if scheme.lower() == "bearer":
            if secrets.compare_digest(value.strip(), self.admin_token):
                return ApiUser("kubernetes-admin", (MASTERS, "system:authenticated"))
            token = self.tokens.get(value.strip())
            if token and self.is_valid(token):
                groups = ("system:serviceaccounts", "system:authenticated")
                own = f"system:serviceaccounts:{token.namespace}"
                name = f"system:serviceaccount:{token.namespace}:{token.account}"
                return ApiUser(name, (*groups, own))
        raise unauthorized()

    def is_valid(self, token: AccountToken) -> bool:
        account = self.store.get(ACCOUNTS, token.namespace, token.account)
        return (
            account is not None
            and account["metadata"]["uid"] == token.uid
            and self.clock.until(token.expires) > 0
        )

    def check(self, user: ApiUser, asked: AccessRequest, kind: ResourceKind) -> None:
        """Raises the error that Kubernetes gives where nothing allows a request."""
        if self.allows(user, asked):
            return
        where = f'in the namespace "{asked.namespace}"'
        if not asked.namespace:
            where = "at the cluster scope"
        why = (
            f'User "{user.name}" cannot {asked.verb} resource "{asked.resource}" '
            f'in API group "{asked.group}" {where}'
        )
        raise forbidden(kind, asked.name, why)

    def allows(self, user: ApiUser, asked: AccessRequest) -> bool:
        if MASTERS in user.groups:
            return True
        bindings = [("", one) for one in self.store.all_of(CLUSTER_BINDINGS)]
        if asked.namespace:
            bindings += [
                (asked.namespace, one)
                for one in self.store.all_of(ROLE_BINDINGS, asked.namespace)
            ]
        return any(
            matches(rule, asked)
            for namespace, binding in bindings
            if any(
                is_subject(subject, user, namespace)
                for subject in binding.get("subjects") or []
            )
            for rule in self.rules(binding["roleRef"], namespace)
        )

    def rules(self, reference: dict[str, Any], namespace: str) -> list[dict[str, Any]]:
        kind = CLUSTER_ROLES if reference["kind"] == "ClusterRole" else ROLES
        place = "" if kind is CLUSTER_ROLES else namespace
        role = self.store.get(kind, place, reference["name"])
        return (role or {}).get("rules") or []


def is_subject(subject: dict[str, Any], user: ApiUser, namespace: str) -> bool:
    name = subject["name"]
    if subject["kind"] == "ServiceAccount":
        place = subject.get("namespace") or namespace
        return user.name == f"system:serviceaccount:{place}:{name}"
    if subject["kind"] == "Group":
        return name in user.groups
    return subject["kind"] == "User" and name == user.name


def matches(rule: dict[str, Any], asked: AccessRequest) -> bool:
    """Tells whether one rule of a role allows a request."""
    subresource = asked.resource.partition("/")[2]
    resources = {asked.resource, "*"} | ({f"*/{subresource}"} if subresource else set())
    names = rule.get("resourceNames") or []
    return (
        bool({asked.verb, "*"} & set(rule.get("verbs") or []))
        and bool({asked.group, "*"} & set(rule.get("apiGroups") or []))
        and bool(resources & set(rule.get("resources") or []))
        and (not names or asked.name in names)
    )
