"""How a pod has ended, or why it does not run yet, from what the API says of it.

A pod that a cluster takes away looks like one that crashed: exit code 143 or 137.  What tells them apart is the
condition DisruptionTarget, or that somebody asked it to go.  What keeps a pod from starting (no room, no image)
is no end: it waits, and the reason is shown as its note.
"""

import contextlib
import signal

from edlz.k8s.cluster.api_records import Condition, Pod, Terminated
from edlz.k8s.pods.wait_reasons import IMAGE_REASONS, image_reason, on_one_line, plain_reason
from edlz.services.protocol.messages import ProcessExit
from edlz.services.supervision.post_mortem import last_words

__all__ = [
    "exit_of",
    "has_begun",
    "has_ended",
    "is_behind",
    "is_out_of_reach",
    "lacks_room",
    "note_of",
    "vanished",
]

_ENDED = ("Succeeded", "Failed")
_FINAL_RESTARTS = "Never"
_CODE_OF_SIGNAL = 128
_DISRUPTIONS = {  # reason of the condition DisruptionTarget
    "PreemptionByScheduler": "preempted: a pod of higher priority needs its place",
    "DeletionByTaintManager": "its node was lost or drained",
    "EvictionByEvictionAPI": "evicted: its node is being drained",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "evicted by its node",
}
_NODE_REASONS = {  # reason of the pod's status
    "Evicted": "evicted by its node",
    "NodeLost": "its node was lost",
    "NodeShutdown": "its node was shut down",
    "Shutdown": "its node was shut down",
    "Terminated": "its node was shut down",
    "Preempting": "preempted by its node",
}
_OCCUPIED = ("Insufficient ", "Too many pods")  # what would be otherwise if other pods were not there


def has_begun(pod: Pod) -> bool:
    """Whether a node has started it."""
    return pod.status.phase not in ("", "Pending")


def has_ended(pod: Pod) -> bool:
    """Whether the pod's service has ended for good, even if a container that somebody added goes on."""
    if pod.status.phase in _ENDED:
        return True
    return pod.spec.restart_policy == _FINAL_RESTARTS and _terminated(pod) is not None


def exit_of(pod: Pod, name: str, launch: int) -> ProcessExit | None:
    """Return how a pod has ended; None if it has not.

    Parameters
    ----------
    name : str
        The service's: ps-0, worker-3.
    launch : int
        The number of its start.
    """
    if not has_ended(pod):
        return None
    terminated = _terminated(pod)
    code = None if terminated is None else terminated.exit_code
    if code is None and pod.status.phase == "Succeeded":
        code = 0
    if code == 0:
        return ProcessExit(name=name, code=0, reason="exit code 0", launch=launch)
    if terminated is not None and terminated.reason == "OOMKilled":
        had = f" at its limit of {pod.memory}" if pod.memory else ""
        reason = f"killed{had}: out of memory"
        return ProcessExit(name=name, code=code, reason=reason, cause="out of memory", launch=launch)
    taken = _taken_away(pod, code)
    if taken:
        return ProcessExit(name=name, code=code, reason=taken, cause="preempted", launch=launch)
    return ProcessExit(name=name, code=code, reason=_own_end(pod, terminated), launch=launch)


def vanished(pod: Pod | None, name: str, launch: int) -> ProcessExit:
    """Return the end of a pod that is there no more and was never seen to end.

    Parameters
    ----------
    pod : Pod, optional
        As it was seen last, if it was.
    """
    reason = (pod and _taken_away(pod, None)) or "its pod is gone: deleted, or its node was lost"
    return ProcessExit(name=name, code=None, reason=reason, cause="preempted", launch=launch)


def is_behind(pod: Pod, known: Pod) -> bool:
    """Whether a pod's state is one that it had left when it was `known`: only what cannot be undone counts."""
    return any(then > now for now, then in zip(_steps(pod), _steps(known), strict=True))


