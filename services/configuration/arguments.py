"""From a command line, the environment and a config file to a `JobConfig`, with every mistake found.

Order: flag, then EDLZ_<FLAG>, then config file, then default.  Several mistakes are reported together.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from edlz.services.configuration.checks import check_flags
from edlz.services.configuration.config_file import settings_from_file
from edlz.services.configuration.flags import (
    DATA_FLAGS,
    FIRST_WORDS,
    LATER_FLAGS,
    PURPOSES,
    READERS,
    Flag,
    Reader,
)
from edlz.services.configuration.help_page import help_page, help_topic
from edlz.services.configuration.job_config import JobConfig, Scalar, flags, flags_by_spelling
from edlz.services.configuration.nearest import did_you_mean, edit_distance, nearest
from edlz.services.configuration.origins import as_text, places_of
from edlz.services.configuration.ports import port_problem
from edlz.services.configuration.problems import InvalidConfigError, Problem, print_error, print_problems
from edlz.services.configuration.settings import BOOLEANS, Setting, refusal_of_later, value_of

__all__ = ["Reading", "parse_arguments", "read_config"]

_PREFIX = "EDLZ_"
_OTHER_VARIABLES = ("EDLZ_HOME", "EDLZ_DEBUG")
_OTHER_FLAGS = {"source": "edlz zoo data"}
_SLIPS = 2  # letters that a misspelt variable has wrong: with more it is probably somebody else's


@dataclass(frozen=True, slots=True)
class Reading:
    """What was made of a command line.

    Attributes
    ----------
    config : JobConfig, with defaults in place of what is wrong
    settings : mapping of str to Setting
        What was given, by flag name.
    errors, warnings : all that were found
    """

    config: JobConfig
    settings: Mapping[str, Setting]
    errors: tuple[Problem, ...]
    warnings: tuple[Problem, ...]

    def checked(self) -> JobConfig:
        """Return the configuration, or raise InvalidConfigError with all the mistakes."""
        if self.errors:
            raise InvalidConfigError(self.errors)
        return self.config


def parse_arguments(argv: Sequence[str], service: Reader) -> JobConfig:
    """Return the configuration of a service that was started with these arguments.

    As with argparse: prints help and leaves with 0 if asked for it; prints all mistakes and leaves with 2
    if there are any.  Warnings are printed too.

    Parameters
    ----------
    argv : sequence of str
        The arguments, without the program.
    service : master, worker or ps

    Raises
    ------
    SystemExit
        If it is not to begin.
    """
    try:
        topic = help_topic(argv)
        if topic is not None:
            print(help_page(service, topic), end="")
            raise SystemExit(0)
        reading = read_config(argv, service, os.environ)
        config = reading.checked()
        if service in ("master", "ps", "worker") and not (config.endpoint or config.host):
            busy = port_problem(config.port)
            if busy is not None:
                raise InvalidConfigError([busy])
    except InvalidConfigError as e:
        print_error(e)
        raise SystemExit(e.exit_code) from e
    print_problems(reading.warnings, "warning", sys.stderr)
    return config


def read_config(
    argv: Sequence[str], reader: Reader, environ: Mapping[str, str], *, begins_job: bool = True
) -> Reading:
    """Read a configuration from its three sources.

    Parameters
    ----------
    argv : sequence of str
        The arguments, without program and command.
    reader : Reader
        Whose flags they are.
    environ : the environment
    begins_job : bool, optional
        Whether a command is to begin a job with it; one that there is keeps what was allowed to it.
    """
    given, problems = _settings_from_arguments(argv, reader)
    from_environment, environment_problems, warnings = _settings_from_environment(environ, reader)
    problems += environment_problems
    config_path = given.get("config") or from_environment.get("config")
    from_file: dict[str, Setting] | None = {}
    if config_path is not None and config_path.text:
        from_file, file_problems = settings_from_file(config_path.text)
        problems += file_problems

    settings = {**(from_file or {}), **from_environment, **given}
    readable = {about.name: about for about in flags() if reader in about.readers}
    # What is not set may stand in a file that cannot be read, so nothing is said of it.
    bad: set[str] = set() if from_file is not None else readable.keys() - settings.keys()
    values, value_problems = _values(readable, settings, reader, bad)
    problems += value_problems
    config = JobConfig(**values, given=frozenset(values) & frozenset(settings))  # type: ignore[arg-type]
    if reader in PURPOSES or reader == "master":
        config = replace(config, origins=_origins(config, settings))

    begins_job = begins_job and reader in PURPOSES  # a master may have begun it long ago
    found = check_flags(config, settings, reader, begins_job=begins_job)
    findings = [finding for finding in found if bad.isdisjoint(finding.flags)]
    errors = problems + [f.problem for f in findings if f.level == "error"]
    warnings += [f.problem for f in findings if f.level == "warning"]
    return Reading(config, settings, tuple(errors), tuple(warnings))


def _origins(config: JobConfig, settings: Mapping[str, Setting]) -> str:
    """Return where what is given comes from, of the settings that a master hears of.

    The arguments of a master that a client starts hold all values, and what was given is told with them; of a job that
    goes on its journal tells the rest.
    """
    heard = {about.name for about in flags() if "master" in about.readers}
    places = {name: setting.place for name, setting in settings.items() if name in config.given & heard}
    if config.origins or config.resume:
        places = {**places_of(config), **{name: place for name, place in places.items() if place}}
    return as_text(places)


def _values(
    readable: Mapping[str, Flag], settings: Mapping[str, Setting], reader: Reader, bad: set[str]
) -> tuple[dict[str, Scalar], list[Problem]]:
    """Return the values of what is set, and what is wrong with them; the names of wrong ones go into `bad`."""
    values: dict[str, Scalar] = {}
    problems: list[Problem] = []
    for name, about in readable.items():
        value = value_of(about, settings[name]) if name in settings else about.default_for(reader)
        if isinstance(value, Problem):
            problems.append(value)
            bad.add(name)
        elif name in settings or reader in about.defaults:
            values[name] = value
        if reader in about.required_by and name not in settings and name not in bad:
            problems.append(Problem(f"--{name} is missing", f"e.g. --{name}={about.minimum or 0:g}"))
    return {name: value for name, value in values.items() if value != "" or name not in settings}, problems


def _settings_from_arguments(argv: Sequence[str], reader: Reader) -> tuple[dict[str, Setting], list[Problem]]:
    found: dict[str, Setting] = {}
    problems: list[Problem] = []
    waiting = list(argv)
    while waiting:
        token = waiting.pop(0)
        name, equals, text = token.partition("=")
        setting = Setting(name.removeprefix("--").replace("-", "_"), text if equals else None)
        if not token.startswith("-") and reader in FIRST_WORDS and FIRST_WORDS[reader] not in found:
            found[FIRST_WORDS[reader]] = Setting(FIRST_WORDS[reader], token)
            continue
        if not token.startswith("-") or token in ("-", "--"):
            problems.append(Problem(f'"{token}" belongs to no flag', "flags are written --name=value"))
            continue
        about = flags_by_spelling().get(setting.spelling) if token.startswith("--") else None
        takes_next = not equals and waiting and _is_value(about, waiting[0])
        if takes_next:
            setting = Setting(setting.spelling, waiting.pop(0))
        problem = _misplaced(name, setting, about, reader)
        if problem is not None:
            problems.append(problem)
        elif about is not None:
            found[about.name] = setting
    return found, problems


def _is_value(about: Flag | None, token: str) -> bool:
    """Whether a token belongs to the flag before it: `--seed 1`, but not `--use_async --seed`."""
    if about is not None and about.kind == "yes or no":
        return token.lower() in BOOLEANS
    if about is not None and about.bare:
        return token in about.choices
    return not token.startswith("--")


def _misplaced(given: str, setting: Setting, about: Flag | None, reader: Reader) -> Problem | None:
    """Return what is wrong with a flag's name, if something is."""
    if about is not None and reader in about.readers:
        return None
    if setting.spelling in LATER_FLAGS and given.startswith("--"):
        return refusal_of_later(setting)
    owner = _OTHER_FLAGS.get(setting.spelling)
    if about is not None:
        owner = next(READERS[other] for other in READERS if other in about.readers)
    if owner is not None:
        return Problem(f"--{setting.spelling} belongs to {owner}", _about_leaving_out(reader, about))
    near = nearest(setting.spelling, (s for f in flags() if reader in f.readers for s in f.spellings))
    everything = f"all flags: {READERS[reader]} --help-all"
    return Problem(f"no flag {given}", did_you_mean([f"--{name}" for name in near]) or everything)


