"""Models of a few lines, built and checked in this process as the first worker of a job does it."""

import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edlz.api.recordio import Writer
from edlz.services.configuration.job_config import JobConfig
from edlz.services.inputs.listing import list_shards
from edlz.services.protocol.plan import Plan
from edlz.services.worker.engine.keras_engine import KerasEngine
from tests import builders

__all__ = ["BASE", "MINIBATCH", "line", "opened"]

MINIBATCH, RECORDS = 8, 48
BASE = """
import keras
import numpy as np
import tensorflow as tf
from edlz.api import Embedding
from keras import layers

def custom_model():
    x = keras.Input((2,), name="numbers")
    return keras.Model(x, layers.Dense(1, activation="sigmoid")(layers.Dense(4, activation="relu")(x)))

def loss(labels, predictions):
    return tf.reduce_mean(keras.losses.binary_crossentropy(tf.reshape(labels, (-1, 1)), predictions))

def optimizer():
    return keras.optimizers.SGD(0.1)

def feed(dataset, mode, metadata):
    def parse(line):
        a, b, label = tf.io.decode_csv(line, [0.0, 0.0, 0])
        return tf.stack([a, b]), label
    return dataset.map(parse)

def eval_metrics_fn():
    return {"auc": keras.metrics.AUC()}
"""


def line(number: int) -> bytes:
    """One record: two numbers and a label."""
    return f"{number % 7 / 7:.3f},{number % 5 / 5:.3f},{number % 3 % 2}".encode()


@contextmanager
def opened(
    folder: Path, source: str, record: Callable[[int], bytes] = line, **flags: Any
) -> Iterator[tuple[KerasEngine, Plan]]:
    """Yield the trainer of BASE with this source behind it, and its plan."""
    (folder / "model.py").write_text(BASE + textwrap.dedent(source))
    with Writer(folder / "data") as writer:
        for number in range(RECORDS):
            writer.write(record(number))
    shards = list_shards(str(folder / "data"))
    plan = builders.plan(
        seed=3,
        shards=shards,
        records_per_task=2 * MINIBATCH,
        minibatch_size=MINIBATCH,
        evaluation_shards=shards,
    )
    config = JobConfig(
        model_file=str(folder / "model.py"), minibatch_size=MINIBATCH, worker_threads=2, **flags
    )
    trainer = KerasEngine(config, plan)
    try:
        yield trainer, plan
    finally:
        trainer.close()
