"""A whole state in pieces: what a holder gives.  What a new member makes of it is in `incoming_state.py`.

Each piece has one range of the vectors, so that several holders can give pieces at once; what is small comes with the
first one, and a digest of the whole with it.  A state is only ever taken over whole, with its ledger.
"""

import msgspec
import numpy as np
import xxhash

from edlz.services.protocol.layout import slice_bounds
from edlz.services.protocol.messages import Identity, StateHead, StatePiece
from edlz.services.storage.state import State

__all__ = ["copy_of", "cut", "part_of", "state_digest"]


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
    """Return a member's slices of a whole state, as a partition has them; later steps change them."""
    dense = slice(*slice_bounds(len(state.dense), rank, count))
    others = slice(*slice_bounds(len(state.state), rank, count))
    return msgspec.structs.replace(
        state,
        partition=rank,
        partitions=count,
        dense=state.dense[dense],
        state=state.state[others],
        slots={name: slot[dense] for name, slot in state.slots.items()},
    )


def copy_of(part: State) -> State:
    """Return a part of a state that no step changes; the part itself is held no longer."""
    copied = msgspec.structs.replace(
        part,
        dense=part.dense.copy(),
        state=part.state.copy(),
        slots={name: slot.copy() for name, slot in part.slots.items()},
    )
    part.close()
    return copied
