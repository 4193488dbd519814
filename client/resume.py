"""`edlz resume`: a stopped or interrupted job goes on where it was, with other numbers of processes if wanted."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from edlz.client.completion import complete_job
from edlz.client.help import CHANGEABLE
from edlz.client.job_index import SETTINGS, find_job
from edlz.services.config import flags_by_spelling
from edlz.services.configuration.arguments import read_config
from edlz.services.configuration.problems import InvalidConfigError, Problem, print_problems
from edlz.services.errors import ConfigError

__all__ = ["resume", "run_resume"]


def resume(
    ctx: typer.Context,
    job: Annotated[str, typer.Argument(help="name of the job, or its folder", autocompletion=complete_job)],
) -> None:
    """Go on with a job that was stopped or interrupted."""
    raise typer.Exit(run_resume(job, ctx.args))


def run_resume(job: str, argv: Sequence[str]) -> int:
    """Run `edlz resume JOB` with these further arguments; return its exit code.

    Raises
    ------
    NoSuchJob
        If there is none here.
    ConfigError
        If it has nothing to go on with.
    InvalidConfigError
        If a flag would change what the job trains.
    """
    from edlz.client.local import run_local
    from edlz.client.preflight import check_job

    folder = _folder_of(job)
    problems = [problem for token in argv if (problem := _refusal(token)) is not None]
    own = [f"--config={folder / SETTINGS}", *argv, f"--job_dir={folder}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EDLZ_")}
    reading = read_config(own, "train", environment)
    problems += reading.errors
    if not problems:
        problems += check_job(reading.config).errors
    if problems:
        raise InvalidConfigError(problems)
    print_problems(reading.warnings, "warning")
    return run_local(reading.config, is_resumed=True)


def _folder_of(job: str) -> Path:
    folder = find_job(job).path
    if not (folder / SETTINGS).is_file():
        by_hand = "a job that was started by hand goes on when its master is started again"
        raise ConfigError(f"{folder} holds no {SETTINGS} to go on with", by_hand)
    return folder


def _refusal(token: str) -> Problem | None:
    """What is wrong with a flag here: the plan of a job is fixed when it begins."""
    name = token.partition("=")[0]
    about = flags_by_spelling().get(name.removeprefix("--").replace("-", "_"))
    if about is None or about.name in CHANGEABLE:
        return None  # an unknown one is reported as everywhere
    return Problem(
        f"{name} cannot be changed by resume: it is part of what the job trains",
        f"what can be: {', '.join('--' + name for name in CHANGEABLE)}",
    )
