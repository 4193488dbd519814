"""What the API server refuses with 422: values that decode and are still wrong."""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from tests.k8s.server.objects.errors import Cause
from tests.k8s.server.objects.history import Object
from tests.k8s.server.objects.kinds import Resource

__all__ = ["creation_faults", "update_faults"]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VARIABLE = re.compile(r"[^=\x00-\x1f\x7f]+")
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_SERVICE_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation "
    "is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
    "validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_NAME_PART_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_POD_UPDATE_TEXT = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"
)
_SYSTEM_CLASSES = ("system-cluster-critical", "system-node-critical")
_MAX_PRIORITY = 1_000_000_000
_ANNOTATION_BYTES = 262_144
_FACTORS = {
    **{suffix: 1000.0 ** (at + 1) for at, suffix in enumerate("kMGTPE")},
    **{f"{suffix}i": 1024.0 ** (at + 1) for at, suffix in enumerate("KMGTPE")},
    **{"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9},
}


def creation_faults(resource: Resource, obj: Object) -> list[Cause]:
    faults = list(_metadata(resource, obj["metadata"]))
    check = _CHECKS.get(resource.name)
    if check is not None:
        faults += check(obj)
    return faults


def update_faults(resource: Resource, old: Object, new: Object) -> list[Cause]:
    """Return what may not be changed and was, or is wrong in the new state."""
    faults = list(_metadata(resource, new["metadata"]))
    if resource.name == "pods":
        faults += _pod_update(old, new)
    elif resource.name == "priorityclasses" and old["value"] != new.get("value"):
        faults.append(Cause("value", "Forbidden: may not be changed in an update."))
    elif resource.name in ("secrets", "configmaps"):
        faults += _data_update(old, new)
    elif resource.name in ("rolebindings", "clusterrolebindings") and old["roleRef"] != new.get("roleRef"):
        faults.append(Cause("roleRef", f"Invalid value: {_shown(new.get('roleRef'))}: cannot change roleRef"))
    return faults


def _number(quantity: str | float) -> float:
    """Return a quantity such as `1024Mi`, `100m`, `2` or `1e3` as a number."""
    text = str(quantity)
    number = re.match(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?(?![0-9])", text)
    if number is None:
        raise ValueError(f"{quantity!r} is no quantity")
    return float(number[0]) * _FACTORS[text[number.end() :]]


def _shown(value: Any) -> str:
    return json.dumps(value)


def _bad(field: str, value: Any, why: str) -> Cause:
    return Cause(field, f"Invalid value: {_shown(value)}: {why}")


def _unsupported(field: str, value: Any, known: Iterable[str]) -> Cause:
    return Cause(
        field, f"Unsupported value: {_shown(value)}: supported values: {', '.join(map(_shown, known))}"
    )


# -- metadata


def _metadata(resource: Resource, metadata: dict[str, Any]) -> Iterator[Cause]:
    name = metadata.get("name", "")
    if not name:
        yield Cause("metadata.name", "Required value: name or generateName is required")
    else:
        yield from _name(resource, name)
    for field in ("labels", "annotations"):
        for key in metadata.get(field, {}):
            yield from _key(key, f"metadata.{field}")
    for value in metadata.get("labels", {}).values():
        yield from _label_value(value, "metadata.labels")
    annotations = metadata.get("annotations", {})
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATION_BYTES:
        yield Cause("metadata.annotations", f"Too long: may not be more than {_ANNOTATION_BYTES} bytes")
    for finalizer in metadata.get("finalizers", ()):
        yield from _key(finalizer, "metadata.finalizers")
    yield from _owners(metadata.get("ownerReferences", ()))


def _name(resource: Resource, name: str) -> Iterator[Cause]:
    if resource.name == "services":
        if "." in name:
            yield _bad("metadata.name", name, "must not contain dots")
        elif not _SERVICE.fullmatch(name):
            yield _bad("metadata.name", name, _SERVICE_TEXT)
        elif len(name) > 63:
            yield _bad("metadata.name", name, "must be no more than 63 characters")
        return
    if resource.group == "rbac.authorization.k8s.io":
        return
    pattern, text, limit = _SUBDOMAIN, _SUBDOMAIN_TEXT, 253
    if resource.name == "namespaces":
        pattern, text, limit = _LABEL, _LABEL_TEXT, 63
    if not pattern.fullmatch(name):
        yield _bad("metadata.name", name, text)
    if len(name) > limit:
        yield _bad("metadata.name", name, f"must be no more than {limit} characters")


def _key(key: str, field: str) -> Iterator[Cause]:
    prefix, slash, name = key.rpartition("/")
    if slash and not _SUBDOMAIN.fullmatch(prefix):
        yield _bad(field, key, f"prefix part {_SUBDOMAIN_TEXT}")
    if not _QUALIFIED.fullmatch(name):
        yield _bad(field, key, _NAME_PART_TEXT)
    elif len(name) > 63:
        yield _bad(field, key, "name part must be no more than 63 bytes")


def _label_value(value: str, field: str) -> Iterator[Cause]:
    if len(value) > 63:
        yield _bad(field, value, "must be no more than 63 bytes")
    if value and not _QUALIFIED.fullmatch(value):
        yield _bad(field, value, _LABEL_VALUE_TEXT)


def _owners(owners: Iterable[dict[str, Any]]) -> Iterator[Cause]:
    field = "metadata.ownerReferences"
    controllers = 0
    for owner in owners:
        if not owner.get("apiVersion"):
            yield _bad(f"{field}.apiVersion", "", "version must not be empty")
        for key in ("kind", "name", "uid"):
            if not owner.get(key):
                yield _bad(f"{field}.{key}", "", "must not be empty")
        controllers += bool(owner.get("controller"))
    if controllers > 1:
        yield _bad(field, controllers, "Only one reference can have Controller set to true")


# -- pods


def _pod(pod: Object) -> Iterator[Cause]:
    spec = pod["spec"]
    if not spec.get("containers"):
        yield Cause("spec.containers", "Required value")
    yield from _choice(spec, "restartPolicy", "spec", ("Always", "OnFailure", "Never"))
    yield from _choice(
        spec, "dnsPolicy", "spec", ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
    )
    yield from _choice(spec, "preemptionPolicy", "spec", ("Never", "PreemptLowerPriority"))
    grace = spec["terminationGracePeriodSeconds"]
    if grace < 0:
        yield _bad("spec.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0")
    volumes = [volume.get("name", "") for volume in spec.get("volumes", ())]
    for index, volume in enumerate(spec.get("volumes", ())):
        yield from _volume(volume, f"spec.volumes[{index}]", volumes[:index])
    names: list[str] = []
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group, ())):
            yield from _container(container, f"spec.{group}[{index}]", volumes, names)
            names.append(container.get("name", ""))


