"""`edlz train`: the command.  Reads its flags, checks what can be checked, and hands the job over."""

import inspect
import os
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from edlz.client.completion import complete_value
from edlz.services.config import flags
from edlz.services.configuration.arguments import read_config
from edlz.services.configuration.flags import GROUPS
from edlz.services.configuration.problems import InvalidConfigError, Problem, print_problems

__all__ = ["FlagCommand", "train", "with_flags_of"]


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


def with_flags_of(command: Callable[[typer.Context], None]) -> Callable[..., None]:
    """Give a command the flags of `edlz train` as its options, for completion and for documentation."""

    def run(ctx: typer.Context, **_options: str) -> None:
        command(ctx)

    parameters = [inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
    for about in flags():
        if "train" in about.readers and not about.hidden:
            option = typer.Option(
                *(f"--{spelling}" for spelling in about.spellings),
                help=about.help,
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
    """Train a Keras model on this machine."""
    raise typer.Exit(run_train(ctx.args))


def run_train(argv: Sequence[str]) -> int:
    """Run `edlz train` with these arguments; return its exit code.

    Raises
    ------
    InvalidConfigError
        With all mistakes in the flags, the model and the data.
    """
    from edlz.client.local import run_local
    from edlz.client.preflight import check_job

    reading = read_config(argv, "train", os.environ)
    errors, warnings = list(reading.errors), list(reading.warnings)
    errors += _not_on_a_cluster_yet(reading.config.given)
    if not errors:
        preflight = check_job(reading.config)
        errors += preflight.errors
        warnings += preflight.warnings
    print_problems(warnings, "warning")
    if errors:
        raise InvalidConfigError(errors)
    return run_local(reading.config)


def _not_on_a_cluster_yet(given: Collection[str]) -> list[Problem]:
    names = [f.name for f in flags() if f.group in ("kubernetes", "images") and f.name in given]
    return [Problem(f"--{name}: clusters are not in this version of edlz", "leave it out") for name in names]
