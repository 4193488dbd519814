"""A small convolutional net for MNIST and Fashion-MNIST, built with Keras' functional API.

Records are `tf.train.Example` with `image` (784 floats, 0 to 255) and `label` (0 to 9), as
`python -m edlz.model_zoo.datasets` writes them.
"""

from typing import Any

import keras
import tensorflow as tf
from keras import layers

from edlz.api.feeds import Mode

__all__ = ["custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]

_SHUFFLED_RECORDS = 1024
_RECORD = {
    "image": tf.io.FixedLenFeature([28, 28], tf.float32),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def custom_model() -> keras.Model:
    """Return the model: {"image": (n, 28, 28)} to logits (n, 10)."""
    image = keras.Input(shape=(28, 28), name="image")
    x = layers.Reshape((28, 28, 1))(image)
    x = layers.Conv2D(32, kernel_size=(3, 3), activation="relu")(x)
    x = layers.Conv2D(64, kernel_size=(3, 3), activation="relu")(x)
    x = layers.BatchNormalization()(x)
    x = layers.MaxPooling2D(pool_size=(2, 2))(x)
    x = layers.Dropout(0.25)(x)
    x = layers.Flatten()(x)
    logits = layers.Dense(10)(x)
    return keras.Model(inputs={"image": image}, outputs=logits, name="mnist_model")


def loss(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """Return the mean cross-entropy of labels (n,) and logits (n, 10)."""
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=predictions))


def optimizer(lr: float = 0.01) -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(learning_rate=lr)


def feed(dataset: tf.data.Dataset, mode: str, metadata: Any) -> tf.data.Dataset:
    """Turn serialised Examples into ({"image": (28, 28) in 0 to 1}, label), or features alone to predict."""
    if mode == Mode.TRAINING:
        dataset = dataset.shuffle(_SHUFFLED_RECORDS)

    def parse(record: tf.Tensor) -> Any:
        example = tf.io.parse_single_example(record, _RECORD)
        features = {"image": example["image"] / 255.0}
        return features if mode == Mode.PREDICTION else (features, example["label"])

    return dataset.map(parse)


def eval_metrics_fn() -> dict[str, Any]:
    return {"accuracy": _is_correct}


def _is_correct(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """Return 1.0 for each record whose largest logit is that of its label, else 0.0."""
    return tf.cast(tf.equal(tf.argmax(predictions, axis=1, output_type=labels.dtype), labels), tf.float32)
