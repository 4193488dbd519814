"""What partitions say of themselves, for the tests of those who hear it."""

from typing import Any

from edlz.services.protocol.messages import PartitionStatus

__all__ = ["partition_status"]


def partition_status(partition: int = 0, **fields: Any) -> PartitionStatus:
    """Return a status of a partition that serves and has nothing to report, but for these fields."""
    nothing: dict[str, Any] = {
        "boot": 1,
        "incarnation": (1, 1),
        "seq": 1,
        "term": 1,
        "endpoint": f"ipc://ps-{partition}",
        "era": None,
        "version": 0,
        "has_base": True,
        "ledger": None,
        "finished_tasks": 0,
        "minibatches": 0,
        "open_minibatches": 0,
        "snapshots": (),
        "is_sealed": False,
        "run": "r",
    }
    return PartitionStatus(partition=partition, **{**nothing, **fields})
