"""The core that says what partitions should do, and when: at a barrier an answer without news is held back."""

from collections.abc import Hashable

import msgspec

from edlz.services.master.core.checkpoints import Checkpoints
from edlz.services.master.core.held_asks import HeldAsks
from edlz.services.master.core.processes.eras import Eras
from edlz.services.master.core.processes.partitions import Partitions
from edlz.services.master.core.standstill import Standstill
from edlz.services.master.core.vocabulary.identities import Identities
from edlz.services.master.core.vocabulary.instructions import Reply
from edlz.services.master.core.vocabulary.verdict import Verdict
from edlz.services.master.core.work import Work
from edlz.services.protocol.messages import Identity, PartitionOrders, PartitionStatus
from edlz.services.protocol.plan import Plan

__all__ = ["PartitionAnswers"]

BARRIER_S = 0.2  # a partition that stands at a barrier hears that there is nothing new so often


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
