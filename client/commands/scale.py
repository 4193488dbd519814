"""`edlz scale`: another number of workers for a job that runs."""

from typing import Annotated

import typer

from edlz.client.arguments.flag_values import whole_number
from edlz.client.arguments.jobs import JobArgument, NamespaceFlag, chosen_job
from edlz.client.screen.jobs import scaled_lines
from edlz.client.screen.terminal import print_text
from edlz.services.errors import ConfigError

__all__ = ["scale"]


def scale(
    job: JobArgument = None,
    workers: Annotated[str, typer.Option(metavar="N", help="workers that should run from now on")] = "",
    namespace: NamespaceFlag = "",
) -> None:
    """Ask for another number of workers."""
    if not workers:
        raise ConfigError("--workers is missing", "e.g. --workers=4")
    number = whole_number("workers", workers)
    chosen = chosen_job(job, namespace)
    print_text(scaled_lines(chosen.word, chosen.scale(number)))
