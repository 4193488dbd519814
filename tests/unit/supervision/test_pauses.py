"""Pauses that double."""

from edlz.services.supervision.backoff import Pauses


def test_a_pause_is_twice_as_long_as_the_one_before_up_to_the_longest() -> None:
    pauses = Pauses(0.5, 3.0)
    assert [pauses.take() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_another_limit_counts_for_the_pause_and_the_next_one() -> None:
    pauses = Pauses(0.5, 30.0)
    assert [pauses.take(1.0) for _ in range(3)] == [0.5, 1.0, 1.0]
    assert [pauses.take() for _ in range(3)] == [1.0, 2.0, 4.0]
