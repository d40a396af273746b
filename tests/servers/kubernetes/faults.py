"""ClusterFaults that a test sets while the server runs, at `/faults`: each has a name and its own settings."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from kinds import PODS
from registry import ObjectRegistry
from statuses import ApiError
from watches import Watches

ANSWERS = {
    409: (
        "Conflict",
        "the object has been modified; please apply your changes to the latest version and try again",
    ),
    410: ("Expired", "The resourceVersion for the provided watch is too old."),
    429: ("TooManyRequests", "Too many requests, please try again later."),
    500: ("InternalError", "Internal error occurred: etcdserver: leader changed"),
    503: (
        "ServiceUnavailable",
        "the server is currently unable to handle the request",
    ),
}


@dataclass
class AnswerFault:
    """The next requests, of some verb or resource if given, get an error."""

    status: int
    count: int = 1
    retry_after: int | None = None
    verb: str = ""
    resource: str = ""

    def error(self) -> ApiError:
        reason, message = ANSWERS[self.status]
        details = None
        if self.retry_after is not None:
            details = {"retryAfterSeconds": self.retry_after}
        return ApiError(self.status, reason, message, details)


@dataclass
class ClusterFaults:
    """All faults that are set at present. Controllers read the switches."""

    registry: ObjectRegistry
    watches: Watches
    evict_pod: Any = None
    """Has the kubelet evict a pod: `(namespace, name)`."""
    answers: list[AnswerFault] = field(default_factory=list)
    no_refill: bool = False
    never_bind: bool = False
    ready_delay: float = 0

    def set(self, body: dict[str, Any]) -> None:
        """Sets one fault. A `ValueError` says what would be right."""
        settings = dict(body)
        name = settings.pop("fault", None)
        actions = {
            "answer": self.answer,
            "drop_watches": self.watches.drop,
            "expire_versions": self.registry.store.expire,
            "evict": self.evict,
            "no_refill": self.switch("no_refill"),
            "never_bind": self.switch("never_bind"),
            "ready_delay": self.delay,
            "clock_skew": self.skew,
            "reset": self.reset,
        }
        if name not in actions:
            raise ValueError(
                f"no fault {name!r}: `fault` is one of {', '.join(actions)}"
            )
        try:
            actions[name](**settings)
        except TypeError as error:
            raise ValueError(f"fault {name!r}: {error}") from error
        self.registry.store.on_change()

    def answer(self, status: int, **settings: Any) -> None:
        if status not in ANSWERS:
            raise ValueError(
                f"no answer {status!r}: `status` is one of {list(ANSWERS)}"
            )
        self.answers.append(AnswerFault(status, **settings))

    def evict(self, namespace: str, pod: str) -> None:
        self.evict_pod(self.registry.get(PODS, namespace, pod))

    def switch(self, name: str):
        return lambda enabled=True: setattr(self, name, bool(enabled))

    def delay(self, seconds: float) -> None:
        self.ready_delay = float(seconds)

    def skew(self, seconds: float) -> None:
        self.registry.clock.skew = timedelta(seconds=seconds)

    def reset(self) -> None:
        self.answers.clear()
        self.no_refill = self.never_bind = False
        self.ready_delay = 0
        self.skew(0)

    def strike(self, verb: str, resource: str) -> None:
        """Raises the error that the next request of this kind is to get, if any."""
        for fault in self.answers:
            if fault.verb in ("", verb) and fault.resource in ("", resource):
                fault.count -= 1
                if fault.count <= 0:
                    self.answers.remove(fault)
                raise fault.error()

    def described(self) -> dict[str, Any]:
        return {
            "answers": [vars(fault) for fault in self.answers],
            "no_refill": self.no_refill,
            "never_bind": self.never_bind,
            "ready_delay": self.ready_delay,
            "clock_skew": self.registry.clock.skew.total_seconds(),
        }
