"""Supervision: round after round the master hears what runs and what has ended, and its answer is made true.

The same rounds serve this machine and a cluster: each brings a `Launcher`.  What should run is the master's to say; what
follows from its answer, the `Reconciler`'s.
"""

import logging

from edlz.services.protocol.messages import SupervisorOrders, SupervisorStatus
from edlz.services.supervision.launcher import Launcher
from edlz.services.supervision.reconciler import Reconciler

__all__ = ["Supervision"]

logger = logging.getLogger(__name__)


class Supervision:
    """The rounds of one job, without the waiting between them.

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

    def next_status(self) -> SupervisorStatus:
        """Return what to tell the master now."""
        self._core.on_exits(self._launcher.take_exits())
        return self._core.next_status(self._launcher.running(), self._launcher.facts())

    def obey(self, orders: SupervisorOrders) -> None:
        """Begin whatever makes the master's answer true."""
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
