"""The API's operations on objects, without HTTP: what controllers and tests call, and what the handlers call.

Creation fills in defaults and validates; updates keep what may not change; deletion knows graces, finalizers and
preconditions. Every method is thread-safe and returns copies.
"""

import base64
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from tests.k8s.server.objects.admission import admit_pod, check_namespace, check_quotas
from tests.k8s.server.objects.defaults import random_suffix, set_defaults
from tests.k8s.server.objects.deletion import Deletion, delete_object, finish_if_released
from tests.k8s.server.objects.errors import (
    ApiError,
    already_exists,
    bad_request,
    conflict,
    invalid,
    not_found,
)
from tests.k8s.server.objects.history import Change, History, Key, Object
from tests.k8s.server.objects.kinds import RESOURCES, Resource
from tests.k8s.server.objects.patches import json_patch, merge_patch, strategic_patch
from tests.k8s.server.objects.schema import check_types, schema_of
from tests.k8s.server.objects.selectors import field_selector, label_selector
from tests.k8s.server.objects.validation import creation_faults, update_faults

__all__ = ["Store", "copy_of", "timestamp"]

Objects = list[Object]
_Json = TypeVar("_Json")

_STALE = "the object has been modified; please apply your changes to the latest version and try again"
_KEPT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generateName")


def copy_of(value: _Json) -> _Json:
    """Copy JSON data; several times faster than copy.deepcopy."""
    return cast(_Json, _copy(value))


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


