"""From whole vectors to the partitions' slices."""

import numpy as np
import pytest

from edlz.services.protocol.layout import Layout, Variable, VectorLayout
from edlz.services.protocol.messages import Exchanged, OptimizerSpec, Push, RowIds
from edlz.services.worker.parameters import Parameters, slice_push


def push_with_everything() -> Push:
    return Push(
        task=3,
        index=5,
        is_last=True,
        learning_rate=0.25,
        gradient=np.arange(32, dtype=np.float32),
        state=np.arange(16, dtype=np.float32),
        counters=np.arange(8),
        snapshot_at=7,
        checkpoint_at=9,
        rows=RowIds(ids=np.arange(2), counts=(2,)),
        row_gradients=np.ones(8, np.float32),
        table_rates=(0.5, 0.125),
    )


@pytest.mark.parametrize("partition", [0, 1])
def test_a_slice_of_a_push_says_all_that_the_whole_one_does(partition: int) -> None:
    whole = push_with_everything()

    part = slice_push(whole, partition, 2)

    sliced = {"gradient", "state", "counters"}
    for name in Push.__struct_fields__:
        if name not in sliced:
            assert getattr(part, name) is getattr(whole, name), name


def test_the_slices_of_a_push_make_up_its_vectors() -> None:
    whole = push_with_everything()

    parts = [slice_push(whole, partition, 2) for partition in range(2)]

    for name in ("gradient", "state", "counters"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(joined, getattr(whole, name))


def test_the_push_of_an_empty_minibatch_has_no_vectors_to_slice() -> None:
    empty = Push(task=0, index=0, is_last=True, learning_rate=0.1, gradient=None, state=None, counters=None)

    assert slice_push(empty, 0, 2) == empty


def test_a_workers_own_step_decays_what_a_partitions_would() -> None:
    variables = tuple(Variable(path=f"v{place}", shape=(16,)) for place in range(3))
    layout = Layout(dense=VectorLayout(variables=variables))
    spec = OptimizerSpec(name="SGD", settings={"weight_decay": 0.5, "momentum": 0.5}, undecayed=(1,))
    part = Exchanged(
        incarnation=(1, 1),
        mark=0,
        finished=False,
        version=0,
        dense=np.ones(48, np.float32),
        state=np.zeros(0, np.float32),
        counters=np.zeros(0, np.int64),
    )
    parameters = Parameters(layout, 1, spec)
    parameters.assemble((part,))

    dense, _, _ = parameters.step(np.zeros(48, np.float32), 0.5)

    assert dense.reshape(3, 16)[:, 0].tolist() == [0.75, 1.0, 0.75]
