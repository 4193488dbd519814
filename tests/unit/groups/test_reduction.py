"""The sum of one chunk: what is staged, when a mean is made, who gets it, what is kept."""

import itertools

import numpy as np
import pytest

from edlz.core_ext import dense_numpy
from edlz.services.errors import RemoteProtocolError
from edlz.services.protocol.messages import GroupRefused, Reduce, Reduced, SlotHeader
from edlz.services.worker.core.groups.instructions import Reply
from edlz.services.worker.core.groups.reduction import OWN, Reduction, asked_again

GENERATION = (1, 2)
BUCKETS = (slice(40, 60), slice(60, 80))
rng = np.random.default_rng(5)


def part(rank: int, version: int = 0, bucket: int = 0, **fields: object) -> Reduce:
    about = {
        "generation": GENERATION,
        "headers": (SlotHeader(slot=rank, task=rank, index=version, is_last=False, is_empty=False),),
        "places": (rank,),
        "dense": (rng.standard_normal(20, np.float32),),
        "learning_rate": 0.5 if rank == 0 else 0.0,
        **fields,
    }
    return Reduce(version=version, rank=rank, bucket=bucket, **about)


def formed(count: int) -> Reduction:
    reduction = Reduction()
    reduction.begin(GENERATION)
    reduction.form(count, BUCKETS, 0)
    return reduction


def mean_of(replies: list[Reply]) -> Reduced:
    body = replies[0].body
    assert isinstance(body, Reduced)
    return body


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_mean_is_the_tree_whoever_comes_first(order: tuple[int, ...]) -> None:
    reduction, parts = formed(4), [part(rank) for rank in range(4)]
    replies = [reply for rank in order for reply in reduction.take(f"m{rank}", parts[rank], 0)]
    assert sorted(reply.to for reply in replies) == ["m0", "m1", "m2", "m3"]
    expected = np.empty(20, np.float32)
    dense_numpy.tree_mean(expected, [each.dense[0] for each in parts], range(4), 4)
    for reply in replies:
        assert isinstance(reply.body, Reduced)
        np.testing.assert_array_equal(reply.body.dense, expected)
        assert [header.slot for header in reply.body.headers] == [0, 1, 2, 3]
        assert reply.body.learning_rate == 0.5


def test_an_owner_answers_itself_last() -> None:
    reduction = formed(3)
    assert reduction.take(OWN, part(1), 0) == []
    assert reduction.take("c", part(2), 0) == []
    assert [reply.to for reply in reduction.take("a", part(0), 0)] == ["c", "a", OWN]


def test_the_first_part_of_a_member_wins_and_its_last_request_is_answered() -> None:
    reduction, first = formed(2), part(0)
    reduction.take("once", first, 0)
    reduction.take("again", part(0), 0)
    other = part(1)
    replies = reduction.take("b", other, 0)
    assert [reply.to for reply in replies] == ["again", "b"]
    np.testing.assert_array_equal(mean_of(replies).dense, (first.dense[0] + other.dense[0]) / np.float32(2))


def test_a_part_that_is_here_is_not_sent_again() -> None:
    """Who waits long asks for the answer alone; of a part that is not here it hears so."""
    reduction, first, other = formed(2), part(0), part(1)
    again = asked_again(first)
    assert not again.dense
    lacking = GroupRefused(reason="not here", generation=GENERATION)
    assert reduction.take("early", again, 0) == [Reply("early", lacking)]
    assert reduction.lacks(0, 1) == {0, 1}
    reduction.take("once", first, 0)
    assert reduction.take("again", again, 0) == []
    replies = reduction.take("b", other, 0)
    assert [reply.to for reply in replies] == ["again", "b"]
    mean = mean_of(replies)
    assert mean_of(reduction.take("late", again, 1)) is mean
    [refused] = reduction.take("of another", asked_again(part(0, generation=(1, 1))), 1)
    assert refused.body == GroupRefused(reason="generation", generation=GENERATION)


def test_a_mean_is_kept_until_the_next_one_is_made() -> None:
    reduction = formed(2)
    reduction.take("a", part(0), 0)
    mean = mean_of(reduction.take("b", part(1), 0))
    assert mean_of(reduction.take("a again", part(0), 1)) is mean
    reduction.take("a", part(0, 1), 1)
    assert mean_of(reduction.take("b again", part(1), 1)) is mean
    reduction.take("b", part(1, 1), 1)
    refused = reduction.take("late copy", part(0), 2)
    assert refused == [Reply("late copy", GroupRefused(reason="moved on", generation=GENERATION))]


def test_a_means_memory_is_not_written_while_somebody_has_it() -> None:
    reduction, kept = formed(1), []
    for version in range(6):
        mean = mean_of(reduction.take("a", part(0, version), version))
        kept.append((mean, np.array(mean.dense)))
    for mean, copy in kept:
        np.testing.assert_array_equal(mean.dense, copy)


