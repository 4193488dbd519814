"""The API server's refusals: `Status` objects with the words and codes of Kubernetes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.k8s.server.objects.kinds import Resource

__all__ = [
    "ApiError",
    "Cause",
    "already_exists",
    "bad_request",
    "conflict",
    "expired",
    "forbidden",
    "invalid",
    "no_such_resource",
    "not_found",
    "too_large_revision",
]

_FIELD_REASONS = {
    "Required value": "FieldValueRequired",
    "Invalid value": "FieldValueInvalid",
    "Unsupported value": "FieldValueNotSupported",
    "Forbidden": "FieldValueForbidden",
    "Duplicate value": "FieldValueDuplicate",
    "Too long": "FieldValueTooLong",
    "Not found": "FieldValueNotFound",
}


@dataclass(frozen=True)
class Cause:
    """One field that is wrong: `message` starts with the kind of fault, as in `Invalid value: "": …`."""

    field: str
    message: str

    def to_json(self) -> dict[str, str]:
        reason = next(name for start, name in _FIELD_REASONS.items() if self.message.startswith(start))
        return {"reason": reason, "message": self.message, "field": self.field}


class ApiError(Exception):
    """A request that is refused; `status()` is the body of the answer."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        self.details, self.headers = details, headers or {}

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        status["message"] = self.message
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def not_found(resource: Resource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', resource.details(name))


def no_such_resource() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(resource: Resource, name: str, *, is_leaving: bool = False) -> ApiError:
    message = f'{resource.qualified} "{name}" already exists'
    if is_leaving:
        message = f"object is being deleted: {message}"
    return ApiError(409, "AlreadyExists", message, resource.details(name))


def conflict(resource: Resource, name: str, why: str, subresource: str = "") -> ApiError:
    details = resource.details(name)
    details["kind"] += subresource
    message = f'Operation cannot be fulfilled on {resource.qualified}{subresource} "{name}": {why}'
    return ApiError(409, "Conflict", message, details)


def forbidden(
    resource: Resource, name: str, why: str, causes: Sequence[dict[str, str]] = (), subresource: str = ""
) -> ApiError:
    details = resource.details(name)
    if causes:
        details["causes"] = list(causes)
    subject = f'{resource.qualified}{subresource} "{name}"' if name else f"{resource.qualified}{subresource}"
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", details)


def invalid(resource: Resource, name: str, causes: Sequence[Cause]) -> ApiError:
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details: dict[str, Any] = {"name": name}
    if resource.group:
        details["group"] = resource.group
    details |= {"kind": resource.kind, "causes": [cause.to_json() for cause in causes]}
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {text}', details)


def expired(revision: int, oldest: int) -> ApiError:
    return ApiError(410, "Expired", f"too old resource version: {revision} ({oldest})")


def too_large_revision(revision: int, current: int) -> ApiError:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return ApiError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {revision}, current: {current}",
        {"causes": [cause], "retryAfterSeconds": 1},
        {"Retry-After": "1"},
    )
