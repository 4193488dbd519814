"""Following a job on a cluster until it ends, for whoever submits or looks on; and refusing what a running one forbids."""

import asyncio
from typing import TYPE_CHECKING

import msgspec

from edlz.client.cluster.connection import connected
from edlz.client.cluster.index import Place
from edlz.client.cluster.job_view import ClusterJobView
from edlz.client.cluster.queries import look_at_job
from edlz.services.errors import ConfigError, PeerUnavailable

if TYPE_CHECKING:
    from edlz.client.screen.screens import Screen

__all__ = ["follow_job", "refuse_running"]

POLL_S = 1.0


async def follow_job(at: Place, screen: "Screen") -> ClusterJobView:
    """Pass what is seen of a job on to a screen; return the last view when it has ended."""
    seen: int | None = None
    is_silent, said = False, ""
    async with connected(at) as cluster:
        while True:
            try:
                view = await look_at_job(cluster, at)
            except PeerUnavailable as e:
                if not is_silent:
                    screen.say(f"{e.message}; trying on")
                is_silent = True
                await asyncio.sleep(POLL_S)
                continue
            is_silent = False
            status = view.status
            fresh = tuple(event for event in status.events if seen is not None and event.seq > seen)
            seen = max((event.seq for event in status.events), default=seen or 0)
            screen.update(msgspec.structs.replace(status, events=fresh, page=""))
            if view.note or view.trouble:
                if (view.note or view.trouble) != said:
                    screen.say(view.note or view.trouble)
                said = view.note or view.trouble
            if not view.is_live:
                return view
            await asyncio.sleep(POLL_S)


def refuse_running(view: ClusterJobView, then: str = "resume") -> None:
    """Raise ConfigError if a job runs."""
    if view.is_live:
        raise ConfigError(
            f'job "{view.word}" is running: {view.status.state}',
            f"edlz stop {view.word}, then edlz {then} {view.word}",
        )
