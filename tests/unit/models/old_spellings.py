"""The names and signatures of mid-2019: `model`, `input_fn`, `loss(output, labels)`."""

import keras
import tensorflow as tf

_RECORD = {
    "image": tf.io.FixedLenFeature([784], tf.float32),
    "label": tf.io.FixedLenFeature([], tf.int64),
}

_image = keras.Input(shape=(784,), name="image")
_hidden = keras.layers.Dense(16, activation="relu")(_image)
model = keras.Model(inputs={"image": _image}, outputs=keras.layers.Dense(10)(_hidden))


def input_fn(records):
    """Parse the records of one minibatch: a list, or a vector, of serialised Examples."""
    examples = tf.io.parse_example(records, _RECORD)
    return {"image": examples["image"] / 255.0}, examples["label"]


def loss(output, labels):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(logits=output, labels=labels))


def optimizer(lr=0.1):
    return keras.optimizers.SGD(learning_rate=lr)


def eval_metrics_fn(predictions, labels):
    is_correct = tf.equal(tf.argmax(predictions, axis=1), labels)
    return {"accuracy": tf.reduce_mean(tf.cast(is_correct, tf.float32))}
