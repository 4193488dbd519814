"""One given value of a flag: where it came from, how an error cites it, and how text becomes a value."""

import math
import re
from dataclasses import dataclass

from edlz.services.configuration.flags import LATER_FLAGS, Flag
from edlz.services.configuration.job_config import Scalar
from edlz.services.configuration.nearest import did_you_mean, nearest
from edlz.services.configuration.problems import Problem
from edlz.services.valid_text import is_valid_text, valid_text

__all__ = ["BOOLEANS", "Setting", "refusal_of_later", "value_of"]

BOOLEANS = dict.fromkeys(("true", "yes", "t", "y", "on", "1"), True)
BOOLEANS |= dict.fromkeys(("false", "no", "f", "n", "off", "0"), False)

LEAST, MOST = -(2**63), 2**63 - 1  # of any number: what messages and files can carry as a whole one
MOST_DIGITS = 40
_WHOLE = re.compile(r"[+-]?\d+")
_EXAMPLES = {"whole number": "1", "number": "0.5"}


@dataclass(frozen=True, slots=True)
class Setting:
    """A value as given.

    Attributes
    ----------
    spelling : str
        The flag's name as it was spelled, without dashes in front.
    text : str or None
        The value as given; None for a flag that stood alone.
    place : str
        `job.yaml:4` or `EDLZ_SEED`; nothing for the command line.
    """

    spelling: str
    text: str | None
    place: str = ""

    @property
    def source(self) -> str:
        return f" ({self.place})" if self.place else ""

    def quoted(self) -> str:
        """Return how an error cites a value that cannot be right: `--seed="x" (job.yaml:4)`."""
        return f'--{self.spelling}="{self.text}"{self.source}'

    def shortened(self) -> str:
        """Return how an error cites a value of any length."""
        return f'--{self.spelling}="{(self.text or "")[:20]}…"{self.source}'

    def plain(self) -> str:
        """Return how an error cites a value that does not fit the others: `--seed=1 (job.yaml:4)`."""
        return f"--{self.spelling}{'' if self.text is None else f'={self.text}'}{self.source}"


def value_of(about: Flag, setting: Setting) -> Scalar | Problem:
    """Return the value that a setting stands for, or what is wrong with it."""
    text = setting.text
    if about.kind == "yes or no":
        return _boolean(about, setting)
    if text is None and about.bare:
        return about.bare
    if text is None:
        return Problem(f"--{setting.spelling} needs a value", f"e.g. {_example(about)}")
    if about.kind == "text":
        return _choice(about, setting, text) if about.choices else _text(setting, text)
    return _number(about, setting, text)


def refusal_of_later(setting: Setting) -> Problem:
    """Return the refusal of a flag that belongs to later work."""
    reason = LATER_FLAGS[setting.spelling]
    return Problem(
        f"--{setting.spelling}{setting.source}: {reason} is not in this version of edlz", "leave it out"
    )


def _boolean(about: Flag, setting: Setting) -> bool | Problem:
    if setting.text is None:
        return True
    value = BOOLEANS.get(setting.text.strip().lower())
    if value is None:
        return Problem(f"{setting.quoted()} is neither yes nor no", f"e.g. --{about.name}=yes")
    return value


def _text(setting: Setting, text: str) -> str | Problem:
    if is_valid_text(text) and "\0" not in text:
        return text
    shown = valid_text(setting.quoted()).replace("\0", "\\0")
    what = "holds a NUL" if "\0" in text else "is not UTF-8, and cannot be told to other processes"
    return Problem(f"{shown} {what}", "rename the file or folder" if "\0" not in text else "")


def _choice(about: Flag, setting: Setting, text: str) -> str | Problem:
    by_lower = {choice.lower(): choice for choice in about.choices}
    value = by_lower.get(text.lower())
    if value is None:
        near = [by_lower[name] for name in nearest(text.lower(), by_lower)]
        return Problem(
            f"{setting.quoted()} is none of {', '.join(about.choices)}",
            did_you_mean(near) or f"e.g. --{about.name}={about.default}",
        )
    if value in about.later:
        return Problem(
            f"{setting.plain()}: {about.later[value]} is not in this version of edlz",
            f"use --{about.name}={about.default}",
        )
    return value


def _number(about: Flag, setting: Setting, text: str) -> int | float | Problem:
    if about.kind == "whole number":
        if not _WHOLE.fullmatch(text.strip()):
            return Problem(f"{setting.quoted()} is not a whole number", f"e.g. {_example(about)}")
        if len(text.strip()) > MOST_DIGITS:
            return Problem(
                f"{setting.shortened()} is a number of more than {MOST_DIGITS} digits",
                f"e.g. {_example(about)}",
            )
        value: int | float = int(text)
    else:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            return Problem(f"{setting.quoted()} is not a number", f"e.g. {_example(about)}")
    if about.minimum is not None and value < about.minimum:
        return Problem(f"{setting.plain()} is below {about.minimum:g}", f"e.g. {_example(about)}")
    if value < LEAST:
        return Problem(f"{setting.plain()} is below {LEAST}", f"e.g. {_example(about)}")
    if about.maximum is None and value > MOST:
        return Problem(f"{setting.plain()} is above {MOST}", f"e.g. {_example(about)}")
    if about.maximum is not None and value > about.maximum:
        return Problem(f"{setting.plain()} is above {about.maximum:.0f}", f"e.g. {_example(about)}")
    return value


def _example(about: Flag) -> str:
    default = about.default if about.default not in (None, "", 0) else None
    return f"--{about.name}={about.example or default or _EXAMPLES.get(about.kind, about.metavar)}"
