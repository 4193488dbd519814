"""`--cluster_spec`: the user's Python object `cluster`, which changes every pod and service before it is created.

The file's text travels in an annotation of the master pod, and from there, as a variable of its environment, to
the master process: so it works with any image.  Where the variable is missing (a master that somebody started by
hand), the file is taken from `/cluster_spec/` of the image, or from the path itself.

What it returns is checked: a name, an owner or a label that the job is found by must stay, and the API server has
to take the rest.
"""

import importlib.abc
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from types import CodeType
from typing import Any

from kubernetes import client

from edlz.k8s.cluster.manifest import to_plain
from edlz.k8s.cluster.names import CLUSTER_SPEC, MASTER
from edlz.k8s.flags.cluster_spec_json import SpecData, parse_cluster_spec_json
from edlz.k8s.flags.object_check import object_problems
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError

__all__ = ["MAX_SPEC_BYTES", "SPEC_VARIABLE", "ClusterSpec", "load_cluster_spec"]

SPEC_VARIABLE = "CLUSTER_SPEC_TEXT"
MAX_SPEC_BYTES = 64 << 10
"""All annotations of a pod may have 256 KiB; `kubectl apply` keeps each twice, and the job's status is one too."""

_IMAGE_FOLDER = PurePosixPath("/cluster_spec")
_MODULE = "edlz_cluster_spec"
_KEPT = (
    "app",
    "elasticdl_job_name",
    "elasticdl-job-name",
    "elasticdl-replica-type",
    "elasticdl-replica-index",
)
_FUNCTIONS = ("with_pod", "with_service")


