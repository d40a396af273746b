"""Errors of the API server, in the form that Kubernetes gives them: objects of kind `Status`."""

from typing import Any


class ApiError(Exception):
    """An error that is answered as a `Status`."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def status(self) -> dict[str, Any]:
        """The object that the client gets."""
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details:
            status["details"] = self.details
        return {**status, "code": self.code}


def qualified(kind) -> str:
    """The name of a resource with its group, as messages have it."""
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def details_of(kind, name: str, **more: Any) -> dict[str, Any]:
    """The `details` of a status about one object."""
    group = {"group": kind.group} if kind.group else {}
    named = {"name": name} if name else {}
    return {**named, **group, "kind": kind.plural, **more}


def not_found(kind, name: str) -> ApiError:
    message = f'{qualified(kind)} "{name}" not found'
    return ApiError(404, "NotFound", message, details_of(kind, name))


def already_exists(kind, name: str) -> ApiError:
    message = f'{qualified(kind)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details_of(kind, name))


def conflict(kind, name: str, why: str | None = None) -> ApiError:
    why = why or (
        "the object has been modified; please apply your changes to the latest version and try again"
    )
    message = f'Operation cannot be fulfilled on {qualified(kind)} "{name}": {why}'
    return ApiError(409, "Conflict", message, details_of(kind, name))


def invalid(kind, name: str, causes: list[dict[str, str]]) -> ApiError:
    """An object that breaks its schema; each cause has a field, a message and a reason."""
    texts = [f"{cause['field']}: {cause['message']}" for cause in causes]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    qualified_kind = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    details = details_of(kind, name, causes=causes) | {"kind": kind.kind}
    message = f'{qualified_kind} "{name}" is invalid: {text}'
    return ApiError(422, "Invalid", message, details)


def cause(field: str, reason: str, message: str) -> dict[str, str]:
    return {"reason": reason, "message": message, "field": field}


def forbidden(kind, name: str, why: str) -> ApiError:
    subject = f'{qualified(kind)} "{name}"' if name else qualified(kind)
    message = f"{subject} is forbidden: {why}"
    return ApiError(403, "Forbidden", message, details_of(kind, name))


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def method_not_allowed() -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message)


def unsupported_media_type(accepted: list[str]) -> ApiError:
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted)
    )
    return ApiError(415, "UnsupportedMediaType", message)
