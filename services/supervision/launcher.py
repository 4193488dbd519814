"""What the supervision asks of whatever runs processes: this machine, or a cluster.

Names are those of the master's orders: `worker-0`, `ps-1`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from edlz.services.protocol.messages import ProcessExit

__all__ = ["HUNG_GRACE_S", "Facts", "Launcher", "count_workers", "is_worker", "split_name"]

HUNG_GRACE_S = 30.0  # for a service that hangs to write down where it is, if it still can


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the place where services run; the fields are those of a `SupervisorStatus`.

    Attributes
    ----------
    room : int or None
        Workers that may run there now; None for any number.
    placed : tuple of str or None
        Services that have their place; None where whatever is started has one.
    crowded : tuple of str
        Parameter servers that there is no room for.
    unreachable : tuple of str
        Services whose machine does not answer.
    notes : mapping of str to str
        Why services that should run do not (yet), by name.
    """

    room: int | None = None
    placed: tuple[str, ...] | None = None
    crowded: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)


class Launcher(Protocol):
    """Starts and ends the services of one job, by name.

    Its methods take no time: they begin what goes on by itself.  What goes wrong meanwhile is its own affair: it
    tries again, and says so in its notes, or ends the supervision.
    """

    def running(self) -> tuple[str, ...]:
        """Return the names of what runs now, or is being started, in the order of the starts."""
        ...

    def take_exits(self) -> tuple[ProcessExit, ...]:
        """Return what has ended by itself since the call before; what `begin_stop` ended is not among it."""
        ...

    def facts(self) -> Facts:
        """Return what is known now of the place where the services run."""
        ...

    def expect(self, desired: Sequence[str], waiting: int) -> None:
        """The master wants these services now, and could use so many more workers if there was room."""
        ...

    def begin_launch(self, name: str) -> None:
        """Begin to start a service, unless that is under way."""
        ...

    def begin_stop(self, name: str, *, is_hung: bool = False) -> None:
        """Begin to end a service: it is asked to, and ended by force after a while.

        Parameters
        ----------
        is_hung : bool, optional
            It may not be able to end; it has HUNG_GRACE_S to write down where it is.
        """
        ...


def split_name(name: str) -> tuple[str, int]:
    """Return role and number of a name: `("worker", 0)` for worker-0; the master has number 0."""
    role, _, number = name.partition("-")
    return role, int(number or 0)


def is_worker(name: str) -> bool:
    """Whether a name is that of a worker."""
    return split_name(name)[0] == "worker"


def count_workers(names: Iterable[str]) -> int:
    """Return how many of the names are those of workers."""
    return sum(map(is_worker, names))
