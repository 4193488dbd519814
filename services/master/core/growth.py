"""The core of data that comes while the job runs.

Theory of operation.  A piece of new data is journalled as soon as it is known, and from then on is a part of the plan: a master that is started
again has the same tasks under the same numbers.  Its tasks may be leased from then on, too, unless all partitions stand
behind the last task there was and a checkpoint is being cut there: then when that is over.
"""

from collections.abc import Sequence

import msgspec

from edlz.services.master.core.barriers import Barriers
from edlz.services.master.core.checkpoints import Checkpoints
from edlz.services.master.core.processes.partitions import Partitions
from edlz.services.master.core.tasks.task_queue import TaskQueue
from edlz.services.master.core.vocabulary.instructions import Announce, Instruction, Journal
from edlz.services.master.core.vocabulary.records import Added
from edlz.services.protocol.growing_plan import GrowingPlan, Piece
from edlz.services.protocol.messages import Job, PartitionStatus
from edlz.services.protocol.plan import Plan, TaskRange

__all__ = ["Growth", "with_pieces"]


def with_pieces(job: Job, pieces: Sequence[Piece]) -> Job:
    """Return a job with all that its plan has got since it began, if its data grows."""
    if not job.plan.grows:
        return job
    return msgspec.structs.replace(job, plan=GrowingPlan.of(job.plan, pieces))


class Growth:
    """What is added to the plan of one job.

    Parameters
    ----------
    plan : Plan
        With all that earlier masters have added.
    cores : TaskQueue, Barriers, Checkpoints, Partitions
        The first two are told of more tasks.

    Attributes
    ----------
    stands_at : int
        Sync: the version at which all partitions stand, since there is no more data as yet; 0 if they do not.
    """

    def __init__(self, plan: Plan, cores: tuple[TaskQueue, Barriers, Checkpoints, Partitions]) -> None:
        self._plan = plan if isinstance(plan, GrowingPlan) else None
        self._queue, self._barriers, self._checkpoints, self._partitions = cores
        self.stands_at = 0
        if self._plan is not None:
            self._queue.known = self._plan.known

    def records_of(self, task: int) -> TaskRange | None:
        """Return the records of a task, if the plan that workers have does not say them."""
        if self._plan is None or task < self._plan.tasks_per_epoch:
            return None
        return self._plan.task_range(task)

    def take(self, piece: Piece, *, is_open: bool) -> list[Instruction]:
        """There is more data.

        Parameters
        ----------
        is_open : bool
            Whether all partitions are known, and work goes on.

        Raises
        ------
        ConfigError
            If the piece has too many tasks; nothing has changed.
        """
        plan = self._plan
        if plan is None or not piece.shards or self._queue.task_count < plan.task_count:  # it has an end
            return []
        plan.add(piece)
        records = sum(shard.count for shard in piece.shards)
        kind = "files" if piece.files else "shards"
        some = piece.shards[0].name if len(piece.shards) == 1 else f"{len(piece.shards)} {kind}"
        journal = Journal({}, {"pieces": Added(plan.pieces - 2, (piece,))})
        told = Announce("data", f"new data: {some}, {records:,} record{'' if records == 1 else 's'}.")
        return [journal, told, *self._admit(is_open=is_open)]

    def advance(self, statuses: Sequence[PartitionStatus], *, is_sync: bool) -> list[Instruction]:
        """See where the partitions stand; work is open."""
        if self._plan is None:
            return []
        known = self._queue.known
        is_idle = self._queue.has_all and all(status.finished_tasks >= known for status in statuses)
        versions = {status.version for status in statuses}
        self.stands_at = versions.pop() if is_sync and is_idle and len(versions) == 1 else 0
        return self._admit(is_open=True)

    def on_closed(self) -> None:
        """The partitions have to go back first."""
        self.stands_at = 0

    def _admit(self, *, is_open: bool) -> list[Instruction]:
        """Let the newest tasks be leased, unless a cut is under way where all stand."""
        assert self._plan is not None
        if self._queue.known == self._plan.known or (self.stands_at and not self._checkpoints.is_idle):
            return []
        self._queue.known, self.stands_at = self._plan.known, 0
        return self._barriers.on_more(self._partitions.sorted if is_open else None)
