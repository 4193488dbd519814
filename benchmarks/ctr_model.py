"""A click-through model as a user would write it: 26 ids and 13 numbers to one logit."""

from typing import Any

import keras
import tensorflow as tf
from keras import layers

from benchmarks.ctr_data import IDS, NUMBERS, VOCABULARY

DIM, HIDDEN = 16, (256, 64)
LEARNING_RATE = 0.01
RECORDS_PER_DECODE = 4_096
WORDS_PER_ID = 2  # of 32 bits


def custom_model() -> keras.Model:
    ids = keras.Input(shape=(IDS,), dtype="int64", name="ids")
    numbers = keras.Input(shape=(NUMBERS,), name="numbers")
    rows = layers.Embedding(VOCABULARY, DIM)(ids)
    return keras.Model(inputs={"ids": ids, "numbers": numbers}, outputs=net()([rows, numbers]))


def net() -> keras.Model:
    """Return the part above the embedding: rows (n, 26, 16) and numbers (n, 13) to logits (n, 1)."""
    rows, numbers = keras.Input(shape=(IDS, DIM)), keras.Input(shape=(NUMBERS,))
    x = layers.Concatenate()([layers.Flatten()(rows), numbers])
    for width in HIDDEN:
        x = layers.Dense(width, activation="relu")(x)
    return keras.Model(inputs=[rows, numbers], outputs=layers.Dense(1)(x))


def loss(labels: Any, predictions: Any) -> Any:
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=predictions))


def optimizer() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adagrad(learning_rate=LEARNING_RATE)


def feed(dataset: Any, mode: str, metadata: Any) -> Any:
    """Decode many records at a time: one by one, decoding would cost more than the model."""
    return dataset.batch(RECORDS_PER_DECODE).map(decode).unbatch()


def decode(records: Any) -> Any:
    words = tf.io.decode_raw(records, tf.int32)
    last_id = IDS * WORDS_PER_ID
    ids = tf.bitcast(tf.reshape(words[:, :last_id], [-1, IDS, WORDS_PER_ID]), tf.int64)
    floats = tf.ensure_shape(tf.bitcast(words[:, last_id:], tf.float32), [None, NUMBERS + 1])
    return {"ids": ids, "numbers": floats[:, :NUMBERS]}, floats[:, NUMBERS:]
