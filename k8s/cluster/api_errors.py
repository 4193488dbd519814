"""From the API server's refusals to errors that say what to do."""

import os
import re
from typing import ClassVar, TypeVar

import msgspec

from edlz.k8s.cluster.api_records import Status
from edlz.k8s.cluster.rights import Subject, rights_line
from edlz.services import strict_json
from edlz.services.errors import EdlzError, PeerUnavailable

__all__ = [
    "AlreadyExists",
    "ApiError",
    "Conflict",
    "Expired",
    "Forbidden",
    "Invalid",
    "NotFound",
    "NotPermitted",
    "Refused",
    "Unauthorized",
    "asked_pause",
    "decoded",
    "is_quota_used_up",
    "reason_of",
    "refusal",
    "told",
]

_Record = TypeVar("_Record")

TRANSIENT = frozenset((429, 500, 502, 503, 504))
_ACCOUNT = re.compile(r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)"')
_ANONYMOUS = "system:anonymous"
_QUOTA = "exceeded quota"
_POD_SECURITY = "violates PodSecurity"
_HOST_FOLDER = re.compile(r"hostPath", re.IGNORECASE)


class ApiError(EdlzError):
    """The API server refused a request.

    Attributes
    ----------
    status : Status
        The server's own word.
    """

    code: ClassVar[str] = "cluster"

    def __init__(self, message: str, help: str = "", status: Status | None = None) -> None:  # noqa: A002
        super().__init__(message, help)
        self.status = status or Status()


class Refused(ApiError):
    """The server does not take the request as it is (400, 405, 415 ...)."""


class Unauthorized(ApiError):
    """The server does not know who asks (401)."""

    exit_code: ClassVar[int] = 5


class Forbidden(ApiError):
    """The server's rules do not allow it (403): a quota, an admission rule, a namespace that goes away."""


class NotPermitted(Forbidden):
    """The account's roles do not allow it (403)."""

    exit_code: ClassVar[int] = 5


class NotFound(ApiError):
    """There is no such object, or no such namespace (404)."""

    exit_code: ClassVar[int] = 4


class Conflict(ApiError):
    """The object is another one than was meant, or has changed since (409)."""


class AlreadyExists(Conflict):
    """There is one of this name (409)."""


class Expired(ApiError):
    """A watch or a list asks for a revision that the server has forgotten (410): list anew."""


class Invalid(ApiError):
    """Fields of the object are wrong (422); the message names them."""


def told(error: EdlzError) -> str:
    """Return an error as one line of a log or a note: what happened, and what to do."""
    return f"{error.message}; {error.help}" if error.help else error.message


def decoded(answer: bytes, kind: type[_Record], server: str) -> _Record:
    """Return what the server has answered.

    Raises
    ------
    PeerUnavailable
        If it is no such thing: something between here and the API server has answered in its place.
    """
    try:
        return strict_json.parse(answer, kind)
    except msgspec.DecodeError as error:
        first = answer[:80].decode(errors="replace").strip().partition("\n")[0]
        raise PeerUnavailable(
            f"{server} gives no answer of a Kubernetes API server, but {first!r}",
            "see whether a proxy stands before it: kubectl cluster-info",
        ) from error


def is_quota_used_up(error: EdlzError) -> bool:
    """Whether a creation was refused that will be taken when other objects of the namespace have gone."""
    return isinstance(error, Forbidden) and _QUOTA in error.message


