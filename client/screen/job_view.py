"""What the screens show of a job, wherever it is: `local.job_view` sees those of this machine,
`cluster.job_view` the others."""

from collections.abc import Mapping
from typing import Any, Protocol

from edlz.services.errors import ConfigError
from edlz.services.protocol.job_status import JobStatus

__all__ = ["ENDED_STATES", "JobView", "exit_code_of", "not_running"]

ENDED_STATES = ("succeeded", "failed", "stopped")  # as they are typed
STOPPED = 7  # the exit code of a command that waits for a job which was stopped


class JobView(Protocol):
    """What is known of a job now."""

    @property
    def name(self) -> str:
        """Of the job; of an earlier run that of its folder, `mnist.1`."""
        ...

    @property
    def word(self) -> str:
        """What finds it on a command line."""
        ...

    @property
    def where(self) -> str:
        """`local`, or `k8s/research`."""
        ...

    @property
    def place(self) -> str:
        """Its folder, or its master's pod."""
        ...

    @property
    def logs(self) -> str:
        """Where its logs are: a folder, or the command that prints them."""
        ...

    @property
    def report(self) -> str:
        """What shows the report that it has left: a command, or a file on a volume; nothing while it runs."""
        ...

    @property
    def status(self) -> JobStatus:
        """What its master says or has said last; figures are zero where it never spoke."""
        ...

    @property
    def asked_workers(self) -> int:
        """--num_workers, as far as it is known."""
        ...

    @property
    def note(self) -> str:
        """What the state does not say: `interrupted`, `the master restarts`."""
        ...

    @property
    def trouble(self) -> str:
        """What one of its workers waits for, while the others go on."""
        ...

    @property
    def has_figures(self) -> bool:
        """Whether the status is a master's word."""
        ...

    @property
    def is_live(self) -> bool:
        """Whether it runs, or waits to."""
        ...

    @property
    def is_led(self) -> bool:
        """Whether somebody starts its processes: a supervisor, or its master on a cluster."""
        ...

    @property
    def by_hand(self) -> str | None:
        """Pid of a master that was started by hand."""
        ...

    @property
    def pid(self) -> int | None:
        """The process that leads it, if that is one of this machine."""
        ...

    @property
    def is_earlier(self) -> bool:
        """Whether a newer run has its name."""
        ...

    @property
    def can_resume(self) -> bool:
        """Whether its files are kept, so that it can go on."""
        ...

    @property
    def has_checkpoints(self) -> bool:
        """Whether there is a checkpoint to look at from here."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """Return what scripts read of where it is, besides its status."""
        ...


def exit_code_of(status: JobStatus) -> int:
    """Return the exit code that a job's end stands for."""
    if status.state == "Succeeded":
        return 0
    if status.state == "Failed":
        return (status.failure.exit_code if status.failure else 0) or 1
    return STOPPED


def not_running(view: JobView) -> ConfigError:
    """Return the refusal of what only a running job can do."""
    state = view.status.state if not view.note else f"{view.status.state}, {view.note}"
    can_go_on = view.status.state == "Stopped" and view.can_resume
    return ConfigError(
        f'job "{view.word}" is not running: {state}',
        f"edlz resume {view.word}" if can_go_on else f"edlz status {view.word}",
    )