def _choice(
    holder: dict[str, Any], key: str, path: str, known: tuple[str, ...], default: str = ""
) -> Iterator[Cause]:
    value = holder.get(key, default)
    if value and value not in known:
        yield _unsupported(f"{path}.{key}", value, sorted(known))


def _volume(volume: dict[str, Any], path: str, earlier: list[str]) -> Iterator[Cause]:
    name = volume.get("name", "")
    if not name:
        yield Cause(f"{path}.name", "Required value")
    elif not _LABEL.fullmatch(name):
        yield _bad(f"{path}.name", name, _LABEL_TEXT)
    elif name in earlier:
        yield Cause(f"{path}.name", f"Duplicate value: {_shown(name)}")
    sources = [key for key in volume if key != "name"]
    for source in sources[1:]:
        yield Cause(f"{path}.{source}", "Forbidden: may not specify more than 1 volume type")
    for source, key in (
        ("hostPath", "path"),
        ("persistentVolumeClaim", "claimName"),
        ("secret", "secretName"),
        ("configMap", "name"),
    ):
        if source in volume and not volume[source].get(key):
            yield Cause(f"{path}.{source}.{key}", "Required value")


def _container(
    container: dict[str, Any], path: str, volumes: list[str], earlier: list[str]
) -> Iterator[Cause]:
    name = container.get("name", "")
    if not name:
        yield Cause(f"{path}.name", "Required value")
    elif not _LABEL.fullmatch(name) or len(name) > 63:
        yield _bad(f"{path}.name", name, _LABEL_TEXT if len(name) <= 63 else "must be no more than 63 bytes")
    elif name in earlier:
        yield Cause(f"{path}.name", f"Duplicate value: {_shown(name)}")
    image = container.get("image", "")
    if not image:
        yield Cause(f"{path}.image", "Required value")
    elif image != image.strip():
        yield _bad(f"{path}.image", image, "must not have leading or trailing whitespace")
    yield from _choice(container, "imagePullPolicy", path, ("Always", "IfNotPresent", "Never"))
    for index, variable in enumerate(container.get("env", ())):
        yield from _variable(variable, f"{path}.env[{index}]")
    for index, port in enumerate(container.get("ports", ())):
        yield from _port(port.get("containerPort"), f"{path}.ports[{index}].containerPort")
    mounted: list[str] = []
    for index, mount in enumerate(container.get("volumeMounts", ())):
        where = f"{path}.volumeMounts[{index}]"
        if mount.get("name") not in volumes:
            yield Cause(f"{where}.name", f"Not found: {_shown(mount.get('name', ''))}")
        if not mount.get("mountPath"):
            yield Cause(f"{where}.mountPath", "Required value")
        elif mount["mountPath"] in mounted:
            yield _bad(f"{where}.mountPath", mount["mountPath"], "must be unique")
        mounted.append(mount.get("mountPath", ""))
    yield from _resources(container.get("resources", {}), f"{path}.resources")


