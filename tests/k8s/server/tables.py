"""Lists as `kubectl get` shows them: the server makes the cells, for pods and services as the real one does."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from tests.k8s.server.objects.history import Object
from tests.k8s.server.objects.kinds import Resource

__all__ = ["age_text", "is_table_wanted", "table_of"]

_WANTED = "as=Table;v=v1;g=meta.k8s.io"
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def is_table_wanted(row: Resource, accept: str) -> bool:
    """Return whether a client's Accept header asks for a table of a resource that has one here."""
    return row.name in _COLUMNS and _WANTED in accept.replace(" ", "")


def table_of(row: Resource, answer: Object, now: float | None = None) -> Object:
    """Return a list, or one object, as a table."""
    items: Sequence[Object] = answer.get("items", [answer])
    columns = _COLUMNS[row.name]
    at = time.time() if now is None else now
    revision = answer["metadata"].get("resourceVersion", "")
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": revision},
        "columnDefinitions": [
            {"name": name, "type": "string", "format": "", "description": "", "priority": 0}
            for name in columns
        ],
        "rows": [
            {"cells": [cell(item, at) for cell in columns.values()], "object": _partial(item)}
            for item in items
        ],
    }


def age_text(seconds: float) -> str:
    """Return a duration in the words of kubectl: 33s, 4m5s, 12m, 3h20m, 9h, 3d."""
    whole = max(int(seconds), 0)
    minutes, hours, days = whole // _MINUTE, whole // _HOUR, whole // _DAY
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if minutes < 10:
        rest = whole % _MINUTE
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        rest = minutes % 60
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    return f"{hours}h" if hours < 48 else f"{days}d"


def _partial(item: Object) -> Object:
    metadata = item["metadata"]
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}


def _name(item: Object, now: float) -> str:
    return str(item["metadata"]["name"])


def _age(item: Object, now: float) -> str:
    return _since(item["metadata"]["creationTimestamp"], now)


def _since(stamp: str, now: float) -> str:
    made = datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return age_text(now - made.timestamp())


# -- pods


def _containers(pod: Object) -> Sequence[Object]:
    return pod.get("status", {}).get("containerStatuses") or ()


def _ready(pod: Object, now: float) -> str:
    return f"{sum(bool(one.get('ready')) for one in _containers(pod))}/{len(pod['spec']['containers'])}"


def _status(pod: Object, now: float) -> str:
    status = pod.get("status", {})
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    found = str(status.get("reason") or status.get("phase", "Pending"))
    for one in reversed(_containers(pod)):
        state: dict[str, Any] = one.get("state") or {}
        ended = state.get("terminated") or {}
        if reason := (state.get("waiting") or {}).get("reason") or ended.get("reason"):
            found = str(reason)
        elif ended:
            found = f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended['exitCode']}"
    return found


def _restarts(pod: Object, now: float) -> str:
    count = sum(int(one.get("restartCount", 0)) for one in _containers(pod))
    ends = [(one.get("lastState") or {}).get("terminated") or {} for one in _containers(pod)]
    latest = max((str(end["finishedAt"]) for end in ends if end.get("finishedAt")), default="")
    return f"{count} ({_since(latest, now)} ago)" if count and latest else str(count)


# -- services


def _ports(service: Object, now: float) -> str:
    ports = service["spec"].get("ports") or ()
    return ",".join(f"{port['port']}/{port.get('protocol', 'TCP')}" for port in ports) or "<none>"


_COLUMNS: dict[str, dict[str, Callable[[Object, float], str]]] = {
    "pods": {"Name": _name, "Ready": _ready, "Status": _status, "Restarts": _restarts, "Age": _age},
    "services": {
        "Name": _name,
        "Type": lambda service, now: str(service["spec"].get("type", "ClusterIP")),
        "Cluster-IP": lambda service, now: str(service["spec"].get("clusterIP") or "<none>"),
        "External-IP": lambda service, now: "<none>",
        "Port(s)": _ports,
        "Age": _age,
    },
}
