"""A model that waits for its data: each record takes its feed a while, and hardly any computing."""

import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from edlz.model_zoo.mnist.mnist_functional_api import loss, optimizer

__all__ = ["RECORD_S", "custom_model", "feed", "loss", "optimizer"]

RECORD_S = 0.02
_RECORD = {
    "image": tf.io.FixedLenFeature([784], tf.float32),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def custom_model() -> keras.Model:
    image = keras.Input(shape=(784,), name="image")
    return keras.Model(inputs={"image": image}, outputs=layers.Dense(10)(image))


def feed(dataset: tf.data.Dataset, mode: str, metadata: Any) -> tf.data.Dataset:
    def parse(record: tf.Tensor) -> Any:
        example = tf.io.parse_single_example(tf.numpy_function(_wait, [record], tf.string), _RECORD)
        return {"image": example["image"] / 255.0}, example["label"]

    return dataset.map(parse)


def _wait(record: np.ndarray) -> np.ndarray:
    time.sleep(RECORD_S)
    return record
