"""The trainer: gradients that follow from (vectors, task, index) alone, evaluation, errors by kind."""

import json
import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

from edlz.api.recordio import Writer
from edlz.core_ext.memory import aligned_empty
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, LocalProtocolError, ModelError
from edlz.services.inputs.data import list_shards
from edlz.services.master.core.tasks.metric_state import merge_states
from edlz.services.protocol.plan import TaskRange
from edlz.services.worker.engine.keras_engine import KerasEngine, TaskError, UserCodeError
from tests import builders
from tests.rounding import near

pytestmark = pytest.mark.filterwarnings("ignore:Seed .* from outer graph:UserWarning")

BATCH, TASK, RECORDS = 4, 10, 25  # tasks of 10, 10 and 5 records

MODEL = """
import keras
import tensorflow as tf
L = keras.layers

class CustomModel(keras.Model):
    def __init__(self):
        super().__init__(name="net")
        self.first = L.Dense(16, activation="relu", kernel_regularizer="l2")
        self.norm = L.BatchNormalization()
        self.drop = L.Dropout(0.5)
        self.last = L.Dense(1)
        self.steps = self.add_weight(shape=(), dtype="int32", trainable=False, name="steps", initializer="zeros")

    def call(self, inputs, training=False):
        if training:
            self.steps.assign_add(1)
        x = self.drop(self.norm(self.first(inputs["x"]), training=training), training=training)
        if training:
            x = tf.nn.dropout(x, 0.1) + 0.01 * keras.random.normal(tf.shape(x))
        return self.last(x)

def loss(labels, predictions):
    tf.debugging.assert_less(labels, 1000.0)
    return tf.reduce_mean(tf.square(predictions[:, 0] - labels))

def optimizer(lr=0.1):
    return keras.optimizers.SGD(keras.optimizers.schedules.PiecewiseConstantDecay([1], [lr, lr / 2]))

def feed(dataset, mode, metadata):
    def parse(record):
        values = tf.strings.to_number(tf.strings.split(record, ","))
        return {"x": values[:3]}, values[3]
    dataset = dataset.map(parse)
    return dataset.shuffle(64) if mode == "training" else dataset

def eval_metrics_fn():
    return {"mae": keras.metrics.MeanAbsoluteError(), "rows": lambda labels, predictions: tf.ones_like(labels)}
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A trainer, and what it built, that many tests use: it has no memory that they could see."""
    folder = tmp_path_factory.mktemp("shared") / "job"
    write_job(folder, MODEL, {})
    trainer = KerasEngine(*job(folder, evaluation=True))
    yield trainer, trainer.build()
    trainer.close()


@pytest.fixture
def make(tmp_path):
    """make(source, records) -> (trainer, what it built); closed at the end."""
    made = []

    def build(source=MODEL, *, change=(), mode="sync", evaluation=False, slots=2):
        folder = tmp_path / f"job{len(made)}"
        write_job(folder, source, dict(change))
        trainer = KerasEngine(*job(folder, mode, evaluation, slots))
        made.append(trainer)
        return trainer, trainer.build()

    yield build
    for trainer in made:
        trainer.close()


def write_job(folder, source, change):
    (folder / "data").mkdir(parents=True)
    (folder / "model.py").write_text(textwrap.dedent(source))
    for name, numbers in (("part-0", range(20)), ("part-1", range(20, RECORDS))):
        with Writer(folder / "data" / name) as writer:
            for i in numbers:
                writer.write(change.get(i, f"{i},{i % 7},{i % 3},{i % 5}".encode()))


def job(folder, mode="sync", evaluation=False, slots=2):
    shards = list_shards(str(folder / "data"))
    symbol = {"model_file": str(folder / "model.py")}
    plan = builders.plan(
        mode=mode,
        seed=7,
        shards=shards,
        records_per_task=TASK,
        minibatch_size=BATCH,
        epochs=2,
        slots=slots,
        evaluation_shards=shards if evaluation else (),
    )
    return JobConfig(**symbol, minibatch_size=BATCH, worker_threads=2), plan


def as_bits(computed):
    return [
        computed.gradient.tobytes(),
        computed.state.tobytes(),
        computed.counters.tobytes(),
        computed.loss,
        computed.records,
        computed.is_last,
    ]


def aligned_copy(vector):
    copy = aligned_empty(vector.size, vector.dtype)
    copy[:] = vector
    return copy


