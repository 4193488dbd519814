"""The core that says what partitions should do, and when: at a barrier an answer without news is held back.

Theory of operation of a cut before a partition leaves.  That all partitions said the same version last does not mean
that they stand there: workers may compute from it, and all commit another step before the order to cut arrives.  A cut
ordered too early is in vain, and while it is written no other one is.  Nothing moves any more once all are at the *last*
version of the leaving one, the one after that at which it was told to end: nobody gets parameters of it.  Else nobody
may be at work, or a step takes long: then all must have said the same version for QUIET_S, counted from what they say
since somebody leaves.
"""

from collections.abc import Hashable, Sequence

import msgspec

from edlz.services.master.core.checkpoints import Checkpoints
from edlz.services.master.core.held_asks import HeldAsks
from edlz.services.master.core.processes.eras import Eras
from edlz.services.master.core.processes.partitions import Partitions
from edlz.services.master.core.vocabulary.identities import Identities
from edlz.services.master.core.vocabulary.instructions import Reply
from edlz.services.master.core.vocabulary.verdict import Verdict
from edlz.services.master.core.work import Work
from edlz.services.protocol.messages import Identity, PartitionOrders, PartitionStatus
from edlz.services.protocol.plan import Plan

__all__ = ["QUIET_S", "PartitionAnswers", "Standstill"]

BARRIER_S = 0.2  # a partition that stands at a barrier hears that there is nothing new so often
QUIET_S = 0.4  # two heartbeats of a partition that hurries


class Standstill:
    """Where the partitions stand while one of them leaves; synchronous mode.

    Attributes
    ----------
    version : int or None
        Where all stand, as far as can be known; None while they may move, or nobody leaves.
    """

    def __init__(self) -> None:
        self.version: int | None = None
        self._first: dict[tuple[int, Identity | None], int] = {}  # leaving ones -> the version they had then
        self._stood: dict[int, tuple[int, float, float]] = {}  # version, said first and last at

    def on_status(self, index: int, statuses: Sequence[PartitionStatus], now: float) -> None:
        """Take in that a partition has said something; `statuses` are the newest ones of all."""
        leaving = [status for status in statuses if status.is_leaving]
        if not leaving:
            self.version = None
            self._first, self._stood = {}, {}
            return
        for status in leaving:
            self._first.setdefault((status.partition, status.incarnation), status.version)
        said = next(status.version for status in statuses if status.partition == index)
        version, first_s, _ = self._stood.get(index, (-1, now, now))
        self._stood[index] = (said, first_s if said == version else now, now)
        versions = {status.version for status in statuses}
        is_last = any(
            status.version > self._first[status.partition, status.incarnation] for status in leaving
        )
        is_known = len(versions) == 1 and (is_last or self._are_quiet(statuses))
        self.version = versions.pop() if is_known else None

    def _are_quiet(self, statuses: Sequence[PartitionStatus]) -> bool:
        """Whether all have said what they say now for long enough."""
        stood = (self._stood.get(status.partition) for status in statuses)
        return all(each is not None and each[2] - each[1] >= QUIET_S for each in stood)


class PartitionAnswers:
    """What the partitions of one job are told.

    Parameters
    ----------
    plan : Plan
    term : int
    identities : Identities
        Numbers the orders.
    cores : Partitions, Eras, Checkpoints, Standstill, Work, Verdict
        What the orders follow from.
    told : set of str
        Gets the names of those that hear how the job has ended.
    """

    def __init__(
        self,
        plan: Plan,
        term: int,
        identities: Identities,
        cores: tuple[Partitions, Eras, Checkpoints, Standstill, Work, Verdict],
        told: set[str],
    ) -> None:
        self._plan, self._term, self._identities, self._told = plan, term, identities, told
        self._partitions, self._eras, self._checkpoints, self._standstill, self._work, self._verdict = cores
        self._held: HeldAsks[PartitionStatus] = HeldAsks(BARRIER_S)
        self._said: dict[int, PartitionOrders] = {}  # to each partition, last

    def stop(self, incarnation: Identity) -> PartitionOrders:
        """Return the orders for a process that is no partition of this job any more."""
        return PartitionOrders(
            term=self._term, number=self._identities.number(), incarnation=incarnation, stop=True
        )

    def answer(self, to: Hashable, status: PartitionStatus, now: float) -> list[Reply]:
        """Answer the newest word of a partition's present life, or hold that back."""
        index, orders = status.partition, self._orders(status)
        if status.can_wait and not self._is_news(index, orders):
            self._held.hold(index, to, status, now)
            return []
        return self._say(to, index, orders)

    def answer_held(self, now: float) -> list[Reply]:
        """Answer those that have waited, if there is anything new, or it is time."""
        out: list[Reply] = []
        for ask in self._held:
            status, index = ask.status, ask.status.partition
            if status.incarnation != self._partitions.entries[index].status.incarnation:
                self._held.drop(index)  # it has begun another life
                continue
            orders = self._orders(status)
            if now >= ask.until_s or self._is_news(index, orders):
                out += self._say(ask.to, index, orders)
        return out

    def _say(self, to: Hashable, index: int, orders: PartitionOrders) -> list[Reply]:
        self._held.drop(index)
        self._said[index] = orders
        return [Reply(to, orders)]

    def _is_news(self, index: int, orders: PartitionOrders) -> bool:
        """Whether orders say anything that those before did not."""
        before = self._said.get(index)
        return before is None or msgspec.structs.replace(orders, number=before.number) != before

    def _orders(self, status: PartitionStatus) -> PartitionOrders:
        assert status.incarnation is not None
        if self._verdict.is_over:
            self._told.add(f"ps-{status.partition}")
        work, is_sync = self._work, self._plan.is_sync
        discard_below, snapshot_at = 0, None
        hurries = is_sync and self._partitions.is_one_leaving
        if work.is_open and is_sync:
            discard_below = max((name[1] for name in self._partitions.common_snapshots()), default=0)
            snapshot_at = self._standstill.version if hurries else None
        return PartitionOrders(
            term=self._term,
            number=self._identities.number(),
            incarnation=status.incarnation,
            stop=self._verdict.is_over,
            era=self._eras.newest,
            restore=None if work.is_open else self._eras.restore,
            discard_below=discard_below,
            seal=work.is_open and work.is_all_done,
            checkpoint=self._checkpoints.orders(
                status.partition,
                is_sealed=status.is_sealed,
                stands_at=work.stands_at if work.is_open else 0,
            ),
            checkpointed=self._checkpoints.completed,
            ends=work.bad_tasks.journalled,
            closing=work.bad_tasks.closing,
            newest_checkpoint=-1 if self._checkpoints.newest is None else self._checkpoints.newest,
            snapshot_at=-1 if snapshot_at is None else snapshot_at,
            hurries=hurries,
            fence=work.barriers.fence,
            task_count=work.barriers.task_count,
        )
