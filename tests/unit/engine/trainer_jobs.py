"""A small job for trainers: its model and records, and how what they compute is compared."""

import textwrap

from edlz.api.recordio import Writer
from edlz.core_ext.memory import aligned_empty
from edlz.services.configuration.job_config import JobConfig
from edlz.services.inputs.listing import list_shards
from tests import builders

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
