"""The core that ends tasks which always fail, with `--skip_bad_tasks` (PROTOCOL: section 8).

Theory of operation.  A training task whose records make the user's code raise as often as it may is ended
at the smallest minibatch that raised; those before it count, later ones do not exist.  Workers that do not
know of it, zombies among them, may have got further, so the partitions first *close* the task and report
where they stand with it.  When all have, the end is that index or the greatest mark, whichever is later: so
no partition has gone beyond it, and none will.  It is journalled before anybody hears of it, and holds for
good: whoever computes the task again, after whatever loss, ends it there.  A task that some partition has
finished meanwhile can be computed after all: it is tried again, once.  A task that fails before its end
again (somebody could compute that minibatch, and some partition has it) fails the job.

An evaluation task that always fails counts as no records, in this round and in all later ones.
"""

import itertools
from collections.abc import Sequence

from edlz.services.master.core.tasks.evaluation_rounds import EvaluationRounds
from edlz.services.master.core.tasks.task_failures import Attempts, skip_text
from edlz.services.master.core.tasks.task_queue import TaskQueue
from edlz.services.master.core.vocabulary.instructions import Announce, Instruction, Journal
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.protocol.messages import ClosedTask, Ends, FailedTask, PartitionStatus
from edlz.services.protocol.plan import Plan

__all__ = ["BadTasks"]


class BadTasks:
    """What is left out of a job, and where each such task ends.

    Parameters
    ----------
    plan : Plan
    journal : JournalState
        What earlier masters have ended and left out.
    queue, evaluation : TaskQueue, EvaluationRounds
        Told what is not to be leased.
    first_number : int
        No earlier master has used it or a greater one.
    is_allowed : bool
        Whether bad tasks are left out at all.

    Attributes
    ----------
    ends : dict
        Where tasks end: the first minibatch that does not exist any more.
    hopeless : list or None
        The attempts at a task that cannot be left out, when there is one.
    """

    def __init__(
        self,
        plan: Plan,
        journal: JournalState,
        queue: TaskQueue,
        evaluation: EvaluationRounds,
        first_number: int,
        *,
        is_allowed: bool,
    ) -> None:
        self._plan, self._queue, self._evaluation = plan, queue, evaluation
        self._is_allowed = is_allowed
        self.ends: dict[int, int] = dict(journal.ends)
        self._planned: tuple[int, int] | None = None  # where the job's last task ends, since the job does
        self.hopeless: Attempts | None = None
        for task in journal.skipped_evaluations:
            evaluation.skip(task)
        self._numbers = itertools.count(first_number)
        self._closing: dict[int, tuple[int, Attempts]] = {}  # task -> number of the wish, its failed attempts
        self._reopened: set[int] = set()  # could be computed after all
        self._bad_evaluations: list[Attempts] = []  # not yet journalled

    # -- what is told

    @property
    def closing(self) -> tuple[tuple[int, int], ...]:
        """The tasks that partitions should close: (task, number of the wish)."""
        return tuple((task, number) for task, (number, _) in self._closing.items())

    @property
    def minibatches(self) -> int:
        """How many minibatches are left out, of a feed that keeps every record."""
        size = self._plan.minibatch_size
        wholes = ((-(-self._plan.task_records(task) // size), end) for task, end in self._skipped)
        return sum(max(1, whole - end) for whole, end in wholes)

    @property
    def records(self) -> int:
        """How many records are left out, of a feed that keeps every record."""
        size = self._plan.minibatch_size
        return sum(max(0, self._plan.task_records(task) - end * size) for task, end in self._skipped)

    @property
    def cut_off(self) -> tuple[int, int]:
        """Records and minibatches of the last task that are no part of the job, for a feed that keeps every record."""
        if self._planned is None:
            return 0, 0
        task, end = self._planned
        size, records = self._plan.minibatch_size, self._plan.task_records(task)
        return max(0, records - end * size), max(0, -(-records // size) - end)

    @property
    def training_tasks(self) -> int:
        return len(self._skipped)

    @property
    def _skipped(self) -> list[tuple[int, int]]:
        return [each for each in self.ends.items() if each != self._planned]

    @property
    def evaluation_tasks(self) -> int:
        return len(self._evaluation.skipped)

    @property
    def unpredicted(self) -> int:
        """How many records to be predicted, or analyzed, are left out."""
        ranges = self._plan.evaluation_ranges if self._plan.gives_parts else ()
        return sum(ranges[task].count for task in self._evaluation.skipped) if ranges else 0

    @property
    def journalled(self) -> Ends:
        """The same as the journal and the partitions have it."""
        return tuple(sorted(self.ends.items()))

    def of(self, tasks: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Return those of these tasks that are ended, each with its end."""
        return tuple((task, self.ends[task]) for task in tasks if task in self.ends)

    # -- events

    def end_job_at(self, task: int, index: int) -> None:
        """The job ends inside this task; to be journalled."""
        self._planned = (task, index)
        self.ends[task] = index

    def is_known(self, failed: FailedTask) -> bool:
        """Whether it failed where it need not be computed: who reports it did not know yet."""
        if failed.kind == "evaluation":
            return failed.task in self._evaluation.skipped
        return failed.index >= self.ends.get(failed.task, failed.index + 1)

    def take(self, attempts: Attempts) -> bool:
        """Leave out a task that has failed as often as it may; whether that is possible."""
        failed = attempts[0][1]
        if not self._is_allowed or (failed.kind == "training" and self._is_ended(failed.task)):
            return False
        if failed.kind == "evaluation":
            self._bad_evaluations.append(attempts)
        elif failed.task not in self._closing:
            self._closing[failed.task] = (next(self._numbers), attempts)
            self._queue.close(failed.task)
        return True

    def _is_ended(self, task: int) -> bool:
        """Whether a task has been left out; the job may end inside its last one all the same."""
        return task in self.ends and (task, self.ends[task]) != self._planned

    def advance(self, statuses: Sequence[PartitionStatus]) -> list[Instruction]:
        """Decide what the partitions' newest statuses allow to decide; all partitions are known."""
        out = self._skip_evaluations()
        for task, (number, attempts) in list(self._closing.items()):
            closed = [_closed(status, number) for status in statuses]
            found = [each for each in closed if each is not None]
            if task not in self._queue.done and len(found) < len(statuses):
                continue
            del self._closing[task]
            self._queue.reopen(task)
            if task in self._queue.done:
                continue
            if not any(each.finished for each in found):
                end = max(min(failed.index for _, failed in attempts), *(each.mark for each in found))
                out += self._end(task, end, attempts)
            elif task in self._reopened:
                self.hopeless = attempts
            else:
                self._reopened.add(task)
        return out

    def _end(self, task: int, end: int, attempts: Attempts) -> list[Instruction]:
        self.ends[task] = end
        if self._planned is not None and self._planned[0] == task:
            self._planned = None
        journal = Journal({"ends": self.journalled})
        return [journal, Announce("skip", skip_text(self._plan, attempts, end), 30)]

    def _skip_evaluations(self) -> list[Instruction]:
        out: list[Instruction] = []
        bad, self._bad_evaluations = self._bad_evaluations, []
        for attempts in bad:
            task = attempts[0][1].task
            if task in self._evaluation.skipped:
                continue
            self._evaluation.skip(task)
            out.append(Journal({"skipped_evaluations": tuple(sorted(self._evaluation.skipped))}))
            out.append(Announce("skip", skip_text(self._plan, attempts), 30))
        return out


def _closed(status: PartitionStatus, number: int) -> ClosedTask | None:
    return next((each for each in status.closed if each.number == number), None)
