"""What a partition refuses of its master's answers: what no master of this code says."""

from edlz.services.errors import RemoteProtocolError
from edlz.services.messages import Granted, Job, PartitionOrders

__all__ = ["check_joining", "check_orders"]


def check_joining(granted: Granted, partition: int) -> Job:
    """Return the job that a partition is to join.

    Raises
    ------
    RemoteProtocolError
        If there is none in the answer, or none with this partition.
    """
    job = granted.job
    if job is None or not 0 <= partition < job.partitions:
        raise RemoteProtocolError(f"the master takes ps-{partition} into a job that has no such partition")
    return job


def check_orders(orders: PartitionOrders) -> None:
    """Look at what a partition is to do; errors as for `check_joining`."""
    order = orders.checkpoint
    if order is not None and order.phase == "level" and order.marks is None:
        raise RemoteProtocolError(
            f"checkpoint {order.number} is to be cut at marks that the master does not say"
        )
