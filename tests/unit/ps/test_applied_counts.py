"""Counts of what was applied: of a job without an end they stay small, and are the same for the same ledger."""

import itertools
import random

import numpy as np

from edlz.services.parameters.applied_counts import NOT_FOLDED, AppliedCounts, no_counts
from edlz.services.protocol.ledger import Ledger
from edlz.services.protocol.plan import ENDLESS
from tests import builders

PLAN = builders.plan(10, epochs=0)


def applied(order: list[tuple[int, int]], lengths: dict[int, int]) -> tuple[AppliedCounts, Ledger]:
    """Apply minibatches (task, index) in this order."""
    ledger = Ledger()
    counts = AppliedCounts(*no_counts(ENDLESS), ledger)
    for task, index in order:
        ledger.note(task, index, is_last=index + 1 == lengths[task], is_empty=False)
        counts.note(task)
    return counts, ledger


def in_some_order(rng: random.Random, lengths: dict[int, int], window: int) -> list[tuple[int, int]]:
    """Tasks side by side, as workers train on them."""
    waiting, order = iter(lengths.items()), []
    side_by_side = [[task, 0, length] for task, length in itertools.islice(waiting, window)]
    while side_by_side:
        place = rng.randrange(len(side_by_side))
        task, index, length = side_by_side[place]
        order.append((task, index))
        side_by_side[place][1] += 1
        if index + 1 == length:
            following = next(waiting, None)
            side_by_side[place : place + 1] = [] if following is None else [[following[0], 0, following[1]]]
    return order


def test_weeks_of_tasks_leave_a_sum() -> None:
    rng = random.Random(1)
    lengths = {task: rng.randint(1, 3) for task in range(20_000)}
    counts, ledger = applied(in_some_order(rng, lengths, 8), lengths)
    assert counts.nbytes < 100_000
    kept, folded = counts.record()
    assert (len(kept), folded) == (0, sum(lengths.values()))
    assert counts.recount(PLAN) == builders.recount(ledger.minibatches)
    assert len(ledger.record().finished) == 2


def test_what_is_recorded_follows_from_what_was_applied() -> None:
    """Partitions apply in other orders, and are cut where their ledgers are equal."""
    lengths = {task: 1 + task % 3 for task in range(3000)}
    cuts = []
    for seed in range(3):
        rng = random.Random(seed)
        order = in_some_order(rng, lengths, 6)
        behind = [step for step in order if step[0] < 2000 or step in [(2001, 0), (2003, 0), (2003, 1)]]
        cuts.append(applied(behind, lengths)[0].record())
    for kept, folded in cuts[1:]:
        assert folded == cuts[0][1]
        np.testing.assert_array_equal(kept, cuts[0][0])
    assert cuts[0][0].tolist() == [0, 1, 0, 2]


def test_a_state_that_is_loaded_goes_on() -> None:
    lengths = dict.fromkeys(range(50), 2)
    order = [(task, index) for task in range(50) for index in range(2)]
    counts, ledger = applied(order[:61], lengths)
    again = AppliedCounts(*counts.record(), Ledger(ledger.record()))
    assert (again.total, again.of(30)) == (61, 1)
    assert 7 in again
    assert -1 not in again


def test_too_much_and_too_little_show() -> None:
    lengths = dict.fromkeys(range(2000), 2)
    counts, _ = applied([(task, index) for task in range(2000) for index in range(2)], lengths)
    counts.note(5)  # finished long ago
    counts.note(1999)
    assert counts.recount(PLAN).doubled == 2
    finite = AppliedCounts(np.zeros(3, np.int32), NOT_FOLDED, Ledger())
    assert 3 not in finite
