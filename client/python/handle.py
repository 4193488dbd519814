"""A job as Python holds it: it lives on without whoever holds it, and is found again by its name."""

import asyncio
import importlib
import importlib.util
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from edlz.client.arguments.all_jobs import look_at_all
from edlz.client.arguments.jobs import Job as FoundJob
from edlz.client.arguments.jobs import named_job
from edlz.client.commands.wait import StillRunning
from edlz.client.python.elsewhere import apart, awaited
from edlz.client.python.html import html_of
from edlz.client.python.log_lines import chosen_lines, lines_of
from edlz.client.python.records import Status, status_of
from edlz.client.screen.wording import how_far
from edlz.services.errors import EdlzError
from edlz.services.protocol.job_status import FailureView, JobStatus

__all__ = ["Job", "JobFailed", "JobResult", "JobStopped", "get", "jobs"]

WAIT_S = 1.0  # a thread that waits looks up so often


class JobFailed(EdlzError):
    """The job has failed; its message is the first cause.

    Parameters
    ----------
    name : str
        Of the job.
    failure : FailureView, optional
        All that is known of it.
    """

    code = "job-failed"

    def __init__(self, name: str, failure: FailureView | None) -> None:
        self.failure = failure or FailureView(text="nobody knows why")
        found = self.failure
        lines = [f'job "{name}" failed: {found.text}', found.data, found.where, found.error]
        super().__init__("\n".join(line for line in lines if line), found.help or f"edlz logs {name}")


class JobStopped(EdlzError):
    """The job was stopped before its end."""

    code = "job-stopped"
    exit_code = 7


@dataclass(frozen=True)
class JobResult:
    """What a job ended with.

    Attributes
    ----------
    metrics : dict
        Of the finished model, by name.
    version : int
    output : str or None
        Where the exported model is, or the predictions.
    digest : str or None
        Of the parameters.
    """

    metrics: dict[str, float | None]
    version: int
    output: str | None
    digest: str | None


