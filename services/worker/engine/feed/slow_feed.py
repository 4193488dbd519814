"""Whether a feed of single records holds training up: told once, since a batched one would be many times as fast."""

import logging
from collections.abc import Callable
from typing import Any

from edlz.services.worker.engine.user_code.user_code import describe

__all__ = ["SlowFeed"]

FIRST, LOOKED_AT = 20, 100  # minibatches: the first ones are read while everything begins

logger = logging.getLogger(__name__)


class SlowFeed:
    """Adds up what training waits for and what it computes.

    Parameters
    ----------
    feed : callable
        The user's, which takes single records.
    """

    def __init__(self, feed: Callable[..., Any]) -> None:
        self._feed, self._count = feed, 0
        self._waited_s = self._computed_s = 0.0

    def note(self, waited_s: float, computed_s: float) -> None:
        """Take what one minibatch was waited for, and computed."""
        self._count += 1
        if not FIRST < self._count <= FIRST + LOOKED_AT:
            return
        self._waited_s += waited_s
        self._computed_s += computed_s
        if self._count == FIRST + LOOKED_AT and self._waited_s > self._computed_s:
            logger.info(
                "%s() takes longer than the model: of a step, %.1f ms are waiting for records and %.1f ms computing; "
                "with @edlz.api.batched it gets minibatches, which is many times as fast",
                describe(self._feed),
                1e3 * self._waited_s / LOOKED_AT,
                1e3 * self._computed_s / LOOKED_AT,
            )
