"""The settings of a job that goes on: those that it kept, with the few that may be changed."""

import os
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edlz.client.help.pages import CHANGEABLE
from edlz.client.job_files.settings_text import settings_in
from edlz.services.configuration.arguments import read_config
from edlz.services.configuration.flags import COMMANDS, DATA_FLAGS, Reader
from edlz.services.configuration.job_config import NO_LIMIT, JobConfig, flags_by_spelling
from edlz.services.configuration.nearest import did_you_mean, nearest
from edlz.services.configuration.origins import as_text
from edlz.services.configuration.problems import InvalidConfigError, Problem, print_problems
from edlz.services.protocol.job_status import JobStatus

if TYPE_CHECKING:
    from edlz.client.job_files.preflight import Preflight

__all__ = ["nothing_left", "resumed_settings"]

_CHANGEABLE = f"what can be: {', '.join('--' + name for name in CHANGEABLE)}"


def nothing_left(name: str, status: JobStatus, argv: Sequence[str]) -> str:
    """Return what there is to say of a job that is to be resumed, but has succeeded; nothing for any other one.

    Raises
    ------
    InvalidConfigError
        If a flag is unknown, or would have it train something else: that is not done.
    """
    if status.state != "Succeeded":
        return ""
    names = [_flag_of(token) for token in argv if token.startswith("--")]
    problems = [problem for name in names if (problem := _unknown(name) or _refusal(name)) is not None]
    if problems:
        raise InvalidConfigError(problems)
    digest = f", digest {status.digest[:8]}" if status.digest else ""
    return f'job "{name}" has succeeded already (v{status.version}{digest}): nothing is left to do'


def resumed_settings(
    kept: Path, argv: Sequence[str], own: Sequence[str], check: "Callable[[JobConfig], Preflight]"
) -> JobConfig:
    """Return the settings.

    Parameters
    ----------
    kept : Path
        The file of those that it began with.
    argv : sequence of str
        Further flags, as given.
    own : sequence of str
        Flags that say where its files are.
    check : callable
        Finds what is wrong with model and data.

    Raises
    ------
    InvalidConfigError
        If a flag would change what the job trains, or something is wrong.
    """
    problems = [problem for token in argv if (problem := _refusal(_flag_of(token))) is not None]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EDLZ_")}
    command = _command_of(kept)
    arguments = [f"--config={kept}", *argv, *own]
    reading = read_config(arguments, command, environment, begins_job=False)
    if reading.config.is_allreduce:
        arguments += _without_servers({_flag_of(token) for token in argv})
        reading = read_config(arguments, command, environment, begins_job=False)
    problems += reading.errors
    if not problems:
        problems += check(reading.config).errors
    if problems:
        raise InvalidConfigError(problems)
    print_problems(reading.warnings, "warning")
    asked = {_flag_of(token).removeprefix("--") for token in argv if token.startswith("--")}
    now = dict.fromkeys((flags_by_spelling()[spelling].name for spelling in asked), "")
    # Of the others the master knows better: the kept file holds all settings, also those that nobody gave.
    return replace(reading.config, origins=as_text(now))


def _command_of(kept: Path) -> Reader:
    """Return the command that a job was begun with."""
    try:
        settings = settings_in(kept.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):  # told where all of it is read
        settings = {}
    given = [command for purpose, command in COMMANDS.items() if settings.get(DATA_FLAGS[purpose])]
    return given[0] if given else "train"


def _without_servers(given: Container[str]) -> list[str]:
    """Return what takes the place of settings that were kept for parameter servers, in a job that has none from now on."""
    instead = {"num_ps_pods": 0, "embedding_threshold_bytes": NO_LIMIT}
    return [f"--{name}={value}" for name, value in instead.items() if f"--{name}" not in given]


def _flag_of(token: str) -> str:
    name = token.partition("=")[0]
    return name.replace("-", "_").replace("__", "--", 1) if name.startswith("--") else name


def _unknown(name: str) -> Problem | None:
    spelling = name.removeprefix("--")
    if spelling in flags_by_spelling():
        return None
    near = [f"--{other}" for other in nearest(spelling, CHANGEABLE)]
    return Problem(f"no flag {name}", did_you_mean(near) or _CHANGEABLE)


def _refusal(name: str) -> Problem | None:
    """What is wrong with a flag here: the plan of a job is fixed when it begins."""
    about = flags_by_spelling().get(name.removeprefix("--"))
    if about is None or about.name in CHANGEABLE:
        return None  # an unknown one is reported as everywhere
    return Problem(
        f"{name} cannot be changed by resume: it is part of what the job trains",
        _CHANGEABLE,
    )
