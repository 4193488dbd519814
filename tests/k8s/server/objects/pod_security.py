"""The restricted profile of Pod Security, which a namespace asks for by a label.  Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["LABEL", "violations"]

Object = Mapping[str, Any]
LABEL = "pod-security.kubernetes.io/enforce"
_VOLUMES = frozenset(
    (
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    )
)
_SECCOMP = ("RuntimeDefault", "Localhost")


def violations(pod: Object) -> list[str]:
    """Return what the restricted profile does not allow, in the words and the order of the API server."""
    spec = pod["spec"]
    whole = spec.get("securityContext") or {}
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    own = {one["name"]: one.get("securityContext") or {} for one in containers}
    found = []
    if names := [name for name, one in own.items() if one.get("allowPrivilegeEscalation") is not False]:
        found.append(
            f"allowPrivilegeEscalation != false ({_containers(names)} must set "
            "securityContext.allowPrivilegeEscalation=false)"
        )
    if names := [
        name for name, one in own.items() if "ALL" not in (one.get("capabilities") or {}).get("drop", ())
    ]:
        found.append(
            f'unrestricted capabilities ({_containers(names)} must set securityContext.capabilities.drop=["ALL"])'
        )
    for volume in spec.get("volumes") or ():
        kinds = [key for key in volume if key != "name" and key not in _VOLUMES]
        found += [
            f'restricted volume types (volume "{volume["name"]}" uses restricted volume type "{kind}")'
            for kind in kinds
        ]
    if names := [
        name for name, one in own.items() if one.get("runAsNonRoot", whole.get("runAsNonRoot")) is not True
    ]:
        found.append(
            f"runAsNonRoot != true (pod or {_containers(names)} must set securityContext.runAsNonRoot=true)"
        )
    if names := [name for name, one in own.items() if _seccomp(one, whole) not in _SECCOMP]:
        found.append(
            f"seccompProfile (pod or {_containers(names)} must set securityContext.seccompProfile.type "
            'to "RuntimeDefault" or "Localhost")'
        )
    return found


def _seccomp(own: Object, whole: Object) -> str:
    return str((own.get("seccompProfile") or whole.get("seccompProfile") or {}).get("type", ""))


def _containers(names: Sequence[str]) -> str:
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"container{'s' if len(names) > 1 else ''} {quoted}"
