"""What the API server fills in at creation, kind by kind."""

import random
from collections.abc import Callable
from typing import Any

from tests.k8s.server.objects.history import Object

__all__ = ["random_suffix", "set_defaults"]

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_NOT_READY, _UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
TOKEN_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def random_suffix() -> str:
    return "".join(random.choices(_ALPHABET, k=5))


def set_defaults(resource: str, obj: Object) -> None:
    """Fill in, in place, what a body of this resource leaves open."""
    fill = _FILLERS.get(resource)
    if fill is not None:
        fill(obj)


# -- pods


def _pod(pod: Object) -> None:
    spec = pod.setdefault("spec", {})
    for key, value in (
        ("restartPolicy", "Always"),
        ("terminationGracePeriodSeconds", 30),
        ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", "default-scheduler"),
        ("enableServiceLinks", True),
    ):
        spec.setdefault(key, value)
    spec.setdefault("securityContext", {})
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = account
    for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        _container(container)
    for volume in spec.get("volumes", ()):
        _volume(volume)
    _tolerations(spec)
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}


def mount_token(spec: dict[str, Any]) -> None:
    """Add the volume with the service account's token, as admission does."""
    if spec.get("automountServiceAccountToken") is False:
        return
    name = f"kube-api-access-{random_suffix()}"
    sources: list[dict[str, Any]] = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [
                    {
                        "path": "namespace",
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                    }
                ]
            }
        },
        {
            "configMap": {
                "name": "openshift-service-ca.crt",
                "items": [{"key": "service-ca.crt", "path": "service-ca.crt"}],
            }
        },
    ]
    is_used = False
    for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        mounts = container.setdefault("volumeMounts", [])
        if all(mount.get("mountPath") != TOKEN_MOUNT for mount in mounts):
            mounts.append({"name": name, "readOnly": True, "mountPath": TOKEN_MOUNT})
            is_used = True
    if is_used:
        volume = {"name": name, "projected": {"sources": sources, "defaultMode": 420}}
        spec.setdefault("volumes", []).append(volume)


def _container(container: dict[str, Any]) -> None:
    image = str(container.get("image", ""))
    tag = image.rpartition("/")[2].partition(":")[2]
    is_latest = tag in ("", "latest") and "@" not in image
    container.setdefault("imagePullPolicy", "Always" if is_latest else "IfNotPresent")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    resources = container.setdefault("resources", {})
    if "limits" in resources:
        requests = resources.setdefault("requests", {})
        for name, quantity in resources["limits"].items():
            requests.setdefault(name, quantity)
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for variable in container.get("env", ()):
        field = variable.get("valueFrom", {}).get("fieldRef")
        if field is not None:
            field.setdefault("apiVersion", "v1")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            _probe(container[name])


def _probe(probe: dict[str, Any]) -> None:
    for key, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        probe.setdefault(key, value)
    if "httpGet" in probe:
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")


def _volume(volume: dict[str, Any]) -> None:
    for kind in ("secret", "configMap", "projected", "downwardAPI"):
        if kind in volume:
            volume[kind].setdefault("defaultMode", 420)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    if set(volume) == {"name"}:
        volume["emptyDir"] = {}


def _tolerations(spec: dict[str, Any]) -> None:
    tolerations = spec.setdefault("tolerations", [])
    for key in (_NOT_READY, _UNREACHABLE):
        if not any(_tolerates(toleration, key) for toleration in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            )


def _tolerates(toleration: dict[str, Any], key: str) -> bool:
    is_about = bool(toleration.get("key", key) == key)
    return is_about and toleration.get("effect", "NoExecute") == "NoExecute"


def qos_class(spec: dict[str, Any]) -> str:
    """Guaranteed: cpu and memory limited, requests equal; BestEffort: neither anywhere; else Burstable."""
    containers = [*spec.get("initContainers", ()), *spec.get("containers", ())]
    resources = [container.get("resources", {}) for container in containers]
    named = [
        {name: value for name, value in r.get(kind, {}).items() if name in ("cpu", "memory")}
        for r in resources
        for kind in ("requests", "limits")
    ]
    if not any(named):
        return "BestEffort"
    is_guaranteed = all(
        {"cpu", "memory"} <= set(r.get("limits", {})) and r.get("requests") == r.get("limits")
        for r in resources
    )
    return "Guaranteed" if is_guaranteed else "Burstable"


# -- other kinds


def _namespace(namespace: Object) -> None:
    labels = namespace["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = namespace["metadata"].get("name", "")
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


_cluster_ips = iter(range(1, 2**16))


def _service(service: Object) -> None:
    spec = service.setdefault("spec", {})
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] != "ExternalName":
        if not spec.get("clusterIP"):
            number = next(_cluster_ips)
            spec["clusterIP"] = f"10.96.{number // 256}.{number % 256}"
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        spec.setdefault("internalTrafficPolicy", "Cluster")
    service["status"] = {"loadBalancer": {}}


def _secret(secret: Object) -> None:
    secret.setdefault("type", "Opaque")


def _event(event: Object) -> None:
    event.setdefault("source", {})
    event.setdefault("eventTime", None)
    event.setdefault("reportingComponent", "")
    event.setdefault("reportingInstance", "")
    for key in ("firstTimestamp", "lastTimestamp"):
        event.setdefault(key, None)


def _claim(claim: Object) -> None:
    claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    claim["status"] = {"phase": "Pending"}


def _node(node: Object) -> None:
    node.setdefault("spec", {})
    node.setdefault("status", {})
    capacity = node["status"].get("capacity")
    if capacity is not None:
        node["status"].setdefault("allocatable", dict(capacity))


def _priority_class(priority_class: Object) -> None:
    priority_class.setdefault("preemptionPolicy", "PreemptLowerPriority")
    priority_class.setdefault("value", 0)


def _lease(lease: Object) -> None:
    lease.setdefault("spec", {})


def _binding(binding: Object) -> None:
    binding.get("roleRef", {}).setdefault("apiGroup", "rbac.authorization.k8s.io")
    for subject in binding.get("subjects", ()):
        if subject.get("kind") != "ServiceAccount":
            subject.setdefault("apiGroup", "rbac.authorization.k8s.io")


_FILLERS: dict[str, Callable[[Object], None]] = {
    "pods": _pod,
    "namespaces": _namespace,
    "services": _service,
    "secrets": _secret,
    "events": _event,
    "persistentvolumeclaims": _claim,
    "nodes": _node,
    "priorityclasses": _priority_class,
    "leases": _lease,
    "rolebindings": _binding,
    "clusterrolebindings": _binding,
}
