"""What a partition begins with: a worker's initial values or a checkpoint, and who may work on it."""

from collections.abc import Hashable

from edlz.services.errors import RemoteProtocolError
from edlz.services.parameters.beginning import difference
from edlz.services.parameters.store import Store, initial_digest
from edlz.services.protocol.messages import (
    Initialise,
    Initialised,
    Job,
    Refused,
)
from edlz.services.protocol.plan import Plan
from edlz.services.ps.core.instructions import Reply, Write
from edlz.services.storage.state import State

__all__ = ["Initialisation"]


class Initialisation:
    """The state before training of one bare partition, on its way to the disk.

    The first one is taken; a worker that sends another is told what keeps its model from going with it, the
    others hear that it is taken when it is durable.

    Parameters
    ----------
    partition : int
        Which one this is.
    """

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._state: State | None = None  # being written
        self._waiting: list[Hashable] = []  # who has sent the very same

    def take(self, state: State) -> Write:
        """Begin with this state."""
        self._state = state
        return Write("base", state)

    def on_initialise(self, to: Hashable, body: Initialise, job: Job) -> list[Reply | Write]:
        """A worker's initial values, or only their digest; those of a job that begins from a checkpoint are not taken.

        Raises
        ------
        RemoteProtocolError
            If the values are not those of their digest, or do not fit the partition.
        """
        out: list[Reply | Write] = []
        if self._state is not None:
            problem = difference(self._state, body)
            if problem is not None:
                return [Reply(to, problem)]
        elif job.begins_from or body.dense is None or body.state is None or body.counters is None:
            return [Reply(to, Refused(reason="not ready"))]
        else:
            out.append(self.take(_initial_state(body, job.plan, self._partition, job.partitions)))
        self._waiting.append(to)
        return out

    def on_written(self) -> list[Reply]:
        """The state is durable; this partition is not bare any more."""
        self._state = None  # it takes as much memory as what has been made of it
        waiting, self._waiting = self._waiting, []
        return [Reply(to, Initialised(partition=self._partition)) for to in waiting]

    def on_no_room(self) -> list[Reply]:
        """The state could not be written: this partition is as bare as before, and takes the next one."""
        self._state = None
        waiting, self._waiting = self._waiting, []
        return [Reply(to, Refused(reason="not ready")) for to in waiting]


def _initial_state(body: Initialise, plan: Plan, partition: int, partitions: int) -> State:
    """Return the state before training that a worker has sent."""
    assert body.dense is not None
    assert body.state is not None
    assert body.counters is not None
    about = (body.plan_hash, body.layout, body.optimizer, body.tables)
    if initial_digest(*about, body.dense, body.state, body.counters) != body.digest:
        raise RemoteProtocolError("the initial values do not have the digest that came with them")
    try:
        return Store.initial(
            plan_hash=body.plan_hash,
            task_count=plan.task_count,
            partition=partition,
            partitions=partitions,
            layout=body.layout,
            optimizer=body.optimizer,
            dense=body.dense,
            state=body.state,
            counters=body.counters,
            tables=body.tables,
        )
    except ValueError as error:
        raise RemoteProtocolError(f"cannot initialise partition {partition}: {error}") from error
