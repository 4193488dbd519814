"""`edlz rm`: jobs and their files are forgotten."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from edlz.client.arguments.all_jobs import look_at_all
from edlz.client.arguments.completion import complete_ended_state, complete_job
from edlz.client.arguments.jobs import Job, NamespaceFlag, is_agreed, named_job
from edlz.client.screen.job_view import ENDED_STATES, JobView
from edlz.client.screen.terminal import print_sentence
from edlz.services.configuration.problems import InvalidConfigError, Problem
from edlz.services.errors import ConfigError, EdlzError

__all__ = ["rm"]


def rm(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(metavar="JOB…", help="names of jobs, or their folders", autocompletion=complete_job),
    ] = None,
    state: Annotated[
        str,
        typer.Option(
            "--all",
            metavar="STATE",
            help="all that are " + " | ".join(ENDED_STATES),
            autocompletion=complete_ended_state,
        ),
    ] = "",
    is_forced: Annotated[bool, typer.Option("--force", help="kill what runs first")] = False,
    namespace: NamespaceFlag = "",
) -> None:
    """Remove jobs that do not run: their folders, with snapshots, logs and the checkpoints in them; or their pods."""
    found = _of_state(state, jobs or [], namespace) if state else _named(jobs or [], namespace)
    problems = []
    for job in found:
        try:
            for line in (*(job.end_now() if is_forced else ()), *job.remove()):
                print_sentence(line)
        except EdlzError as error:
            if len(found) == 1:
                raise
            problems.append(Problem(error.message, error.help or ""))
    if problems:
        raise InvalidConfigError(problems)
    print("next: edlz ls")


def _named(names: Sequence[str], namespace: str) -> list[Job]:
    """Return these jobs; none if one of them is not there."""
    if not names:
        raise ConfigError("which job?", "edlz rm JOB…, or edlz rm --all " + "|".join(ENDED_STATES))
    return [named_job(name, namespace) for name in dict.fromkeys(names)]


def _of_state(state: str, names: Sequence[str], namespace: str) -> list[Job]:
    """Return all jobs that have ended so, if whoever is asked agrees."""
    if names:
        raise ConfigError(f"--all {state} and {names[0]}: both say which jobs", "leave one of them out")
    if state.lower() not in ENDED_STATES:
        raise ConfigError(
            f'--all "{state}" is no state in which a job has ended', f"one of {', '.join(ENDED_STATES)}"
        )
    views = look_at_all(namespace, is_all=True)
    ended = [view for view in views if not view.is_live and view.status.state.lower() == state.lower()]
    jobs = [_job_of(view) for view in ended]
    if not jobs:
        print(f"no job {f'in {namespace}' if namespace else 'here'} is {state.lower()}")
    elif not is_agreed("remove", jobs):
        print("nothing was removed", file=sys.stderr)
        raise typer.Exit(1)
    return jobs


def _job_of(view: JobView) -> Job:
    if view.where == "local":
        return named_job(view.word)
    return named_job(view.name, view.where.removeprefix("k8s/"))
