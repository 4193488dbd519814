"""Counts of values by size."""

import pytest

from edlz.services.protocol.buckets import DURATIONS_S, STALENESS, Buckets


@pytest.mark.parametrize("bounds", [DURATIONS_S, STALENESS])
def test_what_was_gathered_is_counted_as_one_by_one(bounds: tuple[float, ...]) -> None:
    one_by_one, together = Buckets(bounds), Buckets(bounds)
    values = [*bounds, *(bound * 1.01 for bound in bounds), 0.0, -1.0, 1e9]
    for part in (values, [], values[:3]):
        for value in part:
            one_by_one.note(value)
        together.note_all(part)
    assert together.counts == one_by_one.counts
    assert sum(together.counts) == len(values) + 3
    assert together.total == pytest.approx(one_by_one.total)
