"""What a pod says of itself, in the words of the screens: why it waits, why it was started again, how it ended.

Pure: the API's records and the events of the namespace give texts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edlz.k8s.cluster.api_records import ContainerStatus, Pod, Terminated
from edlz.k8s.cluster.names import short_name
from edlz.k8s.cluster.rights import with_own_path
from edlz.k8s.pods.pod_exits import is_out_of_reach
from edlz.k8s.pods.wait_reasons import IMAGE_REASONS, image_help, image_reason, plain_reason, says_no_cause
from edlz.services.supervision.post_mortem import LastWords, last_words

__all__ = ["PodFacts", "facts_of", "warnings_by_pod"]

_CREATING = ("ContainerCreating", "PodInitializing", "")
_CODE_OF_SIGNAL = 128


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What is known of a pod.

    Attributes
    ----------
    name : str
        `master`, `ps-0` or `worker-3`.
    uid : str
        What tells it from others of its name.
    phase : str
        Pending, Running, Succeeded or Failed.
    waits_for : str
        Why it does not run yet, or not any more; nothing if it does.
    is_running : bool
        Whether its container runs.
    is_leaving : bool
        Whether it was asked to go.
    is_out_of_reach : bool
        Whether the cluster holds its node for unreachable.
    restarts : int
        How often its container was started again.
    end : str
        How it ended; nothing if it has not.
    created_at : float
        Seconds since the epoch; 0 if it is not known.
    code : int
        Of its container's last end, if it has failed.
    error, help : str
        What its container said then, as far as its pod keeps that; what to do about its image.
    """

    name: str
    phase: str
    uid: str = ""
    waits_for: str = ""
    is_running: bool = False
    is_leaving: bool = False
    is_out_of_reach: bool = False
    restarts: int = 0
    end: str = ""
    created_at: float = 0.0
    code: int = 0
    error: str = ""
    help: str = ""

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
    job : str
        The job's name.
    warnings : mapping, optional
        The newest among the namespace's events, as `warnings_by_pod` gives them.
    """
    status = pod.status
    containers = status.container_statuses or ()
    ended = _last_end(containers)
    said = _said(ended)
    created = pod.metadata.creation_timestamp
    waits_for = _waits_for(pod, (warnings or {}).get(pod.uid, ""))
    return PodFacts(
        name=short_name(job, pod.name),
        phase=status.phase,
        uid=pod.uid,
        waits_for=waits_for,
        is_running=any(one.state is not None and one.state.running is not None for one in containers),
        is_leaving=pod.is_deleted,
        is_out_of_reach=is_out_of_reach(pod),
        restarts=sum(one.restart_count for one in containers),
        end=_end(pod) if status.phase in ("Succeeded", "Failed") else "",
        created_at=created.timestamp() if created is not None else 0.0,
        code=ended.exit_code if ended is not None else 0,
        error=said.error,
        help=with_own_path(said.help) or image_help(waits_for),
    )


def warnings_by_pod(events: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the newest warning about each pod, by its uid: `FailedMount: …`.

    A pod's name is not enough: the one before it of the same name had events too, which stay for an hour.
    """
    newest: dict[str, tuple[str, str]] = {}
    for event in events:
        about, message = event.get("involvedObject") or {}, str(event.get("message", ""))
        if event.get("type") != "Warning" or about.get("kind") != "Pod" or says_no_cause(message):
            continue
        times = (event.get("lastTimestamp"), event.get("eventTime"), event.get("firstTimestamp"))
        at = str(next((time for time in times if time), ""))
        uid = str(about.get("uid", ""))
        if uid not in newest or at >= newest[uid][0]:
            newest[uid] = (at, f"{event.get('reason', '')}: {message}")
    return {uid: text for uid, (_, text) in newest.items()}


def _waits_for(pod: Pod, warning: str) -> str:
    status = pod.status
    if status.phase == "Pending":
        for condition in status.conditions or ():
            if condition.type == "PodScheduled" and condition.status == "False":
                return plain_reason(condition.message or condition.reason)
        containers = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
        reason = _waiting(containers, warning)
        if reason and not reason.startswith(_CREATING[:2]):
            return reason
        if warning:
            return plain_reason(warning)
        return "its container is made, its image pulled" if pod.spec.node_name else "a node"
    if status.phase == "Running":
        return _waiting(status.container_statuses or ())
    return ""


def _waiting(containers: Sequence[ContainerStatus], warning: str = "") -> str:
    for one in containers:
        if one.state is not None and one.state.terminated is not None:
            return _again(one, one.state.terminated)
        if one.state is None or one.state.waiting is None:
            continue
        waiting = one.state.waiting
        if waiting.reason == "CrashLoopBackOff":
            return _again(one, one.last_state.terminated if one.last_state else None)
        if waiting.reason in IMAGE_REASONS:
            return image_reason(one.image, waiting.message, event=warning)
        return plain_reason(": ".join(filter(None, (waiting.reason, waiting.message))))
    return ""


def _again(container: ContainerStatus, last: Terminated | None) -> str:
    """Say that a container is started again, how often that was so, and why."""
    count = container.restart_count
    times = f", {'once' if count == 1 else f'{count} times'} so far" if count else ""
    if last is None:
        return f"its container is started again{times}"
    said = _said(last).error
    how = _code(last.exit_code, last.reason)
    return f"its container is started again after {how}{times}" + (f": {said}" if said else "")


def _last_end(containers: Sequence[ContainerStatus]) -> Terminated | None:
    """Return the last end of a container that failed."""
    for one in containers:
        for state in (one.state, one.last_state):
            if state is not None and state.terminated is not None and state.terminated.exit_code:
                return state.terminated
    return None


def _said(ended: Terminated | None) -> LastWords:
    """Return the reason that the end of a log gives; after a signal its last line does not say it."""
    if ended is None or ended.exit_code > _CODE_OF_SIGNAL:
        return LastWords()
    return last_words(ended.message.splitlines())


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
