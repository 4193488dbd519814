"""The life of one pod on its node, as the kubelet leads it: a core without processes, files or a clock.

Events (the pod's object has changed, a container was started or has ended, time has passed) go in by methods;
`step` returns what is to be done now; `status` is what the API is to show. Containers that end are started again
as the restart policy says: at once the first time, then after a back-off that doubles. A deletion sends SIGTERM,
after the grace SIGKILL; when nothing runs any more the end is shown, and only in a later step is the object
removed: so a watcher sees how every container ended, and the scheduler has the room before the object is gone.
A pod that has run for its activeDeadlineSeconds ends in the same way, but its object stays, as Failed.
"""

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

__all__ = [
    "Discard",
    "Happening",
    "Instruction",
    "PodLife",
    "Remove",
    "Signal",
    "Start",
    "Times",
    "timestamp",
]

Object = Mapping[str, Any]
FORCED_GRACE_S = 1.0
TOO_LATE = {
    "phase": "Failed",
    "reason": "DeadlineExceeded",
    "message": "Pod was active on the node longer than the specified deadline",
}
OUT_OF_MEMORY, KILLED = "OOMKilled", 128 + signal.SIGKILL


@dataclass(frozen=True, kw_only=True)
class Times:
    """The waits of a cluster; the defaults are those of Kubernetes divided by about 20."""

    back_off_s: float = 0.5
    back_off_cap_s: float = 15.0
    retry_s: float = 0.25  # of a missing image, secret or volume
    heartbeat_s: float = 0.5
    node_grace_s: float = 2.0  # without a heartbeat, until a node is NotReady
    toleration_scale: float = 0.004  # a second in a toleration; 300 s become 1.2 s
    lost_node_s: float = 2.0  # until pods bound to a node that does not exist are removed


@dataclass(frozen=True, kw_only=True)
class Start:
    """Start a container; answer with `started` or `not_started`."""

    container: str
    attempt: int


@dataclass(frozen=True, kw_only=True)
class Signal:
    """Send a signal to a container: TERM to its first process, KILL to all."""

    container: str
    number: signal.Signals


@dataclass(frozen=True, kw_only=True)
class Happening:
    """Record an event about the pod."""

    reason: str
    message: str
    is_warning: bool = False


@dataclass(frozen=True)
class Remove:
    """Delete the pod's object: grace 0, with its uid as precondition."""


@dataclass(frozen=True)
class Discard:
    """Remove the pod's folder: the object is gone and nothing runs."""


Instruction = Start | Signal | Happening | Remove | Discard


class _Container:
    """One container of the pod; exactly one of `waiting`, `running_since` and `ended` is set."""

    def __init__(self, spec: Object) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.waiting: tuple[str, str] | None = ("ContainerCreating", "")
        self.running_since: float | None = None
        self.ended: dict[str, Any] | None = None
        self.last: dict[str, Any] | None = None
        self.container_id = ""
        self.starts = 0
        self.retry_at = 0.0
        self.back_off_s = 0.0
        self.end_is_news = False  # until a status has shown it
        self.asked: signal.Signals | None = None  # the last signal that was sent to end it

    @property
    def runs(self) -> bool:
        return self.running_since is not None

    @property
    def code(self) -> int | None:
        return None if self.ended is None else int(self.ended["exitCode"])

    @property
    def last_code(self) -> int | None:
        """The exit code of the last run that has ended."""
        last = self.ended or self.last
        return None if last is None or self.runs else int(last["exitCode"])

    def wait(self, reason: str, message: str, retry_at: float) -> None:
        self.waiting, self.ended, self.running_since, self.retry_at = (reason, message), None, None, retry_at

    def state(self) -> dict[str, Any]:
        if self.ended is not None:
            return {"terminated": self.ended}
        if self.running_since is not None:
            return {"running": {"startedAt": timestamp(self.running_since)}}
        reason, message = self.waiting or ("", "")
        return {"waiting": {"reason": reason} | ({"message": message} if message else {})}

    def status(self) -> dict[str, Any]:
        image = self.spec["image"]
        return {
            "name": self.name,
            "state": self.state(),
            "lastState": {} if self.last is None else {"terminated": self.last},
            "ready": self.runs,
            "started": self.runs,
            "restartCount": max(0, self.starts - 1),
            "image": image,
            "imageID": f"test://{image}" if self.container_id else "",
            **({"containerID": self.container_id} if self.container_id else {}),
        }


