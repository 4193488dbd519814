"""The flags of `edlz train`, `evaluate` and `predict` as options of Typer's, for completion and for documentation."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from edlz.client.arguments.completion import complete_value
from edlz.services.configuration.flags import GROUPS, Reader
from edlz.services.configuration.job_config import flags

__all__ = ["FlagCommand", "with_flags_of"]


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


def with_flags_of(reader: Reader, command: Callable[[typer.Context], int]) -> Callable[..., int]:
    """Give a command its flags as options, for completion and for documentation."""

    def run(ctx: typer.Context, **_options: str) -> int:
        return command(ctx)

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
