"""Digits from the values of 49 of their pixels as ids: one table of unbounded ids, one of a plain layer.

With --embedding_threshold_bytes=0 the plain Embedding becomes a table as well.
"""

import keras
import tensorflow as tf

from edlz.api.embedding import Embedding

_RECORD = {
    "image": tf.io.FixedLenFeature([784], tf.float32),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def custom_model():
    places = keras.Input(shape=(49,), dtype="int64", name="places")
    values = keras.Input(shape=(49,), dtype="int64", name="values")
    of_places = Embedding(4, embeddings_initializer="normal", optimizer="adagrad", name="places_table")(
        places
    )
    of_values = keras.layers.Embedding(16, 3, name="values_table")(values)
    x = keras.layers.Flatten()(keras.layers.Concatenate()([of_places, of_values]))
    x = keras.layers.BatchNormalization()(keras.layers.Dense(16, activation="relu")(x))
    return keras.Model({"places": places, "values": values}, keras.layers.Dense(10)(x))


def loss(labels, predictions):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=predictions))


def optimizer(lr=0.01):
    return keras.optimizers.Adam(learning_rate=lr)


def feed(dataset, mode, metadata):
    def parse(record):
        example = tf.io.parse_single_example(record, _RECORD)
        image = tf.reshape(example["image"], (28, 28))[2:28:4, 2:28:4]
        values = tf.cast(tf.reshape(image, [49]) / 16.0, tf.int64)
        places = (tf.range(49, dtype=tf.int64) * 16 + values) * 2**40 - 2**62
        features = {"places": places, "values": values}
        return features if mode == "prediction" else (features, example["label"])

    return dataset.map(parse)


def eval_metrics_fn():
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
