"""Synchronous training on a worker: it fills slots of steps that all partitions commit together.

Theory of operation.  A pull is held by a partition until the step before is committed.  A worker may fill
several slots of one step: only the last of them pulls, and its answer, which proves that the step is
committed, moves all of them on.  Runs of a later round wait in hand until this worker has nothing left in
the round before.  PROTOCOL: section 5.
"""

from edlz.services.protocol.messages import Exchanged, Push
from edlz.services.worker.core.held_tasks import Phase, Run
from edlz.services.worker.core.instructions import Instruction
from edlz.services.worker.core.training import Training

__all__ = ["SynchronousTraining"]


class SynchronousTraining(Training):
    """The runs of one worker, in one era of synchronous mode."""

    # -- scheduling

    def _begin(self) -> list[Instruction]:
        return [*self._begin_round(), *self._pull_for_staged()]

    def _begin_round(self) -> list[Instruction]:
        """Begin the queued runs of the earliest round that this worker has in hand."""
        out: list[Instruction] = []
        for run in self._runs.of_earliest_round():
            if run.phase is Phase.QUEUED:
                out += self._pull(run)
        return out

    def _pull_for_staged(self) -> list[Instruction]:
        """A staged run whose step no other run of this worker will see committed asks itself."""
        out: list[Instruction] = []
        drivers = (Phase.READY, Phase.COMPUTING, Phase.PULLING, Phase.PUSHING)
        for run in self._runs:
            if run.phase is not Phase.STAGED:
                continue
            if not any(other.phase in drivers for other in self._runs.of_step(run)):
                run.index += 1
                out += self._pull(run)
        return out

    def _are_of_another_step(self, run: Run, parts: tuple[Exchanged, ...]) -> bool:
        return any(part.version != run.version for part in parts)

    # -- answers

    def _on_all(self, run: Run, now: float) -> list[Instruction]:
        version = min(answer.version for answer in run.answers.values())
        ahead = [p for p, answer in run.answers.items() if answer.version > version]
        if ahead:  # they keep the version before, for just this
            for p in ahead:
                del run.answers[p]
            return [self._requests.pull(run, p, run.asked, version=version) for p in ahead]
        out = self._advance_staged(run, version, now)
        run.snapshot_at = max(answer.snapshot_at for answer in run.answers.values())
        run.checkpoint_at = max(answer.checkpoint_at for answer in run.answers.values())
        return [*out, *self._resume(run, version, now)]

    def _advance_staged(self, run: Run, version: int, now: float) -> list[Instruction]:
        """All partitions have reached `version`: this worker's staged slots of older steps are in it."""
        out: list[Instruction] = []
        for other in self._runs:
            if other.phase is not Phase.STAGED or other.version >= version:
                continue
            other.incarnations = dict(run.incarnations)
            if other.is_last:
                out += self._finish(other, now)
                continue
            other.index += 1
            if version == other.version + 1:
                other.version = version
                other.enter(Phase.READY)
                other.snapshot_at = max(answer.snapshot_at for answer in run.answers.values())
                other.checkpoint_at = max(answer.checkpoint_at for answer in run.answers.values())
            else:
                out += self._pull(other)
        return out

    # -- pushing

    def _push(self, run: Run, pushes: list[Push]) -> list[Instruction]:
        return self._push_only(run, pushes) if self._has_more_slots(run) else self._push_and_pull(run, pushes)

    def _has_more_slots(self, run: Run) -> bool:
        """Whether another run will see this step's commit; with rows, each asks for its own."""
        return not self._has_tables and any(other.phase is Phase.READY for other in self._runs.of_step(run))

    def _on_all_acks(self, run: Run, now: float) -> list[Instruction]:
        run.enter(Phase.STAGED)
        return []
