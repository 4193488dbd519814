"""The beginning of a job on this machine: what is checked before it, and what is then asked for: a plan, a check, a run."""

import dataclasses

from edlz.client.job_files.dry_run import print_plan
from edlz.client.job_files.job_index import LocalJob, is_job
from edlz.client.job_files.preflight import Preflight, check_job
from edlz.client.local.job_view import LocalJobView, look_at
from edlz.client.local.model_trial import check_here
from edlz.client.local.run import run_local
from edlz.client.screen.wording import percent
from edlz.services.configuration.arguments import Reading
from edlz.services.configuration.job_config import JobConfig
from edlz.services.configuration.problems import InvalidConfigError, Problem, print_problems

__all__ = ["begin", "check_for", "taken_name"]

_IS_CHECKED_HERE = Problem(
    "--check tries the model on this machine, also of a job for a cluster",
    "name a model and data that are here, or leave --check out: the job's first worker checks the model, too",
)


def check_for(config: JobConfig) -> Preflight:
    """Check a job's model and data, as far as this machine must have them."""
    return check_job(_seen_by_check(config))


def begin(reading: Reading, preflight: Preflight) -> int:
    """Do what is asked for with a job that was checked; return the exit code.

    Raises
    ------
    InvalidConfigError
        With all mistakes that the check has found.
    """
    print_problems([*reading.warnings, *preflight.warnings], "warning")
    if preflight.errors:
        if reading.config.is_for_cluster:
            preflight.errors.append(_IS_CHECKED_HERE)
        raise InvalidConfigError(preflight.errors)
    if reading.config.dry_run:
        print_plan(reading, preflight.records, preflight.tasks)
        return 0
    if reading.config.check:
        return check_here(reading.config)
    return run_local(reading.config)


def taken_name(config: JobConfig) -> list[Problem]:
    """Return what is wrong with a new job's name, if anything; one that runs is told of when its folder is taken.

    A job that has ended is moved aside, and so is one that was stopped before its first step.
    """
    path = config.job_directory.absolute()
    if config.fresh or not is_job(path):
        return []
    word = str(path) if config.job_dir else config.job_name
    [view] = look_at([LocalJob(config.job_name, path, word)])
    if view.is_live or not _has_come_far(view):
        return []
    state = f"{view.status.state}{f', {view.note}' if view.note else ''}"
    where = f" at {percent(view.status.ratio)}" if view.has_figures else ""
    problem = Problem(
        f'job "{config.job_name}" exists: {state}{where}',
        f"edlz resume {word}; or begin anew: --fresh (its files are moved aside)",
    )
    return [problem]


def _seen_by_check(config: JobConfig) -> JobConfig:
    """Return the settings of which this machine must have the files: a check of a cluster's job needs model and data."""
    if not config.is_for_cluster:
        return config
    return dataclasses.replace(config, output="", checkpoint_dir_for_init="")


def _has_come_far(view: LocalJobView) -> bool:
    """Whether there may be something to go on with: of a job that was killed nobody has said how far it was."""
    return view.status.state == "Stopped" and (view.status.version > 0 or not view.has_figures)
