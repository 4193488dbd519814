"""Which states a job's members hold at until they are evaluated, and which of them they may go on from.

Theory of operation.  Members that come to a version of the plan's evaluations hold there.  One of them is asked for its state, once: the
others have the same or are about to.  A group may come to a state again that was evaluated before; that one is released at once.
"""

from collections import deque

from edlz.services.master.core.groups.written_states import KNOWN
from edlz.services.protocol.groups import BASE
from edlz.services.protocol.messages import SnapshotName

__all__ = ["HeldStates"]


class HeldStates:
    """The states that are evaluated under one master's term.

    Attributes
    ----------
    released : SnapshotName
        The evaluated state that members may go on from; before the first one, what every member is past.
    evaluating : SnapshotName or None
        The state that was asked for, until it is evaluated.
    """

    def __init__(self) -> None:
        self.released: SnapshotName = BASE
        self.evaluating: SnapshotName | None = None
        self._evaluated: deque[SnapshotName] = deque(maxlen=KNOWN)

    def release(self, name: SnapshotName) -> None:
        """A state is evaluated."""
        self._evaluated.append(name)
        self.released = name
        if name == self.evaluating:
            self.evaluating = None

    def hold(self, name: SnapshotName) -> bool:
        """A member holds at a state; return whether that is to be evaluated now."""
        if name in self._evaluated:
            self.released = name
            return False
        is_new = name != self.evaluating
        self.evaluating = name
        return is_new
