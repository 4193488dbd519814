"""Keeps an inventory of pods true: a list, then a watch from there, and a list again whenever that breaks off."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from edlz.k8s.cluster.api_errors import Expired, told
from edlz.k8s.cluster.api_records import Pod, PodEvent, PodList
from edlz.k8s.cluster.master_trouble import UNSEEN
from edlz.k8s.pods.pod_inventory import PodInventory
from edlz.services.errors import EdlzError

__all__ = ["PodSource", "PodWatch"]

RESYNC_S = 60.0  # a list at least so often, should an event have been lost
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0

logger = logging.getLogger(__name__)


class PodSource(Protocol):
    """Where pods are listed and watched: a Cluster."""

    async def list_pods(self, selector: str = "", *, patience_s: float | None = None) -> PodList: ...

    def watch_pods(
        self, selector: str = "", resource_version: str = "", *, timeout_s: float = ...
    ) -> AsyncIterator[PodEvent]: ...


class PodWatch:
    """Follows the pods with a job's labels.

    Parameters
    ----------
    source, selector : PodSource, str
        What is followed.
    inventory : PodInventory
        Told of the job's services.
    on_change : callable
        Called after each list and event, with the pods that it spoke of.

    Attributes
    ----------
    trouble : str
        Why the cluster is out of sight; nothing if it is not.
    """

    def __init__(
        self,
        source: PodSource,
        selector: str,
        inventory: PodInventory,
        on_change: Callable[[tuple[Pod, ...]], None],
    ) -> None:
        self._source, self._selector, self._inventory = source, selector, inventory
        self._on_change = on_change
        self._sleep, self._random = asyncio.sleep, random.Random()
        self._pause_s = FIRST_PAUSE_S
        self.trouble = ""

    async def run(self) -> None:
        """Follow them until cancelled."""
        while True:
            try:
                await self._list_and_watch()
            except Expired:  # known no more from where the watch was to go on
                logger.debug("the watch has expired; listing the pods again")
            except EdlzError as error:
                self.trouble = error.message
                logger.warning("%s: %s", UNSEEN, told(error))
            await self._sleep(self._pause_s * self._random.uniform(0.5, 1.5))
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    async def _list_and_watch(self) -> None:
        """List, then watch until it is time to list again, or the watch breaks off."""
        ticket = self._inventory.begin_list()
        listed = await self._source.list_pods(self._selector, patience_s=0)
        self._inventory.on_list(ticket, listed.items)
        self._on_change(listed.items)
        self.trouble = ""
        version, loop = listed.resource_version, asyncio.get_running_loop()
        began_s = loop.time()
        try:
            while (left_s := began_s + RESYNC_S - loop.time()) > 1:
                before = version
                async for event in self._source.watch_pods(self._selector, version, timeout_s=left_s):
                    version = event.object.metadata.resource_version or version
                    if event.type != "BOOKMARK":
                        self._inventory.on_event(event)
                        self._on_change((event.object,))
                if version == before:  # a server that ends each watch at once is not asked without a pause
                    return
        finally:
            if loop.time() - began_s > LONGEST_PAUSE_S / 4:
                self._pause_s = FIRST_PAUSE_S
