"""What a job that starts waits for, so that whoever watches it knows that it is not the screen that hangs.

Pure: told of statuses and of the time, it answers with a text now and then.
"""

from collections.abc import Collection, Sequence

from edlz.client.screen.wording import duration
from edlz.services.protocol.job_status import JobStatus, WorkerView

__all__ = ["StartWatch"]

FIRST_S, OFTEN_S, SELDOM_S = 5.0, 10.0, 60.0
_NOT_YET = ("Pending", "Starting")
_AT_WORK = ("Training", "Evaluating", "Exporting", "Predicting", "Analyzing")


class StartWatch:
    """Follows one start of a job, until the first step is done.

    Parameters
    ----------
    now : float
        When the start began.
    """

    def __init__(self, now: float) -> None:
        self._began_s, self._due_s = now, now + FIRST_S
        self._stood_at: tuple[int, int] | None = None  # when the job was first seen at work
        self._is_over = False

    def due(self, status: JobStatus | None, running: Collection[str], now: float) -> str:
        """Return what to say now; nothing if it is not time, or nothing more is waited for.

        Parameters
        ----------
        status : JobStatus, optional
            The master's word, if it has said one.
        running : collection of str
            The names of the processes.
        """
        if self._is_over or self._has_begun(status) or now < self._due_s:
            return ""
        passed_s = now - self._began_s
        self._due_s = now + (OFTEN_S if passed_s < SELDOM_S else SELDOM_S)
        return f"waiting for {_awaited(status, running)} ({duration(passed_s)})"

    def _has_begun(self, status: JobStatus | None) -> bool:
        """Whether a step has been done; after that the figures say how the job fares."""
        if status is None or status.state in _NOT_YET:
            return False
        done = (status.minibatches, status.records)
        self._stood_at = done if self._stood_at is None else self._stood_at
        self._is_over = status.state not in _AT_WORK or done != self._stood_at
        return self._is_over


def _awaited(status: JobStatus | None, running: Collection[str]) -> str:
    if status is None:
        return "the master, which lists the data"
    serving = {f"ps-{view.id}" for view in status.partitions}
    servers = sorted(name for name in running if name.startswith("ps-") and name not in serving)
    if servers:
        return ", ".join(servers)
    workers = _starting(status.workers, running)
    if workers:
        doing = "starting" if status.is_analysis else "loading TensorFlow, building the model"
        return f"{_listed(workers)}: {doing}"
    if status.state in _NOT_YET:
        return "the first values of the model's parameters" if running else "a place for its processes"
    return "the first task" if status.is_analysis else "the first minibatch: TensorFlow traces the model"


def _starting(views: Sequence[WorkerView], running: Collection[str]) -> list[str]:
    """Return the workers that run but do not take part yet."""
    ready = {f"worker-{view.id}" for view in views if view.state != "starting"}
    names = (name for name in running if name.startswith("worker-") and name not in ready)
    return sorted(names, key=lambda name: (len(name), name))


def _listed(names: Sequence[str]) -> str:
    return (
        ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more workers"
    )
