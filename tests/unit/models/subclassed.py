"""A subclassed model: its variables exist only after a first call."""

import keras
import tensorflow as tf

_RECORD = {
    "image": tf.io.FixedLenFeature([784], tf.float32),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


class CustomModel(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(16, activation="relu")
        self.batch_norm = keras.layers.BatchNormalization()
        self.logits = keras.layers.Dense(10)

    def call(self, inputs, training=False):
        x = self.hidden(inputs["image"])
        return self.logits(self.batch_norm(x, training=training))


def loss(labels, predictions):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=predictions))


def optimizer(lr=0.1):
    return keras.optimizers.SGD(learning_rate=lr)


def feed(dataset, mode, metadata):
    def parse(record):
        example = tf.io.parse_single_example(record, _RECORD)
        features = {"image": example["image"] / 255.0}
        return features if mode == "prediction" else (features, example["label"])

    return dataset.map(parse)


def eval_metrics_fn():
    # A plain function with one value a record.
    return {
        "accuracy": lambda labels, predictions: tf.cast(
            tf.equal(tf.argmax(predictions, axis=1), labels), tf.float32
        )
    }
