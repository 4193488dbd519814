"""`edlz train`, `evaluate`, `predict` and `analyze`: read the flags, check what can be checked, and hand the job over."""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from edlz.client.local.taken_name import taken_name
from edlz.client.screen.first_sign import first_sign
from edlz.k8s.cluster.package import require_kubernetes
from edlz.services.configuration.arguments import Reading, read_config
from edlz.services.configuration.flags import Reader
from edlz.services.configuration.job_config import flags
from edlz.services.configuration.problems import InvalidConfigError, Problem, print_problems
from edlz.services.process.outputs import outlive_output

if TYPE_CHECKING:
    import typer

__all__ = ["analyze", "evaluate", "predict", "run_job", "train"]

_HEEDED_HERE = ("dry_run", "follow")


def train(ctx: "typer.Context") -> int:
    """Train a Keras model on this machine; with an image, on Kubernetes."""
    return run_job("train", ctx.args)


def evaluate(ctx: "typer.Context") -> int:
    """Evaluate a checkpoint on this machine; with an image, on Kubernetes."""
    return run_job("evaluate", ctx.args)


def predict(ctx: "typer.Context") -> int:
    """Predict with a checkpoint on this machine; with an image, on Kubernetes."""
    return run_job("predict", ctx.args)


def analyze(ctx: "typer.Context") -> int:
    """Compute statistics of data on this machine; with an image, on Kubernetes."""
    return run_job("analyze", ctx.args)


def run_job(command: Reader, argv: Sequence[str]) -> int:
    """Run `edlz train`, `evaluate`, `predict` or `analyze` with these arguments; return its exit code.

    Raises
    ------
    InvalidConfigError
        With all mistakes in the flags, the model and the data.
    """
    outlive_output()
    reading = read_config(argv, command, os.environ)
    if reading.config.is_for_cluster and not reading.config.check:
        require_kubernetes()
        # Not above: the package for pods takes most of a second to import, of which jobs on this machine have no need.
        from edlz.client.cluster.submission import submit

        return submit(reading)
    return _run_here(reading)


def _run_here(reading: Reading) -> int:
    errors = [*reading.errors, *([] if reading.config.is_for_cluster else _without_image(reading))]
    if not errors and not reading.config.check:
        errors += taken_name(reading.config)
    if errors:
        print_problems(reading.warnings, "warning")
        raise InvalidConfigError(errors)
    # Not above: from here on it takes seconds on a busy machine, to import and to read, and there is a first sign.
    what = "the data" if reading.config.purpose == "analysis" else "model and data"
    with nullcontext() if reading.config.dry_run else first_sign(reading.config, f"checking {what}"):
        from edlz.client.local.beginning import begin, check_for

        preflight = check_for(reading.config)
    return begin(reading, preflight)


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
