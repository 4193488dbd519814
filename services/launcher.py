"""What the supervisor asks of whatever runs processes: this machine, or later a cluster.

Names are those of the master's orders: `worker-0`, `ps-1`.
"""

from collections.abc import Iterable
from typing import Protocol

from edlz.services.messages import ProcessExit

__all__ = ["Launcher", "count_workers", "is_worker", "split_name"]


class Launcher(Protocol):
    """Starts and stops the services of one job, by name."""

    def running(self) -> tuple[str, ...]:
        """Return the names of what runs now, in the order in which it was started."""
        ...

    def take_exits(self) -> tuple[ProcessExit, ...]:
        """Return what has ended by itself since the call before; what `stop` ended is not among it."""
        ...

    async def launch(self, name: str) -> None:
        """Start a service.

        Raises
        ------
        LaunchError
            If it cannot be started at all.
        """
        ...

    async def stop(self, name: str, grace_s: float) -> None:
        """Ask a service to end, end it by force after `grace_s` seconds, and return when it is gone."""
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
