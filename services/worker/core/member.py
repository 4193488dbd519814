"""The life of a worker that is a member of an all-reduce group, as its core has it: nothing is leased to train on.

Theory of operation.  What is computed next is the `Replica`'s affair; here is what the rest of a worker's life asks of its
training.  The one partition that evaluations pull their values from is the replica in this process: what is asked of it is
answered at once, and only while the replica has the state of its group.
"""

from collections.abc import Callable

from edlz.services.configuration.job_settings import JobSettings
from edlz.services.protocol.concluded_rounds import CallbackNeeds
from edlz.services.protocol.messages import (
    ANY_VERSION,
    Exchanged,
    FailedTask,
    Identity,
    NewestPull,
    PartitionAddress,
    Push,
    Refused,
)
from edlz.services.protocol.plan import Plan
from edlz.services.worker.core.groups import inputs, instructions
from edlz.services.worker.core.groups.milestones import Milestones
from edlz.services.worker.core.groups.replica import Replica
from edlz.services.worker.core.groups.replica_phases import Phase
from edlz.services.worker.core.held_tasks import HeldTask
from edlz.services.worker.core.instructions import Instruction
from edlz.services.worker.core.partition_directory import PartitionDirectory
from edlz.services.worker.core.requests import Requests
from edlz.services.worker.core.training import Training

__all__ = ["MemberTraining", "own_replica", "replica_of"]

_WAITING = {
    Phase.WAITING,
    Phase.PROMISED,
    Phase.FETCHING,
    Phase.STAGED,
    Phase.HELD,
    Phase.BARRED,
    Phase.FAILED,
    Phase.SEALING,
    Phase.SEALED,
}


def own_replica(incarnation: Identity) -> PartitionAddress:
    """Return where the one partition is that a member pulls values from for evaluations: here."""
    return PartitionAddress(index=0, incarnation=incarnation, endpoint="", has_base=True)


def replica_of(
    incarnation: Identity,
    plan: Plan,
    settings: JobSettings,
    callbacks: CallbackNeeds | None = None,
    *,
    sees_job_dir: bool = True,
) -> Replica:
    """Return the replica of a worker, without a state.

    Parameters
    ----------
    callbacks : CallbackNeeds, optional
        The model's: if some are called, rounds of evaluation are at their barriers, and no state is held for others.
    sees_job_dir : bool
        Whether what it writes there to go on from is found by the master.
    """
    has_rounds = bool(plan.evaluation_ranges) and not (callbacks is not None and callbacks.runs)
    is_found = sees_job_dir and not settings.private_job_dir
    milestones = Milestones(
        settings.recovery_snapshot_secs if is_found else None,
        settings.checkpoint_steps,
        settings.evaluation_steps if has_rounds else 0,
    )
    return Replica(incarnation, plan, milestones)


class MemberTraining(Training):
    """Training without leases.

    Parameters
    ----------
    plan, partitions, requests, tell
        As for `Training`.
    replica : Replica

    Attributes
    ----------
    replica : Replica
    """

    def __init__(
        self,
        plan: Plan,
        partitions: PartitionDirectory,
        requests: Requests,
        tell: Callable[[float], list[Instruction]],
        replica: Replica,
    ) -> None:
        super().__init__(plan, partitions, requests, False, tell)
        self.replica = replica
        self._block: tuple[int, ...] = ()  # tasks of the slots that are being computed

    # -- what is told

    @property
    def wants_task(self) -> bool:
        return False

    @property
    def holding(self) -> tuple[int, ...]:
        return self._block if self.replica.phase is Phase.COMPUTING else ()

    @property
    def is_waiting(self) -> bool:
        return self.replica.phase in _WAITING

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do, nor to report, before the master says more."""
        return self.replica.awaits_orders and not self._failed

    @property
    def is_member(self) -> bool:
        """Whether the replica has the state of its group."""
        return self.replica.is_member

    # -- inputs

    def feed(self, event: inputs.Input, now: float) -> list[Instruction]:
        """Give the replica an input; return what it asks for."""
        if isinstance(event, inputs.SlotComputed):
            self.steps += 1
        found = self.replica.feed(event, now)
        for instruction in found:  # all of them: a status says where they have led
            if isinstance(instruction, instructions.Compute):
                self._block = tuple(slot.task for slot in instruction.slots)
        out: list[Instruction] = []
        for instruction in found:
            match instruction:
                case instructions.Tell():
                    out += self._tell(now)
                case _:
                    out.append(instruction)
        return out

    def newest(self, pull: NewestPull) -> Exchanged | Refused:
        """Return the replica's values, for evaluation; they are lent: a later step does not change them."""
        replica, store = self.replica, self.replica.store
        is_wanted = pull.version in (ANY_VERSION, replica.name[1])
        has_state = replica.is_member and replica.phase is not Phase.ADVANCING
        if store is None or not (is_wanted and has_state):
            return Refused(reason="not ready")
        values = store.values()
        return Exchanged(
            incarnation=replica.name[0],
            mark=0,
            finished=False,
            version=values.version,
            dense=values.dense,
            state=values.state,
            counters=values.counters,
        )

    def end_job(self, failed: FailedTask) -> None:
        """The job is to end at this minibatch: the master hears it until it has noted it."""
        if all(known.key != failed.key for known in self._failed):
            self._failed.append(failed)

    # -- of what is leased there is nothing

    def _begin(self) -> list[Instruction]:
        return []

    def _on_all(self, held: HeldTask, now: float) -> list[Instruction]:
        raise AssertionError("a member has no task in hand")

    def _push(self, held: HeldTask, pushes: list[Push]) -> list[Instruction]:
        raise AssertionError("a member has no task in hand")

    def _on_all_acks(self, held: HeldTask, now: float) -> list[Instruction]:
        raise AssertionError("a member has no task in hand")
