"""Which of the live workers get work, and which have hung.

A worker hangs when it says nothing, or when it speaks but has been at one piece of work for far longer than any
has taken it: a slow worker gets on, a hung one does not.  It is given up for good: another one is started in its
place, and when it wakes up it is told to go.
"""

from collections.abc import Iterator, Mapping

from edlz.services.master.entries import WorkerEntry
from edlz.services.messages import Identity

__all__ = ["HANG_S", "Crew"]

HANG_S = 60.0
HANG_PIECES = 10.0  # a piece of work may take so many times as long as the longest before it


class Crew:
    """The live workers of a job whose launcher can replace them.

    Parameters
    ----------
    hang_s : float
        Seconds without progress until a worker counts as hung.
    """

    def __init__(self, hang_s: float = HANG_S) -> None:
        self._hang_s = hang_s
        self._target: int | None = None  # None: nobody can start another worker
        self._incarnations: dict[str, Identity] = {}
        self._active: frozenset[str] | None = None  # None: to be worked out
        self._silent: dict[str, float] = {}  # lost to silence -> when they were heard last
        self._retired: dict[str, bool] = {}  # who was told to go -> whether it hung

    def supervise(self, target: int) -> None:
        """Somebody starts workers: so many should work, the others are spares."""
        if target != self._target:
            self._target, self._active = target, None

    def note(self, worker: str, incarnation: Identity) -> None:
        """A worker is alive."""
        self._silent.pop(worker, None)
        if self._incarnations.get(worker) != incarnation:
            self._incarnations[worker], self._active = incarnation, None

    def note_silence(self, worker: str, seen_s: float) -> None:
        """A worker was lost since it said nothing any more."""
        self._silent[worker] = seen_s

    def forget(self, worker: str) -> None:
        """A worker is gone."""
        self._silent.pop(worker, None)
        if self._incarnations.pop(worker, None) is not None:
            self._active = None

    @property
    def active(self) -> frozenset[str] | None:
        """The workers that get work, or None for all; the same object until it changes."""
        if self._target is not None and self._active is None:
            oldest = sorted(self._incarnations, key=lambda name: self._incarnations[name])
            self._active = frozenset(oldest[: self._target])
        return self._active

    def is_active(self, worker: str) -> bool:
        """Whether a worker gets work: those that have been here longest do, the others are spares."""
        active = self.active
        return active is None or worker in active

    def dismiss(self, worker: str) -> None:
        """A worker is not wanted any more."""
        self._retired.setdefault(worker, False)

    def is_retired(self, worker: str) -> bool:
        """Whether a worker was given up, or is not wanted any more."""
        return worker in self._retired

    def has_hung(self, worker: str) -> bool:
        """Whether a worker was given up."""
        return self._retired.get(worker, False)

    def retire(self, workers: Mapping[str, WorkerEntry], now: float) -> Iterator[tuple[str, str]]:
        """Give up the workers that hang; return each with a reason."""
        if self._target is None:
            return
        for worker, seen_s in list(self._silent.items()):
            if now - seen_s > self._hang_s:
                del self._silent[worker]
                self._retired[worker] = True
                yield worker, f"hung: nothing heard for {now - seen_s:.0f}s"
        for worker, entry in workers.items():
            busy_s = entry.busy_s + now - entry.seen_s if entry.busy_s else 0.0
            if worker not in self._retired and busy_s > max(self._hang_s, HANG_PIECES * entry.longest_s):
                self._retired[worker] = True
                yield worker, f"hung: no progress for {busy_s:.0f}s; its log says where"