def test_a_means_memory_is_used_again_when_nobody_has_it() -> None:
    reduction = formed(1)
    places = set()
    for version in range(6):
        for bucket in range(2):
            mean = mean_of(reduction.take("a", part(0, version, bucket), version)).dense
            assert mean is not None
            assert not mean.flags.writeable
            places.add((bucket, mean.ctypes.data))
            del mean
    assert len(places) == 2
    (_, first), (_, second) = sorted(places)
    assert second - first == 20 * 4, "they lie one behind another"


@pytest.mark.parametrize(("theirs", "reason"), [((1, 1), "generation"), ((2, 1), "not ready")])
def test_another_generation(theirs: tuple[int, int], reason: str) -> None:
    refused = formed(1).take("a", part(0, generation=theirs), 0)
    assert refused == [Reply("a", GroupRefused(reason=reason, generation=GENERATION))]


def test_who_waits_hears_of_a_new_generation_and_nothing_is_left() -> None:
    reduction = formed(3)
    reduction.take("a", part(0), 0)
    reduction.take(OWN, part(1), 0)
    refused = GroupRefused(reason="generation", generation=(1, 3))
    assert reduction.begin((1, 3)) == [Reply("a", refused)]
    reduction.form(2, BUCKETS, 0)
    assert reduction.lacks(0, 1) == {0, 1}


def test_parts_may_come_before_the_group_is_known() -> None:
    reduction = Reduction()
    reduction.begin(GENERATION)
    assert reduction.take("a", part(0), None) == []
    assert reduction.take("b", part(1), None) == []
    assert [reply.to for reply in reduction.form(2, BUCKETS, 0)] == ["a", "b"]


def test_empty_slots_are_no_part_of_the_mean() -> None:
    reduction, full = formed(2), part(0)
    empty = (SlotHeader(slot=1, task=1, index=0, is_last=True, is_empty=True),)
    reduction.take("a", full, 0)
    mean = mean_of(reduction.take("b", part(1, headers=empty, places=(), dense=()), 0))
    np.testing.assert_array_equal(mean.dense, full.dense[0])
    assert len(mean.headers) == 2


def test_a_step_of_empty_slots_has_no_mean() -> None:
    empty = (SlotHeader(slot=0, task=0, index=0, is_last=True, is_empty=True),)
    assert mean_of(formed(1).take("a", part(0, headers=empty, places=(), dense=()), 0)).dense is None


def test_parts_that_do_not_fit() -> None:
    with pytest.raises(RemoteProtocolError, match="a part of rank 2 in a group of 2"):
        formed(2).take("a", part(2), 0)
    reduction = formed(2)
    reduction.take("a", part(0), 0)
    with pytest.raises(RemoteProtocolError, match="do not fit each other"):
        reduction.take("b", part(1, dense=(np.zeros(7, np.float32),)), 0)


def test_counters_are_the_largest_of_all_members_and_of_one_length() -> None:
    reduction = formed(2)
    reduction.take("a", part(0, counters=np.array([1, 5])), 0)
    mean = mean_of(reduction.take("b", part(1, counters=np.array([3, 2])), 0))
    assert mean.counters is not None
    assert mean.counters.tolist() == [3, 5]
    reduction.take("a", part(0, 1, counters=np.array([1, 5])), 1)
    with pytest.raises(RemoteProtocolError, match="counters of two lengths"):
        reduction.take("b", part(1, 1, counters=np.array([3])), 1)


def test_two_members_cannot_have_one_slot() -> None:
    reduction, first = formed(2), part(0)
    reduction.take("a", first, 0)
    with pytest.raises(RemoteProtocolError, match="two members have one slot of v0"):
        reduction.take("b", part(1, headers=first.headers), 0)


def test_what_is_lacked_is_told_by_bucket() -> None:
    reduction = formed(3)
    reduction.take("b", part(1), 0)
    for rank in range(3):
        reduction.take(f"m{rank}", part(rank, bucket=1), 0)
    assert reduction.lacks(0, 2) == {0, 2}
    assert not reduction.has_means(0, 2)
    reduction.take("a", part(0), 0)
    reduction.take("c", part(2), 0)
    assert reduction.lacks(0, 2) == set()
    assert reduction.has_means(0, 2)


def test_who_is_no_member_has_no_part_in_the_sum() -> None:
    reduction = Reduction()
    reduction.begin(GENERATION)
    for rank in (0, 7, -1):
        reduction.take(rank, part(rank), None)
    assert reduction.form(2, BUCKETS, 0) == []
    assert [reply.to for reply in reduction.take("b", part(1), 0)] == [0, "b"]
