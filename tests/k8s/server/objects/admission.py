"""What the API server asks of other objects before it takes a new one: namespace, priority class, account, quota."""

from typing import Any

from tests.k8s.server.objects.defaults import mount_token
from tests.k8s.server.objects.errors import forbidden, not_found
from tests.k8s.server.objects.history import History, Object
from tests.k8s.server.objects.kinds import RESOURCES, Resource
from tests.k8s.server.objects.pod_security import LABEL, violations
from tests.k8s.server.objects.quotas import excess

__all__ = ["admit_pod", "check_namespace", "check_quotas"]


def check_namespace(history: History, row: Resource, name: str, namespace: str) -> None:
    found = history.get("namespaces", ("", namespace))
    if found is None:
        raise not_found(RESOURCES["namespaces"], namespace)
    if "deletionTimestamp" in found["metadata"]:
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        raise forbidden(row, name, why, [cause])


def admit_pod(history: History, pod: Object) -> None:
    """Give a pod, in place, its priority and its service account's token."""
    name, namespace, spec = pod["metadata"].get("name", ""), pod["metadata"]["namespace"], pod["spec"]
    account = spec["serviceAccountName"]
    if history.get("serviceaccounts", (namespace, account)) is None:
        why = f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
        raise forbidden(RESOURCES["pods"], name, why)
    _set_priority(history, name, spec)
    mount_token(spec)
    labels = history.get("namespaces", ("", namespace))["metadata"].get("labels") or {}
    if labels.get(LABEL) == "restricted" and (found := violations(pod)):
        raise forbidden(
            RESOURCES["pods"], name, f'violates PodSecurity "restricted:latest": {", ".join(found)}'
        )


def check_quotas(history: History, pod: Object) -> None:
    """Refuse a pod that its namespace's quotas have no room for; the last check, as in the original."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    pods = [one for (where, _), one in history.all("pods").items() if where == namespace]
    for (where, _), quota in history.all("resourcequotas").items():
        if where == namespace and (why := excess(quota, pods, pod)):
            raise forbidden(RESOURCES["pods"], name, why)


def _set_priority(history: History, name: str, spec: dict[str, Any]) -> None:
    wanted = spec.get("priorityClassName", "")
    if wanted:
        priority_class = history.get("priorityclasses", ("", wanted))
        if priority_class is None:
            raise forbidden(RESOURCES["pods"], name, f"no PriorityClass with name {wanted} was found")
    else:
        defaults = [c for c in history.all("priorityclasses").values() if c.get("globalDefault")]
        priority_class = max(defaults, key=lambda c: -c["value"], default=None)
        if priority_class is not None:
            spec["priorityClassName"] = priority_class["metadata"]["name"]
    priority = priority_class["value"] if priority_class else 0
    if spec.get("priority", priority) != priority:
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {priority} from the given PriorityClass name"
        )
        raise forbidden(RESOURCES["pods"], name, why)
    spec["priority"] = priority
    policy = priority_class.get("preemptionPolicy") if priority_class else None
    spec.setdefault("preemptionPolicy", policy or "PreemptLowerPriority")
