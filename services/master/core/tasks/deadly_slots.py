"""The core that finds the task which ends members of an all-reduce group: a record that crashes its reader, or takes all memory.

Theory of operation.  A member computes the slots of a block one after another, and says nothing between them: when it
ends and nobody explains that, its last word may be older than what has ended it, so the death counts for nothing.  But it calls
for *caution*: at the version that members stood at, whoever computes names each slot first, and waits until that is heard.  So of the
next one that ends there the last word names the minibatch in work, and the death is a failed attempt at its task.  A
group that has got on from there is careful no more; one that went back, since nobody was left, is careful from there on for
some steps, and for more of them each time.  A minibatch that is done is forgiven, so that a machine that goes away all day ends no job.
"""

from collections.abc import Mapping

from edlz.services.master.core.tasks.task_failures import MAX_ATTEMPTS, Attempts, failed_by_death
from edlz.services.master.core.vocabulary.records import WorkerEntry
from edlz.services.protocol.ledger import TaskSet
from edlz.services.protocol.messages import FailedTask

__all__ = ["STEPS", "DeadlySlots"]

STEPS = 256  # that members may have taken since the last word of one that ends
_MOST = 1 << 16


class DeadlySlots:
    """The deaths of one job's members that nobody explains.

    Attributes
    ----------
    caution : (int, int)
        From which version on members are careful, and the first one from which they are not; equal if nowhere.
    given_up : set of int
        Tasks that have ended members as often as they may.
    """

    def __init__(self) -> None:
        self._count = 0
        self._steps = STEPS  # of the next caution
        self._attempts: dict[tuple[int, int], Attempts] = {}  # by task and index of the minibatch
        self.caution = 0, 0
        self.given_up: set[int] = set()

    def take(
        self, worker: str, reason: str, last: WorkerEntry, version: int
    ) -> tuple[FailedTask | None, Attempts | None]:
        """Count a death; see `DeadlyTasks.take`.

        Parameters
        ----------
        last : WorkerEntry
            The worker's last word.
        version : int
            That the group is known to have come to.
        """
        self._count += 1
        self.caution = version, version + self._steps
        if last.computing is None or last.evaluating:
            self._steps = min(2 * self._steps, _MOST)
            return None, None
        task, _ = last.computing
        failed = failed_by_death("training", task, reason, self._count)
        attempts = self._attempts.setdefault(last.computing, [])
        attempts.append((worker, failed))
        if len(attempts) < MAX_ATTEMPTS or task in self.given_up:
            return failed, None
        self.given_up.add(task)
        return failed, attempts

    def get_on(self, begun_at: int, version: int, finished: TaskSet, marks: Mapping[int, int]) -> None:
        """A group that has begun at a version has come to another one; `finished`, `marks`: what it has done."""
        first, end = self.caution
        if first <= begun_at < version:
            self.caution, self._steps = (0, 0), STEPS
        elif version >= end:
            self.caution = 0, 0
        for task, index in list(self._attempts):
            if task in finished or marks.get(task, 0) > index:
                del self._attempts[task, index]
