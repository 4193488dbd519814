"""Rows of embedding tables in a step: which are asked for, and what is computed of them."""

import numpy as np
import pytest

from edlz.core_ext.memory import aligned_empty
from edlz.services.errors import LocalProtocolError
from edlz.services.master.core.tasks.evaluation_rounds import merge_states
from edlz.services.protocol.messages import InitializerSpec
from edlz.services.worker.engine.keras_engine import TaskError
from tests.rounding import near
from tests.table_jobs import BATCH, SPARSE_FEED, rows_of
from tests.unit.engine.rows.two_tables import TWO_TABLES, bits, compute, find_all

pytestmark = [
    pytest.mark.filterwarnings("ignore:Seed .* from outer graph:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*unbuilt state:UserWarning"),
]


def test_what_is_built(shared):
    (trainer, built), _ = shared
    users, items = built.tables
    assert (users.path, users.dim, items.path, items.dim) == (
        "net/users/embeddings",
        3,
        "net/items/embeddings",
        5,
    )
    assert users.initializer == InitializerSpec(kind="uniform", a=-0.05, b=0.05)
    limit = np.sqrt(6 / 65)
    assert items.initializer.b == -items.initializer.a == near(limit, 4)
    assert (users.optimizer.name, items.optimizer, built.optimizer.name) == (
        "Adagrad",
        built.optimizer,
        "SGD",
    )
    rate = float(np.float32(0.1))
    assert [trainer.table_rates(version) for version in (0, 2)] == [(0.5, rate), (0.25, rate)]
    assert trainer.learning_rate(2) == rate


def test_the_number_of_partitions_does_not_change_a_bit(shared):
    (one, built), (three, _) = shared
    for task, index in ((0, 0), (1, 1), (2, 0)):
        assert compute(one, built, task, index) == compute(three, built, task, index)
        groups = three.find_ids(task, index)
        assert all((group.counts > 0).all() for group in groups[:1])
        one.drop(task)
        three.drop(task)


def test_looking_ahead_changes_nothing(shared):
    (trainer, built), _ = shared
    plain = [compute(trainer, built, 0, index) for index in range(3)]
    trainer.drop(0)
    first = [trainer.find_ids(0, index) for index in range(3)]
    assert trainer.find_ids(0, 3) is None
    found = []
    for index in range(3):
        assert trainer.find_ids(0, index + 1) is (first[index + 1] if index < 2 else None)
        found.append(bits(first[index], trainer.compute(0, index, rows_of(built, first[index]))))
    trainer.drop(0)
    assert found == plain
    again = trainer.find_ids(0, 2)  # a task that is resumed there
    assert [group.ids.tolist() for group in again] == [group.ids.tolist() for group in first[2]]
    trainer.drop(0)


def test_bits_do_not_depend_on_what_ran_before(shared):
    (trainer, built), _ = shared
    first = {(task, index): compute(trainer, built, task, index) for task in range(3) for index in range(2)}
    ids = trainer.evaluation_ids(0, trainer._plan.evaluation_ranges[0])
    trainer.evaluate(0, trainer._plan.evaluation_ranges[0], rows_of(built, ids))
    for task, index in ((2, 1), (0, 0), (1, 1), (0, 1), (1, 0)):
        assert compute(trainer, built, task, index) == first[task, index]


def test_rows_of_found_ids_suffice_without_asking_again(shared):
    """The ids were found in an earlier life of the task: they are found in the same order again."""
    (trainer, built), _ = shared
    groups = trainer.find_ids(1, 0)
    expected = bits(groups, trainer.compute(1, 0, rows_of(built, groups)))
    trainer.drop(1)
    assert bits(groups, trainer.compute(1, 0, rows_of(built, groups))) == expected


def test_the_callers_rows_are_only_read(shared):
    (trainer, built), _ = shared
    groups = trainer.find_ids(0, 0)
    given = rows_of(built, groups)
    mine = [aligned_copy(rows) for rows in given]
    computed = trainer.compute(0, 0, mine)
    expected = bits(groups, computed)
    for rows, before in zip(mine, given, strict=True):
        assert np.array_equal(rows, before)
        rows[:] = 9.0
    assert bits(groups, computed) == expected


def aligned_copy(rows):
    copy = aligned_empty(rows.size, rows.dtype).reshape(rows.shape)
    copy[:] = rows
    return copy


