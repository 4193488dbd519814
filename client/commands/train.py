"""`edlz train`, `evaluate` and `predict`: read the flags, check what can be checked, and hand the job over."""

import dataclasses
import os
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from edlz.client.screen.first_sign import first_sign
from edlz.services.configuration.arguments import Reading, read_config
from edlz.services.configuration.flags import Reader
from edlz.services.configuration.job_config import JobConfig, flags
from edlz.services.configuration.problems import InvalidConfigError, Problem, print_problems
from edlz.services.process.outputs import outlive_output

if TYPE_CHECKING:
    import typer

__all__ = ["evaluate", "predict", "run_job", "train"]

_HEEDED_HERE = ("dry_run", "follow")
_IS_CHECKED_HERE = Problem(
    "--check tries the model on this machine, also of a job for a cluster",
    "name a model and data that are here, or leave --check out: the job's first worker checks the model, too",
)


def train(ctx: "typer.Context") -> int:
    """Train a Keras model on this machine; with an image, on Kubernetes."""
    return run_job("train", ctx.args)


def evaluate(ctx: "typer.Context") -> int:
    """Evaluate a checkpoint on this machine; with an image, on Kubernetes."""
    return run_job("evaluate", ctx.args)


def predict(ctx: "typer.Context") -> int:
    """Predict with a checkpoint on this machine; with an image, on Kubernetes."""
    return run_job("predict", ctx.args)


def run_job(command: Reader, argv: Sequence[str]) -> int:
    """Run `edlz train`, `evaluate` or `predict` with these arguments; return its exit code.

    Raises
    ------
    InvalidConfigError
        With all mistakes in the flags, the model and the data.
    """
    outlive_output()
    reading = read_config(argv, command, os.environ)
    if reading.config.is_for_cluster and not reading.config.check:
        from edlz.client.cluster.submission import submit

        return submit(reading)
    return _run_here(reading)


def _run_here(reading: Reading) -> int:
    errors, warnings = list(reading.errors), list(reading.warnings)
    errors += [] if reading.config.is_for_cluster else _without_image(reading)
    if not errors and not reading.config.check:
        from edlz.client.local.taken_name import taken_name

        errors += taken_name(reading.config)
    if errors:
        print_problems(warnings, "warning")
        raise InvalidConfigError(errors)
    # From here on it takes seconds on a busy machine: to import, and to read.
    with nullcontext() if reading.config.dry_run else first_sign(reading.config, "checking model and data"):
        from edlz.client.jobs.dry_run import print_plan
        from edlz.client.jobs.preflight import check_job
        from edlz.client.local.run import run_local

        preflight = check_job(_seen_by_check(reading.config))
    print_problems([*warnings, *preflight.warnings], "warning")
    if preflight.errors:
        if reading.config.is_for_cluster:
            preflight.errors.append(_IS_CHECKED_HERE)
        raise InvalidConfigError(preflight.errors)
    if reading.config.dry_run:
        print_plan(reading, preflight.records)
        return 0
    if reading.config.check:
        from edlz.client.commands.check import check_here

        return check_here(reading.config)
    return run_local(reading.config)


def _seen_by_check(config: JobConfig) -> JobConfig:
    """Return the settings of which this machine must have the files: a check of a cluster's job needs model and data."""
    if not config.is_for_cluster:
        return config
    return dataclasses.replace(config, output="", checkpoint_dir_for_init="")


def _without_image(reading: Reading) -> list[Problem]:
    """Refuse flags that only a cluster heeds; one in the environment may be meant for other jobs."""
    problems = []
    for about in flags():
        setting = reading.settings.get(about.name)
        is_default = getattr(reading.config, about.name) == about.default
        if setting is None or is_default or setting.place.startswith("EDLZ_"):
            continue
        if about.group in ("kubernetes", "images") and about.name not in _HEEDED_HERE:
            message = f"{setting.plain()} without an image: the job would run on this machine"
            problems.append(Problem(message, "add --image_name=IMAGE, or leave it out"))
    return problems
