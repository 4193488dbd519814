"""What a partition says to what is no exchange: pieces of its vectors, and what it refuses.

It refuses orders that no master of this code gives, and requests that are meant for another partition or another life.
"""

from edlz.services.errors import RemoteProtocolError
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    Exchange,
    Granted,
    Identity,
    Job,
    PartitionOrders,
    Refused,
)

__all__ = ["check_joining", "check_orders", "misdirected"]


def check_joining(granted: Granted, partition: int) -> Job:
    """Return the job that a partition is to join.

    Raises
    ------
    RemoteProtocolError
        If the answer brings no job, or one without this partition.
    """
    job = granted.job
    if job is None or not 0 <= partition < job.partitions:
        raise RemoteProtocolError(f"the master takes ps-{partition} into a job that has no such partition")
    return job


def check_orders(orders: PartitionOrders, *, is_sync: bool) -> None:
    """Look at what a partition is to do; errors as for `check_joining`."""
    order = orders.checkpoint
    if order is not None and (order.phase == "cut") != is_sync:
        raise RemoteProtocolError(
            f"phase {order.phase!r} of checkpoint {order.number} is of the other mode of training"
        )
    if order is not None and order.phase == "level" and order.marks is None:
        raise RemoteProtocolError(f"the master names no marks for the cut of checkpoint {order.number}")


def misdirected(body: Message, run: str, incarnation: Identity | None) -> Refused | None:
    """Refuse what is asked of a partition of another run, or of another life of this one, at whose address it is.

    Nobody asks a partition before the master has told them its run and its life.  What an exchange may ask of which
    life is for `Exchanges` to say.
    """
    if getattr(body, "run", run) != run:
        return Refused(reason="not ready")
    meant = None if isinstance(body, Exchange) else getattr(body, "incarnation", None)
    return None if meant in (None, incarnation) else Refused(reason="incarnation")