def test_other_rows_than_were_found_are_refused(shared):
    (trainer, built), _ = shared
    rows = rows_of(built, trainer.find_ids(0, 0))
    for wrong in ((), rows[:1], [rows[0][1:], rows[1]], [rows[0][:, 1:], rows[1]]):
        with pytest.raises(LocalProtocolError, match="rows of shapes"):
            trainer.compute(0, 0, wrong)


def test_a_task_that_keeps_no_record_looks_up_nothing(make):
    source = TWO_TABLES + (
        "\ndef feed(dataset, mode, metadata):\n    return dataset.map(parse).filter(lambda ids, y: ids[0] > 9)\n"
    )
    trainer, built = make(source, change=dict.fromkeys(range(10), b"1,2,3,4,5,6,0"))
    ranges = [trainer._plan.task_range(task) for task in range(3)]
    task = next(task for task, records in enumerate(ranges) if records.first == 0)
    groups = trainer.find_ids(task, 0)
    assert [(group.ids.size, group.counts.tolist()) for group in groups] == [(0, [0]), (0, [0])]
    assert trainer.find_ids(task, 1) is None
    computed = trainer.compute(task, 0, rows_of(built, groups))
    assert (computed.is_last, computed.gradient) == (True, None)
    assert [rows.shape for rows in computed.row_gradients] == [(0, 3), (0, 5)]


def test_sparse_ids_that_are_all_left_out(make):
    source = SPARSE_FEED + (
        "def custom_model():\n"
        "    ids = keras.Input((6,), dtype='int64', sparse=True)\n"
        "    return keras.Model(ids, L.Dense(1)(Embedding(3, combiner='mean', name='table')(ids)))\n"
    )
    nothing = b"1,1,1,1,1,1,5"  # less 3: negative
    trainer, built = make(source, change=dict.fromkeys(range(24), nothing))
    task = next(task for task in range(3) if trainer._plan.task_range(task).first == 0)
    (group,) = trainer.find_ids(task, 0)
    assert group.ids.size == 0
    computed = trainer.compute(task, 0, rows_of(built, (group,)))
    assert computed.loss == near(25.0, 20)


def test_evaluation_is_that_of_all_rows_at_once(shared):
    (one, built), (three, _) = shared
    ranges = one._plan.evaluation_ranges
    results = []
    for trainer in (one, three):
        total = {}
        for task, records in enumerate(ranges):
            groups = trainer.evaluation_ids(task, records)
            assert all(len(set(group.ids.tolist())) == len(group.ids) for group in groups)
            count, states = trainer.evaluate(task, records, rows_of(built, groups))
            assert count == records.count
            total = merge_states([total, states]) if total else states
        results.append(trainer.conclude(total)["mae"])
    assert results[0] == results[1]
    assert results[0] == near(plain_error(one, built, ranges), 100)