def _about_leaving_out(reader: Reader, about: Flag | None) -> str:
    if reader in ("worker", "ps"):
        return "leave it out: what concerns the whole job comes from the master"
    if reader in PURPOSES and about is not None and about.name in DATA_FLAGS.values():
        purpose = PURPOSES[reader]
        return f"for {purpose}: --{DATA_FLAGS[purpose]}"
    return "leave it out"


def _settings_from_environment(
    environ: Mapping[str, str], reader: Reader
) -> tuple[dict[str, Setting], list[Problem], list[Problem]]:
    found: dict[str, Setting] = {}
    problems: list[Problem] = []
    warnings: list[Problem] = []
    known = {_PREFIX + spelling.upper(): about for spelling, about in flags_by_spelling().items()}
    for variable in sorted(environ):
        text = environ[variable]
        if not variable.startswith(_PREFIX) or variable in _OTHER_VARIABLES or not text:
            continue
        setting = Setting(variable.removeprefix(_PREFIX).lower(), text, variable)
        about = known.get(variable)
        if about is not None and reader in about.readers:
            found[about.name] = setting
        elif about is None and setting.spelling in LATER_FLAGS:
            problems.append(refusal_of_later(setting))
        elif about is None:
            near = nearest(variable, _slips(variable, known))
            if near:
                warnings.append(Problem(f"{variable} sets nothing", did_you_mean(near)))
    return found, problems, warnings


def _slips(variable: str, known: Iterable[str]) -> list[str]:
    """Return the names that a variable may be a slip of: letters that are wrong, or words that are left out."""
    rest = variable.removeprefix(_PREFIX)
    return [name for name in known if edit_distance(variable, name) <= _SLIPS or rest in name]
