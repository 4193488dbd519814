"""What the master knows of the partitions."""

import itertools

from edlz.services.master.core.processes.partitions import Partitions
from edlz.services.protocol.ledger import LedgerRecord
from tests.statuses import partition_status


def partitions_of(count: int) -> Partitions:
    numbers = itertools.count(1)
    return Partitions(count, lambda: (1, next(numbers)))


def test_a_life_begins_with_its_first_status_and_ends_with_the_next_ones() -> None:
    partitions = partitions_of(1)
    assert partitions.take(partition_status(incarnation=(1, 1)))
    assert not partitions.take(partition_status(incarnation=(1, 1), seq=2))
    assert partitions.take(partition_status(incarnation=(1, 2)))
    assert partitions.is_outdated(partition_status(incarnation=(1, 1), seq=3))
    assert not partitions.is_outdated(partition_status(incarnation=(1, 2)))


def test_a_status_that_was_overtaken_changes_nothing() -> None:
    partitions = partitions_of(1)
    partitions.take(partition_status(seq=2, version=5))
    partitions.take(partition_status(seq=1, version=4, endpoint="ipc://before"))
    assert partitions.version == 5
    partitions.check_invariants()


def test_a_ledger_holds_until_the_next_one_in_full() -> None:
    partitions = partitions_of(2)
    for index, finished in enumerate(((0, 3), (0, 2, 4, 6))):
        partitions.take(partition_status(index, seq=1, ledger=LedgerRecord(finished=finished)))
        partitions.take(partition_status(index, seq=2))
    assert partitions.finished().bounds == (0, 2)


def test_until_all_are_known_the_version_is_0() -> None:
    partitions = partitions_of(2)
    partitions.take(partition_status(1, version=7))
    assert (partitions.are_known, partitions.version) == (False, 0)
    partitions.take(partition_status(0, version=6, has_base=False))
    assert (partitions.are_known, partitions.are_based, partitions.version) == (True, False, 6)
    assert [status.partition for status in partitions.statuses] == [0, 1]


def test_the_list_of_addresses_has_another_name_after_each_change() -> None:
    partitions = partitions_of(1)
    names = []
    for seq, fields in enumerate(({}, {"version": 3}, {"endpoint": "ipc://elsewhere"}, {"has_base": False})):
        partitions.take(partition_status(seq=seq, **{"endpoint": "ipc://ps-0", **fields}))
        partitions.check_invariants()
        names.append(partitions.address_list)
    assert names[0] == names[1]
    assert len(set(names)) == 3


def test_what_is_done_again_is_no_further_and_what_was_found_is_the_start() -> None:
    partitions = partitions_of(1)
    reached = []
    for life, minibatches in ((1, 40), (1, 40), (1, 50), (2, 45), (2, 45), (2, 50), (2, 52)):
        seq = len(reached) + 1
        partitions.take(partition_status(incarnation=(1, life), seq=seq, minibatches=minibatches))
        reached.append(partitions.furthest)
    assert reached == [0, 0, 10, 10, 10, 10, 12]
