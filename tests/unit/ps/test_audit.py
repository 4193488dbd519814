"""What the apply path counted, against the ledger and the plan."""

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from edlz.services.parameters.applied_counts import recount
from edlz.services.protocol.ledger import Ledger
from edlz.services.protocol.messages import Recount
from edlz.services.protocol.plan import Shard
from tests import builders

TASKS = 6
lengths = st.lists(st.integers(0, 5), min_size=TASKS, max_size=TASKS)


def ledger_of(lengths: list[int], steps: list[int]) -> Ledger:
    """The ledger after so many minibatches of each task; one that has no more is finished."""
    ledger = Ledger()
    for task, (length, step) in enumerate(zip(lengths, steps, strict=True)):
        for index in range(min(length, step)):
            ledger.note(task, index, is_last=index + 1 == length, is_empty=False)
        if not length and step:
            ledger.note(task, 0, is_last=True, is_empty=True)
    return ledger


def counts_of(lengths: list[int], steps: list[int]) -> npt.NDArray[np.int32]:
    return np.minimum(lengths, steps).astype(np.int32)


def whole(lengths: list[int]) -> npt.NDArray[np.int32]:
    return np.array(lengths, np.int32)


@given(lengths, lengths)
def test_what_is_counted_as_it_was_noted_lacks_nothing(lengths: list[int], steps: list[int]) -> None:
    counts, ledger = counts_of(lengths, steps), ledger_of(lengths, steps)
    applied = int(counts.sum())
    assert recount(counts, ledger, whole(lengths)) == Recount(expected=applied, applied=applied)
    # A feed that leaves records out: the plan asks for more than there is.
    assert recount(counts, ledger, whole(lengths) + 1) == Recount(expected=applied, applied=applied)


@given(lengths, lengths, st.integers(0, TASKS - 1), st.integers(1, 3))
def test_one_task_too_many_or_too_few(lengths: list[int], steps: list[int], task: int, by: int) -> None:
    ledger, counts = ledger_of(lengths, steps), counts_of(lengths, steps)
    applied = int(counts.sum())
    for planned in (whole(lengths), whole(lengths) + 1):
        changed = counts.copy()
        changed[task] += by
        doubled = Recount(expected=applied, applied=applied + by, doubled=by)
        assert recount(changed, ledger, planned) == doubled
        fewer = min(by, int(counts[task]))
        changed = counts.copy()
        changed[task] -= fewer
        missing = Recount(expected=applied, applied=applied - fewer, missing=fewer)
        assert recount(changed, ledger, planned) == missing


def test_one_missing_does_not_hide_one_doubled() -> None:
    lengths = [3, 3, 3, 3, 3, 3]
    ledger = ledger_of(lengths, [3, 3, 3, 2, 2, 0])
    finished = recount(np.array([4, 3, 2, 2, 2, 0], np.int32), ledger, whole(lengths))
    assert (finished.missing, finished.doubled) == (1, 1)
    for planned in (lengths, [4] * TASKS):  # open tasks have marks, whatever the feed does
        is_open = recount(np.array([3, 3, 3, 1, 3, 0], np.int32), ledger, whole(planned))
        assert (is_open.missing, is_open.doubled) == (1, 1)


def test_a_plan_knows_the_minibatches_of_each_task() -> None:
    plan = builders.plan(
        seed=3,
        shards=(Shard(name="a", first=0, count=23), Shard(name="b", first=5, count=4)),
        records_per_task=10,
        minibatch_size=4,
        epochs=3,
        slots=2,
    )
    wanted = [-(-plan.task_records(task) // 4) for task in range(plan.task_count)]
    assert plan.minibatches.tolist() == wanted
    assert sorted(wanted[: plan.tasks_per_epoch]) == [1, 1, 3, 3]
    assert plan.minibatches.sum() == 3 * plan.minibatches_per_epoch
