"""What a pod finds on its node: its volumes as folders, its environment, its command.

Everything lies in one folder of the pod's own, which goes with the pod. Where mount namespaces are possible the
volumes appear at their mount paths (container.py); where they are not, the mount paths in commands and in values
of environment variables are replaced by the folders' paths instead.
"""

import base64
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Missing", "Mount", "PodFolder", "expand"]

Object = Mapping[str, Any]
Lookup = Callable[[str, str], Object | None]  # resource, name -> object of the pod's namespace
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_VARIABLE = re.compile(r"\$(\$|\(([-._a-zA-Z][-._a-zA-Z0-9]*)\))")


class Missing(Exception):
    """Something that the pod needs is not there (yet); `reason` is what the container waits for."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


class Mount:
    """A folder or file of the node at a path of the container."""

    def __init__(self, source: Path, path: str, read_only: bool) -> None:
        self.source, self.path, self.read_only = source, path.rstrip("/") or "/", read_only

    def to_json(self) -> dict[str, Any]:
        return {"source": str(self.source), "path": self.path, "read_only": self.read_only}


class PodFolder:
    """The files of one pod.

    Parameters
    ----------
    path : Path
        Its folder, made by `prepare`.
    claims : Path
        The folder of the volume claims, one below for each claim of a namespace.
    service_account : mapping of str to str
        The files of the service account's volume.
    """

    def __init__(self, path: Path, pod: Object, claims: Path, service_account: Mapping[str, str]) -> None:
        self.path = path
        self._pod, self._claims, self._service_account = pod, claims, service_account

    def log(self, container: str, attempt: int) -> Path:
        return self.path / "logs" / container / f"{attempt}.log"

    # -- volumes

    def prepare(self, lookup: Lookup) -> None:
        """Make the volumes' folders; Missing, if one needs what is not there."""
        for volume in self._pod["spec"].get("volumes") or []:
            self._make(volume, lookup)
        for container in _containers(self._pod):
            self.log(container["name"], 0).parent.mkdir(parents=True, exist_ok=True)

    def mounts(self, container: Object) -> list[Mount]:
        sources = {one["name"]: self._source(one) for one in self._pod["spec"].get("volumes") or []}
        found = []
        for one in container.get("volumeMounts") or []:
            source = sources[one["name"]]
            if one.get("subPath"):
                source = source / one["subPath"]
                if not source.exists():
                    source.mkdir(parents=True)
            found.append(Mount(source, one["mountPath"], bool(one.get("readOnly"))))
        return found

    def _make(self, volume: Object, lookup: Lookup) -> None:
        name, source = volume["name"], self._source(volume)
        if (path := volume.get("hostPath")) is not None:
            _check_host_path(name, source, path.get("type") or "")
            return
        source.mkdir(parents=True, exist_ok=True)
        for part in _parts(volume):
            for file, content in self._contents(name, part, lookup).items():
                target = source / file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
                mode = part.get("defaultMode", volume.get("projected", {}).get("defaultMode"))
                target.chmod(0o644 if mode is None else mode | 0o400)

    def _source(self, volume: Object) -> Path:
        if (path := volume.get("hostPath")) is not None:
            return Path(str(path["path"]))
        if (claim := volume.get("persistentVolumeClaim")) is not None:
            return self._claims / str(self._pod["metadata"]["namespace"]) / str(claim["claimName"])
        return self.path / "volumes" / volume["name"]

    def _contents(self, volume: str, part: Object, lookup: Lookup) -> dict[str, bytes]:
        if "secret" in part:
            return _items(part, _data_of(part, "secret", lookup, volume))
        if "configMap" in part:
            if part["name"] == "kube-root-ca.crt":
                return {"ca.crt": self._service_account["ca.crt"].encode()}
            return _items(part, _data_of(part, "configMap", lookup, volume))
        if "serviceAccountToken" in part:
            return {part["path"]: self._service_account["token"].encode()}
        items = part.get("items") or []
        return {one["path"]: self._field(one["fieldRef"]["fieldPath"], "").encode() for one in items}

    # -- environment and command

    def environment(self, container: Object, lookup: Lookup, pod_ip: str, host_ip: str) -> dict[str, str]:
        """Return the variables that the pod's spec gives a container; Missing, if one has no source."""
        found: dict[str, str] = {}
        for source in container.get("envFrom") or []:
            found |= self._whole(source, lookup)
        addresses = {"status.podIP": pod_ip, "status.podIPs": pod_ip, "status.hostIP": host_ip}
        for one in container.get("env") or []:
            if (value_from := one.get("valueFrom")) is None:
                found[one["name"]] = expand(one.get("value") or "", found)
            elif (value := self._value(value_from, container, lookup, addresses)) is not None:
                found[one["name"]] = value
        return found

    def _whole(self, source: Object, lookup: Lookup) -> dict[str, str]:
        kind = "secret" if "secretRef" in source else "configMap"
        part = {kind: None, **source[f"{kind}Ref"]}
        prefix = source.get("prefix") or ""
        return {prefix + key: value.decode() for key, value in _data_of(part, kind, lookup, None).items()}

    def _value(
        self, value_from: Object, container: Object, lookup: Lookup, addresses: Mapping[str, str]
    ) -> str | None:
        if "fieldRef" in value_from:
            path = value_from["fieldRef"]["fieldPath"]
            return addresses[path] if path in addresses else self._field(path, "")
        if "resourceFieldRef" in value_from:
            kind, _, resource = value_from["resourceFieldRef"]["resource"].partition(".")
            return str(((container.get("resources") or {}).get(kind) or {}).get(resource, "0"))
        kind = "secret" if "secretKeyRef" in value_from else "configMap"
        ref = value_from[f"{kind}KeyRef"]
        data = _data_of({kind: None, **ref}, kind, lookup, None)
        if ref["key"] in data:
            return data[ref["key"]].decode()
        if ref.get("optional"):
            return None
        what = f"couldn't find key {ref['key']} in {kind.capitalize()} {self._pod['metadata']['namespace']}/{ref['name']}"
        raise Missing("CreateContainerConfigError", what)

    def _field(self, path: str, default: str) -> str:
        """Return a field of the pod, such as metadata.uid or metadata.labels['app']."""
        if match := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
            return str((self._pod["metadata"].get(match[1]) or {}).get(match[2], default))
        value: Any = self._pod
        for part in path.split("."):
            value = value.get(part, default) if isinstance(value, Mapping) else default
        if isinstance(value, Mapping):
            return "\n".join(f"{key}={json.dumps(text)}" for key, text in sorted(value.items()))
        return str(value)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with $(NAME) replaced where NAME is known; $$ stands for one $."""

    def one(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        return variables.get(match[2], match[0])

    return _VARIABLE.sub(one, text)


def rewritten(texts: Iterable[str], mounts: Iterable[Mount]) -> list[str]:
    """Return the texts with the mount paths, where they stand as paths of their own, replaced."""
    sources = {mount.path: str(mount.source) for mount in mounts}
    if not sources:
        return list(texts)
    inner_first = "|".join(map(re.escape, sorted(sources, key=len, reverse=True)))
    path = re.compile(rf"(?<![\w/.-])({inner_first})(?![\w.-])")
    return [path.sub(lambda match: sources[match[1]], text) for text in texts]


def image_environment() -> dict[str, str]:
    """Return the environment of every image here: this interpreter, and the modules that it finds."""
    kept = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "TF_CPP_MIN_LOG_LEVEL")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    known = {name: os.environ[name] for name in kept if name in os.environ}
    return {**known, "PATH": path, "HOME": "/tmp", "CUDA_VISIBLE_DEVICES": "-1"}


def image_folders() -> list[str]:
    """Return the folders of this machine that a container needs to see, whatever it mounts."""
    here = str(Path(__file__).resolve().parents[3])
    found = {sys.prefix, sys.base_prefix, here, str(Path(sys.executable).parent)}
    found |= {path for path in sys.path if path and Path(path).is_dir()}
    return sorted(found)


def _containers(pod: Object) -> list[Object]:
    return [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]


def _parts(volume: Object) -> list[Object]:
    """Return the sources of a volume's files, in one form: {kind: ..., name, items, optional, defaultMode}."""
    if (secret := volume.get("secret")) is not None:
        return [{**secret, "secret": None, "name": secret["secretName"]}]
    if (config := volume.get("configMap")) is not None:
        return [{**config, "configMap": None}]
    if (fields := volume.get("downwardAPI")) is not None:
        return [{**fields, "downwardAPI": None}]
    projected = volume.get("projected") or {}
    return [
        {**part, kind: None} for source in projected.get("sources") or [] for kind, part in source.items()
    ]


