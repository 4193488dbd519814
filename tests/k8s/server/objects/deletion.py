"""How objects go: at once, after a grace, or when the last finalizer lets go."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.k8s.server.objects.errors import ApiError
from tests.k8s.server.objects.history import History, Key, Object
from tests.k8s.server.objects.kinds import Resource

__all__ = ["Deletion", "delete_object", "finish_if_released"]

_FOREGROUND = "foregroundDeletion"
_FORM = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True)
class Deletion:
    """What a deletion asks: the fields of DeleteOptions that matter here."""

    grace_s: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    propagation: str = ""
    is_dry_run: bool = False


def delete_object(
    history: History, row: Resource, key: Key, old: Object, deletion: Deletion, now_s: float
) -> Object:
    """Delete under the history's lock; return the object's last state."""
    _check_preconditions(row, old, deletion)
    if deletion.is_dry_run:
        return old
    if row.name == "pods":
        old, is_over = _end_gracefully(history, key, old, deletion, now_s)
    else:
        old, is_over = _mark(history, row, key, old, deletion, now_s)
    return history.remove(row.name, key) if is_over else old


def finish_if_released(history: History, row: Resource, key: Key, new: Object) -> bool:
    """Remove an object whose last finalizer an update has taken away; its deletion shows the state before."""
    metadata = new["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if metadata.get("deletionGracePeriodSeconds", 0) or (
        row.name == "namespaces" and new["spec"].get("finalizers")
    ):
        return False
    before = history.get(row.name, key)
    if before is None or not (before["metadata"].get("finalizers") or row.name == "namespaces"):
        return False
    history.remove(row.name, key)
    return True


def _check_preconditions(row: Resource, old: Object, deletion: Deletion) -> None:
    metadata = old["metadata"]
    if deletion.uid not in (None, metadata["uid"]):
        why = (
            f"the UID in the precondition ({deletion.uid}) does not match the UID in record "
            f"({metadata['uid']}). The object might have been deleted and then recreated"
        )
    elif deletion.resource_version not in (None, metadata["resourceVersion"]):
        why = (
            f"the ResourceVersion in the precondition ({deletion.resource_version}) does not match the "
            f"ResourceVersion in record ({metadata['resourceVersion']}). The object might have been modified"
        )
    else:
        return
    details = {"name": metadata["name"], "kind": row.kind}
    if row.group:
        details["group"] = row.group
    message = f'Operation cannot be fulfilled on {row.kind} "{metadata["name"]}": {why}'
    raise ApiError(409, "Conflict", message, details)


def _end_gracefully(
    history: History, key: Key, pod: Object, deletion: Deletion, now_s: float
) -> tuple[Object, bool]:
    metadata = pod["metadata"]
    grace_s = _grace(pod, deletion)
    if "deletionTimestamp" in metadata:
        granted_s = metadata.get("deletionGracePeriodSeconds", 0)
        if granted_s and (deletion.grace_s is None or grace_s >= granted_s):
            return pod, False
        if granted_s:
            begun = datetime.strptime(metadata["deletionTimestamp"], _FORM) - timedelta(seconds=granted_s)
            at = begun + timedelta(seconds=grace_s)
            pod = history.put(
                "pods", key, _marked(pod, at.strftime(_FORM), grace_s, deletion, is_first=False)
            )
    else:
        at = datetime.fromtimestamp(int(now_s), UTC) + timedelta(seconds=grace_s)
        pod = history.put("pods", key, _marked(pod, at.strftime(_FORM), grace_s, deletion, is_first=True))
    is_over = not pod["metadata"]["deletionGracePeriodSeconds"] and not pod["metadata"].get("finalizers")
    return pod, is_over


def _grace(pod: Object, deletion: Deletion) -> int:
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    if deletion.grace_s is not None:
        return deletion.grace_s if deletion.grace_s >= 0 else 1
    return int(pod["spec"]["terminationGracePeriodSeconds"])


def _mark(
    history: History, row: Resource, key: Key, old: Object, deletion: Deletion, now_s: float
) -> tuple[Object, bool]:
    is_held = bool(old["metadata"].get("finalizers")) or row.name == "namespaces"
    if not is_held and deletion.propagation != "Foreground":
        return old, True
    if "deletionTimestamp" in old["metadata"]:
        return old, False
    at = datetime.fromtimestamp(int(now_s), UTC).strftime(_FORM)
    if row.name == "namespaces":
        marked = _marked(old, at, None, deletion, is_first=True)
        marked["status"] = {**old["status"], "phase": "Terminating"}
    else:
        marked = _marked(old, at, 0, deletion, is_first=True)
    return history.put(row.name, key, marked), False


def _marked(obj: Object, at: str, grace_s: int | None, deletion: Deletion, *, is_first: bool) -> Object:
    metadata: dict[str, Any] = {**obj["metadata"], "deletionTimestamp": at}
    if grace_s is not None:
        metadata["deletionGracePeriodSeconds"] = grace_s
    if is_first and "generation" in metadata:
        metadata["generation"] += 1
    if deletion.propagation == "Foreground" and _FOREGROUND not in metadata.get("finalizers", ()):
        metadata["finalizers"] = [*metadata.get("finalizers", ()), _FOREGROUND]
    return {**obj, "metadata": metadata}
