"""How much of a job is done, of how much."""

from typing import TypedDict

from edlz.services.master.core.master import MasterCore

__all__ = ["Amounts", "Extent"]


class Amounts(TypedDict):
    """Fields of a `JobStatus`: how much is done, of how much."""

    ratio: float
    epoch: int
    epochs: int
    records: int
    records_total: int
    minibatches: int
    minibatches_total: int
    tasks_done: int
    tasks_total: int
    is_endless: bool


class Extent:
    """The extent of one job; of one without an end, by now.

    Parameters
    ----------
    core : MasterCore
        Read, never changed.
    """

    def __init__(self, core: MasterCore) -> None:
        self._core = core

    @property
    def records(self) -> int:
        """Records whose minibatches are in the ledgers of all partitions; those evaluated, if none is trained on."""
        core, plan = self._core, self._core.plan
        if not plan.is_training:
            if plan.gives_parts:
                return core.work.predictions.records
            return plan.evaluation_records if core.work.results else core.work.evaluation.final_records
        if not core.partitions.are_known or not plan.task_count:
            return 0
        if plan.grows:
            done = min(plan.size_of(s.finished_tasks)[0] for s in self._core.partitions.statuses)
            return min(done + self._open_records, self._size[0])
        per_task = plan.records_per_epoch / plan.tasks_per_epoch
        applied = min(
            s.finished_tasks * per_task + s.open_minibatches * plan.minibatch_size
            for s in self._core.partitions.statuses
        )
        return (
            round(applied) if plan.is_endless else min(round(applied), plan.records_per_epoch * plan.epochs)
        )

    @property
    def _open_records(self) -> int:
        """About how many records of tasks that are not finished are in the model."""
        return (
            min(s.open_minibatches for s in self._core.partitions.statuses) * self._core.plan.minibatch_size
        )

    @property
    def is_endless(self) -> bool:
        """Whether nothing is known that will end the training."""
        plan = self._core.plan
        return plan.is_endless and self._core.work.queue.task_count == plan.task_count

    @property
    def task_count(self) -> int:
        """How many tasks there are: of an endless job, by now."""
        queue = self._core.work.queue
        return min(queue.task_count, self._core.plan.count_by(len(queue.done)))

    @property
    def _size(self) -> tuple[int, int]:
        """Records and minibatches in all: without those cut off and those of tasks that are skipped."""
        plan, bad_tasks = self._core.plan, self._core.work.bad_tasks
        records, minibatches = plan.size_of(self.task_count)
        cut_records, cut_minibatches = bad_tasks.cut_off
        if plan.is_training:
            records -= cut_records + bad_tasks.records
        else:
            records = plan.evaluation_records - bad_tasks.unpredicted
        return records, minibatches - cut_minibatches - bad_tasks.minibatches

    @property
    def minibatches(self) -> int:
        if not self._core.partitions.are_known:
            return 0
        return min(status.minibatches for status in self._core.partitions.statuses)

    def amounts(self) -> Amounts:
        """Return how much is done, of how much."""
        core, plan, queue = self._core, self._core.plan, self._core.work.queue
        total, minibatches_total = self._size
        records = total if core.verdict.is_complete else min(self.records, total)
        count = self.task_count
        done = count if core.verdict.is_complete else len(queue.done)
        epochs = plan.epoch(count - 1) + 1 if plan.is_training else 0
        return Amounts(
            ratio=records / total if total else 1.0,
            epoch=min(epochs, 1 + plan.epoch(done)) if plan.is_training else 0,
            epochs=epochs,
            records=records,
            records_total=total,
            minibatches=self.minibatches,
            minibatches_total=minibatches_total,
            tasks_done=done,
            tasks_total=count,
            is_endless=self.is_endless,
        )
