"""What a pod says of itself, in the words of the screens: why it waits, why it was started again, how it ended.

Pure: the API's records and the events of the namespace give texts.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edlz.k8s.api_records import ContainerStatus, Pod
from edlz.k8s.names import short_name

__all__ = ["PodFacts", "facts_of", "plain_reason", "warnings_by_pod"]

_SCHEDULING = re.compile(r"(\d+/\d+ nodes) are available: (.*?)\.?( preemption: .*)?$", re.DOTALL)
_CREATING = ("ContainerCreating", "PodInitializing", "")
_IMAGE_REASONS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
_LONGEST = 160


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What is known of a pod.

    Attributes
    ----------
    name : master, ps-0, worker-3
    phase : Pending, Running, Succeeded or Failed
    waits_for : why it does not run yet, or not any more; nothing if it does
    is_running : whether its container runs
    is_leaving : whether it was asked to go
    restarts : how often its container was started again
    end : how it ended; nothing if it has not
    """

    name: str
    phase: str
    waits_for: str = ""
    is_running: bool = False
    is_leaving: bool = False
    restarts: int = 0
    end: str = ""

    @property
    def role(self) -> str:
        """Its role: master, ps, worker."""
        return self.name.partition("-")[0]

    @property
    def index(self) -> str:
        """Its number."""
        return self.name.partition("-")[2]

    @property
    def has_ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


def facts_of(job: str, pod: Pod, warnings: Mapping[str, str] | None = None) -> PodFacts:
    """Return what is known of a pod.

    Parameters
    ----------
    job : the job's name
    warnings : the newest warning among the namespace's events, by the pod's name
    """
    status = pod.status
    containers = status.container_statuses or ()
    return PodFacts(
        name=short_name(job, pod.name),
        phase=status.phase,
        waits_for=_waits_for(pod, (warnings or {}).get(pod.name, "")),
        is_running=any(one.state is not None and one.state.running is not None for one in containers),
        is_leaving=pod.is_deleted,
        restarts=sum(one.restart_count for one in containers),
        end=_end(pod) if status.phase in ("Succeeded", "Failed") else "",
    )


def warnings_by_pod(events: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the newest warning of each pod: `FailedMount: …`."""
    newest: dict[str, tuple[str, str]] = {}
    for event in events:
        about = event.get("involvedObject") or {}
        if event.get("type") != "Warning" or about.get("kind") != "Pod":
            continue
        times = (event.get("lastTimestamp"), event.get("eventTime"), event.get("firstTimestamp"))
        at = str(next((time for time in times if time), ""))
        text = f"{event.get('reason', '')}: {event.get('message', '')}"
        name = str(about.get("name", ""))
        if name not in newest or at >= newest[name][0]:
            newest[name] = (at, text)
    return {name: plain_reason(text) for name, (_, text) in newest.items()}


def plain_reason(text: str) -> str:
    """Return Kubernetes' text on one line, without what says nothing to whoever waits."""
    line = " ".join(text.split())
    found = _SCHEDULING.search(line)
    if found is not None:
        line = f"{found[1]}: {found[2]}"
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1].rstrip() + "…"


def _waits_for(pod: Pod, warning: str) -> str:
    status = pod.status
    if status.phase == "Pending":
        for condition in status.conditions or ():
            if condition.type == "PodScheduled" and condition.status == "False":
                return plain_reason(condition.message or condition.reason)
        containers = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
        reason = _waiting(containers)
        if reason and not reason.startswith(_CREATING[:2]):
            return reason
        if warning:
            return warning
        return "its container is made, its image pulled" if pod.spec.node_name else "a node"
    if status.phase == "Running":
        return _waiting(status.container_statuses or ())
    return ""


def _waiting(containers: Sequence[ContainerStatus]) -> str:
    for one in containers:
        if one.state is None or one.state.waiting is None:
            continue
        waiting = one.state.waiting
        if waiting.reason == "CrashLoopBackOff":
            last = one.last_state.terminated if one.last_state else None
            how = f" after {_code(last.exit_code, last.reason)}" if last else ""
            return f"its container is started again{how}, {one.restart_count} times so far"
        if waiting.reason in _IMAGE_REASONS:
            return plain_reason(f"image {one.image} cannot be pulled: {waiting.message or waiting.reason}")
        return plain_reason(": ".join(filter(None, (waiting.reason, waiting.message))))
    return ""


def _end(pod: Pod) -> str:
    status = pod.status
    if any(c.type == "DisruptionTarget" and c.status == "True" for c in status.conditions or ()):
        return "preempted, or its node was lost"
    for one in status.container_statuses or ():
        if one.state is not None and one.state.terminated is not None:
            ended = one.state.terminated
            return _code(ended.exit_code, ended.reason)
    return plain_reason(": ".join(filter(None, (status.reason, status.message)))) or status.phase


def _code(code: int, reason: str) -> str:
    if reason == "OOMKilled":
        return "it ran out of memory"
    return f"exit code {code}" + (f" ({reason})" if reason not in ("", "Error", "Completed") else "")
