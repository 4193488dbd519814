"""A state that comes in pieces: each is copied to its place as it comes, so that nothing of a large state is held twice."""

import msgspec
import numpy as np
import numpy.typing as npt

from edlz.core_ext.memory import aligned_empty
from edlz.services.protocol.layout import slice_bounds
from edlz.services.protocol.ledger import LedgerRecord, TaskSet
from edlz.services.protocol.messages import SnapshotName, StatePiece
from edlz.services.storage.state import State
from edlz.services.worker.core.groups.state_transfer import state_digest

__all__ = ["IncomingState"]

Vector = npt.NDArray[np.float32]


class IncomingState:
    """A whole state of which pieces come, in any order, each once.

    Parameters
    ----------
    own : State
        The member's own, of the same model.
    name : SnapshotName
        Of the state that comes.
    pieces : int
        In how many it was cut.
    """

    def __init__(self, own: State, name: SnapshotName, pieces: int) -> None:
        vectors = {"dense": own.dense[:0], "state": own.state[:0], "slots": {}}
        self._frame, self._name, self._pieces = msgspec.structs.replace(own, **vectors), name, pieces
        self._dense, self._state = _like(own.dense), _like(own.state)
        self._slots = {slot: _like(vector) for slot, vector in own.slots.items()}
        self._missing = set(range(pieces))
        self._first: StatePiece | None = None  # without its vectors
        self._fits = True

    @property
    def size(self) -> int:
        """Elements of the model's dense vector."""
        return len(self._dense)

    def take(self, piece: StatePiece) -> None:
        """Copy the vectors of a piece to their places; of one that does not fit nothing is taken."""
        place = piece.piece, self._pieces
        dense, state = (slice(*slice_bounds(len(own), *place)) for own in (self._dense, self._state))
        targets = self._dense[dense], self._state[state], *(slot[dense] for slot in self._slots.values())
        sources = piece.dense, piece.state, *piece.slots
        if [vector.shape for vector in sources] != [vector.shape for vector in targets]:
            self._fits = False
            return
        for target, source in zip(targets, sources, strict=True):
            target[:] = source
        self._missing.discard(piece.piece)
        if piece.piece == 0:
            nothing = self._dense[:0]
            self._first = msgspec.structs.replace(piece, dense=nothing, state=nothing, slots=())

    def whole(self) -> State | None:
        """Return the state, which nobody else has; None if it is not the one that was cut."""
        first = self._first
        if self._missing or not self._fits or first is None:
            return None
        head, counts, counters, frame = first.head, first.counts, first.counters, self._frame
        if head is None or counts is None or counters is None or not _is_ledger(head.ledger):
            return None
        if (counts.shape, counters.shape) != (frame.counts.shape, frame.counters.shape):
            return None
        state = msgspec.structs.replace(
            frame,
            era=self._name[0],
            version=self._name[1],
            iterations=head.iterations,
            ledger=head.ledger,
            losses=head.losses,
            counts=counts.astype(np.int32),
            counters=counters.copy(),
            dense=self._dense,
            state=self._state,
            slots=self._slots,
        )
        return state if state_digest(state) == head.digest else None


def _like(vector: Vector) -> Vector:
    like: Vector = aligned_empty(len(vector), np.float32)
    return like


def _is_ledger(record: LedgerRecord) -> bool:
    try:
        TaskSet(record.finished)
    except ValueError:
        return False
    return True
