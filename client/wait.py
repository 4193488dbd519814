"""`edlz wait`: until a job ends, with its exit code."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from edlz.client.flag_values import seconds_of
from edlz.client.status import JobArgument, print_status
from edlz.services.errors import EdlzError

if TYPE_CHECKING:
    from pathlib import Path

    from edlz.services.job_status import JobStatus

__all__ = ["StillRunning", "exit_code_of", "wait", "wait_for_end"]

POLL_S = 0.1
STOPPED = 7


class StillRunning(EdlzError):
    """The job has not ended in the time that it was given."""

    code = "still-running"
    exit_code = 6


def wait(
    job: JobArgument = None,
    timeout: Annotated[str, typer.Option(metavar="TIME", help="give up after it: 45s, 10m, 2h")] = "",
) -> None:
    """Wait until a job ends; leave with its exit code."""
    from edlz.client.job_lock import chosen_job
    from edlz.client.job_sight import look_at

    limit_s = seconds_of("timeout", timeout) if timeout else None
    chosen = chosen_job(job)
    if not wait_for_end(chosen.path, limit_s):
        raise StillRunning(
            f'job "{chosen.word}" still runs (--timeout={timeout})', f"edlz status {chosen.word}"
        )
    (sight,) = look_at([chosen])
    print_status(sight)
    raise typer.Exit(exit_code_of(sight.status))


def wait_for_end(path: "Path", limit_s: float | None = None) -> bool:
    """Return whether the job of a folder has ended, when it has, or `limit_s` seconds are over."""
    from edlz.client.job_lock import lock_holder, master_by_hand

    end = None if limit_s is None else time.monotonic() + limit_s
    while lock_holder(path) is not None or master_by_hand(path) is not None:
        if end is not None and time.monotonic() >= end:
            return False
        time.sleep(POLL_S)
    return True


def exit_code_of(status: "JobStatus") -> int:
    """Return the exit code that a job's end stands for."""
    if status.state == "Succeeded":
        return 0
    if status.state == "Failed":
        return (status.failure.exit_code if status.failure else 0) or 1
    return STOPPED
