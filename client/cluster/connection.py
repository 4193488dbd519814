"""Connections of the commands to a cluster: by a place in the index, for as long as a command needs one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from edlz.client.cluster.index import Place
from edlz.k8s.cluster.api import Cluster
from edlz.services.configuration.job_config import JobConfig

__all__ = ["REQUEST_S", "asked", "connected"]

REQUEST_S = 5.0  # for a request of a command with its repetitions

_T = TypeVar("_T")


@asynccontextmanager
async def connected(place: Place, patience_s: float = REQUEST_S) -> AsyncIterator[Cluster]:
    """Connect to the namespace of a place, in its context.

    Raises
    ------
    ConfigError
        If it is not known where the server is, or the `kubernetes` package is not installed.
    """
    config = JobConfig(namespace=place.namespace)
    async with await Cluster.connect(config, context=place.context, patience_s=patience_s) as cluster:
        yield cluster


def asked(place: Place, ask: "Callable[[Cluster], Awaitable[_T]]") -> _T:
    """Return what a cluster answers."""

    async def run() -> _T:
        async with connected(place) as cluster:
            return await ask(cluster)

    return asyncio.run(run())
