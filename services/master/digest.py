"""The digest of the final parameters: one figure that is the same for any number of partitions.

SHA-256 over the dense vector, the state vector and the dense optimizer slots, little-endian float32,
without padding, in layout order, and of each embedding table the sum modulo 2**128 of its rows' hashes
(PROTOCOL: section 8).  The master streams the vectors through the hash piece by piece and keeps none.
"""

import hashlib
from collections.abc import Sequence

from edlz.services.errors import EdlzError, RemoteProtocolError
from edlz.services.messages import PartitionAddress, ReadTables, ReadVector, TableDigests, VectorPart
from edlz.services.rpc import RpcClient
from edlz.services.security import Security

__all__ = ["take_digest"]

PIECE = 8 << 20  # elements in one answer: 32 MB
DEADLINE_S = 30.0
TABLES_DEADLINE_S = 600.0  # about a second for 10 million rows


async def take_digest(
    partitions: tuple[PartitionAddress, ...], *, security: Security, server: str
) -> str | None:
    """Return the hex digest, or None when a partition went away meanwhile.

    Parameters
    ----------
    partitions : tuple of PartitionAddress
    security : Security
    server : str
        The role of the processes that the partitions are in.

    Raises
    ------
    RemoteProtocolError
        If a partition answers something else than a piece of a vector.
    """
    clients = [
        RpcClient(p.endpoint, role="digest", identity=str(p.index), security=security, server=server)
        for p in partitions
    ]
    digest = hashlib.sha256()
    try:
        slots: tuple[str, ...] = ()
        for vector in ("dense", "state"):
            for client in clients:
                slots = await _read(client, vector, digest)
        for vector in slots:
            for client in clients:
                await _read(client, vector, digest)
        for total in await _read_tables(clients):
            digest.update(total.to_bytes(16, "little"))
    except RemoteProtocolError:
        raise
    except EdlzError:
        return None
    finally:
        for client in clients:
            client.close()
    return digest.hexdigest()


async def _read(client: RpcClient, vector: str, digest: "hashlib._Hash") -> tuple[str, ...]:
    first, total = 0, 1
    slots: tuple[str, ...] = ()
    while first < total:
        part = await client.request(ReadVector(vector=vector, first=first, count=PIECE), DEADLINE_S)
        if not isinstance(part, VectorPart):
            raise RemoteProtocolError(f"a partition answered {type(part).__name__} to a read of {vector}")
        digest.update(part.values.astype("<f4", copy=False).data)
        first, total, slots = first + PIECE, part.total, part.slots
    return slots


async def _read_tables(clients: Sequence[RpcClient]) -> list[int]:
    """Return of each table the sum of its rows' hashes, over all partitions."""
    totals: list[int] = []
    for client in clients:
        answer = await client.request(ReadTables(), TABLES_DEADLINE_S)
        if not isinstance(answer, TableDigests):
            raise RemoteProtocolError(f"a partition answered {type(answer).__name__} to a read of its tables")
        parts = [int.from_bytes(part, "little") for part in answer.digests]
        totals = totals or [0] * len(parts)
        totals = [(total + part) % 2**128 for total, part in zip(totals, parts, strict=True)]
    return totals
