"""Feeds in every form, over records that say where they come from."""

import itertools

from edlz.services.protocol.plan import TaskRange
from edlz.services.protocol.seeds import permutation
from edlz.services.worker.engine.tensorflow.backend import tf

__all__ = [
    "BATCH",
    "CHUNKED",
    "FORMS",
    "HEAD",
    "NOISY",
    "OLDEST",
    "PLAIN",
    "TASK",
    "begin",
    "bits",
    "feed_that",
    "joined",
    "read",
    "record",
    "run",
    "values",
]

BATCH, TASK = 4, 10  # ten records a task: minibatches of 4, 4 and 2
HEAD = """
import keras
import tensorflow as tf

def custom_model():
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])

def loss(labels, predictions):
    return tf.reduce_mean(tf.square(predictions - labels))

def optimizer():
    return keras.optimizers.SGD(0.1)

"""

PLAIN = """
def feed(dataset, mode, metadata):
    def parse(record):
        values = tf.strings.to_number(tf.strings.split(record, ","))
        return values[:2], values[2]
    return dataset.map(parse)
"""
CHUNKED = """
def feed(dataset, mode, metadata):
    def parse(records):
        values = tf.strings.to_number(tf.strings.split(records, ",").to_tensor(shape=(None, 3)))
        return values[:, :2], values[:, 2]
    return dataset.batch(3).map(parse).unbatch()
"""
NOISY = PLAIN.replace("values[2]\n", "values[2] + tf.random.uniform([])\n")
OLDEST = """
def input_fn(records):
    values = [[float(x) for x in record.decode().split(",")] for record in records]
    return tf.constant([v[:2] for v in values]), tf.constant([v[2] for v in values])
"""


def feed_that(returns, before=""):
    """The plain feed with other last lines."""
    return PLAIN.replace("return dataset.map(parse)", f"{before}return {returns}")


FORMS = {
    "plain": PLAIN,
    "shuffled": feed_that("dataset.map(parse).shuffle(256)"),
    "noisy": NOISY,
    "parallel noise": NOISY.replace("map(parse)", "map(parse, num_parallel_calls=2)"),
    "listed": feed_that("dataset.map(parse)", "records = list(dataset)\n    "),
    "branched": feed_that(
        "dataset.map(parse)", "assert mode == 'training' and metadata.column_names is None\n    "
    ),
    "unordered": feed_that(
        "dataset.map(parse, num_parallel_calls=4).with_options(o)",
        "o = tf.data.Options()\n    o.deterministic = False\n    ",
    ),
    "chunked": CHUNKED,
    "chunked, each as long": CHUNKED.replace("batch(3)", "batch(2, drop_remainder=True)"),
    "oldest": OLDEST,
}


def record(task, place):
    return f"{task},{place},{task * 100 + place}".encode()


def read(assignment):
    order = permutation(assignment.records.count, 5, 1, assignment.task)
    return [record(assignment.task, int(place)) for place in order]


def begin(lanes, task, lane=0, first=0, count=TASK, end=None):
    lanes.begin(task, TaskRange(name="data", first=0, count=count), lane, first, end)


def bits(minibatch):
    tensors = tf.nest.flatten(minibatch.element, expand_composites=True)
    return [tensor.numpy().tobytes() for tensor in tensors]


def run(lanes, task, first=0):
    """All minibatches of a task from one on, as bits."""
    found, index = [], first
    while True:
        minibatch = lanes.minibatch(task, index)
        assert (minibatch.task, minibatch.index) == (task, index)
        found.append(bits(minibatch))
        if minibatch.is_last:
            lanes.drop(task)
            return found
        index += 1


def values(lanes, task):
    """The labels of a task's minibatches."""
    found, index, is_last = [], 0, False
    while not is_last:
        minibatch = lanes.minibatch(task, index)
        if minibatch.element is not None:
            found.append(minibatch.element[1].numpy().tolist())
        index, is_last = index + 1, minibatch.is_last
    lanes.drop(task)
    return found


def joined(lists):
    return list(itertools.chain.from_iterable(lists))
