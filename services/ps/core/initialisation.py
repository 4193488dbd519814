"""What a partition begins with: a worker's initial values or a checkpoint, and who may work on it."""

from collections.abc import Hashable
from itertools import zip_longest

import msgspec
import numpy as np

from edlz.services import strict_json
from edlz.services.errors import RemoteProtocolError
from edlz.services.parameters.store import Store, initial_digest
from edlz.services.protocol.concluded_rounds import LossSum
from edlz.services.protocol.layout import Layout
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.protocol.messages import (
    NO_IDENTITY,
    ErrorReply,
    Initialise,
    Initialised,
    Job,
    OptimizerSpec,
    Refused,
    TableSpec,
)
from edlz.services.protocol.plan import Plan
from edlz.services.ps.core.instructions import Reply, Write
from edlz.services.storage.state import State

__all__ = ["Initialisation", "begun_from", "difference"]


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


def begun_from(state: State, plan: Plan) -> State:
    """Return a checkpoint as the state before training: its ledger counts if it is of the same plan."""
    changes: dict[str, object] = {"base_digest": "", "era": NO_IDENTITY, "plan_hash": plan.hash}
    if state.plan_hash != plan.hash:
        changes["ledger"], changes["losses"] = LedgerRecord(), LossSum()
        changes["counts"] = np.zeros(plan.task_count, np.int32)
    return msgspec.structs.replace(state, **changes)


def difference(begun: State, body: Initialise) -> ErrorReply | None:
    """What keeps a worker's model from going with the state that a partition began with."""
    if not begun.base_digest:  # a checkpoint: its values are not the seed's
        for what, ours, theirs in (
            ("variables", _variables(begun.layout), _variables(body.layout)),
            ("embedding tables", list(map(_shown, begun.tables)), list(map(_shown, body.tables))),
            ("optimizer", [_shown(begun.optimizer)], [_shown(body.optimizer)]),
        ):
            pairs = zip_longest(ours, theirs, fillvalue="nothing")
            differing = next((pair for pair in pairs if pair[0] != pair[1]), None)
            if differing is not None:
                return ErrorReply(
                    code="config",
                    message=f"the checkpoint's {what} are not the model's: {differing[0]} there, "
                    f"{differing[1]} here",
                    help="use the model that wrote the checkpoint, or begin without one",
                )
        return None
    if body.digest == begun.base_digest:
        return None
    return ErrorReply(
        code="config",
        message=f"this worker's initial model differs from the one that partition {begun.partition} began with",
        help="use the same model file, TensorFlow and Keras on all workers, and no randomness outside Keras",
    )


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


def _variables(layout: Layout) -> list[str]:
    vectors = (layout.dense, layout.state, layout.counters)
    return [f"{v.path} {tuple(v.shape)}" for vector in vectors for v in vector.variables]


def _shown(record: TableSpec | OptimizerSpec) -> str:
    return strict_json.encode(msgspec.structs.asdict(record)).decode()