def _data_of(part: Object, kind: str, lookup: Lookup, volume: str | None) -> dict[str, bytes]:
    """Return the data of a Secret or ConfigMap; nothing, if it is missing but optional."""
    found = lookup("secrets" if kind == "secret" else "configmaps", part["name"])
    if found is None:
        if part.get("optional") or part["name"] == "openshift-service-ca.crt":
            return {}
        what = f'{kind.lower()} "{part["name"]}" not found'
        if volume is None:
            raise Missing("CreateContainerConfigError", what)
        raise Missing("ContainerCreating", f'MountVolume.SetUp failed for volume "{volume}" : {what}')
    if kind == "secret":
        return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
    binary = {key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()}
    return {key: value.encode() for key, value in (found.get("data") or {}).items()} | binary


def _items(part: Object, data: dict[str, bytes]) -> dict[str, bytes]:
    items = part.get("items")
    if not items:
        return data
    return {one["path"]: data[one["key"]] for one in items if one["key"] in data}


def _check_host_path(volume: str, path: Path, kind: str) -> None:
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        path.touch()
    elif not path.exists():
        if kind == "":
            path.mkdir(parents=True)
            return
        what = {"Directory": "not a directory", "File": "not a file"}.get(kind, "does not exist")
        message = (
            f'MountVolume.SetUp failed for volume "{volume}" : hostPath type check failed: {path} is {what}'
        )
        raise Missing("ContainerCreating", message)
