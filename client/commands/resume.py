"""`edlz resume`: a stopped or interrupted job goes on where it was, with other numbers of processes if wanted."""

from collections.abc import Sequence
from typing import Annotated

import typer

from edlz.client.arguments.completion import complete_job
from edlz.client.arguments.jobs import NamespaceFlag, named_job
from edlz.services.errors import ConfigError
from edlz.services.process.outputs import outlive_output

__all__ = ["resume", "run_resume"]


def resume(
    ctx: typer.Context,
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="name of the job, or its folder", autocompletion=complete_job)
    ],
    namespace: NamespaceFlag = "",
) -> None:
    """Go on with a job that was stopped or interrupted."""
    raise typer.Exit(run_resume(job, ctx.args, namespace))


def run_resume(job: str, argv: Sequence[str], namespace: str = "") -> int:
    """Run `edlz resume JOB` with these further arguments; return its exit code.

    Raises
    ------
    NoSuchJob
        If there is none.
    ConfigError
        If it has nothing to go on with.
    InvalidConfigError
        If a flag would change what the job trains.
    """
    outlive_output()
    if job.startswith("--"):
        raise ConfigError(
            f"the name of the job comes before {job}", f"edlz resume JOB {' '.join([job, *argv])}"
        )
    return named_job(job, namespace).resume(argv)
