"""Plans without an end: pieces that come, epochs one after another, and what follows from how far they go."""

import itertools
import tracemalloc

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edlz.services.protocol.growing_plan import GrowingPlan, Piece
from edlz.services.protocol.milestones import Milestones
from edlz.services.protocol.plan import ENDLESS, FileFacts, Plan, Shard
from tests import builders

counts = st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=3), min_size=1, max_size=5)


def piece(number: int, *records: int) -> Piece:
    names = [f"{number}-{i}" for i in range(len(records))]
    shards = [Shard(name=name, first=0, count=count) for name, count in zip(names, records, strict=True)]
    return Piece(shards=tuple(shards), files=tuple(FileFacts(name=name, size_bytes=1) for name in names))


def began(*records: int, **more: object) -> Plan:
    about = {
        "epochs": 0,
        "stream": "s",
        "records_per_task": 7,
        "minibatch_size": 2,
        "slots": 3,
        "seed": 5,
        **more,
    }
    return builders.plan(shards=piece(0, *records).shards, **about)


@given(counts)
def test_each_record_is_in_one_task(given: list[list[int]]) -> None:
    first, *later = given
    plan = GrowingPlan.of(began(*first), [piece(i, *records) for i, records in enumerate(later, 1)])
    ranges = [plan.task_range(task) for task in range(plan.known)]
    found = [(r.name, r.first + i) for r in ranges for i in range(r.count)]
    wanted = [(f"{i}-{j}", k) for i, all_ in enumerate(given) for j, n in enumerate(all_) for k in range(n)]
    assert sorted(found) == sorted(wanted)
    assert plan.known % plan.slots == 0
    sizes = list(itertools.accumulate((r.count for r in ranges), initial=0))
    assert [plan.size_of(tasks)[0] for tasks in range(plan.known + 1)] == sizes
    for task, records in enumerate(ranges):
        assert (records.file is not None) == (
            task >= plan.first_of_piece(1) and records.count > 0
        ) or not later


def test_a_piece_changes_nothing_that_was_there() -> None:
    pristine = began(20, 9)
    plan = GrowingPlan.of(pristine, [piece(1, 40)])
    before = [plan.task_range(task) for task in range(plan.known)]
    plan.add(piece(2, 3))
    assert [plan.task_range(task) for task in range(len(before))] == before
    assert plan.hash == pristine.hash
    for task in range(plan.known):
        assert plan.round_tasks(task) == pristine.round_tasks(task)
        assert plan.slot(task) == pristine.slot(task) == task % 3
    assert [pristine.task_range(task) for task in range(5)] == before[
        :5
    ]  # the others learn later ones from leases
    assert (pristine.task_count, plan.known) == (ENDLESS, 15)


def test_other_streams_are_other_plans() -> None:
    assert began(5).hash != began(5, stream="t").hash
    finite, old = began(5, stream="", epochs=1), msgspec.structs.replace(began(5), stream="", epochs=1)
    assert finite.hash == old.hash  # what has no stream is what it was before there were any


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=4),
    st.integers(0, 9),
    st.sampled_from(["sync", "async"]),
)
def test_epochs_without_end_begin_as_those_with_one(records: list[int], every: int, mode: str) -> None:
    endless = began(*records, stream="", mode=mode)
    finite = msgspec.structs.replace(endless, epochs=6)
    for task in range(finite.task_count):
        assert endless.task_range(task) == finite.task_range(task)
        assert endless.round_tasks(task) == finite.round_tasks(task)
        assert endless.size_of(task) == finite.size_of(task)
    last = finite.task_count - 1
    places, milestones = finite.barriers(every).tolist(), Milestones(endless, every)
    found, at = [], -1
    while (at := milestones.next_barrier(at)) is not None and at < last:
        found.append(at)
    assert found == [place for place in places if place < last]
    total = int(finite.minibatches.sum())
    for steps in range(1, total, 3):
        assert Milestones(endless, 0).end_after(steps) == Milestones(finite, 0).end_after(steps)


@given(counts, st.integers(1, 9))
def test_milestones_wait_for_what_is_not_there(given: list[list[int]], every: int) -> None:
    first, *later = given
    plan = GrowingPlan.of(began(*first))
    milestones, at, found = Milestones(plan, every), -1, []
    for number, records in enumerate([*later, []], 1):
        while (place := milestones.next_barrier(at)) is not None:
            found.append(at := place)
        if records:
            plan.add(piece(number, *records))
    version, wanted = 0, []
    for task in range(0, plan.known, 3):
        size = max(-(-plan.task_range(t).count // 2) for t in range(task, task + 3))
        wanted += [task + 2] if (version + size) // every > version // every else []
        version += size
    assert found == wanted
    total = plan.size_of(plan.known)[1]
    assert milestones.end_after(total + 1) is None
    last, index = milestones.end_after(total) or (0, 0)
    assert (plan.size_of(last + 1)[1], index) == (total, None)


@pytest.mark.parametrize("files", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_weeks_of_files_take_little_room(files: int) -> None:
    """Of a file that is over some bytes are left where the plan is, and its line in the journal."""
    plan = GrowingPlan.of(began(100, records_per_task=100, slots=2))
    some = [piece(number, 100) for number in range(1, 101)]
    tracemalloc.start()
    for number in range(files):
        plan.add(some[number % 100])
    used_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert plan.known == 2 * (files + 1)
    assert used_bytes < 250 * files
    assert len(msgspec.json.encode(some[0])) < 200
    assert np.all(plan.minibatches_of_piece(files) == [50, 0])
