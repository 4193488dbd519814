"""The digest of the final parameters: one figure that is the same for any number of partitions.

SHA-256 over the dense vector, the state vector and the dense optimizer slots, little-endian float32,
without padding, in layout order, and of each embedding table the sum modulo 2**128 of its rows' hashes
(PROTOCOL: section 8).  The master streams the vectors through the hash piece by piece and keeps none.

What is asked next, and what the answers amount to, is `read_digest`'s affair, which knows no sockets; `take_digest`
asks it over them.
"""

import hashlib
import logging
from collections.abc import Generator, Sequence

from edlz.services.errors import EdlzError
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    Identity,
    PartitionAddress,
    ReadTables,
    ReadVector,
    Refused,
    TableDigests,
    VectorPart,
)
from edlz.services.transport.rpc import RpcClient
from edlz.services.transport.security import Security
from edlz.services.transport.traffic import RareLog

__all__ = ["Reading", "Unreadable", "read_digest", "take_digest"]

logger = logging.getLogger(__name__)
_log = RareLog(logger)

PIECE = 8 << 20  # elements in one answer: 32 MB
DEADLINE_S = 30.0
TABLES_DEADLINE_S = 600.0  # about a second for 10 million rows

Reading = Generator[tuple[int, Message], Message, str]


class Unreadable(Exception):
    """A partition gives nothing that a digest could be made of, for now: it has begun another life, perhaps."""


def read_digest(lives: Sequence[Identity], run: str) -> Reading:
    """Read the parameters of the partitions of a run, in these lives.

    Yields which partition is to be asked what, and wants to be sent the answer.

    Returns
    -------
    str
        The hex digest.

    Raises
    ------
    Unreadable
        If an answer is not a piece of what was asked for.
    """
    digest = hashlib.sha256()
    slots: tuple[str, ...] = ()
    for vector in ("dense", "state"):
        for partition, life in enumerate(lives):
            slots = yield from _read_vector(partition, life, vector, digest, run)
    for vector in slots:
        for partition, life in enumerate(lives):
            yield from _read_vector(partition, life, vector, digest, run)
    for total in (yield from _read_tables(lives, run)):
        digest.update(total.to_bytes(16, "little"))
    return digest.hexdigest()


def _read_vector(
    partition: int, life: Identity, vector: str, digest: "hashlib._Hash", run: str
) -> Generator[tuple[int, Message], Message, tuple[str, ...]]:
    """Put a partition's slice of a vector through the hash; return the names of the optimizer's slots."""
    first, total = 0, 1
    slots: tuple[str, ...] = ()
    while first < total:
        body = ReadVector(vector=vector, first=first, count=PIECE, run=run, incarnation=life)
        part = yield partition, body
        if not isinstance(part, VectorPart):
            raise _unreadable(partition, part, vector)
        if first and part.total != total:
            raise Unreadable(f"ps-{partition}'s {vector} has become {part.total} elements long, from {total}")
        first, total, slots = first + PIECE, part.total, part.slots
        due = min(first, total) - (first - PIECE)
        if part.values.shape != (due,):
            shape = "x".join(map(str, part.values.shape))
            raise Unreadable(f"ps-{partition} gave {shape} elements of {vector} where {due} were due")
        digest.update(part.values.astype("<f4", copy=False).data)
    return slots


def _read_tables(lives: Sequence[Identity], run: str) -> Generator[tuple[int, Message], Message, list[int]]:
    """Return of each table the sum of its rows' hashes, over all partitions."""
    totals: list[int] | None = None
    for partition, life in enumerate(lives):
        answer = yield partition, ReadTables(run=run, incarnation=life)
        if not isinstance(answer, TableDigests):
            raise _unreadable(partition, answer, "its tables")
        parts = [int.from_bytes(part, "little") for part in answer.digests]
        totals = [0] * len(parts) if totals is None else totals
        if len(parts) != len(totals):
            raise Unreadable(f"ps-{partition} has {len(parts)} tables, those before it {len(totals)}")
        totals = [(total + part) % 2**128 for total, part in zip(totals, parts, strict=True)]
    return totals or []


def _unreadable(partition: int, answer: Message, what: str) -> Unreadable:
    why = f'"{answer.reason}"' if isinstance(answer, Refused) else type(answer).__name__
    return Unreadable(f"ps-{partition} answered {why} to a read of {what}")


async def take_digest(
    partitions: tuple[PartitionAddress, ...], *, security: Security, server: str, run: str
) -> str | None:
    """Return the hex digest, or None when it could not be read: a partition went away meanwhile.

    Parameters
    ----------
    partitions : tuple of PartitionAddress
    security : Security
    server : str
        The role of the processes that the partitions are in.
    run : str
        The job's.
    """
    clients = [
        RpcClient(p.endpoint, role="digest", identity=str(p.index), security=security, server=server)
        for p in partitions
    ]
    reading = read_digest([p.incarnation for p in partitions], run)
    try:
        partition, body = next(reading)
        while True:
            deadline_s = TABLES_DEADLINE_S if isinstance(body, ReadTables) else DEADLINE_S
            partition, body = reading.send(await clients[partition].request(body, deadline_s))
    except StopIteration as end:
        return str(end.value)
    except (EdlzError, Unreadable) as error:
        _log.warning("the parameters are read again, for their digest: %s", error)
        return None
    finally:
        for client in clients:
            client.close()
