"""What is answered to who reads a state for the parameters' digest."""

from edlz.services.errors import RemoteProtocolError
from edlz.services.parameters.store import Store
from edlz.services.protocol.messages import ReadTables, ReadVector, TableDigests, VectorPart

__all__ = ["read"]


def read(body: ReadVector | ReadTables, store: Store) -> VectorPart | TableDigests:
    """Return a piece of a vector, or the digests of all tables.

    Raises
    ------
    RemoteProtocolError
        If there is no such vector.
    """
    if isinstance(body, ReadTables):
        return TableDigests(digests=tuple(digest.to_bytes(16, "little") for digest in store.tables.digests()))
    try:
        vector = store.vector(body.vector)
    except KeyError:
        raise RemoteProtocolError(f"there is no vector {body.vector!r}; slots: {store.slots}") from None
    values = vector[body.first : body.first + body.count]
    return VectorPart(total=len(vector), slots=store.slots, values=values)
