"""Which steps a worker logs the loss of, and which losses it warns of."""

import logging
import math

__all__ = ["LossLog"]

logger = logging.getLogger(__name__)


class LossLog:
    """Logs a loss when the model's version passes a multiple of `every`.

    After the loss of a parameter server, versions that were there before come again; so do their lines.

    Parameters
    ----------
    every : int
        Versions between two lines.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self._version = 0  # of the last line
        self._nonfinite = 0

    def note(self, version: int, loss: float, task: int, index: int) -> None:
        """A minibatch has been computed on the parameters of this version."""
        if not math.isfinite(loss):
            self._warn(loss, task, index)
        if version + self.every < self._version:  # by less, values pulled ahead of time differ
            self._version = version
        if version // self.every > self._version // self.every:
            self._version = version
            logger.info("Loss = %s, steps = %d", loss, version)

    def _warn(self, loss: float, task: int, index: int) -> None:
        """Warn of the first loss that is NaN or infinite, of the second, the fourth, the eighth, …"""
        self._nonfinite += 1
        if self._nonfinite & (self._nonfinite - 1) == 0:
            logger.warning(
                "Loss = %s at task=%d minibatch=%d; minibatches with such a loss here: %d",
                *(loss, task, index, self._nonfinite),
            )
