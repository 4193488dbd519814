"""Which members of a group hang: they speak, and others wait for them in vain.

Theory of operation.  A member makes progress when it enters another phase, state or generation.  One that is at the same for
long is slow or hangs; which of them, the group's own steps say: it hangs when it takes several times as long as a step
usually does.  Before any step is known of, everything may take long: the first one loads and compiles.  Only whom somebody
waits for hangs: a group that stands still as a whole waits for something else.
"""

from collections import deque
from collections.abc import Mapping
from statistics import median

from edlz.services.protocol.messages import Identity, MemberStatus

__all__ = ["HANG_S", "START_HANG_S", "Hangs"]

HANG_S = 60.0
HANG_STEPS = 5.0  # a member may be at one thing for as long as so many steps
START_HANG_S = 900.0  # as long as no step is known of
SAMPLES = 15

_HOLDS_UP = {
    "computing": ("staged",),
    "advancing": ("staged",),
    "fetching": ("staged", "held", "sealed"),
    "sealing": ("sealed",),
}

Mark = tuple[Identity, str, tuple[Identity, int]]


class Hangs:
    """The progress of one job's members.

    Parameters
    ----------
    hang_s : float
        Seconds without progress until a member counts as hung.
    """

    def __init__(self, hang_s: float = HANG_S) -> None:
        self._hang_s = hang_s
        self._marks: dict[
            Identity, tuple[Mark, float]
        ] = {}  # of each worker: where it stands, and since when
        self._newest: tuple[int, float] | None = None  # the newest version, and since when
        self._steps_s: deque[float] = deque(maxlen=SAMPLES)

    def note(self, who: Identity, status: MemberStatus, now: float) -> None:
        """A worker says where it stands."""
        mark = (status.generation, status.phase, status.name)
        if who not in self._marks or self._marks[who][0] != mark:
            self._marks[who] = mark, now
        version = status.name[1]
        if self._newest is None or version < self._newest[0]:
            self._newest = version, now
        elif version > self._newest[0]:
            self._steps_s.append((now - self._newest[1]) / (version - self._newest[0]))
            self._newest = version, now

    def forget(self, who: Identity) -> None:
        """A worker has ended."""
        self._marks.pop(who, None)

    @property
    def step_s(self) -> float:
        """How long a step takes; 0 as long as none is known of."""
        return median(self._steps_s) if self._steps_s else 0.0

    @property
    def limit_s(self) -> float:
        """For how long a member may be at one thing."""
        if not self._steps_s:
            return max(START_HANG_S, self._hang_s)
        return max(self._hang_s, HANG_STEPS * self.step_s)

    def first(
        self, statuses: Mapping[Identity, MemberStatus], generation: Identity, now: float
    ) -> tuple[Identity, float] | None:
        """Return a member of a group that hangs, and for how long; None if none does."""
        phases = {status.phase for status in statuses.values() if status.generation == generation}
        for who, status in sorted(statuses.items()):
            waits_s = now - self._marks[who][1]
            holds_up = not phases.isdisjoint(_HOLDS_UP.get(status.phase, ()))
            if status.generation == generation and holds_up and waits_s > self.limit_s:
                return who, waits_s
        return None
