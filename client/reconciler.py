"""What the supervisor should start and stop: the decisions, without the processes.

Theory of operation.  Each status tells the master what runs and what has ended; each answer says what
should run.  The answer to a status knows only the exits that the status carried, so a name whose exit has
not been told yet is not started again by it: the master may have another name in mind.  A status that got
no answer is sent again as it was, under the same number, so that no exit counts twice.  How soon, and how
often, something is started again is the master's affair.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from edlz.services.messages import ProcessExit, SupervisorOrders, SupervisorStatus

__all__ = ["Action", "Reconciler"]


@dataclass(frozen=True, slots=True)
class Action:
    """What to do now.

    Attributes
    ----------
    launch, stop, abort : names of services; those to abort hang
    """

    launch: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    abort: tuple[str, ...] = ()


@dataclass(slots=True)
class Reconciler:
    """The supervisor's core.

    Attributes
    ----------
    is_stopping : whether the master is asked to stop the job, once it has saved what there is
    room : how many workers may run here; None for any number
    """

    room: int | None = None
    is_stopping: bool = False  # the master is asked to stop the job
    _seq: int = 0
    _in_flight: SupervisorStatus | None = None  # until answered, it is sent unchanged
    _untold: list[ProcessExit] = field(default_factory=list)  # exits that no answered status has carried

    def on_exits(self, exits: Sequence[ProcessExit]) -> None:
        """Services have ended by themselves."""
        self._untold.extend(exits)

    def next_status(self, running: Sequence[str]) -> SupervisorStatus:
        """Return what to tell the master now."""
        if self._in_flight is None:
            self._seq += 1
            self._in_flight = SupervisorStatus(
                seq=self._seq,
                running=tuple(running),
                exits=tuple(self._untold),
                stop=self.is_stopping,
                room=self.room,
            )
        return self._in_flight

    def on_orders(self, orders: SupervisorOrders, running: Sequence[str]) -> Action:
        """Return what makes the master's answer true."""
        assert self._in_flight is not None, "orders without a status"
        del self._untold[: len(self._in_flight.exits)]
        self._in_flight = None
        desired = () if orders.stop else orders.desired
        untold = {gone.name for gone in self._untold}
        launch = tuple(name for name in desired if name not in running and name not in untold)
        return Action(
            launch,
            stop=tuple(name for name in running if name not in desired and name not in orders.hung),
            abort=tuple(name for name in running if name not in desired and name in orders.hung),
        )