def note_of(pod: Pod) -> str:
    """Return why a pod does not run (yet); nothing if it runs, or nothing stands in its way."""
    if has_ended(pod) or pod.is_deleted:
        return ""
    status = pod.container_status
    waiting = status.state.waiting if status.state else None
    if waiting is not None and waiting.reason:
        return _waiting_note(pod, waiting.reason, waiting.message)
    scheduled = _condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return f"Pending: {plain_reason(scheduled.message or scheduled.reason or 'not scheduled')}"
    return ""


def lacks_room(pod: Pod) -> bool:
    """Whether a pod waits for what other pods occupy: it could run in their place."""
    scheduled = _condition(pod, "PodScheduled")
    if has_ended(pod) or pod.is_deleted or scheduled is None or scheduled.status != "False":
        return False
    return any(word in scheduled.message for word in _OCCUPIED)


def is_out_of_reach(pod: Pod) -> bool:
    """Whether the cluster holds a pod's node for unreachable, by what it wrote on the pod.

    A kubelet that answers says of both conditions the same, but for a pod with a readiness gate that is not met:
    then it gives that as the reason, while the node controller gives none and keeps none of a pod that was ready.  Nodes themselves may not be looked at by a job.
    """
    ready, containers = _condition(pod, "Ready"), _condition(pod, "ContainersReady")
    if ready is None or containers is None:
        return False
    if pod.spec.readiness_gates and ready.reason:
        return False
    return ready.status == "False" and containers.status == "True"


def _steps(pod: Pod) -> tuple[bool, bool, bool, bool]:
    disruption = _condition(pod, "DisruptionTarget")
    is_disrupted = disruption is not None and disruption.status == "True"
    return has_begun(pod), is_disrupted, pod.is_deleted, has_ended(pod)


def _terminated(pod: Pod) -> Terminated | None:
    state = pod.container_status.state
    return state.terminated if state else None


def _condition(pod: Pod, kind: str) -> Condition | None:
    return next((each for each in pod.status.conditions or () if each.type == kind), None)


def _taken_away(pod: Pod, code: int | None) -> str:
    """Return who took the pod away, or nothing if it ended by itself."""
    disruption = _condition(pod, "DisruptionTarget")
    if disruption is not None and disruption.status == "True":
        text = _DISRUPTIONS.get(disruption.reason, f"taken away by the cluster ({disruption.reason})")
        return on_one_line(f"{text}: {disruption.message}") if _says_more(disruption) else text
    status = pod.status
    if status.reason in _NODE_REASONS:
        text = _NODE_REASONS[status.reason]
        return on_one_line(f"{text}: {status.message}") if status.message else text
    is_killed = code in (_CODE_OF_SIGNAL + signal.SIGTERM, _CODE_OF_SIGNAL + signal.SIGKILL)
    if pod.is_deleted and (code is None or is_killed):
        return "its pod was deleted"
    if code is None and status.phase == "Failed":  # its node did not take it: it never ran
        return on_one_line(
            f"refused by its node: {status.reason or 'no reason given'} {status.message}".rstrip()
        )
    return ""


def _says_more(disruption: Condition) -> bool:
    """Whether the condition's message tells what its reason does not: which resource a node lacked."""
    return disruption.reason == "TerminationByKubelet" and bool(disruption.message)


def _own_end(pod: Pod, terminated: Terminated | None) -> str:
    if terminated is None:
        return on_one_line(
            f"{pod.status.reason} {pod.status.message}".strip() or "failed for no reason given"
        )
    code, text = terminated.exit_code, f"exit code {terminated.exit_code}"
    if code > _CODE_OF_SIGNAL:
        with contextlib.suppress(ValueError):
            text += f" ({signal.Signals(code - _CODE_OF_SIGNAL).name})"
    if terminated.reason not in ("", "Error", "Completed"):
        text += f", {terminated.reason}"
    said = last_words(terminated.message.splitlines()).error if code <= _CODE_OF_SIGNAL else ""
    return on_one_line(f"{text}: {said}" if said else text)


def _waiting_note(pod: Pod, reason: str, message: str) -> str:
    if reason in IMAGE_REASONS:
        return f"Pending: {image_reason(pod.container_status.image or pod.container.image, message)}"
    return f"Pending: {plain_reason(f'{reason}: {message}' if message else reason)}"
