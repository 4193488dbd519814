"""The live workers: which of them get work, and which have hung.

A worker hangs when it says nothing, or when it speaks but has been at one piece of work for far longer than any
of that kind has taken it: a slow worker gets on, a hung one does not.  Building the model, and the first piece of
each kind, have a limit of their own: they load and compile, perhaps on a busy machine.  Only what a worker has said
of itself counts, not how long ago that was; who says nothing more is the other case.  It is given up for good:
another one is started in its place, and when it wakes up it is told to go.
"""

from collections.abc import Collection, Iterator, Mapping

from edlz.services.master.core.tasks.task_queue import Holder
from edlz.services.master.core.vocabulary.records import GivenUp, WorkerEntry

__all__ = ["HANG_S", "LiveWorkers"]

SILENCE_S = 10.0
HANG_S = 60.0
HANG_PIECES = 10.0  # a piece of work may take so many times as long as the longest of its kind before it
START_HANG_S = 900.0  # the first piece of a kind may take so long,
START_HANGS = 10.0  # or so many times as long as a job lets a worker be without progress; no other one more


class LiveWorkers:
    """The live workers of a job; its launcher may be able to replace them.

    Parameters
    ----------
    hang_s : float
        Seconds without progress until a worker counts as hung.

    Attributes
    ----------
    workers : dict of str to WorkerEntry
        The newest word of each; changed here only.
    unreachable : collection of str
        Workers whose machine does not answer, as far as their launcher knows: no need to wait for their word.
    """

    def __init__(self, hang_s: float = HANG_S) -> None:
        self.workers: dict[str, WorkerEntry] = {}
        self._hang_s = hang_s
        self._target: int | None = None  # None: nobody can start another worker
        self._active: frozenset[str] | None = None  # None: to be worked out
        # Kept up to date, since to make it anew for each status would be most of a large job's work.
        self._asking: dict[str, Holder] = {}
        self._asking_of: frozenset[str] | None = None  # the active workers when that was made
        self.unreachable: Collection[str] = ()
        self._silent: dict[str, float] = {}  # lost to silence -> when they were heard last
        self._last_words: dict[str, WorkerEntry] = {}  # of the same
        self._heard: set[str] = set()  # workers that have ever spoken to this master
        self._retired: dict[str, bool] = {}  # who was told to go -> whether it hung

    def supervise(self, target: int) -> None:
        """Somebody starts workers: so many should work, the others are spares."""
        if target != self._target:
            self._target, self._active = target, None

    def note(self, worker: str, entry: WorkerEntry) -> None:
        """A worker is alive, and has said so."""
        self._silent.pop(worker, None)
        self._last_words.pop(worker, None)
        before = self.workers.get(worker)
        self._heard.add(worker)
        self.workers[worker] = entry
        if before is None or before.incarnation != entry.incarnation:
            self._active = None
        self._note_asking(worker)

    def silent(self, now: float) -> list[tuple[str, WorkerEntry]]:
        """Return the workers that have said nothing for long, each with its last word."""
        entries = self.workers.items()
        return [(worker, entry) for worker, entry in entries if now - entry.seen_s > SILENCE_S]

    def note_silence(self, worker: str, last: WorkerEntry) -> None:
        """A worker was lost since it said nothing any more."""
        self._silent[worker], self._last_words[worker] = last.seen_s, last

    def last_word(self, worker: str) -> WorkerEntry | None:
        """Return what a worker said last that is here, or was lost to silence."""
        return self.workers.get(worker) or self._last_words.get(worker)

    def has_heard(self, worker: str) -> bool:
        """Whether a worker has ever spoken to this master."""
        return worker in self._heard

    def forget(self, worker: str) -> WorkerEntry | None:
        """A worker is gone; return its last word if it was here."""
        self._silent.pop(worker, None)
        self._last_words.pop(worker, None)
        self._asking.pop(worker, None)
        entry = self.workers.pop(worker, None)
        if entry is not None:
            self._active = None
        return entry

    @property
    def busy(self) -> list[str]:
        """The workers that have a task in hand."""
        return [
            worker
            for worker, entry in self.workers.items()
            if entry.holding or entry.evaluating or entry.exporting
        ]

    @property
    def active(self) -> frozenset[str] | None:
        """The workers that get work, or None for all; the same object until it changes."""
        if self._target is not None and self._active is None:
            oldest = sorted(self.workers, key=lambda name: self.workers[name].incarnation)
            self._active = frozenset(oldest[: self._target])
        return self._active

    def is_active(self, worker: str) -> bool:
        """Whether a worker gets work: those that have been here longest do, the others are spares."""
        active = self.active
        return active is None or worker in active

    @property
    def asking(self) -> Mapping[str, Holder]:
        """What each worker holds that gets work and has asked for it."""
        if self._asking_of is not self.active:
            self._asking_of, self._asking = self.active, {}
            for worker in self.workers:
                self._note_asking(worker)
        return self._asking

    def _note_asking(self, worker: str) -> None:
        entry = self.workers[worker]
        if entry.has_asked and self.is_active(worker):
            self._asking[worker] = Holder(entry.incarnation, entry.holding)
        else:
            self._asking.pop(worker, None)

    def dismiss(self, worker: str, *, has_hung: bool = False) -> None:
        """A worker is not wanted any more."""
        self._retired.setdefault(worker, has_hung)

    def is_retired(self, worker: str) -> bool:
        """Whether a worker was given up, or is not wanted any more."""
        return worker in self._retired

    def has_hung(self, worker: str) -> bool:
        """Whether a worker was given up."""
        return self._retired.get(worker, False)

    def give_up(self, now: float) -> Iterator[GivenUp]:
        """Give up the workers that hang, or whose machine was lost."""
        if self._target is None:
            return
        for worker, seen_s in list(self._silent.items()):
            is_unreachable = worker in self.unreachable
            if is_unreachable or now - seen_s > self._hang_s:
                del self._silent[worker]
                self._retired[worker] = True
                why = "its node does not answer" if is_unreachable else "hung"
                reason = f"{why}: nothing heard for {now - seen_s:.0f}s"
                yield GivenUp(f"worker-{worker}", reason, is_unreachable)
        for worker, entry in self.workers.items():
            if worker not in self._retired and entry.busy_s > self._limit_s(entry):
                self._retired[worker] = True
                where = " while it started" if entry.is_starting else ""
                reason = f"hung: no progress for {entry.busy_s:.0f}s{where}; its log says where"
                yield GivenUp(f"worker-{worker}", reason)

    def _limit_s(self, entry: WorkerEntry) -> float:
        start_s = max(START_HANG_S, START_HANGS * self._hang_s)
        if entry.is_starting:
            return start_s
        return max(self._hang_s, min(HANG_PIECES * entry.longest_s, start_s))

    def check_invariants(self) -> None:
        """Assert that what is kept up to date is what would be made anew."""
        if self._asking_of is self.active:
            assert self._asking == {
                worker: Holder(entry.incarnation, entry.holding)
                for worker, entry in self.workers.items()
                if entry.has_asked and self.is_active(worker)
            }, "what a worker holds is not what it said"
