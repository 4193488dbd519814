"""Looks for new data while the job runs, and tells the core of it."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import EdlzError
from edlz.services.inputs.watching import watch_of
from edlz.services.master.core.vocabulary.inputs import Grown
from edlz.services.master.core.vocabulary.instructions import Announce
from edlz.services.process.late_thread import in_thread
from edlz.services.protocol.growing_plan import Piece
from edlz.services.protocol.messages import Job
from edlz.services.protocol.plan import DataSource, Shard

__all__ = ["DataWatch", "watch_of_job"]


def watch_of_job(
    config: JobConfig,
    job: Job,
    pieces: Sequence[Piece],
    feed: Callable[[Grown], None],
    announce: Callable[[Announce], None],
) -> "DataWatch | None":
    """Return the watch over a job's data, if that grows."""
    plan = job.plan
    return (
        DataWatch(config, plan.source, plan.shards, pieces, feed, announce)
        if plan.grows and plan.source
        else None
    )


class DataWatch:
    """The watch over one job's data.

    Parameters
    ----------
    config : JobConfig
        The job's.
    source : DataSource
    planned : iterable of Shard
        What the job began with.
    pieces : sequence of Piece
        What has been added since.
    feed, announce : callable
        Told of new data, and of what cannot be taken.
    """

    def __init__(
        self,
        config: JobConfig,
        source: DataSource,
        planned: Iterable[Shard],
        pieces: Sequence[Piece],
        feed: Callable[[Grown], None],
        announce: Callable[[Announce], None],
    ) -> None:
        planned = (*planned, *(shard for piece in pieces for shard in piece.shards))
        self._watch, self._every_s = watch_of(config, source, planned), config.watch_secs
        self._feed, self._announce = feed, announce
        self._complaint = ""  # why it could not be looked, when that was told last

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        try:
            while True:
                piece = await self._look()
                if piece.shards:
                    self._feed(Grown(piece))
                else:
                    await asyncio.sleep(self._every_s)
        finally:
            self._watch.close()

    async def _look(self) -> Piece:
        complaint = ""
        try:
            # To index a huge file takes minutes, which a job that stops does not have.
            return await in_thread(self._watch.look, "data-watch")
        except (EdlzError, OSError) as error:
            complaint = str(error)
            return Piece(shards=())
        finally:
            for text in (*self._watch.take_refused(), complaint if complaint != self._complaint else ""):
                if text:
                    self._announce(Announce("data", text, logging.WARNING))
            self._complaint = complaint
