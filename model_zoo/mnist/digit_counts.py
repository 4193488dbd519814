"""Counts the digits that a model sees, in place of writing its outputs: an example of taking predictions.

`edlz predict … --prediction_outputs_processor=mnist.digit_counts.DigitCounts` needs no `--prediction_output`.
"""

import logging
from collections import Counter

import tensorflow as tf

from edlz.api.predictions import BasePredictionOutputsProcessor, PredictionContext

__all__ = ["DigitCounts"]

logger = logging.getLogger(__name__)


class DigitCounts(BasePredictionOutputsProcessor):
    """Logs how often each digit is in a task.  There is one object in each worker.

    A task that is done again after a loss is logged again, with the same numbers: who adds them up takes one line
    of each task.
    """

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def process(self, predictions: tf.Tensor, worker_id: int) -> None:
        """Take the logits of a minibatch, shape (n, 10)."""
        self._counts.update(tf.argmax(predictions, axis=1).numpy().tolist())

    def commit(self, context: PredictionContext) -> None:
        """Log the counts of a whole task, and begin the next one."""
        logger.info("task=%d digits=%s", context.task, [self._counts[digit] for digit in range(10)])
        self._counts.clear()
