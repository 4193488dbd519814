"""Loss and metrics of models that predict one yes or no as a logit."""

from typing import Any

import keras
import tensorflow as tf

__all__ = ["eval_metrics_fn", "loss"]

_THRESHOLDS = 2_000  # of the AUC's sums: its error is below 0.0005


def loss(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """Return the mean cross-entropy of labels (n,), 0 or 1, and logits (n,)."""
    return tf.reduce_mean(_log_loss(labels, predictions))


def eval_metrics_fn() -> dict[str, Any]:
    """Return the area under the ROC curve, and the mean cross-entropy."""
    return {
        "auc": keras.metrics.AUC(num_thresholds=_THRESHOLDS, from_logits=True),
        "logloss": _log_loss,
    }


def _log_loss(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    return tf.nn.sigmoid_cross_entropy_with_logits(
        labels=tf.cast(labels, predictions.dtype), logits=predictions
    )
