"""`edlz train`, `evaluate` and `predict`: read the flags, check what can be checked, and hand the job over."""

import inspect
import os
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from edlz.client.completion import complete_value
from edlz.services.config import flags
from edlz.services.configuration.arguments import Reading, read_config
from edlz.services.configuration.flags import GROUPS, Reader
from edlz.services.configuration.problems import InvalidConfigError, Problem, print_problems
from edlz.services.outputs import outlive_output

__all__ = ["FlagCommand", "evaluate", "predict", "run_job", "train", "with_flags_of"]

_HEEDED_HERE = ("dry_run", "follow")


class FlagCommand(TyperCommand):
    """A command that leaves its arguments to `read_config`.

    Typer reports one mistake at a time and knows nothing of the config file; it does know completion.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the arguments as they are, unless the shell only asks for completions."""
        if ctx.resilient_parsing:
            return list(super().parse_args(ctx, args))
        ctx.args = list(args)
        return []


def with_flags_of(reader: Reader, command: Callable[[typer.Context], None]) -> Callable[..., None]:
    """Give a command its flags as options, for completion and for documentation."""

    def run(ctx: typer.Context, **_options: str) -> None:
        command(ctx)

    parameters = [inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
    for about in flags():
        if reader in about.readers and not about.hidden:
            option = typer.Option(
                *(f"--{spelling}" for spelling in about.spellings),
                help=about.help_for(reader),
                metavar=about.metavar,
                rich_help_panel=GROUPS[about.group],
                autocompletion=complete_value(about),
            )
            parameters.append(
                inspect.Parameter(
                    about.name, inspect.Parameter.KEYWORD_ONLY, default="", annotation=Annotated[str, option]
                )
            )
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__ = command.__doc__
    return run


def train(ctx: typer.Context) -> None:
    """Train a Keras model on this machine; with an image, on Kubernetes."""
    raise typer.Exit(run_job("train", ctx.args))


def evaluate(ctx: typer.Context) -> None:
    """Evaluate a checkpoint on this machine; with an image, on Kubernetes."""
    raise typer.Exit(run_job("evaluate", ctx.args))


def predict(ctx: typer.Context) -> None:
    """Predict with a checkpoint: submits the job to Kubernetes; this version cannot run it yet."""
    raise typer.Exit(run_job("predict", ctx.args))


def run_job(command: Reader, argv: Sequence[str]) -> int:
    """Run `edlz train`, `evaluate` or `predict` with these arguments; return its exit code.

    Raises
    ------
    InvalidConfigError
        With all mistakes in the flags, the model and the data.
    """
    outlive_output()
    reading = read_config(argv, command, os.environ)
    if reading.config.is_for_cluster:
        from edlz.client.cluster.submission import submit

        return submit(reading)
    return _run_here(reading)


def _run_here(reading: Reading) -> int:
    from edlz.client.dry_run import print_plan
    from edlz.client.local.run import run_local
    from edlz.client.preflight import check_job
    from edlz.services.master.planning import no_prediction

    errors, warnings = list(reading.errors), list(reading.warnings)
    errors += _without_image(reading)
    records = None
    if not errors:
        preflight = check_job(reading.config)
        errors += preflight.errors
        warnings += preflight.warnings
        records = preflight.records
    print_problems(warnings, "warning")
    if errors:
        raise InvalidConfigError(errors)
    if reading.config.dry_run:
        print_plan(reading, records)
        return 0
    if reading.config.purpose == "prediction":
        raise no_prediction()
    return run_local(reading.config)


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
