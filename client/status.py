"""`edlz status`, and `edlz top`, which goes on showing it."""

import os
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from edlz.client.completion import complete_job
from edlz.client.flag_values import output_format
from edlz.client.job_index import LocalJob
from edlz.client.ls import FORMATS, OutputFlag
from edlz.client.terminal import glyphs_for, has_colour, look_for, print_lines, width_for

if TYPE_CHECKING:
    from edlz.client.job_sight import JobSight
    from edlz.client.screens import Screen

__all__ = ["JobArgument", "left_the_view", "print_status", "status", "top"]

INTERRUPTED = 130
POLL_S = 0.25

JobArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[JOB]",
        help="name of a job, or its folder; the one that runs, if left out",
        autocompletion=complete_job,
    ),
]


def status(
    job: JobArgument = None,
    output: OutputFlag = "table",
    is_watching: Annotated[bool, typer.Option("-w", "--watch", help="until the job ends")] = False,
) -> None:
    """Show how a job fares."""
    from edlz.client.job_lock import chosen_job
    from edlz.client.job_sight import look_at

    output_format(output, FORMATS)
    chosen = chosen_job(job)
    if is_watching:
        _watch(chosen, output)
    print_status(look_at([chosen])[0], output, is_line=is_watching)


def top(job: JobArgument = None) -> None:
    """Show how a job fares, until it ends."""
    status(job, is_watching=True)


def print_status(sight: "JobSight", output: str = "table", *, is_line: bool = False) -> None:
    """Print the screen of `edlz status`, or the object that scripts read; `is_line`: JSON as one line."""
    from edlz.client.render_jobs import job_object
    from edlz.client.render_json import object_text
    from edlz.client.render_status import status_screen

    if output in ("json", "yaml"):
        print(object_text(job_object(sight), output, is_line=is_line))
        return
    is_wide = output == "wide"
    folder = sight.job.checkpoint_directory()
    screen = status_screen(
        sight,
        time.time(),
        width=None if is_wide else width_for(sys.stdout),
        is_wide=is_wide,
        has_checkpoints=any(folder.glob("version-*")),
        glyphs=glyphs_for(sys.stdout),
    )
    print_lines(screen)


def left_the_view(word: str, back: str) -> typer.Exit:
    """Say that the job goes on; return what leaves the command."""
    text = f"\nLeft the view; {word} goes on. Back: {back}   Stop: edlz stop {word}"
    print(text, file=sys.stderr)
    return typer.Exit(INTERRUPTED)


def _watch(job: LocalJob, output: str) -> None:
    """Show a job's statuses until it does not run any more, or Ctrl-C."""
    import asyncio

    from edlz.client.screens import make_screen
    from edlz.services.logs import configure_logging

    look = "json" if output == "json" else look_for("auto", sys.stdout, os.environ)
    screen = make_screen(
        look,
        asked_workers=int(job.settings().get("num_workers") or 0),
        glyphs=glyphs_for(sys.stdout),
        is_coloured=has_colour(sys.stdout, os.environ),
        footer=" Ctrl-C: leave the view",
    )
    configure_logging("INFO" if look == "plain" else "WARNING", stream=screen.log_stream())
    screen.open()
    try:
        asyncio.run(_follow(job, screen))
    except KeyboardInterrupt:
        screen.close((), is_error=False)
        raise left_the_view(job.word, f"edlz top {job.word}") from None
    screen.close((), is_error=False)


async def _follow(job: LocalJob, screen: "Screen") -> None:
    """Pass what the job's master says on to a screen, as long as somebody runs it."""
    import asyncio

    import msgspec

    from edlz.client.job_lock import lock_holder
    from edlz.client.master_line import ANSWER_S, address_of, ask
    from edlz.services.job_status import JobStatus, StatusRequest

    seen: int | None = None
    is_silent = False
    while (holder := lock_holder(job.path)) is not None:
        answer = await ask(address_of(holder), StatusRequest(since=seen or 0), ANSWER_S)
        if isinstance(answer, JobStatus):
            newest = max((event.seq for event in answer.events), default=seen or 0)
            screen.update(answer if seen is not None else msgspec.structs.replace(answer, events=()))
            seen, is_silent = newest, False
        elif not is_silent:
            screen.say("no answer from the master: it starts, or restarts")
            is_silent = True
        await asyncio.sleep(POLL_S)
