"""The ledger against plain sets and dicts."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edlz.services.protocol.ledger import Ledger, TaskSet

tasks = st.lists(st.integers(0, 40), max_size=60)


@given(tasks)
def test_a_task_set_is_a_set(added: list[int]) -> None:
    found, wanted = TaskSet(), set()
    for task in added:
        found.add(task)
        wanted.add(task)
        assert set(found) == wanted
        assert len(found) == len(wanted)
        assert all((task in found) == (task in wanted) for task in range(-1, 43))
    assert list(found.missing(45)) == [task for task in range(45) if task not in wanted]
    assert TaskSet(found.bounds) == found
    assert all(b > a for a, b in pairwise(found.bounds))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=60))
def test_what_was_added_can_be_taken_out(changes: list[tuple[bool, int]]) -> None:
    found, wanted = TaskSet(), set()
    for is_added, task in changes:
        (found.add if is_added else found.discard)(task)
        (wanted.add if is_added else wanted.discard)(task)
        assert set(found) == wanted
        assert len(found) == len(wanted)
        assert TaskSet(found.bounds) == found
        assert found.first_missing() == min(set(range(15)) - wanted)


@given(tasks, tasks)
def test_intersection(a: list[int], b: list[int]) -> None:
    left, right = TaskSet(), TaskSet()
    for task in a:
        left.add(task)
    for task in b:
        right.add(task)
    both = left.intersection(right)
    assert set(both) == set(a) & set(b)
    assert both == TaskSet(both.bounds)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=80))
def test_a_ledger_keeps_marks_until_a_task_is_finished(events: list[tuple[int, bool]]) -> None:
    ledger, marks, finished, count = Ledger(), dict.fromkeys(range(6), 0), set(), 0
    for task, is_last in events:
        if task in finished:
            with pytest.raises(ValueError, match="is not next"):
                ledger.note(task, marks[task], is_last=False, is_empty=False)
            continue
        ledger.note(task, marks[task], is_last=is_last, is_empty=False)
        marks[task] += 1
        count += 1
        if is_last:
            finished.add(task)
        assert set(ledger.finished) == finished
        assert ledger.minibatches == count
        assert all(ledger.mark(t) == (0 if t in finished else marks[t]) for t in range(6))
        assert Ledger(ledger.record()) == ledger


@pytest.mark.parametrize("index", [0, 2])
def test_a_minibatch_out_of_turn_changes_nothing(index: int) -> None:
    ledger = Ledger()
    ledger.note(3, 0, is_last=False, is_empty=False)
    before = ledger.record()
    with pytest.raises(ValueError, match=r"minibatch \(3, "):
        ledger.note(3, index, is_last=False, is_empty=False)
    assert ledger.record() == before


def test_an_empty_minibatch_only_ends_its_task() -> None:
    ledger = Ledger()
    ledger.note(1, 0, is_last=True, is_empty=True)
    assert 1 in ledger.finished
    assert ledger.minibatches == 0


def test_intervals_must_ascend() -> None:
    with pytest.raises(ValueError, match="not ascending"):
        TaskSet([3, 2])
