"""What an API server would refuse of an object, beyond the types of its fields.

The client's models know types; Kubernetes also has rules for names, labels, quantities and what refers to what.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from edlz.k8s.flags.resources import number_of
from edlz.k8s.flags.syntax import MAX_LABEL, is_label, is_subdomain

__all__ = ["object_problems"]

_MAX_ANNOTATION_BYTES = 256 << 10  # of all annotations of an object
_NAME_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VARIABLE = re.compile(r"[-._A-Za-z][-._A-Za-z0-9]*")
_DATA_KEY = re.compile(r"[-._A-Za-z0-9]{1,253}")
_SHARED = ("cpu", "memory", "ephemeral-storage")  # of what there is one thing; all else are devices


def object_problems(item: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with an object, each as one line that begins with the place: `metadata.name …`.

    Parameters
    ----------
    item : mapping
        Plain, as `manifest.to_plain` gives it.
    """
    problems = list(_metadata(item.get("metadata") or {}, str(item.get("kind"))))
    spec = item.get("spec") or {}
    if item.get("kind") == "Pod":
        problems += _pod(spec)
    elif item.get("kind") == "Service":
        problems += _service(spec)
    for key in item.get("data") or () if item.get("kind") == "Secret" else ():
        if not _DATA_KEY.fullmatch(key):
            problems.append(f'data: "{key}" is no name of an entry')
    return problems


def _metadata(about: Mapping[str, Any], kind: str) -> Iterator[str]:
    name, namespace = about.get("name") or "", about.get("namespace")
    is_good = is_label(name) and not name[0].isdigit() if kind == "Service" else is_subdomain(name)
    if kind in ("Role", "RoleBinding"):  # any segment of a path
        is_good = bool(name) and name not in (".", "..") and not set(name) & set("/%")
    if not is_good:
        yield f'metadata.name "{name}" is no name of a {kind}'
    if namespace is not None and not is_label(namespace):
        yield f'metadata.namespace "{namespace}" is no name of a namespace'
    yield from _labels("metadata.labels", about.get("labels") or {})
    annotations = about.get("annotations") or {}
    for key in annotations:
        if not _is_key(key):
            yield f'metadata.annotations: "{key}" is no key'
    if sum(len(f"{key}{value}".encode()) for key, value in annotations.items()) > _MAX_ANNOTATION_BYTES:
        yield f"metadata.annotations are more than {_MAX_ANNOTATION_BYTES} bytes"


def _labels(where: str, labels: Mapping[str, str]) -> Iterator[str]:
    for key, value in labels.items():
        if not _is_key(key):
            yield f'{where}: "{key}" is no key'
        if value and not _NAME_PART.fullmatch(value):
            yield f'{where}["{key}"]: "{value}" is no value: letters, digits, -, _ and ., at most {MAX_LABEL}'


def _is_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return _NAME_PART.fullmatch(name) is not None and (not slash or is_subdomain(prefix))


def _pod(spec: Mapping[str, Any]) -> Iterator[str]:
    volumes = [volume.get("name", "") for volume in spec.get("volumes") or ()]
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    names = [container.get("name", "") for container in containers]
    yield from _repeated("spec.volumes", volumes)
    yield from _repeated("spec.containers", names)
    for name in volumes:
        if not is_label(name):
            yield f'spec.volumes: "{name}" is no name of a volume'
    for container in containers:
        yield from _container(container, volumes)
    priority = spec.get("priorityClassName")
    if priority is not None and not is_subdomain(priority):
        yield f'spec.priorityClassName "{priority}" is no name of a priority class'
    yield from _tolerations(spec.get("tolerations") or ())


def _container(container: Mapping[str, Any], volumes: Iterable[str]) -> Iterator[str]:
    name = container.get("name", "")
    where = f"container {name}"
    if not is_label(name):
        yield f'container "{name}": no name of a container (at most {MAX_LABEL} letters)'
    image = container.get("image") or ""
    if not image or image != image.strip():
        yield f'{where}: "{image}" is no image'
    variables = [variable.get("name", "") for variable in container.get("env") or ()]
    yield from _repeated(f"{where}: env", variables)
    for variable in variables:
        if not _VARIABLE.fullmatch(variable):
            yield f'{where}: env: "{variable}" is no name of a variable'
    mounts = container.get("volumeMounts") or ()
    yield from _repeated(f"{where}: volumeMounts", [mount.get("mountPath", "") for mount in mounts])
    for mount in mounts:
        path = mount.get("mountPath", "")
        if mount.get("name") not in volumes:
            yield f'{where}: {path}: no volume "{mount.get("name")}"'
        if not path.startswith("/") or ":" in path or ".." in path.split("/"):
            yield f'{where}: "{path}" is no path to mount at'
    yield from _resources(where, container.get("resources") or {})


def _resources(where: str, resources: Mapping[str, Any]) -> Iterator[str]:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    numbers = {}
    for kind, amounts in (("requests", requests), ("limits", limits)):
        for name, quantity in amounts.items():
            if name not in _SHARED and not ("/" in name and _is_key(name)):
                yield f'{where}: {kind}: "{name}" is no resource'
            try:
                numbers[kind, name] = number_of(str(quantity))
            except ValueError as e:
                yield f"{where}: {kind}.{name}: {e}"
            else:
                if numbers[kind, name] < 0:
                    yield f"{where}: {kind}.{name}: {quantity} is negative"
    for name in requests:
        request, limit = numbers.get(("requests", name)), numbers.get(("limits", name))
        if request is not None and limit is not None and request > limit:
            yield f"{where}: {name}: the request of {requests[name]} exceeds the limit of {limits[name]}"
        if name not in _SHARED and request != limit:
            yield f"{where}: {name}: a device needs a limit equal to the request"


def _tolerations(tolerations: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for toleration in tolerations:
        key, operator = toleration.get("key"), toleration.get("operator") or "Equal"
        if key and not _is_key(key):
            yield f'spec.tolerations: "{key}" is no key'
        if operator not in ("Equal", "Exists", "Lt", "Gt"):
            yield f'spec.tolerations: operator "{operator}" is none of Equal, Exists, Lt, Gt'
        if operator == "Exists" and toleration.get("value"):
            yield f'spec.tolerations: "{key}" with operator Exists has no value'
        if not key and operator != "Exists":
            yield "spec.tolerations: one with no key needs operator Exists"
        effect = toleration.get("effect")
        if effect not in (None, "", "NoSchedule", "PreferNoSchedule", "NoExecute"):
            yield f'spec.tolerations: effect "{effect}" is none of NoSchedule, PreferNoSchedule, NoExecute'


def _service(spec: Mapping[str, Any]) -> Iterator[str]:
    yield from _labels("spec.selector", spec.get("selector") or {})
    kind = spec.get("type") or "ClusterIP"
    if kind not in ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"):
        yield f'spec.type "{kind}" is none of ClusterIP, NodePort, LoadBalancer, ExternalName'
    ports = spec.get("ports") or ()
    if not ports and kind != "ExternalName" and spec.get("clusterIP") != "None":
        yield "spec.ports is empty"
    for port in ports:
        if not 0 < port.get("port", 0) < 1 << 16:
            yield f"spec.ports: {port.get('port')} is no port"


def _repeated(where: str, names: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield f'{where}: "{name}" stands there twice'
        seen.add(name)
