"""The trainer: gradients that follow from (vectors, task, index) alone."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from edlz.services.errors import LocalProtocolError, ModelError
from tests.rounding import near
from tests.unit.engine.trainer_jobs import (
    MODEL,
    RECORDS,
    aligned_copy,
    as_bits,
    number_of_minibatches,
    task_of,
    write_job,
)

pytestmark = pytest.mark.filterwarnings("ignore:Seed .* from outer graph:UserWarning")


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
sys.path.insert(0, sys.argv[1])
from edlz.services.worker.engine.keras_engine import KerasEngine
from tests.unit.engine import trainer_jobs
def main():
    trainer = KerasEngine(*trainer_jobs.job(Path(sys.argv[2])))
    trainer.build()
    bits = []
    for task, index in json.loads(sys.argv[3]):
        bits.append(trainer_jobs.as_bits(trainer.compute(task, index))[:3])
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
        arguments = [str(Path(__file__).parents[4]), str(tmp_path / "job"), json.dumps(order), out]
        processes.append(subprocess.Popen([sys.executable, "-c", PROCESS, *arguments]))
    assert [process.wait(timeout=300) for process in processes] == [0, 0]
    found = []
    for number, order in enumerate(orders):
        bits = json.loads((tmp_path / f"out{number}.json").read_text())
        found.append(dict(zip(map(tuple, order), bits, strict=True)))
    for key in ((0, 0), (1, 1), (2, 0)):
        assert found[0][key] == found[1][key]