def timestamp(at_s: float) -> str:
    return datetime.fromtimestamp(int(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Decoded:
    """A body that may be stored: its object, and the fields that the API does not know."""

    obj: Object
    unknown: Sequence[str] = ()


class Store:
    """All objects of the emulated cluster.

    Resources are named as in URLs (`pods`); `namespace` is ignored for what has none. Objects are plain
    dictionaries as the API's JSON has them.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.history = History()
        self.clock = clock
        for namespace in ("default", "kube-system", "kube-public", "kube-node-lease"):
            self.create("namespaces", {"metadata": {"name": namespace}})
        for name, value in (
            ("system-cluster-critical", 2_000_000_000),
            ("system-node-critical", 2_000_001_000),
        ):
            self.create("priorityclasses", {"metadata": {"name": name}, "value": value})

    @property
    def revision(self) -> int:
        return self.history.revision

    # -- reading

    def get(self, resource: str, name: str, namespace: str = "default") -> Object:
        return copy_of(self.stored(RESOURCES[resource], name, namespace))

    def find(self, resource: str, name: str, namespace: str = "default") -> Object | None:
        """Return the object, or None when there is none."""
        row = RESOURCES[resource]
        found = self.history.get(resource, _key(row, name, namespace))
        return None if found is None else copy_of(found)

    def list(
        self, resource: str, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> Objects:
        """Return the objects, sorted by namespace and name; of all namespaces if None is given."""
        objects = self.history.all(resource)
        return copy_of(self.select(RESOURCES[resource], objects, namespace, labels, fields))

    def select(
        self, row: Resource, objects: Mapping[Key, Object], namespace: str | None, labels: str, fields: str
    ) -> Objects:
        """Filter stored objects; the result shares them and must not be changed."""
        by_labels, by_fields = label_selector(labels), field_selector(row, fields)
        return [
            obj
            for key, obj in sorted(objects.items())
            if (namespace is None or not row.is_namespaced or key[0] == namespace)
            and by_labels(obj["metadata"].get("labels", {}))
            and by_fields(obj)
        ]

    def subscribe(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call the listener with every later change; it must not change the objects and must be quick."""
        return self.history.subscribe(listener)

    def stored(self, row: Resource, name: str, namespace: str) -> Object:
        found = self.history.get(row.name, _key(row, name, namespace))
        if found is None:
            raise not_found(row, name)
        return found

    # -- writing

    def create(
        self, resource: str, obj: Object, namespace: str = "default", *, dry_run: bool = False
    ) -> Object:
        row = RESOURCES[resource]
        decoded = self.decode(row, copy_of(obj))
        return self.create_decoded(row, decoded, namespace, dry_run=dry_run)

    def create_decoded(
        self, row: Resource, decoded: Decoded, namespace: str, *, dry_run: bool = False
    ) -> Object:
        obj = decoded.obj
        metadata = obj["metadata"]
        with self.history.lock:
            self._check_target(row, metadata, namespace)
            revision = metadata.pop("resourceVersion", None)
            self._stamp_new(row, metadata)
            set_defaults(row.name, obj)
            if row.name == "pods":
                admit_pod(self.history, obj)
            if row.name == "secrets":
                _fold_string_data(obj)
            if faults := creation_faults(row, obj):
                raise invalid(row, metadata.get("name", ""), faults)
            if revision:
                raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
            key = _key(row, metadata["name"], metadata.get("namespace", ""))
            if (known := self.history.get(row.name, key)) is not None:
                is_leaving = "deletionTimestamp" in known["metadata"]
                raise already_exists(row, metadata["name"], is_leaving=is_leaving)
            if row.name == "pods":
                check_quotas(self.history, obj)
            if dry_run:
                return obj
            created = self.history.put(row.name, key, obj)
            if row.name == "namespaces":
                self._furnish(metadata["name"])
            return copy_of(created)

    def update(self, resource: str, obj: Object, *, subresource: str = "", dry_run: bool = False) -> Object:
        """Replace an object; metadata.resourceVersion, when it is there, must be the current one."""
        row = RESOURCES[resource]
        new = self.decode(row, copy_of(obj)).obj
        metadata = new["metadata"]
        with self.history.lock:
            old = self.stored(row, metadata.get("name", ""), metadata.get("namespace", "default"))
            return self.change(row, old, new, subresource=subresource, dry_run=dry_run)

    def patch(
        self,
        resource: str,
        name: str,
        patch: Any,
        namespace: str = "default",
        *,
        kind: str = "merge",
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Patch an object; `kind` is merge, strategic or json."""
        row = RESOURCES[resource]
        with self.history.lock:
            old = self.stored(row, name, namespace)
            new = self.decode(row, self.patched(row, old, patch, kind)).obj
            return self.change(row, old, new, subresource=subresource, dry_run=dry_run)

    def patched(self, row: Resource, old: Object, patch: Any, kind: str) -> Object:
        base = copy_of(old)
        if kind == "json":
            patched = json_patch(base, patch)
        elif kind == "strategic":
            patched = strategic_patch(base, patch, schema_of(row))
        else:
            patched = merge_patch(base, patch)
        if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
            raise bad_request(f"{row.kind} cannot be patched to something that is no object")
        return patched

    def change(
        self, row: Resource, old: Object, new: Object, *, subresource: str = "", dry_run: bool = False
    ) -> Object:
        """Store a new state of an object, decoded, under the lock: what PUT and PATCH end in."""
        name, metadata = old["metadata"]["name"], new["metadata"]
        if metadata.get("name", name) != name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            )
        if metadata.get("resourceVersion") not in (None, "", old["metadata"]["resourceVersion"]):
            raise conflict(row, name, _STALE)
        if metadata.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise conflict(row, name, _uid_text(metadata["uid"], old["metadata"]["uid"]))
        new = self._merged_for_update(row, old, new, subresource)
        if faults := update_faults(row, old, new):
            raise invalid(row, name, faults)
        if new == old or dry_run:
            return copy_of(new)
        key = _key(row, name, old["metadata"].get("namespace", ""))
        if finish_if_released(self.history, row, key, new):
            return copy_of(new)
        return copy_of(self.history.put(row.name, key, new))

    def delete(
        self,
        resource: str,
        name: str,
        namespace: str = "default",
        *,
        grace_s: int | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Delete an object, or begin to; return its last state."""
        row = RESOURCES[resource]
        deletion = Deletion(grace_s, uid, resource_version, propagation, dry_run)
        with self.history.lock:
            old = self.stored(row, name, namespace)
            key = _key(row, name, namespace)
            return copy_of(delete_object(self.history, row, key, old, deletion, self.clock()))

    def bind(self, name: str, node: str, namespace: str = "default") -> None:
        """Give a pod its node, as a scheduler does."""
        row = RESOURCES["pods"]
        with self.history.lock:
            old = self.stored(row, name, namespace)
            if old["spec"].get("nodeName"):
                why = f'pod {name} is already assigned to node "{old["spec"]["nodeName"]}"'
                raise conflict(row, name, why, "/binding")
            if "deletionTimestamp" in old["metadata"]:
                why = f"pod {name} is being deleted, cannot be assigned to a host"
                raise conflict(row, name, why, "/binding")
            new = copy_of(old)
            new["spec"]["nodeName"] = node
            scheduled = {
                "type": "PodScheduled",
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": timestamp(self.clock()),
            }
            others = [c for c in new["status"].get("conditions", ()) if c["type"] != "PodScheduled"]
            new["status"]["conditions"] = [*others, scheduled]
            self.history.put("pods", (namespace, name), new)

    # -- bodies

    def decode(self, row: Resource, obj: Any) -> Decoded:
        """Check kind and types of a body, in place; unknown fields are dropped and named."""
        if not isinstance(obj, dict):
            raise bad_request(f"json: cannot unmarshal into Go value of type {row.version}.{row.kind}")
        kind, version = obj.get("kind") or row.kind, obj.get("apiVersion") or row.api_version
        if (kind, version) != (row.kind, row.api_version):
            raise bad_request(
                f'{kind} in version "{version}" cannot be handled as a {row.kind}: converting '
                f"({version.rpartition('/')[2]}.{kind}) to (core.{row.kind}): unknown conversion"
            )
        obj["kind"], obj["apiVersion"] = row.kind, row.api_version
        obj["metadata"] = obj.get("metadata") or {}
        unknown = check_types(row, obj)
        _drop_empty(obj["metadata"])
        _add_nulls(row, obj)
        ordered = {"kind": row.kind, "apiVersion": row.api_version, "metadata": obj["metadata"]}
        return Decoded({**ordered, **obj}, unknown)

    # -- internal

    def _check_target(self, row: Resource, metadata: dict[str, Any], namespace: str) -> None:
        if not row.is_namespaced:
            metadata.pop("namespace", None)
            return
        if metadata.get("namespace", namespace) != namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        metadata["namespace"] = namespace
        check_namespace(self.history, row, metadata.get("name", ""), namespace)

    def _stamp_new(self, row: Resource, metadata: dict[str, Any]) -> None:
        for key in ("selfLink", "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(key, None)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"][:58] + random_suffix()
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = timestamp(self.clock())
        metadata.pop("generation", None)
        if row.has_generation:
            metadata["generation"] = 1

    def _merged_for_update(self, row: Resource, old: Object, new: Object, subresource: str) -> Object:
        metadata = new["metadata"]
        metadata.pop("managedFields", None)
        for key in (*_KEPT, "name", "namespace", "resourceVersion", "generation"):
            if key in old["metadata"]:
                metadata[key] = old["metadata"][key]
            else:
                metadata.pop(key, None)
        if subresource == "status":
            owners = {key: value for key, value in old["metadata"].items() if key == "ownerReferences"}
            metadata = {key: value for key, value in metadata.items() if key != "ownerReferences"} | owners
            status = new.get("status", {})
            new = {**old, "metadata": metadata, "status": status}
            if row.name == "pods":
                _complete_status(status, old)
        else:
            if row.has_status and "status" in old:
                new["status"] = old["status"]
            if row.name == "namespaces" and subresource != "finalize":
                new["spec"] = old["spec"]
            if row.name == "secrets":
                _fold_string_data(new)
            if row.name == "services":
                _keep_cluster_ip(old["spec"], new.setdefault("spec", {}))
            if row.has_generation and new.get("spec") != old.get("spec"):
                metadata["generation"] = old["metadata"].get("generation", 0) + 1
        return new

    def _furnish(self, namespace: str) -> None:
        self.create("serviceaccounts", {"metadata": {"name": "default"}}, namespace)
        self.create(
            "configmaps", {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": ""}}, namespace
        )


def _key(row: Resource, name: str, namespace: str) -> Key:
    return (namespace if row.is_namespaced else "", name)


def _uid_text(wanted: str, found: str) -> str:
    return (
        f"the UID in the precondition ({wanted}) does not match the UID in record ({found}). "
        "The object might have been deleted and then recreated"
    )


def _drop_empty(metadata: dict[str, Any]) -> None:
    for key in (
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "name",
        "generateName",
        "namespace",
    ):
        if key in metadata and not metadata[key]:
            del metadata[key]


def _add_nulls(row: Resource, obj: Object) -> None:
    """Write out the fields that the API always shows, as it does."""
    if row.name in ("pods", "nodes"):
        times = ("lastProbeTime", "lastTransitionTime") if row.name == "pods" else ()
        for condition in obj.get("status", {}).get("conditions", ()):
            for key in times:
                condition.setdefault(key, None)
        for status in obj.get("status", {}).get("containerStatuses", ()):
            status.setdefault("lastState", {})
            status.setdefault("imageID", "")
            status.setdefault("state", {})
    if row.name == "events":
        for key in ("eventTime", "firstTimestamp", "lastTimestamp"):
            obj.setdefault(key, None)


def _complete_status(status: dict[str, Any], old: Object) -> None:
    status.setdefault("qosClass", old["status"].get("qosClass", "BestEffort"))
    if "podIP" in status:
        status.setdefault("podIPs", [{"ip": status["podIP"]}])


def _fold_string_data(secret: Object) -> None:
    for key, text in secret.pop("stringData", {}).items():
        secret.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()


def _keep_cluster_ip(old: dict[str, Any], new: dict[str, Any]) -> None:
    for key in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy", "type"):
        if key in old:
            new.setdefault(key, old[key])
    new.setdefault("sessionAffinity", "None")
    for port in new.get("ports", ()):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
