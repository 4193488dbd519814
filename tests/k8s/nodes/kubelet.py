"""A node's agent: runs the pods that are bound to it as local processes, and tells the API how they are.

The decisions are those of pod_life.py; here are the processes, folders and calls they need. It works on the store
directly, so what a test makes go wrong between the API server and its clients does not concern it. All methods
but `log` belong to the cluster's thread.
"""

import contextlib
import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.k8s.nodes import containers
from tests.k8s.nodes.containers import Container, start_container
from tests.k8s.nodes.pod_folder import Missing, PodFolder
from tests.k8s.nodes.pod_life import (
    OUT_OF_MEMORY,
    Discard,
    Happening,
    Instruction,
    PodLife,
    Remove,
    Signal,
    Start,
    Times,
    timestamp,
)
from tests.k8s.nodes.recorder import patch_status, record
from tests.k8s.server.objects.errors import ApiError, not_found
from tests.k8s.server.objects.kinds import RESOURCES
from tests.k8s.server.objects.quantities import number
from tests.k8s.server.objects.store import Store
from tests.k8s.server.pod_logs import ContainerLog

__all__ = ["Environment", "Images", "Kubelet"]

Object = Mapping[str, Any]
MESSAGE_LINES, MESSAGE_BYTES = 80, 2048  # of a log that stands for the reason of an end
LOST = 255  # the exit code of what ran when the machine went down


class Images:
    """The images that exist; an image is a name, the command that it runs by itself, and what it has of its own."""

    def __init__(self) -> None:
        self._entrypoints: dict[str, list[str]] = {}
        self._contents: dict[str, Mapping[str, Path]] = {}
        self._local: set[str] = set()

    def add(
        self,
        name: str,
        entrypoint: list[str] | None = None,
        *,
        is_local: bool = False,
        contents: Mapping[str, Path] | None = None,
    ) -> None:
        """Let an image be known.

        Parameters
        ----------
        is_local : bool
            It is on the nodes, but no registry has it.
        contents : mapping of str to Path, optional
            What it has beyond this machine's files: path in the image -> file or folder here.
        """
        self._entrypoints[name] = entrypoint or []
        self._contents[name] = contents or {}
        if is_local:
            self._local.add(name)

    def problem(self, name: str, policy: str) -> str | None:
        if policy == "Never":
            return None if name in self._local else "ErrImageNeverPull"
        if name in self._local:
            return "ErrImagePull" if policy == "Always" else None
        return None if name in self._entrypoints else "ErrImagePull"

    def entrypoint(self, name: str) -> list[str]:
        return self._entrypoints[name]

    def contents(self, name: str) -> Mapping[str, Path]:
        return self._contents[name]


@dataclass(kw_only=True)
class Environment:
    """What a cluster gives its kubelets."""

    store: Store
    folder: Path
    images: Images
    times: Times
    wake: Callable[[], None]
    new_address: Callable[[], str]
    service_account: Callable[[str, str], Mapping[str, str]]  # (namespace, name) -> files of its volume
    variables: Callable[[], Mapping[str, str]]  # by which every container finds the API server
    write_kubeconfig: Callable[[Path, str, str], None]  # (path, namespace, service account)
    limits_memory: bool = False


@dataclass
class _Pod:
    life: PodLife
    folder: PodFolder
    containers: dict[str, Container] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    out_of_memory: set[str] = field(default_factory=set)
    version: str = ""
    shown: Object | None = None


@dataclass(frozen=True)
class _Exit:
    """The end of a container: its code, why it could not be started, whether the machine went down."""

    uid: str
    name: str
    code: int
    failure: str = ""
    is_lost: bool = False


