"""The resources that the emulated API server knows: names, kinds, scopes, verbs."""

from dataclasses import dataclass
from typing import Any

__all__ = ["RESOURCES", "Resource", "find_resource"]

_ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True)
class Resource:
    """One row of the API: what `kubectl api-resources` prints, and how its objects behave.

    Attributes
    ----------
    has_generation : bool
        New objects carry metadata.generation 1.
    returns_deleted : bool
        A deletion answers with the object; others answer with a Status.
    fields : tuple of str
        What a field selector may name, beyond metadata.name (and namespace).
    """

    name: str
    kind: str
    group: str = ""
    version: str = "v1"
    is_namespaced: bool = True
    verbs: tuple[str, ...] = _ALL_VERBS
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    has_generation: bool = False
    returns_deleted: bool = False
    fields: tuple[str, ...] = ()
    storage_hash: str = ""
    schema_package: str = "core"

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The name in messages: `pods`, `leases.coordination.k8s.io`."""
        return f"{self.name}.{self.group}" if self.group else self.name

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources

    @property
    def schema(self) -> str:
        return f"io.k8s.api.{self.schema_package}.{self.version}.{self.kind}"

    def details(self, name: str = "") -> dict[str, Any]:
        details = {"name": name} if name else {}
        if self.group:
            details["group"] = self.group
        return details | {"kind": self.name}


_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_RBAC: dict[str, Any] = {"group": "rbac.authorization.k8s.io", "schema_package": "rbac"}
_REVIEW: dict[str, Any] = {
    "group": "authorization.k8s.io",
    "schema_package": "authorization",
    "is_namespaced": False,
    "verbs": ("create",),
}
_AUTHENTICATION: dict[str, Any] = {
    "group": "authentication.k8s.io",
    "schema_package": "authentication",
}

_ROWS = (
    Resource(
        "pods",
        "Pod",
        short_names=("po",),
        categories=("all",),
        subresources=("status", "binding", "eviction", "log", "portforward"),
        has_generation=True,
        returns_deleted=True,
        fields=_POD_FIELDS,
    ),
    Resource(
        "services",
        "Service",
        short_names=("svc",),
        categories=("all",),
        subresources=("status",),
        returns_deleted=True,
    ),
    Resource("secrets", "Secret", fields=("type",)),
    Resource("configmaps", "ConfigMap", short_names=("cm",)),
    Resource(
        "resourcequotas",
        "ResourceQuota",
        short_names=("quota",),
        subresources=("status",),
        returns_deleted=True,
    ),
    Resource("events", "Event", short_names=("ev",), fields=_EVENT_FIELDS),
    Resource(
        "namespaces",
        "Namespace",
        is_namespaced=False,
        short_names=("ns",),
        subresources=("status", "finalize"),
        returns_deleted=True,
        fields=("status.phase",),
    ),
    Resource(
        "serviceaccounts",
        "ServiceAccount",
        short_names=("sa",),
        subresources=("token",),
        returns_deleted=True,
    ),
    Resource(
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        short_names=("pvc",),
        subresources=("status",),
        returns_deleted=True,
    ),
    Resource(
        "nodes",
        "Node",
        is_namespaced=False,
        short_names=("no",),
        subresources=("status",),
        fields=("spec.unschedulable",),
    ),
    Resource(
        "priorityclasses",
        "PriorityClass",
        group="scheduling.k8s.io",
        schema_package="scheduling",
        is_namespaced=False,
        short_names=("pc",),
        has_generation=True,
        storage_hash="1QwjyaZjj3Y=",
    ),
    Resource("leases", "Lease", group="coordination.k8s.io", schema_package="coordination"),
    Resource("roles", "Role", **_RBAC),
    Resource("rolebindings", "RoleBinding", **_RBAC),
    Resource("clusterroles", "ClusterRole", is_namespaced=False, **_RBAC),
    Resource("clusterrolebindings", "ClusterRoleBinding", is_namespaced=False, **_RBAC),
    Resource("selfsubjectaccessreviews", "SelfSubjectAccessReview", **_REVIEW),
    Resource("selfsubjectreviews", "SelfSubjectReview", **{**_REVIEW, **_AUTHENTICATION}),
    Resource("selfsubjectrulesreviews", "SelfSubjectRulesReview", **_REVIEW),
    Resource("localsubjectaccessreviews", "LocalSubjectAccessReview", **{**_REVIEW, "is_namespaced": True}),
)

RESOURCES = {row.name: row for row in _ROWS}


def find_resource(group: str, version: str, name: str) -> Resource | None:
    row = RESOURCES.get(name)
    return row if row is not None and (row.group, row.version) == (group, version) else None