class ClusterSpec:
    """What a cluster wants of pods and services beyond the flags.

    Parameters
    ----------
    data : SpecData, optional
        What `--cluster_spec_json` says.
    cluster : object
        The user's object; it alone counts for pods if there is one.
    path, text : str
        Its file.
    """

    def __init__(
        self, data: SpecData | None = None, cluster: object = None, path: str = "", text: str = ""
    ) -> None:
        self._data, self._cluster, self._path, self._text = data, cluster, path, text

    def pod(self, pod: client.V1Pod, role: str) -> client.V1Pod:
        """Return the pod as the cluster wants it.

        Parameters
        ----------
        role : str
            `master`, `ps` or `worker`.

        Raises
        ------
        ConfigError
            If the user's code raises, or gives what cannot be created.
        """
        before = to_plain(pod)
        if self._cluster is not None:
            pod = self._call("with_pod", pod, client.V1Pod)
        elif self._data is not None:
            pod = self._data.change_pod(pod, role)
        else:
            return pod
        self._check("with_pod", before, to_plain(pod))
        if role == MASTER and self._text:
            self._attach_text(pod, before["spec"]["containers"][0]["name"])
        return pod

    def service(self, service: client.V1Service) -> client.V1Service:
        """Return the service as the cluster wants it; errors as for pods."""
        before = to_plain(service)
        if self._data is not None:
            service = self._data.change_service(service)
        if self._cluster is not None:
            service = self._call("with_service", service, client.V1Service)
        self._check("with_service", before, to_plain(service))
        return service

    def _call(self, function: str, item: Any, kind: type[Any]) -> Any:
        result = _run(self._path, f"{function}()", lambda: getattr(self._cluster, function)(item))
        if not isinstance(result, kind):
            found = "nothing" if result is None else f"a {type(result).__name__}"
            message = f"{self._path}: {function}() returned {found}, not a {kind.__name__}"
            raise ConfigError(message, f"end it with: return {function.removeprefix('with_')}")
        return result

    def _check(self, function: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        who = f"{self._path}: {function}()" if self._cluster is not None else "--cluster_spec_json"
        for place in (("metadata", "name"), ("metadata", "namespace"), ("metadata", "ownerReferences")):
            _check_same(who, before, after, place)
        for label in _KEPT:
            _check_same(who, before, after, ("metadata", "labels", label))
        if after.get("kind") == "Pod":
            _check_same(who, before, after, ("spec", "restartPolicy"))
            name = before["spec"]["containers"][0]["name"]
            if name not in [container.get("name") for container in after["spec"].get("containers") or ()]:
                raise ConfigError(
                    f"{who} took the container {name} away", "add to the pod, and keep what it has"
                )
        else:
            _check_same(who, before, after, ("spec", "selector"))
        problems = object_problems(after)
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise ConfigError(
                f"{who} made a {after.get('kind')} that no cluster takes: {problems[0]}{more}", ""
            )

    def _attach_text(self, pod: client.V1Pod, container_name: str) -> None:
        """Have the master find the text of the file, whatever its image is."""
        assert pod.metadata is not None
        assert pod.spec is not None
        pod.metadata.annotations = {**(pod.metadata.annotations or {}), CLUSTER_SPEC: self._text}
        field = client.V1ObjectFieldSelector(field_path=f"metadata.annotations['{CLUSTER_SPEC}']")
        variable = client.V1EnvVar(name=SPEC_VARIABLE, value_from=client.V1EnvVarSource(field_ref=field))
        for container in pod.spec.containers:
            if container.name == container_name:
                container.env = [*(container.env or []), variable]


def load_cluster_spec(config: JobConfig, environ: Mapping[str, str] = os.environ) -> ClusterSpec:
    """Return what `--cluster_spec` and `--cluster_spec_json` say; neither changes nothing.

    Raises
    ------
    ConfigError
        If there is no such file, its code raises, or it lacks what it must have.
    """
    data = parse_cluster_spec_json(config.cluster_spec_json) if config.cluster_spec_json else None
    if not config.cluster_spec:
        return ClusterSpec(data)
    path = config.cluster_spec
    text = environ.get(SPEC_VARIABLE) or _read(path)
    if len(text.encode()) > MAX_SPEC_BYTES:
        message = f"--cluster_spec={path} has {len(text.encode())} bytes; at most {MAX_SPEC_BYTES} travel to the master"
        raise ConfigError(message, "keep what is large out of it")
    module = _run(path, "it", lambda: _import(path, text))
    cluster = getattr(module, "cluster", None)
    if cluster is None:
        raise ConfigError(f"{path} defines no object named cluster", "end it with: cluster = MyCluster()")
    for function in _FUNCTIONS:
        if not callable(getattr(cluster, function, None)):
            message = f"{path}: cluster, a {type(cluster).__name__}, has no function {function}"
            argument = function.removeprefix("with_")
            raise ConfigError(message, f"def {function}(self, {argument}): return {argument}")
    return ClusterSpec(data, cluster, path, text)


def _read(path: str) -> str:
    in_image = Path(_IMAGE_FOLDER / PurePosixPath(path).name)
    file = in_image if in_image.is_file() else Path(path)
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as e:
        raise ConfigError(f"--cluster_spec={path} is no text in UTF-8", "save it as such") from e
    except OSError as e:
        reason = e.strerror or type(e).__name__
        raise ConfigError(
            f"--cluster_spec={path} cannot be read: {reason}", "give the path of a Python file"
        ) from e


class _Text(importlib.abc.InspectLoader):
    """Makes a module of a text, whose lines tracebacks then show, whether there is such a file or not."""

    def __init__(self, path: str, text: str) -> None:
        self._path, self._text = path, text

    def get_source(self, fullname: str) -> str:
        return self._text

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self._text, self._path)


def _import(path: str, text: str) -> object:
    spec = importlib.util.spec_from_loader(_MODULE, _Text(path, text), origin=path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = path
    sys.modules[_MODULE] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def _run(path: str, what: str, code: Callable[[], Any]) -> Any:
    """Run the user's code; say which of its lines raised."""
    try:
        return code()
    except (Exception, SystemExit) as e:
        frames = [frame for frame in traceback.extract_tb(e.__traceback__) if frame.filename == path]
        number, line = (frames[-1].lineno, frames[-1].line) if frames else (None, "")
        if isinstance(e, SyntaxError) and e.filename == path:
            number, line = e.lineno, (e.text or "").strip()
        where = f"{path}:{number}" if number else path
        text = " ".join(str(e).split()).partition(" For further information visit ")[0]
        raise ConfigError(
            f"{where}: {what} raised {type(e).__name__}: {text}", f"the line is: {line}" if line else ""
        ) from e


def _check_same(
    who: str, before: Mapping[str, Any], after: Mapping[str, Any], place: tuple[str, ...]
) -> None:
    old, new = _at(before, place), _at(after, place)
    if old != new:
        message = f"{who} changed {'.'.join(place)} from {old!r} to {new!r}"
        raise ConfigError(message, "leave it as it is: edlz finds the job's objects by it")


def _at(item: Any, place: tuple[str, ...]) -> Any:
    for key in place:
        item = (item or {}).get(key)
    return item
