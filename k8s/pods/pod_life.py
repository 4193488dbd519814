"""How far the life of a pod is, and what may follow."""

from enum import Enum

from edlz.k8s.cluster.api_records import Pod
from edlz.k8s.pods.pod_exits import has_begun, has_ended
from edlz.services.transitions import Transitions

__all__ = ["STEPS", "Life", "life_of"]


class Life(Enum):
    """How far a pod is, as far as anybody has said."""

    MADE = "made"  # the server has taken it, and has not shown it yet
    PENDING = "pending"  # shown: it waits for a node, or for its image
    RUNNING = "running"
    LEAVING = "leaving"  # asked to go; it may never have run
    ENDED = "ended"  # it runs no more, and holds its name
    GONE = "gone"


# It goes one way only.  Whoever watches may miss any number of steps, so each may follow all that come before it.
_IN_ORDER = list(Life)
STEPS = Transitions("a pod", Life.MADE, {life: set(_IN_ORDER[at + 1 :]) for at, life in enumerate(_IN_ORDER)})


def life_of(pod: Pod) -> Life:
    """Return how far a pod is, by what the server says of it."""
    if has_ended(pod):
        return Life.ENDED
    if pod.is_deleted:
        return Life.LEAVING
    return Life.RUNNING if has_begun(pod) else Life.PENDING
