"""The core that finds the task which ends its workers: a record that crashes its reader, or takes all memory.

Theory of operation.  A worker that was taken away says nothing of its work.  One that ended otherwise may have been
ended by it, and cannot tell by what: it had several tasks in hand, and reads ahead.  So its tasks become *suspects*.
A suspect is leased to workers that are at nothing else, and whoever has one gets nothing more unless it waits; so
the newest suspect in the hand of the next one that dies is the one in work.  The death is a failed attempt at that
task, like an error of the user's code, unless the worker had got on with the task: then it is free again, and a
machine that goes away all day ends no job.  What is done is no suspect.  When the attempts are enough, the death that
made the task a suspect is told with them, if its reason was theirs: it counts for nothing, but the user has seen it.

Tasks of evaluation rounds are suspects in the same way; one that was reported is not.
"""

from typing import Literal

from edlz.services.master.core.tasks.evaluation_rounds import EvaluationRounds
from edlz.services.master.core.tasks.task_failures import NO_ROUND, Attempts, Key, failed_by_death
from edlz.services.master.core.tasks.task_queue import TaskQueue
from edlz.services.master.core.vocabulary.records import WorkerEntry
from edlz.services.protocol.messages import FailedTask

__all__ = ["DeadlyTasks"]

_BOOT = -1  # of no process: these attempts are counted by the master


class DeadlyTasks:
    """The deaths of workers that nobody explains, by the task in hand.

    Parameters
    ----------
    queue, evaluation : TaskQueue, EvaluationRounds
        Told of suspects and of failed attempts.
    """

    def __init__(self, queue: TaskQueue, evaluation: EvaluationRounds) -> None:
        self._queue, self._evaluation = queue, evaluation
        self._count = 0
        self._first: dict[
            Key, tuple[str, FailedTask]
        ] = {}  # of tasks that are or were suspects: the death that made them

    def take(self, worker: str, reason: str, entry: WorkerEntry) -> tuple[FailedTask | None, Attempts | None]:
        """Count a death.

        Parameters
        ----------
        entry : WorkerEntry
            The worker's last word.

        Returns
        -------
        failed : FailedTask, or None
            The failed attempt that it is.
        attempts : list of (worker, FailedTask), or None
            All attempts at that task, when this was the last one allowed.
        """
        self._count += 1
        queue, rounds = self._queue, self._evaluation
        held = [task for task in entry.holding if task not in queue.done]
        suspects = [task for task in held if task in queue.suspects]
        evaluating = [lease for lease in entry.evaluating if lease in rounds.suspects]
        if evaluating:
            round_, task = evaluating[0]
            failed = self._failed("evaluation", task, reason, round_)
            return failed, self._with_first(rounds.fail(worker, _BOOT, failed))
        if not suspects or entry.evaluating:  # it may have been one that is no suspect yet
            self._suspect(worker, reason, held, entry.evaluating)
            return None, None
        task = suspects[-1]
        if _gets_on(entry, task):
            return None, None
        failed = self._failed("training", task, reason)
        return failed, self._with_first(queue.fail(worker, _BOOT, failed))

    def note(self, entry: WorkerEntry) -> None:
        """A worker has spoken: what it gets on with is free again."""
        if self._queue.suspects:
            for task in entry.holding:
                if task in self._queue.suspects and _gets_on(entry, task):
                    self._queue.forgive(task)
                    self._first.pop((NO_ROUND, task), None)

    def _suspect(
        self, worker: str, reason: str, held: list[int], evaluating: tuple[tuple[int, int], ...]
    ) -> None:
        """A worker has ended with these tasks in hand, to train on and of evaluation rounds."""
        found = [self._failed("training", task, reason) for task in held if task not in self._queue.suspects]
        found += [self._failed("evaluation", task, reason, round_) for round_, task in evaluating]
        self._first |= {failed.key: (worker, failed) for failed in found}
        self._queue.suspects.update(held)
        self._evaluation.suspects.update(evaluating)

    def _with_first(self, attempts: Attempts | None) -> Attempts | None:
        """All attempts at a task, and before them the death that made it a suspect, if it was like them."""
        first = attempts and self._first.get(attempts[0][1].key)
        if not attempts or not first or first[1].error != attempts[0][1].error:
            return attempts
        return [first, *attempts]

    def _failed(
        self,
        kind: Literal["training", "evaluation"],
        task: int,
        reason: str,
        round_: int = 0,
    ) -> FailedTask:
        return failed_by_death(kind, task, reason, self._count, round_)


def _gets_on(entry: WorkerEntry, task: int) -> bool:
    return entry.steps > entry.steps_before.get(task, entry.steps)
