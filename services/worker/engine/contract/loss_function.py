"""The user's loss, in whatever order its parameters are, as one function of labels, predictions and weights."""

from collections.abc import Callable
from typing import Any

from keras.src.backend import get_keras_mask

from edlz.services.errors import ModelError
from edlz.services.worker.engine.contract.signatures import positional_count, positional_names
from edlz.services.worker.engine.tensorflow.autograph import call_users
from edlz.services.worker.engine.tensorflow.backend import keras, tf

__all__ = ["LossFunction", "takes_predictions_first"]

_PREDICTIONS = frozenset(
    {"output", "outputs", "predictions", "prediction", "preds", "pred", "logits", "y_pred"}
)


class LossFunction:
    """`loss(labels, predictions[, sample_weight])` in any order of its parameters, as a scalar.

    Parameters
    ----------
    function : callable or keras.losses.Loss
        Older files have `loss(output, labels)`: the names of the parameters say which is which.
    """

    def __init__(self, function: Any) -> None:
        if isinstance(function, type) and issubclass(function, keras.losses.Loss):
            function = function()
        self.function = function
        self._is_keras = isinstance(function, keras.losses.Loss)
        self._is_swapped = not self._is_keras and takes_predictions_first(function)
        self.takes_weights = self._is_keras or positional_count(function) >= 3

    def __call__(self, labels: Any, predictions: Any, weights: Any = None) -> Any:
        """Return a float32 scalar; a loss per row is averaged, over what a mask of the predictions keeps."""
        first, second = (predictions, labels) if self._is_swapped else (labels, predictions)
        if weights is None:
            loss = call_users(self.function, first, second)
        elif self._is_keras:
            loss = call_users(self.function, first, second, sample_weight=weights)
        elif self.takes_weights:
            loss = call_users(self.function, first, second, weights)
        else:
            raise ModelError(
                "feed() yields sample weights, but loss(labels, predictions) takes none",
                "give loss() a third parameter: loss(labels, predictions, sample_weight)",
            )
        loss = tf.cast(loss, tf.float32)
        mask = None if self._is_keras else _mask_of(predictions)
        if mask is None or loss.shape.rank is None or loss.shape.rank < mask.shape.rank:
            return tf.reduce_mean(loss)
        mask = tf.cast(mask, tf.float32)
        mask = tf.reshape(mask, tf.concat([tf.shape(mask), [1] * (loss.shape.rank - mask.shape.rank)], 0))
        mask = tf.broadcast_to(mask, tf.shape(loss))
        return tf.math.divide_no_nan(tf.reduce_sum(loss * mask), tf.reduce_sum(mask))


def takes_predictions_first(function: Callable[..., Any]) -> bool:
    """Whether the names of a function's first two parameters are (predictions, labels)."""
    names = positional_names(function)[:2]
    return len(names) == 2 and names[0] in _PREDICTIONS and names[1] not in _PREDICTIONS


def _mask_of(predictions: Any) -> Any:
    """The mask that layers have given to the predictions, as Keras' losses heed it."""
    return get_keras_mask(predictions) if isinstance(predictions, tf.Tensor) else None
