"""The tensors of a partition: what a step changes, and what it must not touch."""

import gc
from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from edlz.core_ext.optimizers import make_optimizer
from edlz.services.parameters.lent_buffers import LentBuffers
from edlz.services.parameters.mean_step import MeanStep
from edlz.services.parameters.store import Store
from edlz.services.parameters.tables import empty_rows
from edlz.services.protocol.layout import Layout, Variable, VectorLayout, slice_bounds
from edlz.services.protocol.messages import InitializerSpec, OptimizerSpec, Push, RowIds, TableSpec

SIZE = 32
LAYOUT = Layout(
    dense=VectorLayout(variables=(Variable(path="w", shape=(SIZE,)),)),
    state=VectorLayout(variables=(Variable(path="mean", shape=(16,)),)),
    counters=VectorLayout(variables=(Variable(path="n", shape=(16,)),)),
)
SGD = OptimizerSpec(name="SGD", settings={"momentum": 0.0, "nesterov": False})
ADAM = OptimizerSpec(name="Adam", settings={"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7})
rng = np.random.default_rng(3)


def make_store(optimizer: OptimizerSpec = SGD) -> Store:
    return Store(
        Store.initial(
            plan_hash="h",
            task_count=4,
            partition=0,
            partitions=1,
            layout=LAYOUT,
            optimizer=optimizer,
            dense=np.arange(SIZE, dtype=np.float32),
            state=np.zeros(16, np.float32),
            counters=np.zeros(16, np.int64),
        ),
        seed=0,
    )


def make_push(task: int, index: int = 0) -> Push:
    gradient = rng.standard_normal(SIZE, np.float32)
    return Push(
        task=task,
        index=index,
        is_last=False,
        learning_rate=0.5,
        gradient=gradient,
        state=gradient[:16].copy(),
        counters=np.full(16, task, np.int64),
    )


def test_a_sync_step_is_the_mean_of_its_gradients() -> None:
    store, pushes = make_store(), [make_push(task) for task in range(3)]
    before = store.values().dense.copy()
    store.commit(pushes)
    gradients = [p.gradient for p in pushes if p.gradient is not None]
    mean = (gradients[0] + gradients[1] + gradients[2]) / np.float32(3)
    np.testing.assert_array_equal(store.values().dense, before - np.float32(0.5) * mean)
    states = [p.state for p in pushes if p.state is not None]
    np.testing.assert_array_equal(store.values().state, (states[0] + states[1] + states[2]) / np.float32(3))
    assert store.values().counters.tolist() == [2] * 16
    assert store.version == 1
    assert [store.counts.of(task) for task in range(4)] == [1, 1, 1, 0]


def test_a_sync_step_is_added_up_as_a_tree_over_its_slots() -> None:
    store, pushes = make_store(), [make_push(task) for task in range(4)]
    before, (a, b, c, d) = store.values().dense.copy(), [p.gradient for p in pushes if p.gradient is not None]
    store.commit(pushes)
    mean = ((a + b) + (c + d)) / np.float32(4)
    np.testing.assert_array_equal(store.values().dense, before - np.float32(0.5) * mean)
    np.testing.assert_array_equal(store.values().state, mean[:16])
    assert not np.array_equal(mean, (a + b + c + d) / np.float32(4)), "the order makes a difference"


def test_a_slot_that_is_absent_is_skipped() -> None:
    store = make_store()
    pushes = [make_push(0), msgspec.structs.replace(make_push(1), gradient=None), make_push(2), make_push(3)]
    before, (a, c, d) = store.values().dense.copy(), [p.gradient for p in pushes if p.gradient is not None]
    store.commit(pushes, [0, 1, 6, 7])
    mean = (a + (c + d)) / np.float32(3)
    np.testing.assert_array_equal(store.values().dense, before - np.float32(0.5) * mean)
    assert not np.array_equal(mean, ((a + c) + d) / np.float32(3)), "the order makes a difference"


def take(store: Store, step: MeanStep) -> None:
    values = store.prepare(step)
    values.run()
    store.advance(values)


@pytest.mark.parametrize("optimizer", [SGD, ADAM])
def test_a_step_whose_mean_others_made_has_the_same_bits(optimizer: OptimizerSpec) -> None:
    whole, replica = make_store(optimizer), make_store(optimizer)
    for index in range(3):
        pushes = [msgspec.structs.replace(make_push(task, index), loss=float(task)) for task in range(2)]
        whole.commit(pushes)
        gradients = [push.gradient for push in pushes if push.gradient is not None]
        states = [push.state for push in pushes if push.state is not None]
        take(
            replica,
            MeanStep(
                minibatches=tuple((task, index, False, False, float(task)) for task in range(2)),
                learning_rate=0.5,
                gradient=tuple(np.split((gradients[0] + gradients[1]) / np.float32(2), (5, 5, 16))),
                state=(states[0] + states[1]) / np.float32(2),
                counters=np.full(16, 1, np.int64),
            ),
        )
    one, other = whole.capture((0, 0)), replica.capture((0, 0))
    assert (one.ledger, one.losses, one.iterations) == (other.ledger, other.losses, other.iterations)
    assert one.counts.tolist() == other.counts.tolist()
    for name in ("dense", "state", "counters"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name, slot in one.slots.items():
        np.testing.assert_array_equal(slot, other.slots[name])


def test_a_step_of_empty_slots_only_notes_them() -> None:
    store = make_store(ADAM)
    before = store.values().dense.copy()
    take(store, MeanStep(minibatches=((0, 0, True, True, None),), learning_rate=0.0))
    np.testing.assert_array_equal(store.values().dense, before)
    assert (store.version, store.iterations, list(store.ledger.finished)) == (1, 0, [0])


def test_a_replica_steps_in_place_unless_its_values_are_being_sent() -> None:
    store = make_store()
    step = MeanStep(
        minibatches=((0, 0, False, False, None),), learning_rate=0.5, gradient=(np.ones(SIZE, np.float32),)
    )
    place = store.values().dense.ctypes.data
    take(store, step)
    assert store.values().dense.ctypes.data == place
    sent = store.values()
    copy = sent.dense.copy()
    take(store, msgspec.structs.replace(step, minibatches=((0, 1, False, False, None),)))
    np.testing.assert_array_equal(sent.dense, copy)


def test_the_version_before_is_kept_for_one_step() -> None:
    store = make_store()
    assert store.values_before() is None
    first = store.values().dense.copy()
    store.commit([make_push(0)])
    second = store.values().dense.copy()
    kept = store.values_before()
    assert kept is not None
    assert kept.version == 0
    np.testing.assert_array_equal(kept.dense, first)
    del kept
    store.commit([make_push(0, 1)])
    kept = store.values_before()
    assert kept is not None
    np.testing.assert_array_equal(kept.dense, second)


def test_two_buffers_serve_in_turn_while_nothing_is_lent() -> None:
    store, places = make_store(), set()
    for index in range(6):
        store.commit([make_push(0, index)])
        places.add(store.values().dense.ctypes.data)
    assert len(places) == 2


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_values_that_are_being_sent_are_never_written(mode: str) -> None:
    store = make_store()
    sent: list[tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]] = []
    for index in range(5):
        values = store.values()
        sent.append((values.dense, values.dense.copy()))
        push = make_push(0, index)
        store.commit([push]) if mode == "sync" else store.apply(push)
    for held, copy in sent:
        np.testing.assert_array_equal(held, copy)
    with pytest.raises(ValueError, match="read-only"):
        sent[0][0][0] = 1


def test_async_updates_in_place_when_nothing_is_lent() -> None:
    store = make_store()
    place = store.values().dense.ctypes.data
    store.apply(make_push(0))
    assert store.values().dense.ctypes.data == place


def test_a_slice_of_a_loan_keeps_the_loan() -> None:
    buffers = LentBuffers(SIZE)
    buffer = buffers.take()
    part = buffers.lend(buffer)[3:5]
    gc.collect()
    assert not buffers.is_free(buffer)
    del part
    assert buffers.is_free(buffer)


def test_a_captured_state_is_not_changed_by_later_steps() -> None:
    store = make_store(ADAM)
    store.apply(make_push(0))
    captured = store.capture((1, 1))
    dense, slots = captured.dense.copy(), {name: slot.copy() for name, slot in captured.slots.items()}
    store.apply(make_push(0, 1))
    np.testing.assert_array_equal(captured.dense, dense)
    for name, slot in slots.items():
        np.testing.assert_array_equal(captured.slots[name], slot)
    assert captured.ledger.marks == ((0, 1),)


def test_a_restored_store_goes_on_with_the_same_bits() -> None:
    pushes = [make_push(0, index) for index in range(6)]
    whole, first = make_store(ADAM), make_store(ADAM)
    for push in pushes:
        whole.commit([push])
    for push in pushes[:3]:
        first.commit([push])
    second = Store(first.capture((1, 1)), 0)
    for push in pushes[3:]:
        second.commit([push])
    np.testing.assert_array_equal(whole.values().dense, second.values().dense)


def test_an_empty_step_counts_a_version_and_changes_nothing() -> None:
    store = make_store(ADAM)
    before = store.values().dense.copy()
    empty = Push(task=0, index=0, is_last=True, learning_rate=0, gradient=None, state=None, counters=None)
    store.commit([empty])
    assert (store.version, store.iterations) == (1, 0)
    np.testing.assert_array_equal(store.values().dense, before)


def test_a_push_of_another_shape_is_refused() -> None:
    short = np.zeros(3, np.float32)
    push = Push(task=0, index=0, is_last=False, learning_rate=0, gradient=short, state=None, counters=None)
    with pytest.raises(ValueError, match=r"gradient has shape \(3,\)"):
        make_store().check(push)


FTRL = OptimizerSpec(name="Ftrl", settings={})
TABLE = TableSpec(
    path="table", dim=2, initializer=InitializerSpec(kind="constant", a=1.0, b=0.0), optimizer=FTRL
)


def store_with_tables(*specs: TableSpec) -> Store:
    state = make_store().capture((1, 1))
    return Store(msgspec.structs.replace(state, tables=specs, rows=[empty_rows(spec) for spec in specs]), 0)


def rows_of(store: Store, ids: npt.NDArray[np.int64], counts: tuple[int, ...]) -> list[float]:
    return [float(value) for value in store.tables.gather(RowIds(counts=counts, ids=ids))]


@pytest.mark.parametrize("where", ["dense", "table", "table's own rate"])
def test_a_rate_that_an_optimizer_does_not_take_is_found_before_anything_changes(where: str) -> None:
    """Ftrl divides by the rate."""
    push = msgspec.structs.replace(make_push(0), learning_rate=0.0)
    if where == "dense":
        store = make_store(FTRL)
    else:
        store = store_with_tables(TABLE)
        rows = RowIds(counts=(1,), ids=np.array([7]))
        push = msgspec.structs.replace(push, rows=rows, row_gradients=np.ones(2, np.float32))
    if where == "table's own rate":
        push = msgspec.structs.replace(push, learning_rate=0.5, table_rates=(0.0,))
    before = store.values().dense.copy()
    steps: list[Callable[[], object]] = [
        lambda: store.check(push),
        lambda: store.apply(push),
        lambda: store.commit([push]),
    ]
    for step in steps:
        with pytest.raises(ValueError, match="divides in Ftrl"):
            step()
        assert (store.version, store.ledger.mark(0)) == (0, 0)
        np.testing.assert_array_equal(store.values().dense, before)
    store.check(msgspec.structs.replace(push, gradient=None, is_last=True))  # nothing to be applied


def test_a_rate_that_only_its_factor_makes_too_small_is_found() -> None:
    store = make_store(OptimizerSpec(name="Ftrl", settings={"beta": 1.0}))
    push = msgspec.structs.replace(make_push(0), learning_rate=1e-38)
    store.check(push)
    with pytest.raises(ValueError, match="divides in Ftrl"):
        store.check(push, 1e-7)


def test_a_push_is_applied_at_its_own_rate_whatever_was_checked_before() -> None:
    store, other = make_store(), make_store()
    push = make_push(0)
    for rate in (0.25, 0.0, -0.0):
        store.check(msgspec.structs.replace(push, learning_rate=rate))
    store.check(push, 0.125)
    store.apply(push)
    other.apply(push)
    np.testing.assert_array_equal(store.values().dense, other.values().dense)


def test_each_table_steps_by_its_own_optimizer_and_rate() -> None:
    def sgd(**settings: float) -> TableSpec:
        return msgspec.structs.replace(TABLE, optimizer=OptimizerSpec(name="SGD", settings=settings))

    store = store_with_tables(sgd(), sgd(weight_decay=0.5), sgd())
    assert len(store.tables.optimizers) == 2
    ids = np.array([3, 4, 3, 5])
    push = msgspec.structs.replace(
        make_push(0), rows=RowIds(counts=(1, 1, 2), ids=ids), row_gradients=np.ones(8, np.float32)
    )
    store.check(push)
    store.apply(push)  # at 0.5; the second decays first: 1 - 1 * 0.5 * 0.5
    assert rows_of(store, ids, (1, 1, 2)) == [0.5, 0.5, 0.25, 0.25, 0.5, 0.5, 0.5, 0.5]
    store.apply(msgspec.structs.replace(push, index=1, table_rates=(0.0, 1.0, 0.25)))
    assert rows_of(store, ids, (1, 1, 2)) == [0.5, 0.5, -0.875, -0.875, 0.25, 0.25, 0.25, 0.25]


def test_slots_begin_as_the_optimizer_says() -> None:
    assert make_store(ADAM).slots == tuple(make_optimizer("Adam", ADAM.settings).slots)


def test_minibatches_that_wait_are_received_but_not_in_the_ledger() -> None:
    store = make_store()
    before = store.values().dense.copy()
    assert store.receive(make_push(0)) == 1
    assert store.receive(make_push(1)) == 2
    assert (store.received.mark(0), store.received.mark(1)) == (1, 1)
    assert (store.ledger.mark(0), store.version) == (0, 0)
    np.testing.assert_array_equal(store.values().dense, before)
    captured = store.capture((1, 1))
    assert captured.ledger.minibatches == 0
    store.flush()
    assert (store.ledger.mark(0), store.ledger.mark(1), store.version) == (1, 1, 1)
    assert (store.values().dense != before).any()


def test_a_variable_without_weight_decay_is_left_alone_by_it() -> None:
    shapes = [(16,), (5, 3), (32,), (8,)]
    layout = Layout(
        dense=VectorLayout(variables=tuple(Variable(path=f"v{i}", shape=s) for i, s in enumerate(shapes)))
    )
    spec = OptimizerSpec(name="SGD", settings={"weight_decay": 0.5}, undecayed=(1, 3))
    size = layout.dense.size
    for partitions in (1, 2, 3):
        parts = []
        for p in range(partitions):
            lo, hi = slice_bounds(size, p, partitions)
            state = Store.initial(
                plan_hash="h",
                task_count=4,
                partition=p,
                partitions=partitions,
                layout=layout,
                optimizer=spec,
                dense=np.ones(hi - lo, np.float32),
                state=np.zeros(0, np.float32),
                counters=np.zeros(0, np.int64),
            )
            store = Store(state, 0)
            push = make_push(0)
            nothing = np.zeros(hi - lo, np.float32)
            store.apply(msgspec.structs.replace(push, gradient=nothing, state=None, counters=None))
            parts.append(store.values().dense)
        values = np.concatenate(parts)
        for place, offset in enumerate(layout.dense.offsets[:-1]):
            wanted = 1.0 if place in spec.undecayed else 0.75
            assert values[offset] == np.float32(wanted), (partitions, place)
