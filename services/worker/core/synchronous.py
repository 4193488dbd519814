"""Synchronous training on a worker: it fills slots of steps that all partitions commit together.

Theory of operation.  A pull is held by a partition until the step before is committed.  A worker may fill
several slots of one step: only the last of them pulls, and its answer, which proves that the step is
committed, moves all of them on.  Tasks of a later round wait in hand until this worker has nothing left in
the round before.  PROTOCOL: section 5.
"""

from edlz.services.protocol.messages import Exchanged, Push
from edlz.services.worker.core.held_tasks import HeldTask, Phase
from edlz.services.worker.core.instructions import Instruction
from edlz.services.worker.core.training import Training

__all__ = ["SynchronousTraining"]


class SynchronousTraining(Training):
    """The held tasks of one worker, in one era of synchronous mode."""

    # -- scheduling

    def _begin(self) -> list[Instruction]:
        return [*self._begin_round(), *self._pull_for_staged()]

    def _begin_round(self) -> list[Instruction]:
        """Begin the queued tasks of the earliest round that this worker has in hand."""
        out: list[Instruction] = []
        for held in self._held.of_earliest_round():
            if held.phase is Phase.QUEUED:
                out += self._pull(held)
        return out

    def _pull_for_staged(self) -> list[Instruction]:
        """A staged task whose step no other task of this worker will see committed asks itself."""
        out: list[Instruction] = []
        drivers = (Phase.READY, Phase.COMPUTING, Phase.HELD_BACK, Phase.PULLING, Phase.PUSHING)
        for held in self._held:
            if held.phase is not Phase.STAGED:
                continue
            # The one that was to see the commit may have been taken back, or have failed, after this one was pushed.
            if not any(other.phase in drivers for other in self._held.of_step(held)):
                held.index += 1
                out += self._pull(held)
        return out

    def _are_of_another_step(self, held: HeldTask, vectors: tuple[Exchanged, ...]) -> bool:
        return any(answer.version != held.version for answer in vectors)

    # -- answers

    def _on_all(self, held: HeldTask, now: float) -> list[Instruction]:
        version = min(answer.version for answer in held.answers.values())
        ahead = [p for p, answer in held.answers.items() if answer.version > version]
        if ahead:  # they keep the version before, for just this
            for p in ahead:
                del held.answers[p]
            return [self._requests.pull(held, p, held.asked, version=version) for p in ahead]
        out = self._advance_staged(held, version, now)
        held.snapshot_at = max(answer.snapshot_at for answer in held.answers.values())
        held.checkpoint_at = max(answer.checkpoint_at for answer in held.answers.values())
        return [*out, *self._resume(held, version, now)]

    def _advance_staged(self, held: HeldTask, version: int, now: float) -> list[Instruction]:
        """All partitions have reached `version`: this worker's staged slots of older steps are in it."""
        out: list[Instruction] = []
        for other in self._held:
            if other.phase is not Phase.STAGED or other.version >= version:
                continue
            # The report names the lives that have committed it, which may be others than those that staged it.
            other.incarnations = dict(held.incarnations)
            if other.is_last:
                out += self._finish(other, now)
                continue
            other.index += 1
            if version == other.version + 1:
                other.version = version
                other.enter(Phase.READY)
                other.snapshot_at = max(answer.snapshot_at for answer in held.answers.values())
                other.checkpoint_at = max(answer.checkpoint_at for answer in held.answers.values())
            else:  # several steps have passed: where it stands only the partitions know
                out += self._pull(other)
        return out

    # -- pushing

    def _push(self, held: HeldTask, pushes: list[Push]) -> list[Instruction]:
        return (
            self._push_only(held, pushes) if self._has_more_slots(held) else self._push_and_pull(held, pushes)
        )

    def _has_more_slots(self, held: HeldTask) -> bool:
        """Whether another task will see this step's commit; with rows, each asks for its own."""
        others = (other for other in self._held.of_step(held) if other is not held)
        return not self._has_tables and any(other.phase in (Phase.READY, Phase.HELD_BACK) for other in others)

    def _on_all_acks(self, held: HeldTask, now: float) -> list[Instruction]:
        held.enter(Phase.STAGED)
        return []
