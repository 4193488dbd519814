"""From what a minibatch gave to what each partition is sent of it."""

import numpy as np
import pytest

from edlz.services.protocol.messages import Push, RowIds
from edlz.services.worker.core.computation import Computed
from edlz.services.worker.partition_traffic import Rates, make_pushes

RATES = Rates(0.25, (0.5, 0.125))
IDS = (RowIds(counts=(2,), ids=np.array([0, 2])), RowIds(counts=(1,), ids=np.array([1])))


def computed(*, is_empty: bool = False) -> Computed:
    vectors = (np.arange(32, dtype=np.float32), np.arange(16, dtype=np.float32), np.arange(8))
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    return Computed(3, 5, True, *((None,) * 3 if is_empty else vectors), 1.5, 4, 0.0, 0.0, (rows,))


def test_the_slices_make_up_the_vectors() -> None:
    pushes = make_pushes(computed(), RATES, (), 2, None)
    for name in ("gradient", "state", "counters"):
        joined = np.concatenate([getattr(push, name) for push in pushes])
        np.testing.assert_array_equal(joined, getattr(computed(), name))


def test_slices_are_views() -> None:
    step = computed()
    assert all(
        np.shares_memory(push.gradient, step.gradient) for push in make_pushes(step, RATES, (), 2, None)
    )


@pytest.mark.parametrize("partition", [0, 1])
def test_each_partition_hears_all_that_is_said_of_the_minibatch(partition: int) -> None:
    push = make_pushes(computed(), RATES, (), 2, 1.5)[partition]
    told = {name: getattr(push, name) for name in Push.__struct_fields__}
    assert {
        name: told[name] for name in ("task", "index", "is_last", "learning_rate", "table_rates", "loss")
    } == {
        "task": 3,
        "index": 5,
        "is_last": True,
        "learning_rate": 0.25,
        "table_rates": (0.5, 0.125),
        "loss": 1.5,
    }


def test_each_partition_gets_the_gradients_of_its_rows() -> None:
    first, second = make_pushes(computed(), RATES, IDS, 2, None)
    assert (first.rows, second.rows) == IDS
    np.testing.assert_array_equal(first.row_gradients, [0, 1, 2, 3])
    np.testing.assert_array_equal(second.row_gradients, [4, 5])


def test_an_empty_minibatch_has_nothing_to_slice() -> None:
    for push in make_pushes(computed(is_empty=True), RATES, IDS, 2, None):
        assert (push.gradient, push.state, push.counters, push.rows, push.row_gradients) == (None,) * 5
