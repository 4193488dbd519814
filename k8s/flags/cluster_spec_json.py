"""`--cluster_spec_json`: what a cluster wants of pods and services, as data.

    {"pod_spec":        {"labels": {…}, "annotations": {…}, "tolerations": […], "affinity": {…}, "env": […]},
     "master_pod_spec": {…}, "ps_pod_spec": {…}, "worker_pod_spec": {…},
     "service_spec":    {"type": "ClusterIP", …}}

`pod_spec` is for all pods, the others for those of one role, on top of it.  Keys are written as in manifests
(`tolerationSeconds`) or as in Python (`toleration_seconds`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kubernetes import client

from edlz.k8s.flags.envs import OWN_NAMES
from edlz.k8s.flags.syntax import problem_of, unknown
from edlz.services.configuration.problems import InvalidConfigError, Problem

__all__ = ["SpecData", "parse_cluster_spec_json"]

_FLAG = "cluster_spec_json"
_POD_KEYS = ("labels", "annotations", "tolerations", "affinity", "env")
_SERVICE = "service_spec"
_KEYS = {"pod_spec": "", "master_pod_spec": "master", "ps_pod_spec": "ps", "worker_pod_spec": "worker"}
_EXAMPLE = 'e.g. --cluster_spec_json=\'{"pod_spec": {"labels": {"team": "ads"}}}\''


@dataclass(frozen=True, slots=True)
class PodPart:
    """What one of the keys says of pods."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[client.V1Toleration, ...] = ()
    affinity: client.V1Affinity | None = None
    env: tuple[client.V1EnvVar, ...] = ()


class SpecData:
    """What the text says, checked.

    Parameters
    ----------
    parts : mapping
        What it says of pods by role, of all of them under "".
    service_spec : client.V1ServiceSpec, optional
        Fields of a service's spec.
    """

    def __init__(self, parts: Mapping[str, PodPart], service_spec: client.V1ServiceSpec | None) -> None:
        self._parts, self._service_spec = parts, service_spec

    def change_pod(self, pod: client.V1Pod, role: str) -> client.V1Pod:
        """Change a pod of this role (master, ps, worker) in place, and return it."""
        for part in (self._parts.get(""), self._parts.get(role)):
            if part is not None:
                _change(pod, part)
        return pod

    def change_service(self, service: client.V1Service) -> client.V1Service:
        """Change a service in place, and return it."""
        if self._service_spec is not None:
            for name in self._service_spec.model_fields_set:
                setattr(service.spec, name, getattr(self._service_spec, name))
        return service


def parse_cluster_spec_json(text: str) -> SpecData:
    """Return what a text as above says.

    Raises
    ------
    InvalidConfigError
        With a problem for each part that is wrong, and its place in the text.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise InvalidConfigError([problem_of(_FLAG, "", f"is no JSON: {e}", _EXAMPLE)]) from e
    if not isinstance(found, dict):
        raise InvalidConfigError([problem_of(_FLAG, "", "is no JSON object", _EXAMPLE)])
    reader = _Reader()
    parts: dict[str, PodPart] = {}
    service_spec = None
    for key, value in found.items():
        if key in _KEYS:
            parts[_KEYS[key]] = reader.pod_part(key, value)
        elif key == _SERVICE:
            service_spec = reader.model(key, value, client.V1ServiceSpec)
        else:
            reader.add(key, "no such key", unknown(key, (*_KEYS, _SERVICE)))
    if reader.problems:
        raise InvalidConfigError(reader.problems)
    return SpecData(parts, service_spec)


class _Reader:
    """Reads values, and collects what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def add(self, place: str, message: str, help: str) -> None:  # noqa: A002
        self.problems.append(problem_of(_FLAG, place, message, help))

    def pod_part(self, place: str, value: object) -> PodPart:
        if not isinstance(value, dict):
            self.add(place, "is no object", _EXAMPLE)
            return PodPart()
        for key in value:
            if key not in _POD_KEYS:
                self.add(f"{place}.{key}", "no such key", unknown(key, _POD_KEYS))
        affinity = value.get("affinity")
        return PodPart(
            labels=self._texts(f"{place}.labels", value.get("labels", {})),
            annotations=self._texts(f"{place}.annotations", value.get("annotations", {})),
            tolerations=self._models(
                f"{place}.tolerations", value.get("tolerations", []), client.V1Toleration
            ),
            affinity=self.model(f"{place}.affinity", affinity, client.V1Affinity) if affinity else None,
            env=self._variables(f"{place}.env", value.get("env", [])),
        )

    def model(self, place: str, value: object, kind: Any) -> Any:
        """Return a value as an object of the client, or None if it cannot be one."""
        if not isinstance(value, dict):
            self.add(place, "is no object", f"the fields of a {kind.__name__}")
            return None
        try:
            return kind.model_validate(value)
        except ValueError as e:
            for error in e.errors():  # type: ignore[attr-defined]
                where = ".".join(str(part) for part in (place, *error["loc"]))
                message = "no such key" if error["type"] == "extra_forbidden" else error["msg"]
                self.add(where, message, f"the fields of a {kind.__name__}")
        return None

    def _models(self, place: str, value: object, kind: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            self.add(place, "is no list", f"a list of {kind.__name__}")
            return ()
        return tuple(self.model(f"{place}.{number}", item, kind) for number, item in enumerate(value))

    def _texts(self, place: str, value: object) -> Mapping[str, str]:
        if not isinstance(value, dict):
            self.add(place, "is no object", 'e.g. {"team": "ads"}')
            return {}
        for key, text in value.items():
            if not isinstance(text, str):
                self.add(f"{place}.{key}", f"{json.dumps(text)} is no text", f'"{key}": "{text}"')
        return value

    def _variables(self, place: str, value: object) -> tuple[client.V1EnvVar, ...]:
        """Return variables, given as a list of objects or as names with values."""
        if isinstance(value, dict):
            value = [{"name": name, "value": text} for name, text in self._texts(place, value).items()]
        variables = self._models(place, value, client.V1EnvVar)
        for number, variable in enumerate(variables):
            if variable is not None and (variable.name in OWN_NAMES or not variable.name):
                message = f"{variable.name} is set by edlz itself" if variable.name else "no name"
                self.add(f"{place}.{number}", message, "leave it out" if variable.name else "name and value")
        return variables


def _change(pod: client.V1Pod, part: PodPart) -> None:
    assert pod.metadata is not None
    assert pod.spec is not None
    pod.metadata.labels = {**(pod.metadata.labels or {}), **part.labels}
    pod.metadata.annotations = {**(pod.metadata.annotations or {}), **part.annotations}
    if part.tolerations:
        pod.spec.tolerations = [*(pod.spec.tolerations or []), *part.tolerations]
    if part.affinity is not None:
        pod.spec.affinity = part.affinity
    changed = {variable.name for variable in part.env}
    for container in pod.spec.containers:
        kept = [variable for variable in container.env or [] if variable.name not in changed]
        container.env = [*kept, *part.env]
