"""Small jobs whose models have embedding tables; rows that are functions of their ids stand for the servers."""

import textwrap

import numpy as np

from edlz.api.recordio import Writer
from edlz.services.configuration.job_config import JobConfig
from edlz.services.inputs.listing import list_shards
from tests import builders

BATCH, TASK, RECORDS, IDS = 4, 10, 25, 30

HEAD = """
import keras
import tensorflow as tf
from edlz.api import Embedding
L = keras.layers

def loss(labels, predictions):
    return tf.reduce_mean(tf.square(predictions[:, 0] - labels))

def optimizer():
    return keras.optimizers.SGD(0.1)

def eval_metrics_fn():
    return {"mae": keras.metrics.MeanAbsoluteError()}

def parse(record):
    values = tf.strings.to_number(tf.strings.split(record, ","))
    return tf.cast(values[:6], tf.int64), values[6]

def feed(dataset, mode, metadata):
    return dataset.map(parse)
"""

# Sparse ids with sparse weights beside them.
PAIR_FEED = """
def feed(dataset, mode, metadata):
    def parse_pair(record):
        ids, label = parse(record)
        ids = tf.sparse.from_dense(ids - 3)
        return {"ids": ids, "weights": ids.with_values(1.0 / (2.5 + tf.cast(ids.values, tf.float32)))}, label
    return dataset.map(parse_pair)
"""

SPARSE_FEED = """
def feed(dataset, mode, metadata):
    def parse_sparse(record):
        ids, label = parse(record)
        return tf.sparse.from_dense(ids - 3), label      # some are negative, some are left out
    return dataset.map(parse_sparse)
"""


def write_job(folder, source, change):
    (folder / "data").mkdir(parents=True)
    (folder / "model.py").write_text(HEAD + textwrap.dedent(source))
    draw = np.random.default_rng(5)
    with Writer(folder / "data" / "part-0") as writer:
        for number in range(RECORDS):
            ids = draw.integers(0, IDS, 6)
            ids[draw.integers(0, 6)] = ids[0]
            text = ",".join(map(str, ids)) + f",{draw.normal():.3f}"
            writer.write(change.get(number, text.encode()))


def job(folder, evaluation=False):
    shards = list_shards(str(folder / "data"))
    plan = builders.plan(
        seed=7,
        shards=shards,
        records_per_task=TASK,
        minibatch_size=BATCH,
        slots=2,
        evaluation_shards=shards if evaluation else (),
    )
    return JobConfig(model_file=str(folder / "model.py"), minibatch_size=BATCH, worker_threads=2), plan


def rows_of(built, groups):
    """The rows of all tables, each a function of its id."""
    return [
        np.stack([np.random.default_rng([number, id_ % 2**32]).normal(size=table.dim) for id_ in group.ids])
        .astype(np.float32)
        .reshape(-1, table.dim)
        if len(group.ids)
        else np.empty((0, table.dim), np.float32)
        for number, (table, group) in enumerate(zip(built.tables, groups, strict=True))
    ]
