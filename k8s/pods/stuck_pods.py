"""The core that finds pods which can only go by force: asked to go, and on a node that does not answer any more.

Theory of operation.  Kubernetes takes a pod's name away from nobody until its node has said that its containers have
ended, and a node that is lost says nothing.  A pod that is still there some seconds after its grace is over, and whose node
the cluster holds for unreachable, is deleted without its node.  Its containers may still run: whatever they say belongs to an
old incarnation, and counts for nothing.  How long a pod is asked to go is measured by our own clock.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from edlz.k8s.cluster.api_records import Pod
from edlz.k8s.pods.pod_exits import is_out_of_reach

__all__ = ["MARGIN_S", "StuckPods"]

MARGIN_S = 5.0  # beyond its grace: for a node that is only late


@dataclass(slots=True)
class _Leaving:
    """A pod that was asked to go; `due_s`: when its grace is over."""

    grace_s: float
    due_s: float


class StuckPods:
    """Which of the pods that were asked to go are stuck."""

    def __init__(self) -> None:
        self._leaving: dict[str, _Leaving] = {}  # by uid

    def find(self, pods: Iterable[Pod], now: float) -> list[Pod]:
        """Return those to delete by force now.

        Parameters
        ----------
        pods : iterable of Pod
            All that are known; who is not among them is forgotten.
        """
        found, before, self._leaving = [], self._leaving, {}
        for pod in pods:
            if not pod.is_deleted:
                continue
            grace_s = float(pod.metadata.deletion_grace_period_seconds or 0)
            known = before.get(pod.uid)
            if known is None or grace_s < known.grace_s:  # a grace can only become shorter
                known = _Leaving(grace_s, min(now + grace_s, known.due_s if known else float("inf")))
            self._leaving[pod.uid] = known
            if is_out_of_reach(pod) and now >= known.due_s + MARGIN_S:
                found.append(pod)
        return found
