"""A whole state in pieces: what a holder gives, and what a new member makes of it.

Each piece has one range of the vectors, so that several holders can give pieces at once; what is small comes with the
first one, and a digest of the whole with it.  A state is only ever taken over whole, with its ledger.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import xxhash

from edlz.services.protocol.layout import slice_bounds
from edlz.services.protocol.ledger import LedgerRecord, TaskSet
from edlz.services.protocol.messages import Identity, SnapshotName, StateHead, StatePiece
from edlz.services.storage.state import State

__all__ = ["assemble", "cut", "part_of", "state_digest"]


def state_digest(state: State) -> str:
    """Return what two states have in common only if all that a member trains on is the same, but for a chance of 2**-128.

    It guards against what is damaged, not against who wants to deceive: XXH3 reads as fast as memory gives.
    """
    digest = xxhash.xxh3_128(
        msgspec.msgpack.encode((state.name, state.iterations, state.ledger, state.losses))
    )
    for vector in (state.dense, state.state, state.counters, state.counts, *state.slots.values()):
        digest.update(np.ascontiguousarray(vector).data)
    return digest.hexdigest()


def cut(state: State, generation: Identity, piece: int, pieces: int, digest: str) -> StatePiece:
    """Return a piece of a state, without copying its vectors.

    Parameters
    ----------
    state : State
        The whole.
    generation : Identity
        In which it is given.
    digest : str
        Of `state_digest`, for piece 0.
    """
    dense = slice(*slice_bounds(len(state.dense), piece, pieces))
    others = slice(*slice_bounds(len(state.state), piece, pieces))
    is_first = piece == 0
    head = StateHead(iterations=state.iterations, ledger=state.ledger, losses=state.losses, digest=digest)
    return StatePiece(
        generation=generation,
        name=state.name,
        piece=piece,
        dense=state.dense[dense],
        state=state.state[others],
        slots=tuple(slot[dense] for slot in state.slots.values()),
        head=head if is_first else None,
        counts=state.counts.astype(np.int64) if is_first else None,
        counters=state.counters if is_first else None,
    )


def part_of(state: State, rank: int, count: int) -> State:
    """Return a member's slices of a whole state, as a partition has them; later steps do not change them."""
    dense = slice(*slice_bounds(len(state.dense), rank, count))
    others = slice(*slice_bounds(len(state.state), rank, count))
    return msgspec.structs.replace(
        state,
        partition=rank,
        partitions=count,
        dense=state.dense[dense],
        state=state.state[others],
        slots={name: slot[dense].copy() for name, slot in state.slots.items()},
    )


def assemble(own: State, name: SnapshotName, pieces: Sequence[StatePiece]) -> State | None:
    """Return the state of these pieces, in their order; None if that is not the one that was cut.

    Parameters
    ----------
    own : State
        The member's own, of the same model.
    """
    head, counts, counters = pieces[0].head, pieces[0].counts, pieces[0].counters
    if head is None or counts is None or counters is None:
        return None
    if any(len(piece.slots) != len(own.slots) for piece in pieces) or not _is_ledger(head.ledger):
        return None
    vectors = [vector for piece in pieces for vector in (piece.dense, piece.state, *piece.slots)]
    if any(vector.ndim != 1 for vector in vectors):
        return None
    slots = zip(*(piece.slots for piece in pieces), strict=True)
    state = msgspec.structs.replace(
        own,
        era=name[0],
        version=name[1],
        iterations=head.iterations,
        ledger=head.ledger,
        losses=head.losses,
        counts=counts.astype(np.int32),
        counters=counters.copy(),
        dense=np.concatenate([piece.dense for piece in pieces]),
        state=np.concatenate([piece.state for piece in pieces]),
        slots={name: np.concatenate(slot) for name, slot in zip(own.slots, slots, strict=True)},
    )
    is_like_own = _shapes(state) == _shapes(own)
    return state if is_like_own and state_digest(state) == head.digest else None


def _shapes(state: State) -> list[tuple[int, ...]]:
    small = [state.counters.shape, state.counts.shape]
    return [*small, *(vector.shape for vector in (state.dense, state.state, *state.slots.values()))]


def _is_ledger(record: LedgerRecord) -> bool:
    try:
        TaskSet(record.finished)
    except ValueError:
        return False
    return True
