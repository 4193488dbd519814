"""The beginning of a job on this machine: what is checked before it, and what is then asked for: a plan, a check, a run."""

import dataclasses

from edlz.client.job_files.dry_run import print_plan
from edlz.client.job_files.preflight import Preflight, check_job
from edlz.client.local.model_trial import check_here
from edlz.client.local.run import run_local
from edlz.services.configuration.arguments import Reading
from edlz.services.configuration.job_config import JobConfig
from edlz.services.configuration.problems import InvalidConfigError, Problem, print_problems

__all__ = ["begin", "check_for"]

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


def _seen_by_check(config: JobConfig) -> JobConfig:
    """Return the settings of which this machine must have the files: a check of a cluster's job needs model and data."""
    if not config.is_for_cluster:
        return config
    return dataclasses.replace(config, output="", checkpoint_dir_for_init="")
