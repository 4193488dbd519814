"""What the cluster's components write into the store: events, conditions, statuses."""

import contextlib
import secrets
from collections.abc import Mapping
from typing import Any

from tests.k8s.server.objects.errors import ApiError
from tests.k8s.server.objects.store import Store, timestamp

__all__ = ["patch_status", "record", "set_condition"]

Object = Mapping[str, Any]


def record(
    store: Store,
    pod: Object,
    reason: str,
    message: str,
    *,
    is_warning: bool = False,
    component: str,
    host: str = "",
) -> None:
    """Record an event about a pod; none in a namespace that is being deleted."""
    metadata, now = pod["metadata"], timestamp(store.clock())
    event = {
        "metadata": {"name": f"{metadata['name']}.{secrets.token_hex(8)}"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "reason": reason,
        "message": message,
        "type": "Warning" if is_warning else "Normal",
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": component, **({"host": host} if host else {})},
        "reportingComponent": component,
        "reportingInstance": host,
    }
    with contextlib.suppress(ApiError):
        store.create("events", event, metadata["namespace"])


def patch_status(store: Store, name: str, namespace: str, status: Object, now: float) -> None:
    """Change parts of a pod's status. Conditions are merged by type; their times change when they do."""
    with store.history.lock:
        known = store.get("pods", name, namespace)["status"].get("conditions") or []
        conditions = _merged(known, status.get("conditions") or [], timestamp(now))
        patch = {"status": {**status, "conditions": conditions}}
        store.patch("pods", name, patch, namespace, subresource="status")


def set_condition(store: Store, pod: Object, condition: Object, now: float) -> None:
    """Set one condition of a pod."""
    metadata = pod["metadata"]
    patch_status(store, metadata["name"], metadata["namespace"], {"conditions": [condition]}, now)


def _merged(known: list[dict[str, Any]], new: list[Object], now: str) -> list[dict[str, Any]]:
    merged = {one["type"]: one for one in known}
    for one in new:
        before = merged.get(one["type"], {})
        since = before["lastTransitionTime"] if before.get("status") == one["status"] else now
        merged[one["type"]] = {"lastProbeTime": None, "lastTransitionTime": since, **one}
    return list(merged.values())
