"""Which era the partitions are in, and where the next one begins."""

import itertools
from typing import Any

from edlz.services.master.core.processes.eras import PATIENCE_S, Eras
from edlz.services.master.core.processes.partitions import Partitions
from edlz.services.protocol.messages import NO_IDENTITY
from tests.statuses import partition_status

BASE = (NO_IDENTITY, 0)
seqs = itertools.count(1)


class Bench:
    def __init__(self, partitions: int = 2) -> None:
        numbers = itertools.count(1)
        self.partitions = Partitions(partitions, lambda: (2, next(numbers)))
        self.eras = Eras(self.partitions, lambda: (2, next(numbers)))

    def say(self, partition: int, **fields: Any) -> None:
        self.partitions.take(partition_status(partition, seq=next(seqs), **{"snapshots": (BASE,), **fields}))

    def all_say(self, **fields: Any) -> None:
        for partition in range(self.partitions.count):
            self.say(partition, **fields)


def test_a_new_job_begins_its_era_at_the_base() -> None:
    bench = Bench()
    bench.all_say()
    assert bench.eras.advance(was_reached=False) == (False, [])
    assert bench.eras.newest is not None
    assert bench.eras.restore == BASE
    bench.say(0, era=bench.eras.newest)
    assert bench.eras.advance(was_reached=False) == (False, [])
    bench.say(1, era=bench.eras.newest)
    assert bench.eras.advance(was_reached=False) == (True, [])


def test_a_restarted_master_goes_on_in_the_era_that_it_finds() -> None:
    bench = Bench()
    bench.all_say(era=(1, 5))
    assert bench.eras.advance(was_reached=False) == (True, [])
    assert bench.eras.newest == (1, 5)


def test_a_new_life_takes_all_back_to_the_newest_snapshot_of_all() -> None:
    bench = Bench()
    bench.all_say(era=(1, 5))
    bench.eras.advance(was_reached=False)
    old, new = ((1, 5), 4), ((1, 5), 8)
    bench.say(0, era=(1, 5), snapshots=(BASE, old, new))
    bench.say(1, incarnation=(2, 9), snapshots=(BASE, old))
    bench.eras.on_new_life()
    assert bench.eras.restore is None, "not before another era has a name"
    is_reached, [announced] = bench.eras.advance(was_reached=True)
    assert not is_reached
    assert announced.text == "all partitions go back to v4, which all of them have."
    assert bench.eras.restore == old
    assert bench.eras.newest is not None
    assert bench.eras.newest > (1, 5)


def test_a_partition_that_is_elsewhere_ends_an_era_that_was_reached() -> None:
    bench = Bench()
    bench.all_say(era=(1, 5))
    bench.eras.advance(was_reached=False)
    bench.say(0, era=(1, 6))
    assert bench.eras.advance(was_reached=True)[0] is False
    assert bench.eras.newest not in ((1, 5), (1, 6))


def test_lists_without_a_common_snapshot_are_out_of_date() -> None:
    bench = Bench()
    bench.say(0, snapshots=(((1, 5), 4),))
    bench.say(1, snapshots=(((1, 5), 8),))
    assert bench.eras.advance(was_reached=False) == (False, [])
    assert bench.eras.newest is None
    bench.say(0, snapshots=(((1, 5), 4), ((1, 5), 8)))
    bench.eras.advance(was_reached=False)
    assert bench.eras.restore == ((1, 5), 8)


def have_nothing_in_common(bench: Bench, seconds: float, *, is_silent: bool = False) -> list[str]:
    """Let so many seconds pass; return what is announced."""
    told = []
    for second in range(int(seconds) + 1):
        bench.say(0, checkpoints=(((1, 5), 4),), snapshots=())
        if not is_silent or not second:
            bench.say(1)
        bench.eras.advance(was_reached=False)
        told += [each.text for each in bench.eras.on_tick(float(second))]
    return told


def test_a_job_whose_partitions_have_nothing_in_common_fails_and_says_so() -> None:
    bench = Bench()
    [told] = have_nothing_in_common(bench, PATIENCE_S - 1)
    assert "ps-0 has v4; ps-1 has v0" in told
    assert bench.eras.failure is None
    have_nothing_in_common(bench, PATIENCE_S)
    assert bench.eras.failure is not None
    assert bench.eras.failure.text.endswith("ps-0 has v4; ps-1 has v0")


def test_who_is_silent_may_have_it() -> None:
    bench = Bench()
    have_nothing_in_common(bench, 2 * PATIENCE_S, is_silent=True)
    assert bench.eras.failure is None


def test_another_life_may_have_it() -> None:
    bench = Bench()
    have_nothing_in_common(bench, PATIENCE_S - 1)
    bench.say(1, incarnation=(2, 9))
    bench.eras.on_tick(PATIENCE_S)
    bench.eras.on_tick(PATIENCE_S + 1)
    assert bench.eras.failure is None


def test_a_target_that_is_gone_meanwhile_is_chosen_anew() -> None:
    bench = Bench()
    old, new = ((1, 5), 4), ((1, 5), 8)
    bench.all_say(snapshots=(BASE, old), checkpoints=(new,))
    bench.eras.advance(was_reached=False)
    vain = bench.eras.newest
    assert bench.eras.restore == new
    bench.say(0, era=vain, snapshots=(BASE, old))  # who is there already needs it no more
    assert bench.eras.advance(was_reached=False) == (False, [])
    assert bench.eras.newest == vain
    bench.say(1, snapshots=(BASE, old))
    is_reached, [announced] = bench.eras.advance(was_reached=False)
    assert (is_reached, bench.eras.restore) == (False, old)
    assert vain is not None
    assert bench.eras.newest is not None
    assert bench.eras.newest > vain
    assert announced.text == "all partitions go back to v4, which all of them have."