def _variable(variable: dict[str, Any], path: str) -> Iterator[Cause]:
    name = variable.get("name", "")
    if not name:
        yield Cause(f"{path}.name", "Required value")
    elif not _VARIABLE.fullmatch(name):
        yield _bad(
            f"{path}.name",
            name,
            "a valid environment variable name must consist only of printable ASCII characters other than '='",
        )
    if variable.get("value") and variable.get("valueFrom"):
        yield _bad(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")


def _port(port: Any, path: str) -> Iterator[Cause]:
    if not port:
        yield Cause(path, "Required value")
    elif not 1 <= port <= 65535:
        yield _bad(path, port, "must be between 1 and 65535, inclusive")


def _resources(resources: dict[str, Any], path: str) -> Iterator[Cause]:
    limits = resources.get("limits", {})
    for group in ("limits", "requests"):
        for name, quantity in resources.get(group, {}).items():
            if "/" not in name and name not in ("cpu", "memory", "ephemeral-storage"):
                if not name.startswith("hugepages-"):
                    yield _bad(f"{path}.{group}", name, "must be a standard resource type or fully qualified")
            elif _number(quantity) < 0:
                yield _bad(f"{path}.{group}[{name}]", str(quantity), "must be greater than or equal to 0")
    for name, quantity in resources.get("requests", {}).items():
        if name in limits and _number(quantity) > _number(limits[name]):
            why = f"must be less than or equal to {name} limit of {limits[name]}"
            yield _bad(f"{path}.requests", str(quantity), why)


def _pod_update(old: Object, new: Object) -> Iterator[Cause]:
    if _fixed_part(old["spec"]) != _fixed_part(new["spec"]):
        changed = sorted(
            key
            for key in {*old["spec"], *new["spec"]}
            if _fixed_part(old["spec"]).get(key) != _fixed_part(new["spec"]).get(key)
        )
        lines = "".join(
            f"- {key}: {_shown(old['spec'].get(key))}\n+ {key}: {_shown(new['spec'].get(key))}\n"
            for key in changed
        )
        yield Cause("spec", _POD_UPDATE_TEXT + lines)
    before, after = (pod["spec"].get("activeDeadlineSeconds") for pod in (old, new))
    if after is None:
        if before is not None:
            why = "must not update from a positive integer to nil value"
            yield _bad("spec.activeDeadlineSeconds", None, why)
    elif before is not None and after > before:
        yield _bad("spec.activeDeadlineSeconds", after, "must be less than or equal to previous value")
    if any(toleration not in new["spec"].get("tolerations", ()) for toleration in old["spec"]["tolerations"]):
        yield Cause(
            "spec.tolerations",
            "Forbidden: existing toleration can not be modified except its tolerationSeconds",
        )


def _fixed_part(spec: dict[str, Any]) -> dict[str, Any]:
    fixed = {key: value for key, value in spec.items() if key not in ("activeDeadlineSeconds", "tolerations")}
    for group in ("containers", "initContainers"):
        if group in fixed:
            fixed[group] = [{**container, "image": ""} for container in fixed[group]]
    return fixed


# -- other kinds


def _service(service: Object) -> Iterator[Cause]:
    spec = service["spec"]
    if not spec.get("ports") and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
        yield Cause("spec.ports", "Required value")
    names = [port.get("name", "") for port in spec.get("ports", ())]
    for index, port in enumerate(spec.get("ports", ())):
        if not port.get("port"):
            yield _bad(
                f"spec.ports[{index}].port", port.get("port", 0), "must be between 1 and 65535, inclusive"
            )
        else:
            yield from _port(port["port"], f"spec.ports[{index}].port")
        if len(names) > 1 and not names[index]:
            yield Cause(f"spec.ports[{index}].name", "Required value")
    yield from _choice(spec, "type", "spec", ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort"))


def _secret(secret: Object) -> Iterator[Cause]:
    for key, value in secret.get("data", {}).items():
        yield from _data_key(key)
        try:
            base64.b64decode(value, validate=True)
        except binascii.Error:
            yield _bad(f"data[{key}]", value, "illegal base64 data")


def _config_map(config_map: Object) -> Iterator[Cause]:
    for key in config_map.get("data", {}):
        yield from _data_key(key)


def _data_key(key: str) -> Iterator[Cause]:
    if not re.fullmatch(r"[-._a-zA-Z0-9]+", key):
        why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name')"
        yield _bad(f"data[{key}]", key, why)


def _data_update(old: Object, new: Object) -> Iterator[Cause]:
    if old.get("immutable") and (old.get("data") != new.get("data") or not new.get("immutable")):
        yield Cause("data", "Forbidden: field is immutable when `immutable` is set")
    if old.get("type") != new.get("type"):
        yield _bad("type", new.get("type"), "field is immutable")


def _event(event: Object) -> Iterator[Cause]:
    namespace = event.get("involvedObject", {}).get("namespace", "")
    own = event["metadata"].get("namespace", "")
    if namespace != own and not (namespace == "" and own == "default"):
        yield _bad("involvedObject.namespace", namespace, "does not match event.namespace")


def _priority_class(priority_class: Object) -> Iterator[Cause]:
    name, value = priority_class["metadata"].get("name", ""), priority_class["value"]
    if name.startswith("system-") and name not in _SYSTEM_CLASSES:
        yield Cause(
            "metadata.name",
            "Forbidden: priority class names with 'system-' prefix are reserved for system use only. "
            f"error: {name} is not a known system priority class",
        )
    elif value > _MAX_PRIORITY and name not in _SYSTEM_CLASSES:
        yield Cause(
            "value", f"Forbidden: maximum allowed value of a user defined priority is {_MAX_PRIORITY}"
        )
    yield from _choice(priority_class, "preemptionPolicy", "", ("Never", "PreemptLowerPriority"))


def _claim(claim: Object) -> Iterator[Cause]:
    if not claim["spec"].get("accessModes"):
        yield Cause("spec.accessModes", "Required value: at least 1 access mode is required")
    if "storage" not in claim["spec"].get("resources", {}).get("requests", {}):
        yield Cause("spec.resources[storage]", "Required value")


_CHECKS = {
    "pods": _pod,
    "services": _service,
    "secrets": _secret,
    "configmaps": _config_map,
    "events": _event,
    "priorityclasses": _priority_class,
    "persistentvolumeclaims": _claim,
}
