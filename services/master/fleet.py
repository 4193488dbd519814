"""The core that decides which processes of the job should run.

This version starts each process once: a lost worker's work goes to the others; a lost parameter server, or
the loss of all workers, ends the job with a reason.
"""

from dataclasses import dataclass, field

from edlz.services.messages import FailureView, ProcessExit

__all__ = ["Fleet", "Loss"]


@dataclass(frozen=True)
class Loss:
    """A process that has ended."""

    name: str
    reason: str
    failure: FailureView | None = None  # when the job cannot go on without it


@dataclass
class Fleet:
    """Desired processes, by name: `ps-0`, `worker-1`.

    Parameters
    ----------
    workers, servers : int
        How many the job asked for.
    """

    workers: int
    servers: int
    _ended: dict[str, str] = field(default_factory=dict)

    @property
    def all_names(self) -> tuple[str, ...]:
        servers = (f"ps-{index}" for index in range(self.servers))
        return (*servers, *(f"worker-{index}" for index in range(self.workers)))

    def desired(self, *, is_over: bool) -> tuple[str, ...]:
        """Return what should run now; a process that has ended is not started again."""
        return () if is_over else tuple(name for name in self.all_names if name not in self._ended)

    def on_exit(self, exit_: ProcessExit) -> Loss | None:
        """A process has ended; None when that was known, or is no process of this job."""
        if exit_.name in self._ended or exit_.name not in self.all_names:
            return None
        code = f"exited with code {exit_.code}" if exit_.signal is None else f"signal {exit_.signal}"
        reason = self._ended[exit_.name] = exit_.reason or code
        if exit_.name.startswith("ps-"):
            return Loss(exit_.name, reason, _failure_of_server(exit_.name, reason))
        workers = [name for name in self.all_names if name.startswith("worker-")]
        if any(name not in self._ended for name in workers):
            return Loss(exit_.name, reason)
        reasons = "; ".join(f"{name} {self._ended[name]}" for name in workers)
        text, help_text = f"no worker is left: {reasons}", "the workers' logs say why they ended"
        return Loss(exit_.name, reason, FailureView(text=text, help=help_text))


def _failure_of_server(name: str, reason: str) -> FailureView:
    return FailureView(
        text=f"{name} was lost: {reason}, and this version does not start it again",
        help="start the job again; the log of the lost process says more",
    )
