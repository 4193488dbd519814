"""The click-through model without edlz's services, in a process of its own (see ctr.py).

`python -m benchmarks.ctr_alone RECORDS SIZE ...` prints, as JSON and by loop and minibatch size, what two loops over the records
do: `alone` trains with TensorFlow and nothing else, the embedding a variable, Adagrad by TensorFlow's fused
ops; `floor` does what every worker of a parameter server must, with rows that lie there already: it groups
ids, computes gradients of rows and parameters and takes them out of TensorFlow.
"""

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks import ctr_model as zoo
from benchmarks.ctr_data import IDS, NUMBERS, VOCABULARY
from edlz.api.recordio import Reader
from edlz.core_ext.ids import group_ids

WARM_UP_STEPS, MEASURED_S = 10, 4.0
INITIAL_SUM, EPSILON = 0.1, 1e-7  # Keras' Adagrad

_Step = Callable[[Any, Any], object]


@dataclass(frozen=True)
class Speed:
    """How fast a loop was: examples a second, CPU seconds a step."""

    examples_per_s: float
    step_cpu_s: float


def main(path: Path, sizes: Sequence[int]) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(0)
    with Reader(path) as reader:
        records = tf.constant(reader.read(0, len(reader)))
    loops = {"alone": _alone(), "floor": _floor(), "reading": lambda features, labels: None}
    speeds = {
        f"{name} {size}": asdict(_speed(step, _minibatches(records, size), size))
        for size in sizes
        for name, step in loops.items()
    }
    sys.stdout.write(json.dumps(speeds) + "\n")


def _minibatches(records: Any, size: int) -> Iterator[Any]:
    dataset = tf.data.Dataset.from_tensor_slices(records).batch(size, drop_remainder=True)
    dataset = dataset.map(zoo.decode).repeat().prefetch(2)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    return iter(dataset.with_options(options))


def _speed(step: _Step, minibatches: Iterator[Any], size: int) -> Speed:
    for features, labels in itertools.islice(minibatches, WARM_UP_STEPS):
        step(features, labels)
    began_s, began_cpu_s, steps = time.perf_counter(), time.process_time(), 0
    while (taken_s := time.perf_counter() - began_s) < MEASURED_S:
        step(*next(minibatches))
        steps += 1
    return Speed(steps * size / taken_s, (time.process_time() - began_cpu_s) / steps)


def _alone() -> _Step:
    rows = tf.Variable(tf.random.uniform((VOCABULARY, zoo.DIM), -0.05, 0.05))
    net = zoo.net()
    weights = [variable.value for variable in net.trainable_variables]
    sums = [tf.Variable(tf.fill(weight.shape, INITIAL_SUM)) for weight in weights]
    row_sums = tf.Variable(tf.fill(rows.shape, INITIAL_SUM))
    adagrad = {"lr": zoo.LEARNING_RATE, "epsilon": EPSILON}

    def step(features: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            looked_up = tf.nn.embedding_lookup(rows, features["ids"])
            loss = zoo.loss(labels, net([looked_up, features["numbers"]], training=True))
        row_gradient, *gradients = tape.gradient(loss, [rows, *weights])
        unique, places = tf.unique(row_gradient.indices)
        summed = tf.math.unsorted_segment_sum(row_gradient.values, places, tf.size(unique))
        tf.raw_ops.ResourceSparseApplyAdagradV2(
            var=rows.handle, accum=row_sums.handle, grad=summed, indices=unique, **adagrad
        )
        for weight, total, gradient in zip(weights, sums, gradients, strict=True):
            tf.raw_ops.ResourceApplyAdagradV2(var=weight.handle, accum=total.handle, grad=gradient, **adagrad)
        return loss

    traced: _Step = tf.function(step)
    return traced


def _floor() -> _Step:
    net = zoo.net()
    weights = [variable.value for variable in net.trainable_variables]

    def gradients(rows: Any, places: Any, numbers: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            looked_up = tf.gather(rows, places)
            tape.watch(looked_up)
            inputs = [tf.reshape(looked_up, [-1, IDS, zoo.DIM]), numbers]
            loss = zoo.loss(labels, net(inputs, training=True))
        row_gradient, *others = tape.gradient(loss, [looked_up, *weights])
        summed = tf.math.unsorted_segment_sum(row_gradient, places, tf.shape(rows)[0])
        return summed, tf.concat([tf.reshape(gradient, [-1]) for gradient in others], 0)

    signature = [
        tf.TensorSpec([None, zoo.DIM], tf.float32),
        tf.TensorSpec([None], tf.int32),
        tf.TensorSpec([None, NUMBERS], tf.float32),
        tf.TensorSpec([None, 1], tf.float32),
    ]
    traced = tf.function(gradients, input_signature=signature)

    def step(features: Any, labels: Any) -> None:
        unique, _, places = group_ids(features["ids"].numpy().reshape(-1), 1)
        rows = tf.zeros([len(unique), zoo.DIM])
        for gradient in traced(rows, tf.constant(places), features["numbers"], labels):
            np.asarray(memoryview(gradient))

    return step


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(size) for size in sys.argv[2:]])