def task_of(trainer, name, first):
    """The task of the first epoch whose records begin at `first` of this file."""
    ranges = enumerate(map(trainer._plan.task_range, range(3)))
    return next(task for task, records in ranges if records.name.endswith(name) and records.first == first)


def number_of_minibatches(plan, task):
    return -(-plan.task_range(task).count // BATCH)


# ---------------------------------------------------------------- building


def test_what_is_built(shared):
    trainer, built = shared
    assert [v.path for v in built.layout.dense.variables] == [
        "net/dense/kernel",
        "net/dense/bias",
        "net/batch_normalization/gamma",
        "net/batch_normalization/beta",
        "net/dense_1/kernel",
        "net/dense_1/bias",
    ]
    assert built.dense.size == built.layout.dense.size
    assert built.state[16:32].tolist() == [1.0] * 16
    assert [v.path for v in built.layout.counters.variables] == ["net/steps"]
    assert (built.optimizer.name, built.optimizer.settings) == ("SGD", {"momentum": 0.0, "nesterov": False})
    assert [trainer.learning_rate(v) for v in (0, 1, 2)] == [
        float(np.float32(0.1)),
        float(np.float32(0.1)),
        float(np.float32(0.05)),
    ]


def test_a_gradient_is_that_of_plain_keras(make):
    source = MODEL.replace("L.Dropout(0.5)", "L.Dropout(0.0)").replace(
        "            x = tf.nn.dropout(x, 0.1) + 0.01 * keras.random.normal(tf.shape(x))", "            pass"
    )
    trainer, built = make(source)
    computed = trainer.compute(1, 0)
    assembly = trainer._assembly
    from edlz.services.worker.engine.tensorflow.backend import tf

    element = assembly.lanes.minibatch(1, 0).element
    model = assembly.built.model
    values = [
        built.dense[o : o + v.size].reshape(v.shape)
        for v, o in zip(built.layout.dense.variables, built.layout.dense.offsets, strict=False)
    ]
    for variable, value in zip(model.trainable_variables, values, strict=True):
        variable.assign(value)
    with tf.GradientTape() as tape:
        predictions = model(element[0], training=True)
        loss = tf.reduce_mean(tf.square(predictions[:, 0] - element[1])) + tf.add_n(model.losses)
    # A row goes through sums of 3, 4 and 16 products, forwards and back; the loss of 4 rows has the sum of 48
    # squared weights.  Batch normalisation takes a mean off: what is left may be a tenth, and so ten times as far off.
    assert computed.loss == near(float(loss), 200)
    for gradient, place, offset in zip(
        tape.gradient(loss, model.trainable_variables),
        built.layout.dense.variables,
        built.layout.dense.offsets,
        strict=False,
    ):
        ours = computed.gradient[offset : offset + place.size].reshape(place.shape)
        assert ours == near(gradient.numpy(), 10 * 100, size=max(1.0, np.abs(gradient).max()))
        assert not computed.gradient[offset + place.size : offset + place.padded_size].any()


# ---------------------------------------------------------------- a function of (vectors, task, index)


def test_gradients_do_not_depend_on_what_ran_before(shared):
    trainer, built = shared
    plan = trainer._plan
    first = {}
    for task in range(3):
        trainer.begin(task)
        for index in range(number_of_minibatches(plan, task)):
            first[task, index] = as_bits(trainer.compute(task, index))
        trainer.drop(task)
    assert len({str(bits) for bits in first.values()}) == len(first) == 8
    other = [aligned_copy(built.dense * 2), aligned_copy(built.state + 1), aligned_copy(built.counters + 5)]
    for task in (0, 1):
        trainer.begin(task, lane=task)
    trainer.load(*other)
    moved = trainer.compute(0, 0)
    assert moved.counters[0] == 6
    assert as_bits(moved) != first[0, 0]
    trainer.evaluate(0, plan.evaluation_ranges[0])
    trainer.load(built.dense, built.state, built.counters)
    for task, index in ((1, 0), (0, 0), (1, 1), (0, 1), (1, 2), (0, 2), (2, 1), (2, 0)):
        assert as_bits(trainer.compute(task, index)) == first[task, index]


def test_a_step_starts_from_the_loaded_state_each_time(shared):
    trainer, built = shared
    one, again = trainer.compute(0, 0), trainer.compute(0, 0)
    assert as_bits(one) == as_bits(again)
    assert one.counters[0] == 1
    assert not np.array_equal(one.state, built.state)


def test_random_layers_draw_anew_for_each_minibatch(make):
    """The same records in every minibatch: only dropout and noise can make a difference."""
    trainer, _ = make(change=dict.fromkeys(range(RECORDS), b"1,2,3,4"))
    losses = {trainer.compute(task, index).loss for task in (0, 1) for index in range(2)}
    assert len(losses) == 4


@pytest.mark.parametrize("kind", ["dropout", "uniform", "keras"])
def test_each_source_of_noise_is_seeded_by_the_minibatch(make, kind):
    noise = {
        "dropout": "x = tf.nn.dropout(x + 1.0, 0.5)",
        "uniform": "x = x * tf.random.uniform([]) + tf.random.normal([]) + tf.random.truncated_normal([])"
        " + tf.cast(tf.random.uniform([], 0, 99, tf.int32), tf.float32)",
        "keras": "x = x + keras.random.normal([])",
    }[kind]
    source = MODEL.replace("L.Dropout(0.5)", "L.Dropout(0.0)").replace(
        "x = tf.nn.dropout(x, 0.1) + 0.01 * keras.random.normal(tf.shape(x))", noise
    )
    trainer, _ = make(source, change=dict.fromkeys(range(RECORDS), b"1,2,3,4"))
    first = trainer.compute(0, 0).loss
    assert trainer.compute(0, 1).loss != first
    assert trainer.compute(0, 0).loss == first


def test_random_ops_without_a_cure_are_warned_of(make, caplog):
    make(MODEL.replace("x = tf.nn.dropout(x, 0.1)", "x = tf.random.shuffle(x)"))
    assert "op=RandomShuffle" in caplog.text
    assert "draws by counting its calls" in caplog.text


def test_the_callers_vectors_are_only_read(shared):
    trainer, built = shared
    mine = [aligned_copy(v) for v in (built.dense, built.state, built.counters)]
    before = [v.copy() for v in mine]
    trainer.load(*mine)
    gradient = trainer.compute(0, 0).gradient
    kept = gradient.copy()
    for vector, expected in zip(mine, before, strict=True):
        assert np.array_equal(vector, expected)
    trainer.load(built.dense, built.state, built.counters)
    for vector in mine:
        vector[:] = 9
    assert np.array_equal(gradient, kept)
    assert not gradient.flags.writeable


def test_vectors_that_cannot_be_shared_are_refused(shared):
    trainer, built = shared
    with pytest.raises(LocalProtocolError, match="cannot be shared"):
        trainer.load(aligned_copy(np.append(built.dense, 0))[1:], built.state, built.counters)


def test_any_thread_may_drive_it_after_another(shared):
    trainer, _ = shared
    found = [as_bits(trainer.compute(0, 0))]
    thread = threading.Thread(target=lambda: found.append(as_bits(trainer.compute(0, 0))))
    thread.start()
    thread.join()
    trainer.drop(0)
    thread = threading.Thread(target=lambda: found.append(as_bits(trainer.compute(0, 0))))
    thread.start()
    thread.join()
    assert found[0] == found[1] == found[2]


def test_a_task_that_keeps_no_record_ends_without_a_gradient(make):
    trainer, _ = make(MODEL.replace("dataset.shuffle(64)", 'dataset.filter(lambda x, y: x["x"][0] > 9.0)'))
    empty = task_of(trainer, "part-0", 0)
    computed = trainer.compute(empty, 0)
    assert (computed.is_last, computed.gradient, computed.records) == (True, None, 0)


def test_a_feed_that_keeps_no_record_at_all(make):
    with pytest.raises(ModelError, match="leaves out every record"):
        make(MODEL.replace("dataset.shuffle(64)", "dataset.filter(lambda x, y: y > 99.0)"))


MIXED = """
import keras
import tensorflow as tf

class CustomModel(keras.Model):
    def __init__(self):
        super().__init__()
        self.table = keras.layers.Embedding(50, 4)
        self.unused = keras.layers.Dense(3)
        self.last = keras.layers.Dense(1)

    def call(self, inputs):
        ragged = tf.reduce_mean(self.table(inputs["ragged"]), axis=1)
        sparse = tf.sparse.to_dense(inputs["sparse"])
        self.unused(sparse)
        return {"price": self.last(ragged + sparse)}

def loss(labels, predictions, sample_weight):
    return sample_weight * tf.square(labels["price"] - predictions["price"][:, 0])

def optimizer():
    return keras.optimizers.Adam()

def feed(dataset, mode, metadata):
    def parse(record):
        values = tf.strings.to_number(tf.strings.split(record, ","))
        ids = tf.RaggedTensor.from_row_lengths(tf.cast(values, tf.int64), [2, 2])
        sparse = tf.sparse.from_dense(tf.ensure_shape(values, [4]))
        return {"sparse": sparse, "ragged": ids[0]}, {"price": values[3]}, values[1]
    return dataset.map(parse)

def eval_metrics_fn():
    return {"price": {"mae": keras.metrics.MeanAbsoluteError()}}
"""


def test_sparse_and_ragged_features_several_outputs_and_weights(make):
    trainer, built = make(MIXED, evaluation=True)
    assert built.layout.dense.variables[0].shape == (50, 4)
    first, last = trainer.compute(0, 0), trainer.compute(0, 1)
    assert first.gradient[:200].any()  # a plain Embedding's gradient, as a dense one
    unused = [v.path.endswith("dense/kernel") for v in built.layout.dense.variables].index(True)
    offset = built.layout.dense.offsets[unused]
    assert not first.gradient[offset : offset + 12].any()  # no gradient is a gradient of zeros
    trainer.drop(0)
    assert as_bits(trainer.compute(0, 1)) == as_bits(last)
    assert list(trainer.conclude(trainer.evaluate(0, trainer._plan.evaluation_ranges[0])[1])) == ["price_mae"]


def test_closing_in_the_middle_of_a_computation(make, tmp_path):
    """The worker stops at any time, and then closes from another thread."""
    trainer, _ = make()
    reading, go = threading.Event(), threading.Event()
    source, outcome = trainer._reader._source, []
    read = source.read

    def slow(*args):
        reading.set()
        go.wait(30)
        return read(*args)

    def compute():
        try:
            outcome.append(trainer.compute(1, 0))
        except Exception as e:
            outcome.append(e)

    source.read = slow
    thread = threading.Thread(target=compute)
    thread.start()
    assert reading.wait(30)
    trainer.close()
    go.set()
    thread.join(30)
    assert len(outcome) == 1  # one way or the other, it came to an end


# ---------------------------------------------------------------- in fresh processes


PROCESS = """
import json, sys, threading
from pathlib import Path
sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]).parents[2])]
import test_trainer
def main():
    trainer = test_trainer.KerasEngine(*test_trainer.job(Path(sys.argv[2])))
    trainer.build()
    bits = []
    for task, index in json.loads(sys.argv[3]):
        bits.append(test_trainer.as_bits(trainer.compute(task, index))[:3])
    trainer.close()
    Path(sys.argv[4]).write_text(json.dumps([[part.hex() for part in parts] for parts in bits]))
thread = threading.Thread(target=main)
thread.start()
thread.join()
"""


def test_the_same_bits_in_two_processes_whatever_else_they_compute(tmp_path):
    write_job(tmp_path / "job", MODEL, {})
    orders = [[[0, 0], [1, 1], [2, 0]], [[3, 0], [3, 1], [2, 0], [1, 0], [1, 1], [0, 0]]]
    processes = []
    for number, order in enumerate(orders):
        out = str(tmp_path / f"out{number}.json")
        arguments = [os.path.dirname(__file__), str(tmp_path / "job"), json.dumps(order), out]
        processes.append(subprocess.Popen([sys.executable, "-c", PROCESS, *arguments]))
    assert [process.wait(timeout=300) for process in processes] == [0, 0]
    found = []
    for number, order in enumerate(orders):
        bits = json.loads((tmp_path / f"out{number}.json").read_text())
        found.append(dict(zip(map(tuple, order), bits, strict=True)))
    for key in ((0, 0), (1, 1), (2, 0)):
        assert found[0][key] == found[1][key]


# ---------------------------------------------------------------- evaluation


def test_evaluation_tasks_add_up_to_the_whole(shared):
    trainer, _ = shared
    plan = trainer._plan
    ranges = plan.evaluation_ranges
    results = [trainer.evaluate(task, records) for task, records in enumerate(ranges)]
    assert [rows for rows, _ in results] == [10, 10, 5]
    metrics = trainer.conclude(merge_states([states for _, states in results]))
    first = [trainer.evaluate(9, TaskRange(name=ranges[0].name, first=0, count=20)), results[2]]
    whole = merge_states([states for _, states in first])
    assert metrics == {key: near(value, 50) for key, value in trainer.conclude(whole).items()}
    assert metrics["rows"] == 1.0


def test_an_evaluation_is_the_same_again_and_leaves_no_trace(shared):
    trainer, _ = shared
    records = trainer._plan.evaluation_ranges[1]
    first, gradient = trainer.evaluate(1, records), as_bits(trainer.compute(0, 0))
    again = trainer.evaluate(1, records)
    assert str(first) == str(again)
    assert as_bits(trainer.compute(0, 0)) == gradient


def test_without_validation_data_there_is_nothing_to_evaluate(make):
    trainer, _ = make()
    with pytest.raises(ConfigError, match="no validation data"):
        trainer.evaluate(0, TaskRange(name="", first=0, count=1))


def test_a_metric_that_cannot_be_added_up_is_found_when_building(make):
    source = MODEL.replace('"mae": keras.metrics.MeanAbsoluteError()', '"mae": Top()') + textwrap.dedent(
        """
        class Top(keras.metrics.Metric):
            def __init__(self):
                super().__init__()
                self.top = self.add_variable((), "zeros", name="top")
            def update_state(self, labels, predictions, sample_weight=None):
                self.top.assign(tf.maximum(self.top.value, tf.reduce_max(labels)))
            def result(self):
                return self.top
        """
    )
    with pytest.raises(ModelError, match=r'metric "mae" \(Top\) cannot be added up'):
        make(source, evaluation=True)


# ---------------------------------------------------------------- errors


def test_a_bad_record_fails_the_task_and_the_trainer_goes_on(make):
    trainer, _ = make(change={12: b"1,2,oops,4"})
    bad, good = task_of(trainer, "part-0", 10), task_of(trainer, "part-0", 0)
    with pytest.raises(TaskError, match="oops") as error:
        list(map(trainer.compute, [bad] * 3, range(3)))
    assert error.value.task == bad
    assert "model.py" in error.value.where
    assert trainer.compute(good, 0).gradient is not None


def test_an_error_in_the_step_names_the_function_and_the_shapes(make):
    trainer, _ = make(change=dict.fromkeys(range(10), b"1,2,3,5000"))
    bad = task_of(trainer, "part-0", 0)
    with pytest.raises(TaskError) as error:
        trainer.compute(bad, 1)
    assert error.value.index == 1
    assert "loss(): labels (4,) float32, predictions (4, 1) float32" in error.value.error
    assert error.value.where.endswith("in loss")
    assert trainer.compute(task_of(trainer, "part-0", 10), 0).records == 4


def test_a_bad_record_fails_its_evaluation_task(make):
    trainer, _ = make(change={12: b"1,2,oops,4"}, evaluation=True)
    ranges = trainer._plan.evaluation_ranges
    with pytest.raises(TaskError, match="oops"):
        trainer.evaluate(1, ranges[1])
    assert trainer.evaluate(0, ranges[0])[0] == 10


def test_a_file_that_is_gone_fails_the_task(make, tmp_path):
    trainer, _ = make()
    tasks = [task_of(trainer, *place) for place in (("part-0", 0), ("part-1", 0))]
    open_files = trainer._reader._source._readers
    task = next(task for task in tasks if trainer._plan.task_range(task).name not in open_files)
    for path in (tmp_path / "job0" / "data").iterdir():
        path.unlink()
    with pytest.raises(TaskError, match=r"part-. cannot be read: No such file"):
        trainer.compute(task, 0)


def test_a_loss_that_cannot_work_is_found_when_building(make):
    source = MODEL.replace("predictions[:, 0] - labels", "predictions - tf.zeros([7])")
    with pytest.raises(UserCodeError, match=r"loss\(\) raised .* on the first minibatch: labels \(4,\)"):
        make(source.replace("L.Dense(1)", "L.Dense(3)"))


def test_nothing_works_before_it_is_built(tmp_path):
    write_job(tmp_path / "job", MODEL, {})
    trainer = KerasEngine(*job(tmp_path / "job"))
    trainer.drop(0)
    with pytest.raises(LocalProtocolError, match="not built"):
        trainer.compute(0, 0)
    trainer.close()