def plain_error(trainer, built, ranges):
    """The mean absolute error, one minibatch after another."""
    errors = []
    parts = trainer._assembly
    lanes = parts.evaluator._tasks._lanes
    for task, records in enumerate(ranges):
        lanes.begin(task, records)
        for index in range(-(-records.count // BATCH)):
            features, labels = lanes.minibatch(task, index).element
            for number, layer in enumerate(parts.built.tables):
                layer.source = lambda layer, ids, number=number: serve(number, layer, ids)
            predictions = parts.built.model(features, training=False)
            errors.extend(abs(predictions.numpy()[:, 0] - labels.numpy()))
        lanes.drop(task)
    for layer in parts.built.tables:
        layer.source = None
    return np.mean(errors)


def serve(number, layer, ids):
    rows = [np.random.default_rng([number, i]).normal(size=layer.output_dim) for i in ids.numpy()]
    return np.asarray(rows, np.float32)


def test_rows_of_another_task_are_refused(shared):
    (trainer, built), _ = shared
    first, second = trainer._plan.evaluation_ranges[:2]
    rows = rows_of(built, trainer.evaluation_ids(0, first))
    with pytest.raises(LocalProtocolError, match="rows of shapes"):
        trainer.evaluate(1, second, rows)


def test_an_id_outside_of_the_range_is_named(make):
    trainer, _ = make(TWO_TABLES, change={3: b"1,2,3,60,5,6,0"})
    task = next(task for task in range(3) if trainer._plan.task_range(task).first == 0)
    with pytest.raises(TaskError, match=r"layer items: id 60 is not within \[0, 60\)") as error:
        find_all(trainer, task)
    assert error.value.task == task


@pytest.mark.parametrize(
    "table", ['Embedding(3, name="table")', 'L.Embedding(2**25, 3, name="table")'], ids=["ours", "plain"]
)
def test_ids_that_share_a_row_because_they_came_as_floats_are_refused(make, table):
    model = f"""
        def custom_model():
            ids = keras.Input((6,))                                 # float32: an error of many
            return keras.Model(ids, L.Dense(1)(L.Flatten()({table}(ids))))
        """
    trainer, _ = make(model, change={3: b"1,2,3,4,5,16777215,0.5", 13: b"1,2,3,16777216,5,6,0.5"})
    good, bad = (
        next(task for task in range(3) if trainer._plan.task_range(task).first == first) for first in (0, 10)
    )
    assert any(16777215 in groups[0].ids for groups in find_all(trainer, good))
    with pytest.raises(TaskError, match=r"layer table: id 16777216 came as a floating-point .*16,777,216 on"):
        find_all(trainer, bad)


def test_a_record_that_cannot_be_read_is_met_ahead(make):
    trainer, _ = make(TWO_TABLES, change={13: b"1,x,3,6,5,6,0"})
    task = next(task for task in range(3) if trainer._plan.task_range(task).first == 10)
    assert task  # the first task is read already while the model is built
    with pytest.raises(TaskError, match="StringToNumber"):
        find_all(trainer, task)


def test_clipped_gradients_are_the_same_for_any_number_of_partitions(make):
    source = TWO_TABLES.replace("Adagrad(", "Adagrad(clipnorm=0.001, learning_rate=")
    source += "\ndef optimizer():\n    return keras.optimizers.SGD(0.1, global_clipnorm=0.01)\n"
    (one, built), (three, _) = (make(source, partitions=count) for count in (1, 3))
    groups = one.find_ids(0, 0)
    computed = one.compute(0, 0, rows_of(built, groups))
    users, items = computed.row_gradients
    assert np.linalg.norm(users) == near(0.001, 100)
    together = np.hypot(np.linalg.norm(items), np.linalg.norm(computed.gradient))
    assert together == near(0.01, 200)
    assert bits(groups, computed) == compute(three, built, 0, 0)


def test_a_model_that_stands_in_the_module(make):
    source = """
    ids = keras.Input((6,), dtype="int64")
    tower = keras.Sequential([L.Embedding(400_000, 3, name="inner"), L.Flatten()])
    custom_model = keras.Model(ids, L.Dense(1)(L.Concatenate()([tower(ids), L.Flatten()(Embedding(2, name="x")(ids))])))
    """
    trainer, built = make(source)
    assert sorted(table.dim for table in built.tables) == [2, 3]
    groups = trainer.find_ids(0, 0)
    assert all(rows.any() for rows in trainer.compute(0, 0, rows_of(built, groups)).row_gradients)


def test_mixed_precision_keeps_rows_in_float32(make):
    source = """
    def custom_model():
        ids = keras.Input((6,), dtype="int64")
        table = Embedding(3, name="table", dtype="mixed_bfloat16")
        plain = L.Embedding(400_000, 3, name="plain", dtype="mixed_bfloat16")
        x = L.Flatten(dtype="mixed_bfloat16")(L.Add(dtype="mixed_bfloat16")([table(ids), plain(ids)]))
        return keras.Model(ids, L.Dense(1, dtype="float32")(x))
    """
    trainer, built = make(source)
    groups = trainer.find_ids(0, 0)
    computed = trainer.compute(0, 0, rows_of(built, groups))
    assert {rows.dtype for rows in computed.row_gradients} == {np.dtype(np.float32)}


def test_a_model_that_its_function_calls_in_order_to_build_it(make):
    source = """
    def custom_model():
        model = keras.Sequential([Embedding(3), L.Embedding(400_000, 2), L.Flatten(), L.Dense(1)][1:])
        assert model(tf.zeros([1, 6], tf.int64)).shape == (1, 1)
        return model
    """
    assert len(make(source)[1].tables) == 1


@pytest.mark.parametrize(
    "schedule",
    [
        "def callbacks():\n    return [LearningRateScheduler(lambda version: 1.0 / (1 + version))]\n",
        "def learning_rate_scheduler(model_version):\n    return 1.0 / (1 + model_version)\n",
    ],
)
def test_schedules_of_the_module_set_the_models_rate_and_not_a_tables_own(make, schedule):
    trainer, _ = make(f"from edlz.api import LearningRateScheduler\n{schedule}{TWO_TABLES}")
    assert [trainer.learning_rate(version) for version in (0, 3)] == [1.0, 0.25]
    assert trainer.table_rates(3) == (0.25, 0.25)
    assert trainer.table_rates(0) == (0.5, 1.0)
