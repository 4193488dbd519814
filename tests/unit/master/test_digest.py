"""The digest of the final parameters: asked for piece by piece, and never made of anything else."""

import hashlib
from typing import Any

import numpy as np
import pytest

from edlz.services.master import digest
from edlz.services.master.digest import Unreadable, read_digest
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    Initialised,
    ReadTables,
    ReadVector,
    Refused,
    TableDigests,
    VectorPart,
)

VECTORS = {
    name: np.arange(5 * n, 5 * n + 5, dtype=np.float32) for n, name in enumerate(("dense", "state", "m"))
}


def answer(partition: int, body: Message) -> Message:
    """Two partitions own three and two elements of each vector, and a table."""
    if isinstance(body, ReadTables):
        return TableDigests(digests=((2 - partition).to_bytes(16, "little"),))
    assert isinstance(body, ReadVector)
    own = VECTORS[body.vector][3 * partition :][: 3 - partition]
    return VectorPart(total=len(own), slots=("m",), values=own[body.first : body.first + body.count])


def read(replies: Any = answer) -> str:
    reading = read_digest([(1, 1), (1, 2)], "r")
    asked = next(reading)
    while True:
        try:
            asked = reading.send(replies(*asked))
        except StopIteration as end:
            return str(end.value)


@pytest.mark.parametrize("piece", [1, 2, 100])
def test_it_is_that_of_all_vectors_and_tables_however_they_are_cut(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest, "PIECE", piece)
    whole = b"".join(vector.tobytes() for vector in VECTORS.values()) + (3).to_bytes(16, "little")
    assert read() == hashlib.sha256(whole).hexdigest()


@pytest.mark.parametrize(
    ("odd", "complaint"),
    [
        (Refused(reason="not ready"), 'ps-1 answered "not ready" to a read of m'),
        (Initialised(partition=1), "ps-1 answered Initialised to a read of m"),
        (VectorPart(total=2, slots=(), values=VECTORS["m"]), "ps-1 gave 5 elements of m where 2 were due"),
        (VectorPart(total=2, slots=(), values=VECTORS["m"][:2, None]), "ps-1 gave 2x1 elements"),
        (VectorPart(total=-3, slots=(), values=VECTORS["m"][:2]), "ps-1 gave 2 elements of m where -3 were"),
    ],
)
def test_what_is_no_piece_of_it_is_refused_by_name(odd: Message, complaint: str) -> None:
    def replies(partition: int, body: Message) -> Message:
        is_turn = partition == 1 and isinstance(body, ReadVector) and body.vector == "m"
        return odd if is_turn else answer(partition, body)

    with pytest.raises(Unreadable, match=complaint):
        read(replies)


@pytest.mark.parametrize("odd", [TableDigests(digests=()), Refused(reason="not ready")])
def test_partitions_that_differ_in_tables_are_refused(odd: Message) -> None:
    with pytest.raises(Unreadable, match="ps-1"):
        read(lambda p, body: odd if p == 1 and isinstance(body, ReadTables) else answer(p, body))
