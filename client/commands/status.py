"""`edlz status`, and `edlz top`, which goes on showing it."""

import os
import sys
from typing import Annotated

import typer

from edlz.client.arguments.flag_values import output_format
from edlz.client.arguments.jobs import Job, JobArgument, NamespaceFlag, chosen_job
from edlz.client.commands.job_list import FORMATS
from edlz.client.commands.ls import OutputFlag
from edlz.client.screen.printed_status import print_status
from edlz.client.screen.screens import make_screen
from edlz.client.screen.terminal import display_for, glyphs_for, has_colour, left_the_view
from edlz.services.process.logs import configure_logging

__all__ = ["status", "top"]


def status(
    job: JobArgument = None,
    output: OutputFlag = "table",
    is_verbose: Annotated[bool, typer.Option("-v", "--verbose", help="as -o wide")] = False,
    is_watching: Annotated[bool, typer.Option("-w", "--watch", help="until the job ends")] = False,
    namespace: NamespaceFlag = "",
) -> None:
    """Show how a job fares."""
    output_format(output, FORMATS)
    chosen = chosen_job(job, namespace)
    if is_watching:
        _watch(chosen, output)
    print_status(chosen.view(), "wide" if is_verbose and output == "table" else output, is_line=is_watching)


def top(job: JobArgument = None, namespace: NamespaceFlag = "") -> None:
    """Show how a job fares, until it ends."""
    status(job, is_watching=True, namespace=namespace)


def _watch(job: Job, output: str) -> None:
    """Show a job's statuses until it does not run any more, or Ctrl-C."""
    display = "json" if output == "json" else display_for("auto", sys.stdout, os.environ)
    screen = make_screen(
        display,
        asked_workers=job.asked_workers(),
        glyphs=glyphs_for(sys.stdout),
        is_coloured=has_colour(sys.stdout, os.environ),
        footer=" Ctrl-C: leave the view",
        where=job.where,
    )
    configure_logging("INFO" if display == "plain" else "WARNING", stream=screen.log_stream())
    screen.open()
    try:
        job.watch(screen)
    except KeyboardInterrupt:
        screen.close((), is_error=False)
        raise left_the_view(job.word, f"edlz top {job.word}") from None
    screen.close((), is_error=False)
