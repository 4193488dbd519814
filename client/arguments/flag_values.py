"""Values of the flags of small commands: read, or refused with what would do."""

import re
from collections.abc import Sequence

from edlz.services.configuration.nearest import did_you_mean, nearest
from edlz.services.errors import ConfigError

__all__ = ["output_format", "seconds_of", "whole_number"]

_WHOLE = re.compile(r"[0-9]{1,18}")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)")
_DURATION = re.compile(r"[0-9]+(\.[0-9]+)?|([0-9]+(\.[0-9]+)?[smhd]\s*)+")
_MOST_S = 10 * 366 * 86400
_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def output_format(text: str, formats: Sequence[str]) -> str:
    """Return the value of `-o` if it is one of these.

    Raises
    ------
    ConfigError
        If it is not one.
    """
    if text not in formats:
        near = did_you_mean(nearest(text, formats))
        raise ConfigError(f'--output="{text}" is none of {", ".join(formats)}', near or "e.g. -o json")
    return text


def seconds_of(flag: str, text: str) -> float:
    """Return the seconds of a duration: `45s`, `10m`, `1h 20m`, `2d`; a bare number is seconds.

    Raises
    ------
    ConfigError
        If it is not one.
    """
    if not _DURATION.fullmatch(text.strip()):
        raise ConfigError(f'--{flag}="{text}" is not a duration', f"e.g. --{flag}=45s, 10m, 2h or 1d")
    seconds = sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))
    if seconds > _MOST_S:
        raise ConfigError(
            f'--{flag}="{text[:20]}" is longer than ten years', f"e.g. --{flag}=45s, 10m, 2h or 1d"
        )
    return seconds


def whole_number(flag: str, text: str) -> int:
    """Return a number that counts something, 0 or more.

    Raises
    ------
    ConfigError
        If it is not one.
    """
    if re.fullmatch(r"-[0-9]+", text.strip()):
        raise ConfigError(f"--{flag}={text} is below 0", f"e.g. --{flag}=4")
    if not _WHOLE.fullmatch(text.strip()):
        raise ConfigError(f'--{flag}="{text}" is not a whole number', f"e.g. --{flag}=4")
    return int(text)