class Kubelet:
    """The agent of one node."""

    def __init__(self, node: str, environment: Environment) -> None:
        self.node, self._environment = node, environment
        self._store, self._times = environment.store, environment.times
        self._pods: dict[str, _Pod] = {}  # by uid
        self._exits: list[_Exit] = []  # not yet told to the pods
        self._address = environment.new_address()
        self._renewed_at = float("-inf")
        self.is_connected = True

    # -- the loop

    def step(self, now: float) -> None:
        """Do all that is to be done now."""
        if not self.is_connected:
            return
        self._renew(now)
        self._take_exits(now)
        self._take_over(now)
        if self._environment.limits_memory:
            self._check_memory()
        for uid, pod in list(self._pods.items()):
            for instruction in pod.life.step(now):
                self._obey(pod, instruction, now)
            if pod.life.is_discarded:
                del self._pods[uid]
            else:
                self._show(pod, now)

    def wake_at(self) -> float | None:
        if not self.is_connected:
            return None
        due = [at for pod in self._pods.values() if (at := pod.life.wake_at()) is not None]
        return min([*due, self._renewed_at + self._times.heartbeat_s])

    def close(self) -> None:
        """Kill all containers."""
        for pod in self._pods.values():
            for container in pod.containers.values():
                container.close()

    # -- what tests do to it

    def disconnect(self, *, crash: bool) -> None:
        """Fall silent; `crash`: the machine is off and its processes are gone, otherwise they run on."""
        self.is_connected = False
        if crash:
            self.close()
            for uid, pod in self._pods.items():
                running = [name for name in pod.containers if pod.life.runs(name)]
                self._exits += [_Exit(uid, name, LOST, is_lost=True) for name in running]
                pod.containers.clear()

    def reconnect(self) -> None:
        """Speak again; what a crash ended is found, and started anew as the restart policy says."""
        self.is_connected = True
        for pod in self._pods.values():
            pod.shown = None  # others have written into the status meanwhile
        for uid in {one.uid for one in self._exits if one.is_lost}:
            self._pods[uid].life.pod_ip = self._environment.new_address()

    def send(self, uid: str, container: str | None, number: signal.Signals, *, out_of_memory: bool) -> None:
        """Send a signal to a container that runs, as somebody on the node would."""
        pod = self._pods[uid]
        name = container or pod.life.pod["spec"]["containers"][0]["name"]
        assert pod.life.runs(name), f"container {name} does not run"
        if out_of_memory:
            pod.out_of_memory.add(name)
        pod.containers[name].signal(number)

    def log(self, namespace: str, name: str, container: str, previous: bool) -> ContainerLog:
        """Return the log of a container's current or last attempt, or of the one before."""
        for pod in list(self._pods.values()):
            metadata = pod.life.pod["metadata"]
            if (metadata["namespace"], metadata["name"]) != (namespace, name):
                continue
            attempt = pod.attempts.get(container, -1) - previous
            if attempt < 0:
                what = "previous terminated " if previous else ""
                why = f'{what}container "{container}" in pod "{name}" not found'
                raise ApiError(400, "BadRequest", why)
            running = pod.containers.get(container)
            return _LogFile(pod.folder.log(container, attempt), None if previous else running)
        raise not_found(RESOURCES["pods"], name)

    def folder_of(self, uid: str) -> PodFolder:
        return self._pods[uid].folder

    # -- events

    def _renew(self, now: float) -> None:
        if now - self._renewed_at < self._times.heartbeat_s:
            return
        self._renewed_at = now
        spec = {"holderIdentity": self.node, "renewTime": _micro_time(now)}
        if self._store.find("leases", self.node, "kube-node-lease") is None:
            lease = {"metadata": {"name": self.node}, "spec": {**spec, "leaseDurationSeconds": 40}}
            self._store.create("leases", lease, "kube-node-lease")
        else:
            self._store.patch("leases", self.node, {"spec": spec}, "kube-node-lease")

    def _take_exits(self, now: float) -> None:
        exits, self._exits = self._exits, []
        for one in exits:
            if (pod := self._pods.get(one.uid)) is None or not pod.life.runs(one.name):
                continue
            pod.containers.pop(one.name, None)
            reason = "StartError" if one.failure else "Unknown" if one.is_lost else None
            if one.name in pod.out_of_memory:
                pod.out_of_memory.discard(one.name)
                reason = OUT_OF_MEMORY
            pod.life.exited(one.name, one.code, now, reason, one.failure or _last_lines(pod, one))

    def _take_over(self, now: float) -> None:
        """Compare what runs here with the pods that the API has for this node."""
        pods = self._store.history.all("pods").values()
        there = {one["metadata"]["uid"]: one for one in pods if one["spec"].get("nodeName") == self.node}
        for uid, pod in self._pods.items():
            if uid not in there:
                pod.life.removed(now)
        for uid, found in there.items():
            if uid not in self._pods:
                if found["status"].get("phase") in ("Succeeded", "Failed"):
                    continue
                self._pods[uid] = self._adopt(found, now)
            mine = self._pods[uid]
            if mine.version != found["metadata"]["resourceVersion"]:
                mine.version = found["metadata"]["resourceVersion"]
                mine.life.update(found, now)

    def _adopt(self, pod: Object, now: float) -> _Pod:
        environment, metadata = self._environment, pod["metadata"]
        address = environment.new_address()
        life = PodLife(pod, address, self._address, now, environment.images.problem, self._times)
        account = environment.service_account(
            metadata["namespace"], pod["spec"].get("serviceAccountName", "default")
        )
        folder = environment.folder / "pods" / metadata["uid"]
        return _Pod(life, PodFolder(folder, pod, environment.folder / "claims", account))

    def _check_memory(self) -> None:
        for pod in self._pods.values():
            for spec in pod.life.pod["spec"]["containers"]:
                limit = ((spec.get("resources") or {}).get("limits") or {}).get("memory")
                container = pod.containers.get(spec["name"])
                if limit and container and container.resident_bytes() > number(limit):
                    pod.out_of_memory.add(spec["name"])
                    container.signal(signal.SIGKILL)

    # -- instructions

    def _obey(self, pod: _Pod, instruction: Instruction, now: float) -> None:
        match instruction:
            case Start():
                for happening in self._start(pod, instruction, now):
                    self._obey(pod, happening, now)
            case Signal(container=name, number=number):
                pod.containers[name].signal(number)
            case Happening(reason=reason, message=message, is_warning=is_warning):
                record(
                    self._store,
                    pod.life.pod,
                    reason,
                    message,
                    is_warning=is_warning,
                    component="kubelet",
                    host=self.node,
                )
            case Remove():
                metadata = pod.life.pod["metadata"]
                with contextlib.suppress(ApiError):  # somebody was quicker
                    self._store.delete(
                        "pods", metadata["name"], metadata["namespace"], grace_s=0, uid=metadata["uid"]
                    )
            case Discard():
                shutil.rmtree(pod.folder.path, ignore_errors=True)

    def _start(self, pod: _Pod, start: Start, now: float) -> list[Instruction]:
        object_ = pod.life.pod
        uid, name = object_["metadata"]["uid"], start.container
        spec = next(one for one in _all_containers(object_) if one["name"] == name)

        def lookup(resource: str, wanted: str) -> Object | None:
            return self._store.find(resource, wanted, object_["metadata"]["namespace"])

        def on_exit(code: int, failure: str) -> None:
            self._exits.append(_Exit(uid, name, code, failure))
            self._environment.wake()

        try:
            pod.folder.prepare(lookup)
            own = pod.folder.environment(spec, lookup, pod.life.pod_ip, pod.life.host_ip)
        except Missing as error:
            return pod.life.not_started(name, error.reason, error.message, now)
        variables = {"HOSTNAME": object_["metadata"]["name"], **own}
        images, image = self._environment.images, spec["image"]
        try:
            container = start_container(
                pod.folder,
                spec,
                start.attempt,
                variables,
                self._access(pod),
                images.entrypoint(image),
                images.contents(image),
                on_exit,
            )
        except OSError as error:
            return pod.life.not_started(name, "RunContainerError", str(error), now)
        pod.containers[name], pod.attempts[name] = container, start.attempt
        return pod.life.started(name, container.id, now)

    def _access(self, pod: _Pod) -> Mapping[str, str]:
        """Return how containers find the API server; without mounts there is no token at its usual path."""
        if containers.can_mount():
            return self._environment.variables()
        path, account = pod.folder.path / "kubeconfig", pod.life.pod["spec"]["serviceAccountName"]
        self._environment.write_kubeconfig(path, pod.life.pod["metadata"]["namespace"], account)
        return {"KUBECONFIG": str(path)}

    def _show(self, pod: _Pod, now: float) -> None:
        status, metadata = pod.life.status(now), pod.life.pod["metadata"]
        if status == pod.shown:
            return
        pod.shown = status
        with contextlib.suppress(ApiError):  # it has just been removed
            patch_status(self._store, metadata["name"], metadata["namespace"], status, now)


