"""The launcher of a job's services on this machine: all its processes but the master, within its part of the slots."""

import signal
from collections.abc import Callable, Sequence

from edlz.client.local.launching.process_launcher import ProcessLauncher
from edlz.client.local.share.share_file import LocalSlots
from edlz.services.protocol.messages import ProcessExit
from edlz.services.supervision.launcher import HUNG_GRACE_S, Facts, count_workers

__all__ = ["GRACE_S", "MASTER", "JobLauncher"]

MASTER = "master"
GRACE_S = 5.0


class JobLauncher:
    """See `Launcher`.

    Parameters
    ----------
    processes : ProcessLauncher
        Runs all of the job's processes, its master among them.
    slots : LocalSlots, optional
        The job's part of this machine's slots, if it shares them with other jobs.
    on_exit : callable (ProcessExit)
        Called once for each process that has ended by itself, also for the master.
    """

    def __init__(
        self,
        processes: ProcessLauncher,
        slots: LocalSlots | None,
        on_exit: Callable[[ProcessExit], None],
    ) -> None:
        self._processes, self._slots, self._on_exit = processes, slots, on_exit
        self._exits: list[ProcessExit] = []  # of services, not yet taken
        self._wanted_workers = 0

    def collect_exits(self) -> None:
        """See what has ended."""
        for gone in self._processes.take_exits():
            self._on_exit(gone)
            if gone.name != MASTER:
                self._exits.append(gone)

    # -- as Launcher has it

    def running(self) -> tuple[str, ...]:
        return tuple(name for name in self._processes.running() if name != MASTER)

    def take_exits(self) -> tuple[ProcessExit, ...]:
        self.collect_exits()
        exits, self._exits = tuple(self._exits), []
        return exits

    def facts(self) -> Facts:
        if self._slots is None:
            return Facts()
        return Facts(room=self._slots.room(self._wanted_workers, count_workers(self.running())))

    def expect(self, desired: Sequence[str], waiting: int) -> None:
        self._wanted_workers = count_workers(desired) + waiting

    def begin_launch(self, name: str) -> None:
        self._processes.begin_launch(name)

    def begin_stop(self, name: str, *, is_hung: bool = False) -> None:
        if is_hung:  # it writes down where it is; one that is stopped does so when it wakes up
            self._processes.begin_stop(name, HUNG_GRACE_S, signal.SIGABRT)
        else:
            self._processes.begin_stop(name, GRACE_S)