class Job:
    """A job, on this machine or on a cluster.

    Attributes
    ----------
    name : str
    where : str
        `local`, or `k8s/NAMESPACE`.
    """

    def __init__(self, found: FoundJob) -> None:
        self._found = found
        self.name, self.where = found.name, found.where

    def status(self) -> Status:
        """Return how it fares: the fields of `/api/status`, as records."""
        return apart(lambda: status_of(self._found.view()))

    def logs(
        self,
        worker: int | None = None,
        ps: int | None = None,
        *,
        master: bool = False,
        tail: int | None = None,
        since_s: float = 0.0,
        grep: str = "",
        follow: bool = False,
    ) -> Iterator[str]:
        """Yield lines of its logs in the order of time; with `follow` until it ends."""
        choice = chosen_lines(worker, ps, master=master, tail=tail, since_s=since_s, grep=grep, follow=follow)
        return lines_of(self._found, choice)

    def scale(self, workers: int) -> int:
        """Ask for another number of workers; return how many there should be from now on."""
        return apart(lambda: self._found.scale(workers).after)

    def stop(self, *, now: bool = False) -> Status:
        """Save it and stop it, or with `now` kill it; return its status when it has ended."""

        def end() -> Status:
            self._found.refuse_idle(is_now=now)
            if now:
                self._found.end_now()
            else:
                self._found.begin_stop()
                self._found.wait()
            return status_of(self._found.view())

        return apart(end)

    def wait(self, timeout: float | None = None) -> JobResult:
        """Wait until it ends; return what it ended with.  Ctrl-C stops the waiting only.

        Parameters
        ----------
        timeout : float, optional
            Seconds.

        Raises
        ------
        JobFailed, JobStopped
        StillRunning
            If it has not ended in that time.
        """
        end = None if timeout is None else time.monotonic() + timeout
        try:
            while not apart(
                self._found.wait, WAIT_S if end is None else max(0.0, min(WAIT_S, end - time.monotonic()))
            ):
                if end is not None and time.monotonic() >= end:
                    text = f'job "{self._found.word}" still runs after {timeout:g}s'
                    raise StillRunning(text, "wait() again, or stop() it")
        except KeyboardInterrupt:
            print(f'job "{self.name}" goes on; client.get("{self.name}").wait() waits again')
            raise
        return apart(lambda: _result(self._found.word, self._found.view().status))

    def metrics(self) -> Any:
        """Return the metrics of the versions evaluated, as many as a status has: a pandas DataFrame by version, or dictionaries."""
        rows = [{"version": each.version, **each.metrics} for each in self.status().evaluations]
        if importlib.util.find_spec("pandas") is None:
            return rows
        pandas: Any = importlib.import_module("pandas")  # not above: it need not be there
        return pandas.DataFrame(rows, columns=None if rows else ["version"]).set_index("version")

    # -- for a loop

    async def status_async(self) -> Status:
        """Return how it fares, while the loop goes on."""
        return await awaited(self.status)

    async def wait_async(self, timeout: float | None = None) -> JobResult:
        """Wait until it ends, while the loop goes on; see `wait`.  Cancelled, it leaves the job alone."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = WAIT_S if end is None else max(0.0, end - time.monotonic())
            try:
                return await awaited(self.wait, min(WAIT_S, left))
            except StillRunning:
                if end is not None and time.monotonic() >= end:
                    raise

    async def stop_async(self, *, now: bool = False) -> Status:
        """Stop it, while the loop goes on; see `stop`."""
        return await asyncio.to_thread(self.stop, now=now)

    async def scale_async(self, workers: int) -> int:
        """Ask for another number of workers, while the loop goes on; see `scale`."""
        return await awaited(self.scale, workers)

    async def logs_async(self, worker: int | None = None, **choice: Any) -> AsyncIterator[str]:
        """Yield lines of its logs, while the loop goes on; see `logs`."""
        lines = self.logs(worker, **choice)
        try:
            while (line := await asyncio.to_thread(next, lines, None)) is not None:
                yield line
        finally:
            close = getattr(lines, "close", None)
            if close is not None:
                close()

    # -- as it looks

    def __repr__(self) -> str:
        status = self.status()
        done = how_far(status.progress.ratio, status.progress.records)
        parts = [f"{status.job.state} {done}", f"v{status.progress.version}"]
        if status.loss is not None:
            parts.append(f"loss {status.loss:.4g}")
        if status.job.asked_workers:
            parts.append(f"{len(status.workers)}/{status.job.asked_workers} workers")
        if status.page:
            parts.append(status.page if self.where == "local" else f"edlz open {self.name}")
        return f"<Job {self.name}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        return html_of(self.status())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it if it runs still."""
        if apart(lambda: self._found.view().is_live):
            self.stop()


def get(name: str, namespace: str = "") -> Job:
    """Return the job of a name, or of a folder; with a namespace, the one there on a cluster."""
    return Job(apart(named_job, name, namespace))


def jobs(namespace: str = "") -> list[Job]:
    """Return the jobs of this machine and those submitted from it, or all of a cluster's namespace."""

    def look() -> list[FoundJob]:
        return [
            named_job(view.word, view.where.partition("/")[2])
            for view in look_at_all(namespace, is_brief=True)
        ]

    return [Job(found) for found in apart(look)]


def _result(word: str, status: JobStatus) -> JobResult:
    if status.state == "Failed":
        raise JobFailed(word, status.failure)
    if status.state != "Succeeded":
        raise JobStopped(f'job "{word}" has ended: {status.state}', f"edlz resume {word}")
    metrics: dict[str, float | None] = dict(status.evaluations[-1].metrics) if status.evaluations else {}
    output = status.exported.place if status.exported is not None else status.predictions or None
    return JobResult(metrics, status.version, output, status.digest or None)
