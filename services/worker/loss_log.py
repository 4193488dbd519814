"""Which steps a worker logs the loss of."""

import logging

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

    def note(self, version: int, loss: float) -> None:
        """A step has been made on the parameters of this version."""
        if version + self.every < self._version:  # by less, values pulled ahead of time differ
            self._version = version
        if version // self.every > self._version // self.every:
            self._version = version
            logger.info("Loss = %s, steps = %d", loss, version)
