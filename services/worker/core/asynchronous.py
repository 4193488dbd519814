"""Asynchronous training on a worker: one task after another, each minibatch as soon as it is computed.

Theory of operation.  One exchange carries a push and the next pull.  With embedding tables ids are found two
minibatches ahead: the rows of a minibatch travel while the one before it is computed, and the push of that
asks for those of the one after.  PROTOCOL: section 4.
"""

from collections.abc import Callable

from edlz.services.protocol.messages import Push
from edlz.services.protocol.plan import Plan
from edlz.services.worker.core.held_tasks import Phase, Run
from edlz.services.worker.core.instructions import Instruction
from edlz.services.worker.core.partition_directory import KnownPartitions
from edlz.services.worker.core.requests import Requests
from edlz.services.worker.core.training import Training

__all__ = ["AsynchronousTraining"]


class AsynchronousTraining(Training):
    """The runs of one worker in asynchronous mode.

    Parameters
    ----------
    plan, partitions, requests, has_tables, tell
        As of `Training`.
    looks_ahead : bool
        Whether rows may be pulled one minibatch ahead.
    """

    def __init__(
        self,
        plan: Plan,
        partitions: KnownPartitions,
        requests: Requests,
        has_tables: bool,
        tell: Callable[[float], list[Instruction]],
        *,
        looks_ahead: bool,
    ) -> None:
        super().__init__(plan, partitions, requests, has_tables, tell)
        self._looks_ahead = looks_ahead and has_tables
        self._ids_ahead = 2 if self._looks_ahead else 1

    # -- scheduling

    def _begin(self) -> list[Instruction]:
        """One run at a time; the next one when all that the others need is on its way, or their pushes are held."""
        if any(not (run.is_held or self._needs_no_more(run)) for run in self._runs.active):
            return []
        for run in self._runs:
            if run.phase is Phase.QUEUED:
                return self._pull(run)
        return []

    def _needs_no_more(self, run: Run) -> bool:
        is_at_work = run.phase in (Phase.READY, Phase.COMPUTING, Phase.PUSHING)
        return self._looks_ahead and is_at_work and run.ends_before(run.index + 1)

    # -- pulling

    def _look_ahead(self, run: Run) -> list[Instruction]:
        following = run.index + 1
        is_due = self._looks_ahead and run.phase in (Phase.READY, Phase.COMPUTING)
        if not is_due or following in run.ahead or run.ids.get(following) is None:
            return []
        run.ahead[following] = {}
        return [self._requests.pull(run, p, following) for p in range(self._count)]

    # -- answers

    def _on_all(self, run: Run, now: float) -> list[Instruction]:
        return self._resume(run, min(answer.version for answer in run.answers.values()), now)

    def _go_on(self, run: Run, now: float) -> list[Instruction]:
        """The minibatch before was pushed; go on when this one's rows are there."""
        answers = run.ahead.get(run.index)
        if run.phase is not Phase.PULLING or answers is None or len(answers) < self._count:
            return []
        del run.ahead[run.index]
        if all(answer.finished for answer in answers.values()):  # somebody else has finished it meanwhile
            return self._finish(run, now)
        run.enter(Phase.READY)
        run.answers, run.asked = answers, run.index
        run.version = min(answer.version for answer in answers.values())
        return []

    # -- pushing

    def _push(self, run: Run, pushes: list[Push]) -> list[Instruction]:
        if run.is_last:
            return self._push_only(run, pushes)
        return self._push_ahead(run, pushes) if self._looks_ahead else self._push_and_pull(run, pushes)

    def _push_ahead(self, run: Run, pushes: list[Push]) -> list[Instruction]:
        """Push, ask for the rows of the minibatch after the next, and turn to the next."""
        run.wants_vectors = self._requests.wants_vectors(run, self._runs.of_step(run))
        following = run.index + 1
        out: list[Instruction] = []
        if following not in run.ahead and run.ids.get(following) is None:  # a take-over: unknown yet
            out += list(self._requests.push_all(run, pushes, "pushed"))
            run.index = following
            return [*out, *self._pull(run)]
        asked = following + 1 if following in run.ahead else following
        if run.ids.get(asked) is None:
            out += list(self._requests.push_all(run, pushes, "pushed"))
        else:
            run.ahead[asked] = {}
            out += [self._requests.pull(run, p, asked, push=push) for p, push in enumerate(pushes)]
        run.index = following
        run.enter(Phase.PULLING)
        return out

    def _on_all_acks(self, run: Run, now: float) -> list[Instruction]:
        return self._finish(run, now)  # its last minibatch is applied everywhere
