"""What an HTTP request asks of the API: path, verb, body."""

import json
from dataclasses import dataclass
from typing import Any

from tests.k8s.server.access import Action
from tests.k8s.server.objects.errors import ApiError, bad_request, no_such_resource
from tests.k8s.server.objects.kinds import RESOURCES, Resource, find_resource

__all__ = ["Target", "parse_body", "parse_path"]

_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True)
class Target:
    """What a path names: a collection (`name` is empty), an object, or a subresource of it."""

    resource: Resource
    namespace: str | None  # None: all of them, or the resource has none
    name: str = ""
    subresource: str = ""

    def action(self, method: str, is_watch: bool) -> Action:
        verb = _VERBS.get(method, method.lower())
        if not self.name:
            verb = {"get": "watch" if is_watch else "list", "delete": "deletecollection"}.get(verb, verb)
        namespace = self.name if self.resource.name == "namespaces" else self.namespace
        row = self.resource
        return Action(verb, row.group, row.name, namespace or "", self.name, self.subresource)


def parse_path(path: str) -> Target:
    """Take a path apart.

    Raises
    ------
    ApiError
        404, if the path names nothing that is served.
    """
    match path.strip("/").split("/"):
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            raise no_such_resource()
    namespace = None
    if len(rest) >= 3 and rest[0] == "namespaces" and rest[2] not in RESOURCES["namespaces"].subresources:
        namespace, rest = rest[1], rest[2:]
    if not 1 <= len(rest) <= 3:
        raise no_such_resource()
    row = find_resource(group, version, rest[0])
    if row is None or (namespace is not None and not row.is_namespaced):
        raise no_such_resource()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if (name and row.is_namespaced and namespace is None) or (
        subresource and subresource not in row.subresources
    ):
        raise no_such_resource()
    return Target(row, namespace, name, subresource)


def parse_body(body: bytes, kind: str) -> Any:
    """Decode JSON.

    Raises
    ------
    ApiError
        400, if it is none.
    """
    try:
        return json.loads(body)
    except json.JSONDecodeError as error:
        raise _malformed(body, kind, error) from None
    except UnicodeDecodeError:
        raise bad_request("the body of the request was in an unknown format") from None


def _malformed(body: bytes, kind: str, error: json.JSONDecodeError) -> ApiError:
    expected = "object key string" if "property name" in error.msg else "value"
    found = error.doc[error.pos : error.pos + 1]
    why = (
        f"invalid character '{found}' looking for beginning of {expected}"
        if found
        else "unexpected end of JSON input"
    )
    return bad_request(
        f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse "
        f"error: {why} ({body.decode()})"
    )
