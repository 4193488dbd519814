"""A state that comes in pieces: nothing of it is held twice, and what is not whole is not taken."""

import tracemalloc

import msgspec
import numpy as np
import pytest

from edlz.services.parameters.store import Store
from edlz.services.protocol.messages import StatePiece
from edlz.services.storage.state import State
from edlz.services.worker.core.groups.incoming_state import IncomingState
from edlz.services.worker.core.groups.state_transfer import cut, state_digest
from tests.simulation.groups.reference import initial_store
from tests.simulation.groups.schedule import random_group_schedule

PIECES = 16
NAME = ((1, 1), 7)


def state_of(size: int, seed: int) -> State:
    """Return a state with long vectors."""
    rng = np.random.default_rng(seed)
    own = initial_store(random_group_schedule(1)).view(NAME[0])
    slots = {name: rng.random(size, np.float32) for name in own.slots}
    vectors = {"dense": rng.random(size, np.float32), "state": rng.random(size // 8, np.float32)}
    return msgspec.structs.replace(own, version=NAME[1], slots=slots, **vectors)


def pieces_of(state: State) -> list[StatePiece]:
    digest = state_digest(state)
    return [cut(state, (1, 2), piece, PIECES, digest) for piece in range(PIECES)]


def received(pieces: list[StatePiece], own: State) -> State | None:
    incoming = IncomingState(own, NAME, PIECES)
    for piece in pieces:
        incoming.take(piece)
    return incoming.whole()


def test_what_comes_is_held_once() -> None:
    given, own = state_of(1 << 18, 1), state_of(1 << 18, 2)
    pieces = pieces_of(given)
    size_bytes = sum(vector.nbytes for vector in (given.dense, given.state, *given.slots.values()))
    tracemalloc.start()
    try:
        state = received(pieces, own)
        assert state is not None
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size_bytes <= peak_bytes < 1.05 * size_bytes
    assert state_digest(state) == state_digest(given)


def test_a_store_begins_from_it_without_a_copy() -> None:
    own = initial_store(random_group_schedule(1)).view(NAME[0])
    state = received(pieces_of(msgspec.structs.replace(own, version=NAME[1])), own)
    assert state is not None
    assert Store(state, 1, adopts=True).dense.ctypes.data == state.dense.ctypes.data


@pytest.mark.parametrize("bad", ["missing", "long", "slots", "first", "changed"])
def test_what_is_not_whole_is_not_taken(bad: str) -> None:
    given = state_of(1000, 1)
    pieces = pieces_of(given)
    match bad:
        case "missing":
            del pieces[3]
        case "long":
            pieces[3] = msgspec.structs.replace(pieces[3], dense=given.dense)
        case "slots":
            pieces[3] = msgspec.structs.replace(pieces[3], slots=())
        case "first":
            pieces[0] = msgspec.structs.replace(pieces[0], head=None)
        case "changed":
            pieces[3] = msgspec.structs.replace(pieces[3], dense=pieces[3].dense + 1)
    assert received(pieces, state_of(1000, 2)) is None


def test_pieces_come_in_any_order() -> None:
    given = state_of(1000, 1)
    assert received(pieces_of(given)[::-1], state_of(1000, 2)) is not None
