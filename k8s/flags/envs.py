"""The environment of a job's pods: `--envs=A=1,B=2`, and the master's own variables that the others get too.

A comma may stand inside a value: a name begins after the last comma before its `=`.  So `A=1,2,B=3` is A `1,2`
and B `3`.
"""

import re
from collections.abc import Mapping

from edlz.k8s.flags.syntax import problem_of
from edlz.services.configuration.problems import InvalidConfigError, Problem

__all__ = ["OWN_NAMES", "parse_env_names", "parse_envs", "populated_envs"]

OWN_NAMES = (
    "CLUSTER_SPEC_TEXT",
    "MASTER_ADDR",
    "MY_NAMESPACE",
    "MY_POD_IP",
    "MY_POD_NAME",
    "MY_POD_UID",
    "WORKER_ID",
    "WORKER_NUM",
)
"""Variables that edlz sets itself."""

_NEVER_COPIED = (*OWN_NAMES, "HOSTNAME")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_EXAMPLE = "e.g. --envs=LEVEL=2,PATHS=/a,/b"


def parse_envs(text: str) -> dict[str, str]:
    """Return names and values, in the order in which they stand there.

    Raises
    ------
    InvalidConfigError
        With a problem for each part that is wrong.
    """
    found: dict[str, str] = {}
    problems: list[Problem] = []
    for name, value in _pairs(text):
        item = f"{name}={value}"
        if not _NAME.fullmatch(name):
            message = f'"{name}" is no name of a variable: letters, digits, _, - and .'
            problems.append(problem_of("envs", item, message, _EXAMPLE))
        elif name in OWN_NAMES:
            problems.append(problem_of("envs", item, f"{name} is set by edlz itself", "leave it out"))
        elif name in found:
            problems.append(problem_of("envs", item, f"{name} stands there twice", "drop one of the two"))
        else:
            found[name] = value
    if problems:
        raise InvalidConfigError(problems)
    return found


def parse_env_names(text: str) -> re.Pattern[str] | None:
    """Return the pattern that whole names of variables have to match; None for an empty text.

    Raises
    ------
    InvalidConfigError
        If it is no regular expression.
    """
    try:
        return re.compile(text) if text else None
    except re.error as e:
        where = "" if e.pos is None else f" at letter {e.pos + 1}"
        message = f"is no regular expression: {e.msg}{where}"
        help_ = "e.g. --populate_env_names=NCCL_.*"
        raise InvalidConfigError([problem_of("populate_env_names", text, message, help_)]) from e


def populated_envs(text: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose whole name matches, without those that belong to one pod only."""
    pattern = parse_env_names(text)
    if pattern is None:
        return {}
    return {
        name: environ[name]
        for name in sorted(environ)
        if name not in _NEVER_COPIED and pattern.fullmatch(name) and _NAME.fullmatch(name)
    }


def _pairs(text: str) -> list[tuple[str, str]]:
    """Split `A=1,2,B=3` into names and values."""
    if not text.strip():
        return []
    first, *rest = text.split("=")
    if not rest:
        raise InvalidConfigError([problem_of("envs", text, "is not name=value", _EXAMPLE)])
    names, values = [first], [""]
    for number, piece in enumerate(rest):
        before, comma, name = piece.rpartition(",")
        if comma and number < len(rest) - 1:  # the last piece has no name in it
            values[-1] += before
            names.append(name)
            values.append("")
        else:  # no name: the "=" after it belongs to the value
            values[-1] += piece + ("=" if number < len(rest) - 1 else "")
    return [(name.strip(), value) for name, value in zip(names, values, strict=True)]
