"""What the supervisor should start and stop: the decisions, without the processes.

Theory of operation.  Each status tells the master what runs and what has ended; each answer says what
should run.  The answer to a status knows only the exits that the status carried, so a name whose exit has
not been told yet is not started again by it: the master may have another name in mind.  A status that got
no answer is sent again as it was, under the same number, so that no exit counts twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from edlz.services.messages import ProcessExit, SupervisorOrders, SupervisorStatus

__all__ = ["Action", "Reconciler"]

_SHORT_LIFE_S = 10.0
_MOST_SHORT_LIVES = 5
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.5, 8.0


@dataclass(frozen=True, slots=True)
class Action:
    """What to do now.

    Attributes
    ----------
    launch, stop : names of services
    """

    launch: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()


@dataclass(slots=True)
class _Lives:
    """How a name has fared: when its present life began, and how many short ones ended before it."""

    began_s: float = 0.0
    short: int = 0
    not_before_s: float = 0.0


@dataclass(slots=True)
class Reconciler:
    """The supervisor's core.

    Attributes
    ----------
    is_stopping : whether the master is asked to stop the job, once it has saved what there is
    given_up : the exit after which a service is not started again, since it ended too often at once
    """

    given_up: ProcessExit | None = None
    is_stopping: bool = False  # the master is asked to stop the job
    _seq: int = 0
    _in_flight: SupervisorStatus | None = None  # until answered, it is sent unchanged
    _untold: list[ProcessExit] = field(default_factory=list)  # exits that no answered status has carried
    _lives: dict[str, _Lives] = field(default_factory=dict)

    def on_exits(self, exits: Sequence[ProcessExit], now: float) -> None:
        """Services have ended by themselves."""
        for gone in exits:
            self._untold.append(gone)
            lives = self._lives.setdefault(gone.name, _Lives())
            lives.short = lives.short + 1 if now - lives.began_s < _SHORT_LIFE_S else 0
            if lives.short:
                delay_s = min(_FIRST_DELAY_S * 2 ** (lives.short - 1), _LONGEST_DELAY_S)
                lives.not_before_s = now + delay_s
            if lives.short >= _MOST_SHORT_LIVES and self.given_up is None:
                self.given_up = gone

    def next_status(self, running: Sequence[str]) -> SupervisorStatus:
        """Return what to tell the master now."""
        if self._in_flight is None:
            self._seq += 1
            self._in_flight = SupervisorStatus(
                seq=self._seq, running=tuple(running), exits=tuple(self._untold), stop=self.is_stopping
            )
        return self._in_flight

    def on_orders(self, orders: SupervisorOrders, running: Sequence[str], now: float) -> Action:
        """Return what makes the master's answer true."""
        assert self._in_flight is not None, "orders without a status"
        del self._untold[: len(self._in_flight.exits)]
        self._in_flight = None
        desired = () if orders.stop else orders.desired
        untold = {gone.name for gone in self._untold}
        launch = tuple(
            name
            for name in desired
            if name not in running and name not in untold and self._may_start(name, now)
        )
        for name in launch:
            self._lives.setdefault(name, _Lives()).began_s = now
        return Action(launch, tuple(name for name in running if name not in desired))

    def _may_start(self, name: str, now: float) -> bool:
        return name not in self._lives or now >= self._lives[name].not_before_s
