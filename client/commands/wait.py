"""`edlz wait`: until a job ends, with its exit code."""

from typing import Annotated

import typer

from edlz.client.arguments.flag_values import seconds_of
from edlz.client.arguments.jobs import JobArgument, NamespaceFlag, chosen_job
from edlz.client.screen.job_view import exit_code_of
from edlz.client.screen.printed_status import print_status
from edlz.services.errors import EdlzError
from edlz.services.process.outputs import outlive_output

__all__ = ["StillRunning", "wait"]


class StillRunning(EdlzError):
    """The job has not ended in the time that it was given."""

    code = "still-running"
    exit_code = 6


def wait(
    job: JobArgument = None,
    timeout: Annotated[str, typer.Option(metavar="TIME", help="give up after it: 45s, 10m, 2h")] = "",
    namespace: NamespaceFlag = "",
) -> None:
    """Wait until a job ends; leave with its exit code."""
    outlive_output()
    limit_s = seconds_of("timeout", timeout) if timeout else None
    chosen = chosen_job(job, namespace)
    if not chosen.wait(limit_s):
        raise StillRunning(
            f'job "{chosen.word}" still runs (--timeout={timeout})', f"edlz status {chosen.word}"
        )
    view = chosen.view()
    print_status(view)
    raise typer.Exit(exit_code_of(view.status))
