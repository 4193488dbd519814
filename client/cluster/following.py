"""Following a job on a cluster until it ends, for whoever submits or looks on; and refusing what a running one forbids."""

import asyncio
from typing import TYPE_CHECKING

import msgspec

from edlz.client.cluster.connection import connected
from edlz.client.cluster.index import Place
from edlz.client.cluster.job_view import ClusterSight
from edlz.client.cluster.queries import look_at_job
from edlz.services.errors import ConfigError, PeerUnavailable

if TYPE_CHECKING:
    from edlz.client.screen.screens import Screen

__all__ = ["follow_job", "refuse_running"]

POLL_S = 1.0


async def follow_job(at: Place, screen: "Screen") -> ClusterSight:
    """Pass what is seen of a job on to a screen; return the last sight when it has ended."""
    seen: int | None = None
    is_silent, said = False, ""
    async with connected(at) as cluster:
        while True:
            try:
                sight = await look_at_job(cluster, at)
            except PeerUnavailable as e:
                if not is_silent:
                    screen.say(f"{e.message}; trying on")
                is_silent = True
                await asyncio.sleep(POLL_S)
                continue
            is_silent = False
            status = sight.status
            fresh = tuple(event for event in status.events if seen is not None and event.seq > seen)
            seen = max((event.seq for event in status.events), default=seen or 0)
            screen.update(msgspec.structs.replace(status, events=fresh))
            if sight.note or sight.trouble:
                if (sight.note or sight.trouble) != said:
                    screen.say(sight.note or sight.trouble)
                said = sight.note or sight.trouble
            if not sight.is_live:
                return sight
            await asyncio.sleep(POLL_S)


def refuse_running(sight: ClusterSight, then: str = "resume") -> None:
    """Raise ConfigError if a job runs."""
    if sight.is_live:
        raise ConfigError(
            f'job "{sight.word}" is running: {sight.status.state}',
            f"edlz stop {sight.word}, then edlz {then} {sight.word}",
        )
