"""The same rows in every format that edlz reads, and a model that trains on any of them."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from edlz.api.example import encode_example
from edlz.api.recordio import Writer
from tests.tfrecords import tfrecord

__all__ = ["FORMATS", "MODEL", "write_rows"]

FORMATS = ("rows.recordio", "rows.tfrecord", "rows.csv", "quoted.csv", "rows.parquet", "rows.csv.gz")

MODEL = """
import keras
import tensorflow as tf

from edlz.api import batched

SCHEMA = {
    "x": tf.io.FixedLenFeature([], tf.float32),
    "n": tf.io.FixedLenFeature([], tf.int64),
    "city": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}

def custom_model():
    x, n, city = keras.Input((), name="x"), keras.Input((), dtype="int64", name="n"), keras.Input((4,), name="city")
    rows = keras.layers.Embedding(1000, 4, name="rows")(n)
    both = keras.layers.Concatenate()([x[:, None], rows, city])
    hidden = keras.layers.Dense(8, activation="relu")(both)
    return keras.Model({"x": x, "n": n, "city": city}, keras.layers.Dense(1)(hidden))

def loss(labels, predictions):
    return keras.losses.BinaryCrossentropy(from_logits=True)(labels[:, None], predictions)

def optimizer():
    return keras.optimizers.Adagrad(0.1)

def eval_metrics_fn():
    return {"accuracy": keras.metrics.BinaryAccuracy(threshold=0.0)}

@batched
def feed(dataset, mode, metadata):
    def parse(rows):
        if metadata.column_names is None:
            rows = tf.io.parse_example(rows, SCHEMA)
        city = tf.one_hot(tf.strings.length(rows["city"]) % 4, 4)
        return {"x": rows["x"], "n": rows["n"] % 1000, "city": city}, tf.cast(rows["label"], tf.float32)
    return dataset.map(parse)
"""

_CITIES = ("Oslo", "Rio", "a, b", 'the "x"', "two\nlines", "")


def _rows(count: int) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(3)
    x, n = rng.standard_normal(count).astype(np.float32), rng.integers(0, 2**40, count)
    cities = rng.integers(0, len(_CITIES), count)
    for i in range(count):
        label = int(x[i] + (n[i] % 7) / 7 > 0.5)
        yield {"x": x[i], "n": int(n[i]), "city": _CITIES[cities[i]], "label": label}


def write_rows(folder: Path, count: int) -> None:
    """Write one file for each of FORMATS; numbers are written so that they come back."""
    # pyarrow comes with an extra: who needs no tables imports this module without it
    import gzip

    import pyarrow
    from pyarrow import parquet

    folder.mkdir(parents=True, exist_ok=True)
    rows = list(_rows(count))
    examples = [encode_example({**row, "city": row["city"].encode()}) for row in rows]
    with Writer(folder / "rows.recordio") as writer:
        for example in examples:
            writer.write(example)
    (folder / "rows.tfrecord").write_bytes(tfrecord(examples))
    for name, quoting in (("rows.csv", csv.QUOTE_MINIMAL), ("quoted.csv", csv.QUOTE_ALL)):
        with (folder / name).open("w", newline="") as file:
            table = csv.writer(file, quoting=quoting)
            table.writerow(rows[0])
            table.writerows([[str(value) for value in row.values()] for row in rows])
    (folder / "rows.csv.gz").write_bytes(gzip.compress((folder / "rows.csv").read_bytes(), 1))
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    made = pyarrow.table({**columns, "x": pyarrow.array(columns["x"], pyarrow.float32())})
    parquet.write_table(made, folder / "rows.parquet", row_group_size=max(1, count // 7))
