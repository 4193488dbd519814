"""What the master knows of the partitions: the newest word of each, and where workers find them.

What partitions say is believed here; whether it may be (terms, grants) is the job's core to see to.
"""

from collections.abc import Callable

import msgspec

from edlz.services.master.core.vocabulary.records import PartitionEntry
from edlz.services.protocol.ledger import LedgerRecord, TaskSet
from edlz.services.protocol.messages import (
    NO_IDENTITY,
    Identity,
    PartitionAddress,
    PartitionStatus,
    SnapshotName,
)

__all__ = ["Partitions"]


class Partitions:
    """The partitions of a job, each by its newest life.

    Parameters
    ----------
    count : int
        How many the job has.
    new_identity : callable () -> Identity
        Returns another one at each call.

    Attributes
    ----------
    entries : dict of int to PartitionEntry
        Of those that have been heard of; changed here only.
    addresses : tuple of PartitionAddress
        Of the same, in their order.
    address_list : Identity
        The name of `addresses`: another one after each change.
    applied : int
        Statuses that told of minibatches applied since the one before: what is done again counts again.
    furthest : int
        How many minibatches all partitions have got beyond those they had when all became known: what is done
        again does not count.
    """

    def __init__(self, count: int, new_identity: Callable[[], Identity]) -> None:
        self.count, self._new_identity = count, new_identity
        self.entries: dict[int, PartitionEntry] = {}
        self.applied = self.furthest = 0
        self._first: int | None = None  # minibatches that all had when all became known
        # Kept up to date, since to make them anew for each status would be most of a large job's work.
        self.addresses: tuple[PartitionAddress, ...] = ()
        self.address_list: Identity = NO_IDENTITY

    # -- events

    def is_outdated(self, status: PartitionStatus) -> bool:
        """Whether a later life of the same partition has been heard of."""
        entry = self.entries.get(status.partition)
        return entry is not None and _life(status) < _life(entry.status)

    def take(self, status: PartitionStatus) -> bool:
        """Take in what a partition says; whether a life begins with it: it becomes the current one by that."""
        entry = self.entries.get(status.partition)
        if entry is None or status.incarnation != entry.status.incarnation:
            self.entries[status.partition] = PartitionEntry(status, status.ledger or LedgerRecord())
            self._list_addresses()
            return True
        if status.seq > entry.status.seq:
            has_moved = _address(status) != _address(entry.status)
            self.applied += status.minibatches > entry.status.minibatches
            entry.status, entry.ledger = status, status.ledger or entry.ledger
            if has_moved:
                self._list_addresses()
        if self.are_known:
            least = min(each.status.minibatches for each in self.entries.values())
            self._first = least if self._first is None else self._first
            self.furthest = max(self.furthest, least - self._first)
        return False

    def on_gone(self, index: int) -> None:
        """A partition's life is over, and that was told: whatever it still waited for, it is not there any more."""
        entry = self.entries.get(index)
        if entry is not None and entry.status.is_leaving:
            entry.status = msgspec.structs.replace(entry.status, is_leaving=False)

    def _list_addresses(self) -> None:
        """A partition's life, place or base is another one."""
        self.addresses = tuple(_address(status) for status in self.statuses)
        self.address_list = self._new_identity()

    # -- questions

    @property
    def sorted(self) -> list[PartitionEntry]:
        """The entries in the partitions' order."""
        return [entry for _, entry in sorted(self.entries.items())]

    @property
    def statuses(self) -> list[PartitionStatus]:
        """The newest ones, in the partitions' order."""
        return [entry.status for entry in self.sorted]

    @property
    def are_known(self) -> bool:
        """Whether all have been heard of."""
        return len(self.entries) == self.count

    @property
    def are_based(self) -> bool:
        """Whether all have been heard of, and have values."""
        return self.are_known and all(entry.status.has_base for entry in self.entries.values())

    @property
    def version(self) -> int:
        """The smallest of the partitions' versions; 0 until all are known."""
        return min(entry.status.version for entry in self.entries.values()) if self.are_known else 0

    @property
    def heard(self) -> tuple[int, ...]:
        """The number of the newest word of each."""
        return tuple(status.seq for status in self.statuses)

    @property
    def incarnations(self) -> tuple[Identity, ...]:
        return tuple(address.incarnation for address in self.addresses)

    def finished(self) -> TaskSet:
        """Return the tasks that all partitions heard of have finished; there is one at least."""
        done, *others = (entry.finished for entry in self.entries.values())
        for other in others:
            done = done.intersection(other)
        return done

    def common_snapshots(self) -> set[SnapshotName]:
        """Return the snapshots that all partitions heard of have; there is one at least."""
        return set.intersection(*(set(entry.status.snapshots) for entry in self.entries.values()))

    def common_names(self) -> set[SnapshotName]:
        """Return what all partitions heard of can go back to: snapshots, and parts of complete checkpoints."""
        return set.intersection(
            *({*entry.status.snapshots, *entry.status.checkpoints} for entry in self.entries.values())
        )

    @property
    def is_one_leaving(self) -> bool:
        """Whether one of them was told to end, and waits until its state is saved."""
        return any(entry.status.is_leaving for entry in self.entries.values())

    # -- checks

    def check_invariants(self) -> None:
        assert self.addresses == tuple(_address(status) for status in self.statuses), "an address is old"


def _life(status: PartitionStatus) -> Identity:
    assert status.incarnation is not None, "a partition without a life has no entry"
    return status.incarnation


def _address(status: PartitionStatus) -> PartitionAddress:
    return PartitionAddress(
        index=status.partition,
        incarnation=_life(status),
        endpoint=status.endpoint,
        has_base=status.has_base,
    )
