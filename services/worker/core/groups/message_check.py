"""What a member refuses of other members and of the master: what no group of its job can say.

It is looked at before anything is done with it.  Who sends such a thing holds the job's keys, and is damaged or of another
version of edlz: it hears so, or this member ends by an error that says so; nobody trains on it.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from edlz.services.errors import RemoteProtocolError
from edlz.services.protocol.messages import GroupOrders, Reduce, Reduced
from edlz.services.worker.core.groups.step import Chunks

__all__ = ["check_mean", "check_orders", "check_part"]

Vector = npt.NDArray[np.float32]


def check_orders(orders: GroupOrders) -> None:
    """Raise RemoteProtocolError if no master gives such orders; nothing has changed."""
    members = {member.incarnation for member in orders.members}
    if len(members) < len(orders.members):
        raise RemoteProtocolError(f"generation {orders.generation} has a member twice")
    if members and not members.issuperset(orders.holders):
        raise RemoteProtocolError(f"holders of {orders.source} are no members of {orders.generation}")
    decided = orders.decided
    if decided is not None and not 0 <= decided.fence <= decided.task_count:
        raise RemoteProtocolError(f"a fence at task {decided.fence} of {decided.task_count}")


def check_part(part: Reduce, chunks: Chunks, owner: int, slots: int) -> None:
    """Look at what a member sends to an owner, before it is staged.

    Parameters
    ----------
    chunks : Chunks
        Of the group.
    owner : int
        Its rank.
    slots : int
        Most slots of a step.

    Raises
    ------
    RemoteProtocolError
        If it is no part of a bucket of that owner.
    """
    size = _bucket_size(part.bucket, chunks, owner)
    _check_shapes("dense", part.dense, size)
    _check_shapes("state", part.state, _state_size(chunks, owner))
    if len(part.dense) != len(part.places) or len(part.state) not in (0, len(part.places)):
        raise _misfit(f"{len(part.dense)} and {len(part.state)} vectors at the slots {part.places}")
    for name, places in (("slots", part.places), ("headers", [header.slot for header in part.headers])):
        if len(set(places)) < len(places) or not all(0 <= slot < slots for slot in places):
            raise _misfit(f"{name} {tuple(places)} of a step of {slots}")


def check_mean(mean: Reduced, chunks: Chunks, owner: int) -> None:
    """Raise RemoteProtocolError if an owner's answer is no mean of a bucket of it."""
    size = _bucket_size(mean.bucket, chunks, owner)
    if mean.dense is not None:
        _check_shapes("dense", [mean.dense], size)
    if mean.state is not None:
        _check_shapes("state", [mean.state], _state_size(chunks, owner))


def _bucket_size(bucket: int, chunks: Chunks, owner: int) -> int:
    buckets = chunks.buckets(owner)
    if not 0 <= bucket < len(buckets):
        raise _misfit(f"bucket {bucket} of {len(buckets)}")
    where = buckets[bucket]
    return int(where.stop - where.start)


def _state_size(chunks: Chunks, owner: int) -> int:
    where = chunks.state_slice(owner)
    return int(where.stop - where.start)


def _check_shapes(name: str, vectors: Sequence[Vector], size: int) -> None:
    for vector in vectors:
        if vector.shape != (size,):
            raise _misfit(f"a {name} vector of shape {vector.shape}, where ({size},) is due")


def _misfit(what: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"parts of a step that do not fit each other: {what}")
