"""A cut for a partition that leaves is ordered where the job stands, not where it stood."""

from edlz.services.master.core.partition_answers import QUIET_S, Standstill
from edlz.services.protocol.messages import PartitionStatus
from tests.statuses import partition_status


class Heard:
    """What the partitions said last."""

    def __init__(self, *versions: int) -> None:
        self.core = Standstill()
        self.statuses = [partition_status(index, version=version) for index, version in enumerate(versions)]

    def say(self, index: int, version: int, now: float, *, is_leaving: bool = False) -> int | None:
        self.statuses[index] = partition_status(index, version=version, is_leaving=is_leaving)
        self.core.on_status(index, self.newest, now)
        return self.core.version

    @property
    def newest(self) -> list[PartitionStatus]:
        return list(self.statuses)


def test_the_word_that_one_leaves_orders_no_cut_while_workers_compute_from_there() -> None:
    """Steps of a second or more: all have said v, and all commit v + 1 half a second later."""
    heard = Heard(7, 7)
    assert heard.say(1, 7, 10.0, is_leaving=True) is None
    assert heard.say(0, 7, 10.1) is None
    assert heard.say(1, 8, 10.5, is_leaving=True) is None
    assert heard.say(0, 8, 10.5) == 8, "nobody gets parameters of it, so nobody goes on"


def test_where_nobody_works_the_cut_comes_after_a_short_quiet() -> None:
    heard = Heard(7, 7)
    for tick in range(2):
        for index in (1, 0):
            assert heard.say(index, 7, 10.0 + tick * QUIET_S / 2, is_leaving=index == 1) is None
    assert heard.say(1, 7, 10.0 + QUIET_S, is_leaving=True) is None, "the other one may have moved since"
    assert heard.say(0, 7, 10.0 + QUIET_S) == 7


def test_an_old_word_of_another_one_is_none() -> None:
    heard = Heard(7, 7)
    assert heard.say(1, 7, 10.0, is_leaving=True) is None
    assert heard.say(1, 7, 10.0 + 5 * QUIET_S, is_leaving=True) is None


def test_nobody_who_stays_is_cut_for() -> None:
    heard = Heard(7, 7)
    heard.say(1, 7, 10.0, is_leaving=True)
    heard.say(1, 8, 10.1, is_leaving=True)
    assert heard.say(0, 8, 10.1) == 8
    assert heard.say(1, 8, 10.2) is None
