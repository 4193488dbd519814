"""Errors of users' functions whose text is no Unicode, or raises: TensorFlow survives and tells them."""

import os

import pytest

from edlz.services.worker.engine.tensorflow.backend import tf
from edlz.services.worker.engine.user_code.user_code import brief

CAFE = os.fsdecode(b"caf\xe9.jpg")


# Without `make_errors_readable`, TensorFlow ends the process at the first of these.
@pytest.mark.parametrize("kind", ["py_function", "numpy_function"])
def test_tensorflow_survives_such_an_error_of_a_users_function_and_tells_it(kind):
    def load(x):
        raise ValueError(f"cannot open {CAFE}")

    dataset = tf.data.Dataset.range(1).map(lambda x: getattr(tf, kind)(load, [x], tf.int64))
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        list(dataset)
    assert brief(raised.value) == r"ValueError: cannot open caf\xe9.jpg"


def test_tensorflow_survives_an_error_whose_text_raises():
    class OddError(ValueError):
        def __str__(self):
            raise KeyError("x")

    def load(x):
        raise OddError

    dataset = tf.data.Dataset.range(1).map(lambda x: tf.py_function(load, [x], tf.int64))
    with pytest.raises(tf.errors.OpError) as raised:
        list(dataset)
    assert "OddError: (its text raises KeyError)" in str(raised.value)
