"""What the supervisor should start and stop: the decisions, without the processes.

Theory of operation.  Each status tells the master what runs and what has ended; each answer says what
should run.  The answer to a status knows only the exits that the status carried, so a name whose exit has
not been told yet is not started again by it: the master may have another name in mind.  A status that got
no answer is sent again as it was, under the same number, so that no exit counts twice; only the facts (the room for
workers, and the like) are those of now, and no worker is started beyond that room.  How soon, and how often, something is started again
is the master's affair.

A master that stood still may answer when another one has taken its place: it knows nothing of what has ended since, so
its answer counts for nothing, and the same is told to the newer one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from edlz.services.protocol.messages import ProcessExit, SupervisorOrders, SupervisorStatus
from edlz.services.supervision.launcher import Facts, count_workers, is_worker

__all__ = ["NO_FACTS", "Action", "Reconciler"]

NO_FACTS = Facts()


@dataclass(frozen=True, slots=True)
class Action:
    """What to do now.

    Attributes
    ----------
    launch, stop, abort : tuple of str
        Names of services; those to abort hang.
    """

    launch: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    abort: tuple[str, ...] = ()


@dataclass(slots=True)
class Reconciler:
    """The supervisor's core.

    Attributes
    ----------
    is_stopping : bool
        Whether the master is asked to stop the job, once it has saved what there is.
    """

    is_stopping: bool = False  # the master is asked to stop the job
    _seq: int = 0
    _run: str = ""  # of the job, as the master has told it
    _term: int = 0  # of the newest master that has answered
    _in_flight: SupervisorStatus | None = None  # until answered, it is sent unchanged
    _untold: list[ProcessExit] = field(default_factory=list)  # exits that no answered status has carried

    def on_exits(self, exits: Sequence[ProcessExit]) -> None:
        """Services have ended by themselves."""
        self._untold.extend(exits)

    def next_status(self, running: Sequence[str], facts: Facts = NO_FACTS) -> SupervisorStatus:
        """Return what to tell the master now."""
        if self._in_flight is None:
            self._seq += 1
            self._in_flight = SupervisorStatus(
                seq=self._seq,
                running=tuple(running),
                exits=tuple(self._untold),
                stop=self.is_stopping,
                run=self._run,
            )
        self._in_flight = msgspec.structs.replace(
            self._in_flight,
            room=facts.room,
            placed=facts.placed,
            crowded=facts.crowded,
            unreachable=facts.unreachable,
            notes=dict(facts.notes),
        )
        return self._in_flight

    def are_outdated(self, orders: SupervisorOrders) -> bool:
        """Whether a later master has answered before."""
        return orders.term < self._term

    def on_orders(self, orders: SupervisorOrders, running: Sequence[str]) -> Action:
        """Return what makes the master's answer true; it is not that of an older master."""
        assert self._in_flight is not None, "orders without a status"
        self._run, self._term = orders.run, orders.term
        del self._untold[: len(self._in_flight.exits)]
        told, self._in_flight = self._in_flight, None
        desired, room = () if orders.stop else orders.desired, told.room
        unknown = {*running, *told.running, *(gone.name for gone in self._untold)}
        launch = tuple(name for name in desired if name not in unknown)
        if room is not None:
            launch = _within(room - count_workers(running), launch)
        return Action(
            launch,
            stop=tuple(name for name in running if name not in desired and name not in orders.hung),
            abort=tuple(name for name in running if name not in desired and name in orders.hung),
        )


def _within(room: int, launch: Sequence[str]) -> tuple[str, ...]:
    """Return what is left if only so many workers may start; those that are to go have not gone yet."""
    workers = [name for name in launch if is_worker(name)][: max(0, room)]
    return tuple(name for name in launch if name in workers or not is_worker(name))