class _LogFile:
    """A container's log; a line's time is that of the last write when it was first read."""

    def __init__(self, path: Path, container: Container | None) -> None:
        self._path, self._container = path, container
        self._times: list[tuple[int, float]] = []  # number of lines there, when they had been written

    def lines(self, start: int) -> list[tuple[float, bytes]]:
        if not self._path.exists():
            return []
        at_s, lines = self._path.stat().st_mtime, self._path.read_bytes().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n") and not self.is_ended():
            lines.pop()  # it is being written
        if len(lines) > (self._times[-1][0] if self._times else 0):
            self._times.append((len(lines), at_s))
        counts = [(0, 0.0), *self._times]
        times = [at for (before, _), (after, at) in pairwise(counts) for _ in range(before, after)]
        return list(zip(times, lines, strict=False))[start:]

    def is_ended(self) -> bool:
        return self._container is None or self._container.has_ended


def _last_lines(pod: _Pod, ended: _Exit) -> str:
    """Return the end of a container's log, if its pod wants that as the reason why it failed."""
    spec = next(one for one in _all_containers(pod.life.pod) if one["name"] == ended.name)
    if ended.code == 0 or spec.get("terminationMessagePolicy") != "FallbackToLogsOnError":
        return ""
    path = pod.folder.log(ended.name, pod.attempts[ended.name])
    lines = path.read_bytes().splitlines(keepends=True)[-MESSAGE_LINES:] if path.exists() else []
    return b"".join(lines)[-MESSAGE_BYTES:].decode(errors="replace")


def _all_containers(pod: Object) -> list[Object]:
    return [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]


def _micro_time(now: float) -> str:
    whole = int(now)
    return timestamp(whole).removesuffix("Z") + f".{int((now - whole) * 1_000_000):06d}Z"
