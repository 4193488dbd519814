"""`edlz stop`: what Ctrl-C does, from another terminal."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from edlz.client.arguments.jobs import Job, JobArgument, NamespaceFlag, all_that_run, chosen_job, is_agreed
from edlz.client.screen.printed_status import print_status
from edlz.client.screen.terminal import left_the_view, print_sentence, print_text
from edlz.client.screen.verdict_text import Ending, stopped_block
from edlz.services.errors import ConfigError
from edlz.services.process.outputs import outlive_output

__all__ = ["stop"]

PATIENCE_S = 60.0  # more than a supervisor takes, unless it is stopped or hangs


def stop(
    job: JobArgument = None,
    is_now: Annotated[bool, typer.Option("--now", help="kill at once; the last snapshot remains")] = False,
    is_all: Annotated[bool, typer.Option("--all", help="every job that runs; asks first")] = False,
    namespace: NamespaceFlag = "",
) -> None:
    """Save a job and stop it; return when it has ended."""
    if is_all:
        if job is not None:
            raise ConfigError(f'--all stops every job: "{job}" is one too many', f"edlz stop {job}")
        chosen = _agreed_jobs(namespace)
    else:
        chosen = [chosen_job(job, namespace)]
        chosen[0].refuse_idle(is_now=is_now)
    outlive_output()
    names = ", ".join(one.word for one in chosen)
    print(f"{'killing' if is_now else 'stopping'} {names} …", file=sys.stderr)
    try:
        for one in chosen:
            if not is_now:
                _tell(one.begin_stop())
        for one in chosen:
            if is_now:
                _tell(one.end_now())
            else:
                _await(one)
            _print_end(one)
    except KeyboardInterrupt:
        raise left_the_view(names, f"edlz wait {chosen[0].word}") from None


def _agreed_jobs(namespace: str) -> list[Job]:
    """Return the jobs that run, if whoever is asked agrees."""
    running = all_that_run(namespace)
    if not running:
        print(f"no job runs {f'in {namespace}' if namespace else 'here'}\nnext: edlz ls")
        raise typer.Exit(0)
    if not is_agreed("stop", running):
        print("nothing was stopped", file=sys.stderr)
        raise typer.Exit(1)
    return running


def _tell(said: Sequence[str]) -> None:
    """Say what was done to a job beyond what was asked."""
    for line in said:
        print_sentence(line, sys.stderr)


def _await(job: Job) -> None:
    if not job.wait(PATIENCE_S):
        print_sentence(f"{job.word} does not end yet; to kill it: edlz stop {job.word} --now", sys.stderr)
        job.wait()


def _print_end(job: Job) -> None:
    view = job.view()
    if view.status.state == "Stopped" and view.can_resume and not view.note:
        print_text(stopped_block(view.status, view.word, Ending(0.0, view.logs, report=view.report)))
    else:
        print_status(view)
