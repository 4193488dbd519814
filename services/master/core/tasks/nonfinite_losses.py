"""The core that watches for losses that are NaN or infinite.

Theory of operation.  Each worker says how many minibatches of its life had such a loss, and which were the first and
the newest.  The first one of a worker is told at once; then there are pauses that double, and only so many workers are named.
The counts are journalled when they are told, so that they survive the master; a worker's count never falls, so
what is told twice counts once.  They decide nothing: a job with `--stop_on_nan` is ended by the worker's report.
"""

from dataclasses import dataclass, field

from edlz.services.master.core.vocabulary.instructions import Announce, Instruction, Journal
from edlz.services.master.core.vocabulary.records import LossRecord
from edlz.services.protocol.messages import NonFiniteLoss, WorkerStatus
from edlz.services.supervision.backoff import Pauses

__all__ = ["NonFiniteLosses"]

FIRST_PAUSE_S, LONGEST_PAUSE_S = 60.0, 3600.0
MOST_NAMED = 5  # workers whose first such loss is told at once


@dataclass
class NonFiniteLosses:
    """Minibatches with such a loss, over all workers and masters.

    Attributes
    ----------
    first : tuple of int, or None
        Task and minibatch of the first one that was told.
    """

    first: tuple[int, int] | None = None
    _counts: dict[tuple[str, int], int] = field(default_factory=dict)  # by a worker's id and boot
    _named: set[str] = field(default_factory=set)
    _told: int = 0  # how many have been told
    _pauses: Pauses = field(default_factory=lambda: Pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S))
    _quiet_until_s: float = 0.0

    @classmethod
    def of(cls, record: LossRecord | None) -> "NonFiniteLosses":
        """Go on from what an earlier master has journalled."""
        if record is None:
            return cls()
        counts = {(worker, boot): count for worker, boot, count in record.counts}
        return cls(record.first, counts, _told=sum(counts.values()))

    @property
    def count(self) -> int:
        return sum(self._counts.values())

    def take(self, status: WorkerStatus, now: float) -> list[Instruction]:
        """Take in a worker's status."""
        newest = status.nonfinite_loss
        if newest is None:
            return []
        life = (status.worker, status.boot)
        self._counts[life] = max(status.nonfinite_losses, self._counts.get(life, 0))
        is_new = status.worker not in self._named and len(self._named) < MOST_NAMED
        if self.count == self._told or (not is_new and now < self._quiet_until_s):
            return []
        return self._tell(status.worker, status.first_nonfinite_loss or newest, newest, now)

    def _tell(
        self, worker: str, first: NonFiniteLoss, newest: NonFiniteLoss, now: float
    ) -> list[Instruction]:
        if self.first is None:
            self.first = (first.task, first.index)
        if worker not in self._named:
            self._named.add(worker)
            text = f"worker-{worker}: the loss of {_place(first)} is {first.loss}."
        else:
            self._pauses.take()
            text = f"{self.count:,} minibatches had a loss that is NaN or infinite; the newest: {_place(newest)}."
        self._told, self._quiet_until_s = self.count, now + self._pauses.next_s
        return [Journal({"losses": self._record}), Announce("loss", text, 30)]

    @property
    def _record(self) -> LossRecord:
        counts = tuple((worker, boot, count) for (worker, boot), count in self._counts.items())
        return LossRecord(self.first, counts)


def _place(loss: NonFiniteLoss) -> str:
    return f"task {loss.task}, minibatch {loss.index}"
