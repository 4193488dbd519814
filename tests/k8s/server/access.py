"""Who asks (bearer tokens) and what they may (RBAC)."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.k8s.server.objects.errors import ApiError, forbidden
from tests.k8s.server.objects.history import History, Object
from tests.k8s.server.objects.kinds import RESOURCES, Resource

__all__ = ["ADMIN", "ANONYMOUS", "REVIEWING", "Access", "Action", "User"]


@dataclass(frozen=True)
class User:
    name: str
    groups: tuple[str, ...] = ("system:authenticated",)


@dataclass(frozen=True)
class Action:
    """What is asked: a verb on a resource (or one of its subresources), perhaps on one object."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def full_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


REVIEWING = ("authorization.k8s.io", "authentication.k8s.io")
ADMIN = User("kubernetes-admin", ("system:masters", "system:authenticated"))
ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


class Access:
    """Tokens and permissions. Members of system:masters may do everything, others what roles allow them."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._users: dict[str, User] = {}
        self._tokens: dict[User, str] = {}

    def token(self, user: User) -> str:
        """Return the bearer token of a user; the same at each call."""
        if user not in self._tokens:
            self._tokens[user] = token = secrets.token_urlsafe(24)
            self._users[token] = user
        return self._tokens[user]

    def service_account(self, namespace: str, name: str) -> User:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        return User(f"system:serviceaccount:{namespace}:{name}", groups)

    def user(self, authorization: str) -> User:
        """Return who an Authorization header names.

        Raises
        ------
        ApiError
            401, if the token is not known.
        """
        if not authorization:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        user = self._users.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return user

    def check(self, user: User, action: Action) -> None:
        """Raise the 403 of Kubernetes if the user may not do this."""
        if self.allows(user, action):
            return
        where = f'in the namespace "{action.namespace}"' if action.namespace else "at the cluster scope"
        why = (
            f'User "{user.name}" cannot {action.verb} resource "{action.full_resource}" in API group '
            f'"{action.group}" {where}'
        )
        row = RESOURCES.get(action.resource) or Resource(action.resource, "", action.group)
        raise forbidden(
            row, action.name, why, subresource=f"/{action.subresource}" if action.subresource else ""
        )

    def allows(self, user: User, action: Action) -> bool:
        if "system:masters" in user.groups:
            return True
        is_about_self = action.group in REVIEWING and action.resource.startswith("selfsubject")
        if is_about_self and "system:authenticated" in user.groups:
            return True
        return any(_covers(rule, action) for rule in self.rules(user, action.namespace))

    def rules(self, user: User, namespace: str) -> Iterator[dict[str, Any]]:
        """Yield the rules that hold for a user in a namespace ("" for the cluster's scope)."""
        for binding in self._history.all("clusterrolebindings").values():
            yield from self._bound(user, binding)
        for (owner, _), binding in self._history.all("rolebindings").items():
            if namespace and owner == namespace:
                yield from self._bound(user, binding)

    def _bound(self, user: User, binding: Object) -> Iterator[dict[str, Any]]:
        own = binding["metadata"].get("namespace", "")
        if any(_is_subject(user, subject, own) for subject in binding.get("subjects", ())):
            reference = binding["roleRef"]
            is_cluster_role = reference.get("kind") == "ClusterRole"
            resource, key = ("clusterroles", "") if is_cluster_role else ("roles", own)
            role = self._history.get(resource, (key, reference["name"]))
            yield from (role or {}).get("rules") or ()


def _is_subject(user: User, subject: dict[str, Any], own_namespace: str) -> bool:
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "ServiceAccount":
        return user.name == f"system:serviceaccount:{subject.get('namespace', own_namespace)}:{name}"
    return name in user.groups if kind == "Group" else name == user.name


def _covers(rule: dict[str, Any], action: Action) -> bool:
    names = rule.get("resourceNames")
    resources = rule.get("resources", ())
    return (
        _matches(rule.get("verbs", ()), action.verb)
        and _matches(rule.get("apiGroups", ()), action.group)
        and (_matches(resources, action.full_resource) or f"*/{action.subresource}" in resources)
        and (not names or action.name in names)
    )


def _matches(allowed: Any, wanted: str) -> bool:
    return "*" in allowed or wanted in allowed
