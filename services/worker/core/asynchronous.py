"""Asynchronous training on a worker: one task after another, each minibatch as soon as it is computed.

Theory of operation.  One exchange carries a push and the next pull.  With embedding tables ids are found two
minibatches ahead: the rows of a minibatch travel while the one before it is computed, and the push of that
asks for those of the one after.  PROTOCOL: section 4.
"""

from collections.abc import Callable

from edlz.services.protocol.messages import Push
from edlz.services.protocol.plan import Plan
from edlz.services.worker.core.held_tasks import HeldTask, Phase
from edlz.services.worker.core.instructions import Instruction
from edlz.services.worker.core.partition_directory import PartitionDirectory
from edlz.services.worker.core.requests import Requests
from edlz.services.worker.core.training import Training

__all__ = ["AsynchronousTraining"]


class AsynchronousTraining(Training):
    """The held tasks of one worker in asynchronous mode.

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
        partitions: PartitionDirectory,
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
        """One task at a time; the next one when all that the others need is on its way, or their pushes are held."""
        if any(not (held.are_pushes_held or self._needs_no_more(held)) for held in self._held.active):
            return []
        for held in self._held:
            if held.phase is Phase.QUEUED:
                return self._pull(held)
        return []

    def _needs_no_more(self, held: HeldTask) -> bool:
        is_at_work = held.phase in (Phase.READY, Phase.COMPUTING, Phase.PUSHING)
        return self._looks_ahead and is_at_work and held.ends_before(held.index + 1)

    # -- pulling

    def _look_ahead(self, held: HeldTask) -> list[Instruction]:
        following = held.index + 1
        is_due = self._looks_ahead and held.phase in (Phase.READY, Phase.COMPUTING)
        if not is_due or following in held.ahead or held.ids.get(following) is None:
            return []
        held.ahead[following] = {}
        return [self._requests.pull(held, p, following) for p in range(self._count)]

    # -- answers

    def _on_all(self, held: HeldTask, now: float) -> list[Instruction]:
        return self._resume(held, min(answer.version for answer in held.answers.values()), now)

    def _go_on(self, held: HeldTask, now: float) -> list[Instruction]:
        """The minibatch before was pushed; go on when this one's rows are there."""
        answers = held.ahead.get(held.index)
        if held.phase is not Phase.PULLING or answers is None or len(answers) < self._count:
            return []
        del held.ahead[held.index]
        if all(answer.finished for answer in answers.values()):  # somebody else has finished it meanwhile
            return self._finish(held, now)
        held.enter(Phase.READY)
        held.answers, held.asked = answers, held.index
        held.version = min(answer.version for answer in answers.values())
        return []

    # -- pushing

    def _push(self, held: HeldTask, pushes: list[Push]) -> list[Instruction]:
        if held.is_last:
            return self._push_only(held, pushes)
        return self._push_ahead(held, pushes) if self._looks_ahead else self._push_and_pull(held, pushes)

    def _push_ahead(self, held: HeldTask, pushes: list[Push]) -> list[Instruction]:
        """Push, ask for the rows of the minibatch after the next, and turn to the next."""
        held.wants_vectors = self._requests.wants_vectors(held, self._held.of_step(held))
        following = held.index + 1
        out: list[Instruction] = []
        if following not in held.ahead and held.ids.get(following) is None:  # a take-over: unknown yet
            out += list(self._requests.push_all(held, pushes, "pushed"))
            held.index = following
            return [*out, *self._pull(held)]
        asked = following + 1 if following in held.ahead else following
        if held.ids.get(asked) is None:
            out += list(self._requests.push_all(held, pushes, "pushed"))
        else:
            held.ahead[asked] = {}
            out += [self._requests.pull(held, p, asked, push=push) for p, push in enumerate(pushes)]
        held.index = following
        held.enter(Phase.PULLING)
        return out

    def _on_all_acks(self, held: HeldTask, now: float) -> list[Instruction]:
        return self._finish(held, now)  # its last minibatch is applied everywhere
