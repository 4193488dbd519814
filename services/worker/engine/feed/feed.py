"""From the records of tasks to minibatches, through the user's `feed`: which form it takes.

Either way a minibatch follows from (plan, task, index) alone.  This module knows one task after another;
`minibatch_streams` owns which, and from where on.

A feed of single records that holds training up is told of once (`SlowFeed`): a batched one would be many times as fast.
"""

import logging
from collections.abc import Callable
from typing import Any

from edlz.services.worker.engine.contract.model_module import ModelContract
from edlz.services.worker.engine.feed.pipeline import Feed, FeedSettings, Stream
from edlz.services.worker.engine.feed.rebuilt_feed import RebuiltFeed, RecordsFeed
from edlz.services.worker.engine.feed.streamed_feed import StreamedFeed
from edlz.services.worker.engine.user_code.user_code import brief, describe

__all__ = ["Feed", "FeedSettings", "SlowFeed", "Stream", "open_feed"]

logger = logging.getLogger(__name__)
FIRST, LOOKED_AT = 20, 100  # minibatches of a slow feed: the first ones are read while everything begins


def open_feed(contract: ModelContract, settings: FeedSettings) -> Feed:
    """Make the user's feed ready.

    Raises
    ------
    ModelError
        If its code raises on the sample, or yields no (features, labels).
    DataError
        If the sample cannot be read.
    """
    code, function = contract.code, contract.feed
    what = f"{describe(function)}()"
    with (
        code.blaming(function),
        code.running(what, function, f"a record comes to {what} as {settings.form.text}"),
    ):
        if contract.feed_form == "records":
            return RecordsFeed(contract, settings)
        return _streamed(contract, settings) or RebuiltFeed(contract, settings)


def _streamed(contract: ModelContract, settings: FeedSettings) -> StreamedFeed | None:
    """The feed as one stream, or None, with the reason in the log."""
    mode = settings.mode
    try:
        streamed = StreamedFeed(contract, settings)
    except Exception as e:  # whatever the user's code raises outside of eager mode
        logger.info("feed mode=%s cannot be traced (%s): it is built anew for each task", mode, brief(e))
        return None
    if streamed.random_ops:
        logger.info(
            "feed mode=%s has random ops=%s: it is built anew for each task", mode, streamed.random_ops
        )
        return None
    if streamed.calls_python:
        logger.info("feed mode=%s calls Python: what that returns must follow from the record alone", mode)
    return streamed


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
            # The same words from each worker, so that a terminal shows them once; a worker's log has the figures.
            logger.warning(
                "%s() takes longer than the model; with @edlz.api.batched it gets minibatches, which is many times as fast",
                describe(self._feed),
            )
            logger.info(
                "of a step, %.1f ms are waiting for records and %.1f ms computing",
                1e3 * self._waited_s / LOOKED_AT,
                1e3 * self._computed_s / LOOKED_AT,
            )
