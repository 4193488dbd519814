"""From the records of tasks to minibatches, through the user's `feed`: which form it takes.

Either way a minibatch follows from (plan, task, index) alone.  This module knows one task after another;
`lanes` owns which, and from where on.
"""

import logging

from edlz.services.worker.engine.contract.model_module import ModelContract
from edlz.services.worker.engine.feed.pipeline import Feed, FeedSettings, Stream
from edlz.services.worker.engine.feed.rebuilt_feed import RebuiltFeed, RecordsFeed
from edlz.services.worker.engine.feed.streamed_feed import StreamedFeed
from edlz.services.worker.engine.user_code.user_code import brief, describe

__all__ = ["Feed", "FeedSettings", "Stream", "open_feed"]

logger = logging.getLogger(__name__)


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
    with code.blaming(function), code.running(f"{describe(function)}()", function):
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