def refusal(code: int, body: bytes, namespace: str, server: str) -> EdlzError:
    """Return the error for an answer that does not mean success.

    Parameters
    ----------
    code : int
        HTTP status.
    body : bytes
        The answer; a Status, unless something between us and the server gave it.
    namespace, server : str
        What was asked, for the error's text.
    """
    status = _status_of(body, code)
    text = status.message or f"HTTP {code}"
    if code == 401:
        return Unauthorized(
            f"the cluster at {server} does not accept these credentials: {text}",
            "log in again, or check the kubeconfig: kubectl auth whoami",
            status,
        )
    if code == 403:
        return _forbidden(text, namespace, status)
    if code == 404:
        return _not_found(text, namespace, status)
    if code == 409:
        kind = AlreadyExists if status.reason == "AlreadyExists" else Conflict
        return kind(text, "", status)
    if code == 410:
        return Expired(text, "", status)
    if code == 422:
        return _invalid(text, status)
    if code in TRANSIENT:
        return PeerUnavailable(f"the cluster at {server} answers {code}: {text}", "try again in a while")
    return Refused(text, "", status)


def _status_of(body: bytes, code: int) -> Status:
    try:
        return strict_json.parse(body, Status)
    except msgspec.DecodeError:
        first = body[:200].decode(errors="replace").strip().partition("\n")[0]
        return Status(message=first, code=code)


def _forbidden(text: str, namespace: str, status: Status) -> Forbidden:
    found = _ACCOUNT.search(text)
    if found is None:
        return Forbidden(text, _advice(text, namespace), status)
    user, verb, resource = found["user"], found["verb"], found["resource"]
    if user == _ANONYMOUS:
        return NotPermitted(
            f'nobody is logged in: the cluster takes this for "{_ANONYMOUS}", which may do nothing here',
            "log in, or give the context's user credentials: kubectl config view --minify",
            status,
        )
    subject = Subject.of(user)
    text = f'{subject.told(namespace)} may not {verb} {resource} in "{namespace}"'
    return NotPermitted(text, rights_line(namespace, subject), status)


def _advice(text: str, namespace: str) -> str:
    if _QUOTA in text:
        return f"ask for less, or for a greater quota: kubectl describe quota -n {namespace}"
    if "PriorityClass" in text:
        return "those that exist: kubectl get priorityclasses"
    if _POD_SECURITY in text:
        if _HOST_FOLDER.search(text):
            return f'no folders of nodes in "{namespace}": --volume=claim_name=…,mount_path=… in place of host_path'
        return f"let --cluster_spec set that, or take a --namespace that allows it: kubectl get ns {namespace} --show-labels"
    if "being terminated" in text:
        return "use another --namespace, or wait until it is gone and create it again"
    return ""


def _not_found(text: str, namespace: str, status: Status) -> NotFound:
    details = status.details
    if details is not None and details.kind == "namespaces":
        name = details.name or namespace
        return NotFound(f'there is no namespace "{name}"', f"kubectl create namespace {name}", status)
    return NotFound(text, "", status)


def _invalid(text: str, status: Status) -> Invalid:
    causes = status.details.causes if status.details else None
    if not causes:
        return Invalid(text, "", status)
    where = f"{status.details.kind} " if status.details and status.details.kind else ""
    name = f'"{status.details.name}" ' if status.details and status.details.name else ""
    said = "; ".join(f"{cause.field}: {cause.message.partition(chr(10))[0]}" for cause in causes)
    return Invalid(f"{where}{name}is invalid: {said}", "", status)


def reason_of(error: BaseException) -> bytes:
    """Return why a connection failed, as short as can be."""
    if isinstance(error, TimeoutError):
        return b"it does not answer"
    inner = getattr(error, "os_error", None) or error
    if isinstance(inner, ConnectionError) and inner.errno:  # asyncio says where it called, in Python's words
        return os.strerror(inner.errno).encode()
    text = (getattr(inner, "strerror", None) or str(inner)) or type(error).__name__
    return str(text).encode()


def asked_pause(header: str, code: int, answer: bytes) -> float:
    """Return the seconds that a refusal asks to wait."""
    if code not in TRANSIENT:
        return 0.0
    if header.isdigit():
        return float(header)
    try:
        details = strict_json.parse(answer, Status).details
    except msgspec.DecodeError:
        return 0.0
    return float(details.retry_after_seconds) if details else 0.0
