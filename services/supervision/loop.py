"""Supervision: round after round the master hears what runs and what has ended, and its answer is made true.

The same loop serves this machine and a cluster: each is a `Home` with a `Launcher`.  What should run is the master's to
say; what follows from its answer, the `Reconciler`'s.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from edlz.services.protocol.messages import SupervisorOrders, SupervisorStatus
from edlz.services.supervision.launcher import Launcher
from edlz.services.supervision.reconciler import Reconciler

__all__ = ["Home", "Supervision"]

POLL_S = 0.25

logger = logging.getLogger(__name__)


class Home(Protocol):
    """Where the services of a job run."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to follow."""
        ...

    @property
    def changes(self) -> Sequence[asyncio.Event]:
        """Each is set when the next round should come at once."""
        ...

    async def begin_round(self) -> bool:
        """Take in what has happened; return whether the master can be told of it."""
        ...

    async def ask(self, status: SupervisorStatus) -> SupervisorOrders | None:
        """Tell the master what is; return its answer, or None if there is none now."""
        ...

    def end_round(self) -> None:
        """The master's answer is being made true: do what else there is to do."""
        ...


class Supervision:
    """The rounds of one job.

    Parameters
    ----------
    launcher : Launcher
        Starts and ends the services.
    """

    def __init__(self, launcher: Launcher) -> None:
        self._launcher, self._core = launcher, Reconciler()

    @property
    def is_stopping(self) -> bool:
        """Whether the master is asked to stop the job."""
        return self._core.is_stopping

    def stop(self) -> None:
        """Ask the master to stop the job, once it has saved what there is."""
        self._core.is_stopping = True

    async def run(self, home: Home) -> None:
        """Go round until the home says that it is over, four times a second and whenever something changes."""
        while True:
            if await home.begin_round() and not home.is_over:
                orders = await home.ask(self.next_status())
                if orders is not None:
                    self.obey(orders)
                    home.end_round()
            if home.is_over:
                return
            await _pause(home.changes)

    def next_status(self) -> SupervisorStatus:
        """Return what to tell the master now."""
        self._core.on_exits(self._launcher.take_exits())
        return self._core.next_status(self._launcher.running(), self._launcher.facts())

    def obey(self, orders: SupervisorOrders) -> None:
        """Begin whatever makes the master's answer true, unless another master has taken its place."""
        if self._core.are_outdated(orders):
            return
        launcher = self._launcher
        self._core.on_exits(launcher.take_exits())
        launcher.expect(() if orders.stop else orders.desired, 0 if orders.stop else orders.waiting)
        action = self._core.on_orders(orders, launcher.running())
        if action.launch:
            logger.info("starting %s", ", ".join(action.launch))
        for name in action.launch:
            launcher.begin_launch(name)
        for name in action.stop:
            launcher.begin_stop(name)
        for name in action.abort:
            launcher.begin_stop(name, is_hung=True)


async def _pause(changes: Sequence[asyncio.Event]) -> None:
    """Wait for the next round, or until something changes."""
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(change.wait(), name="wait for a change") for change in changes]
        await asyncio.wait(waiting, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