class PodLife:
    """One pod on one node.

    Parameters
    ----------
    pod : mapping
        Its object, bound to the node.
    pod_ip, host_ip : str
    now : float, seconds since the epoch
    image_problem : callable (image, pull policy) -> str or None
        The waiting reason of an image that cannot be had: ErrImagePull or ErrImageNeverPull.
    """

    def __init__(
        self,
        pod: Object,
        pod_ip: str,
        host_ip: str,
        now: float,
        image_problem: Callable[[str, str], str | None],
        times: Times,
    ) -> None:
        self.pod = pod
        self.pod_ip, self.host_ip = pod_ip, host_ip
        self._times, self._image_problem = times, image_problem
        self._began = now
        spec = pod["spec"]
        self._policy: str = spec.get("restartPolicy", "Always")
        self._init = [_Container(one) for one in spec.get("initContainers") or []]
        self._main = [_Container(one) for one in spec["containers"]]
        for one in (*self._init, *self._main):
            one.retry_at = now
        self._has_begun = False
        self._kill_at: float | None = None  # set when the pod is to end
        self._is_too_late = False  # it has run longer than it may
        self._end_is_shown = False
        self._is_removed = False  # asked for; a finalizer may keep the object
        self._is_gone = False
        self.is_discarded = False

    # -- events

    def update(self, pod: Object, now: float) -> None:
        """Take over the object as the API has it."""
        self.pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            self._end_within(float(pod["metadata"].get("deletionGracePeriodSeconds") or 0.0), now)

    def removed(self, now: float) -> None:
        """Note that the object is gone, as a deletion with grace 0 does to a pod that runs."""
        self._is_gone = True
        self._end_within(FORCED_GRACE_S, now)

    def started(self, name: str, container_id: str, now: float) -> list[Instruction]:
        container = self._container(name)
        container.running_since, container.waiting, container.ended = now, None, None
        container.container_id = container_id
        container.starts += 1
        return [
            Happening(reason="Created", message=f"Container created: {name}"),
            Happening(reason="Started", message=f"Container started: {name}"),
        ]

    def not_started(self, name: str, reason: str, message: str, now: float) -> list[Instruction]:
        """Note that what a container needs is missing; it is tried again."""
        container = self._container(name)
        is_news = container.waiting != (reason, message)
        container.wait(reason, message, now + self._times.retry_s)
        why = "FailedMount" if reason == "ContainerCreating" else "Failed"
        return [Happening(reason=why, message=message, is_warning=True)] if is_news else []

    def exited(self, name: str, code: int, now: float, reason: str | None = None, message: str = "") -> None:
        """Note a container's end; `code` is 128 + n after signal n."""
        container = self._container(name)
        since = container.running_since if container.running_since is not None else now
        container.ended = {
            "exitCode": code,
            "reason": reason or ("Completed" if code == 0 else "Error"),
            **({"message": message} if message else {}),
            "startedAt": timestamp(since),
            "finishedAt": timestamp(now),
            "containerID": container.container_id,
        }
        container.running_since = container.waiting = None
        container.retry_at = now
        container.asked, container.end_is_news = None, True

    # -- what to do

    def step(self, now: float) -> list[Instruction]:
        """Return what is to be done now."""
        is_first, self._has_begun = not self._has_begun, True
        overtime = self._note_deadline(now)
        if self._kill_at is not None:
            return overtime + self._end(now)
        if is_first or self.phase in ("Succeeded", "Failed"):
            return []
        return [one for container in self._current() for one in self._lead(container, now)]

    def wake_at(self) -> float | None:
        """Return when the next step is due, if nothing happens before; None: never."""
        if self.is_discarded:
            return None
        if self._kill_at is not None:
            asked = [one.asked for one in self._running()]
            if asked:
                return 0.0 if None in asked else self._kill_at if signal.SIGTERM in asked else None
            if self._is_too_late and not self._is_leaving():
                return None if self._end_is_shown else 0.0
            return None if self._is_removed and not self._is_gone else 0.0
        if not self._has_begun:
            return 0.0
        if self.phase in ("Succeeded", "Failed"):
            return None
        due = [one.retry_at for one in self._current() if self._is_to_start(one)]
        return min([*due, *self._deadline()], default=None)

    def _lead(self, container: _Container, now: float) -> list[Instruction]:
        if not self._is_to_start(container) or now < container.retry_at:
            return []
        if container.end_is_news:
            container.end_is_news = False
            return []
        if container.ended is not None:
            return self._restart(container, now)
        image = container.spec["image"]
        problem = self._image_problem(image, container.spec.get("imagePullPolicy", "IfNotPresent"))
        if problem is not None:
            return self._without_image(container, image, problem, now)
        return [Start(container=container.name, attempt=container.starts)]

    def _restart(self, container: _Container, now: float) -> list[Instruction]:
        """Start the container again, or say that it has to wait before that."""
        first = container.back_off_s == 0.0
        container.last, waited = container.ended, container.back_off_s
        container.back_off_s = min(self._times.back_off_cap_s, max(2 * waited, self._times.back_off_s))
        if first:
            container.wait("ContainerCreating", "", now)
            return [Start(container=container.name, attempt=container.starts)]
        metadata = self.pod["metadata"]
        pod = f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"
        text = f"restarting failed container={container.name} pod={pod}"
        container.wait("CrashLoopBackOff", f"back-off {waited:g}s {text}", now + waited)
        return [Happening(reason="BackOff", message=f"Back-off {text}", is_warning=True)]

    def _without_image(
        self, container: _Container, image: str, problem: str, now: float
    ) -> list[Instruction]:
        """Let the container wait for its image: the text of a back-off ends with that of the pull that failed."""
        before = (container.waiting or ("", ""))[0]
        if problem == "ErrImageNeverPull":
            reason = problem
            message = told = f'Container image "{image}" is not present with pull policy of Never'
        else:
            whole = f"docker.io/library/{image}"
            why = (
                f'rpc error: code = NotFound desc = failed to pull and unpack image "{whole}": '
                f'failed to resolve reference "{whole}": {whole}: not found'
            )
            if before in ("ErrImagePull", "ImagePullBackOff"):
                reason, told = "ImagePullBackOff", f'Back-off pulling image "{image}"'
                message = f"{told}: ErrImagePull: {why}"
            else:
                reason, message, told = problem, why, f'Failed to pull image "{image}": {why}'
        container.wait(reason, message, now + self._times.retry_s)
        if reason == before:
            return []
        what = "BackOff" if reason == "ImagePullBackOff" else "Failed"
        said = Happening(reason=what, message=told, is_warning=what == "Failed")
        error = Happening(reason="Failed", message=f"Error: {reason}", is_warning=True)
        return [said, error]

    def _deadline(self) -> list[float]:
        """Return until when the pod may run; nothing if it may for ever."""
        limit_s = self.pod["spec"].get("activeDeadlineSeconds")
        return [] if limit_s is None else [self._began + limit_s]

    def _note_deadline(self, now: float) -> list[Instruction]:
        """Let the pod end if its time is over."""
        is_over = self._kill_at is not None or self.phase in ("Succeeded", "Failed")
        if is_over or not any(now >= end for end in self._deadline()):
            return []
        self._is_too_late = True
        self._end_within(float(self.pod["spec"].get("terminationGracePeriodSeconds", 30)), now)
        return [Happening(reason=TOO_LATE["reason"], message=TOO_LATE["message"])]

    def _is_leaving(self) -> bool:
        return bool(self.pod["metadata"].get("deletionTimestamp"))

    def _end_within(self, grace_s: float, now: float) -> None:
        kill_at = now + grace_s
        self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)

    def _end(self, now: float) -> list[Instruction]:
        assert self._kill_at is not None
        instructions: list[Instruction] = []
        for container in self._running():
            if container.asked is None:
                container.asked = signal.SIGTERM
                message = f"Stopping container {container.name}"
                instructions.append(Happening(reason="Killing", message=message))
                instructions.append(Signal(container=container.name, number=signal.SIGTERM))
            if now >= self._kill_at and container.asked != signal.SIGKILL:
                container.asked = signal.SIGKILL
                instructions.append(Signal(container=container.name, number=signal.SIGKILL))
        if self._running():
            return instructions
        if self._is_gone:
            self.is_discarded = True
            return [*instructions, Discard()]
        if self._end_is_shown and not self._is_removed and self._is_leaving():
            self._is_removed = True
            return [*instructions, Remove()]
        self._end_is_shown = True
        return instructions

    # -- what to show

    @property
    def phase(self) -> str:
        """The phase, from how the containers stand."""
        if self._is_too_late and not self._running():
            return "Failed"
        if any(self._will_not_restart(one) and one.last_code for one in self._init):
            return "Failed"
        if any(one.code != 0 for one in self._init):
            return "Pending"
        if any(one.waiting and one.last is None for one in self._main):
            return "Pending"
        if any(not self._will_not_restart(one) for one in self._main):
            return "Running"
        return "Failed" if any(one.last_code for one in self._main) else "Succeeded"

    def status(self, now: float) -> dict[str, Any]:
        """Return the status as the kubelet sets it; its conditions have no times."""
        phase, ready = self.phase, all(one.runs for one in self._main)
        unready = " ".join(one.name for one in self._main if not one.runs)
        status: dict[str, Any] = {
            "phase": phase,
            "conditions": [
                {"type": "PodReadyToStartContainers", "status": str(self._has_network())},
                {"type": "Initialized", "status": str(all(one.code == 0 for one in self._init))},
                *(_readiness(kind, phase, ready, unready) for kind in ("Ready", "ContainersReady")),
                {"type": "PodScheduled", "status": "True"},
            ],
            "hostIP": self.host_ip,
            "hostIPs": [{"ip": self.host_ip}],
            "startTime": timestamp(self._began),
            "containerStatuses": [one.status() for one in self._main],
        }
        if any(one.container_id for one in (*self._init, *self._main)):
            status |= {"podIP": self.pod_ip, "podIPs": [{"ip": self.pod_ip}]}
        if self._is_too_late and phase == "Failed":
            status |= TOO_LATE
        if self._init:
            status["initContainerStatuses"] = [one.status() for one in self._init]
        return status

    # -- containers

    def runs(self, name: str) -> bool:
        return self._container(name).runs

    def _has_network(self) -> bool:
        return bool(self._running())

    def _container(self, name: str) -> _Container:
        return next(one for one in (*self._init, *self._main) if one.name == name)

    def _running(self) -> list[_Container]:
        return [one for one in (*self._init, *self._main) if one.runs]

    def _current(self) -> list[_Container]:
        """Return the containers whose turn it is: the init containers one after the other, then all others."""
        for one in self._init:
            if one.code != 0:
                return [one]
        return self._main

    def _is_to_start(self, container: _Container) -> bool:
        return not container.runs and not self._will_not_restart(container)

    def _will_not_restart(self, container: _Container) -> bool:
        if self._kill_at is not None:
            return container.last_code is not None
        if container.code is None:
            return False
        if container in self._init:
            return container.code == 0 or self._policy == "Never"
        return self._policy == "Never" or (self._policy == "OnFailure" and container.code == 0)


def timestamp(now: float) -> str:
    """Return a time as the API writes it: whole seconds, UTC."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _readiness(kind: str, phase: str, ready: bool, unready: str) -> dict[str, Any]:
    if ready:
        return {"type": kind, "status": "True"}
    if phase in ("Succeeded", "Failed"):
        return {
            "type": kind,
            "status": "False",
            "reason": f"Pod{'Completed' if phase == 'Succeeded' else phase}",
        }
    message = f"containers with unready status: [{unready}]"
    return {"type": kind, "status": "False", "reason": "ContainersNotReady", "message": message}
