"""Whose workers go first: `--worker_pod_priority`.

    high-priority   the class of all workers
    high=0.5        the first half of them (rounded down) are `high`, the others `low`
    0.5             the same, rounded up

A cluster knows its classes' values.  One machine knows none, so there the name alone counts (`local_rank`).
"""

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from edlz.services.errors import ConfigError

__all__ = ["HIGH", "LOW", "WorkerPriority", "local_rank", "parse_worker_priority"]

HIGH, LOW = "high", "low"

_HIGH_RANK = 1_000_000
_RANKS = {HIGH: _HIGH_RANK, LOW: -_HIGH_RANK}
_NUMBER = re.compile(r"\d+(\.\d*)?|\.\d+")
_CLASS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LAST_NUMBER = re.compile(r"(?:^|[-.])(\d+)$")
_EXAMPLE = "e.g. --worker_pod_priority=high=0.5"


@dataclass(frozen=True, slots=True)
class WorkerPriority:
    """The priorities of a job's workers.

    Attributes
    ----------
    text : str
        As it was given.
    first, rest : str
        The classes of the first workers and of the others; nothing for none.
    share : Fraction
        Which part of the workers are the first ones.
    is_rounded_up : bool
        Whether a fraction of a worker counts as one.
    """

    text: str
    first: str
    rest: str = ""
    share: Fraction = Fraction(1)
    is_rounded_up: bool = False

    def classes(self, workers: int) -> tuple[str, ...]:
        """Return the class of each of so many workers, the first ones first."""
        exact = workers * self.share
        count = math.ceil(exact) if self.is_rounded_up else math.floor(exact)
        return (self.first,) * count + (self.rest,) * (workers - count)


def parse_worker_priority(text: str) -> WorkerPriority:
    """Return what a text of the forms above means; nothing stands for no class.

    Raises
    ------
    ConfigError
        If a part of it is neither a class name nor a share.
    """
    name, equals, share = text.partition("=")
    if equals:
        if name != HIGH:
            raise _error(text, f'"{name}" cannot have a share, only {HIGH} can', _EXAMPLE)
        return WorkerPriority(text, HIGH, LOW, _share(text, share))
    if _looks_like_a_share(text):
        return WorkerPriority(text, HIGH, LOW, _share(text, text), is_rounded_up=True)
    if text and not _CLASS_NAME.fullmatch(text):
        near = re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or HIGH
        raise _error(text, f'"{text}" is no class name: a-z, 0-9, - and .', f"--worker_pod_priority={near}")
    return WorkerPriority(text, text)


def local_rank(name: str) -> int:
    """Return what a class name counts for on one machine: the greater number goes first.

    `high`, or a name with that word (`high-priority`): 1,000,000.  `low` likewise: -1,000,000.  A name that
    ends in a number (`batch-20`): that number.  Any other name, and none: 0.
    """
    for word in re.split(r"[-.]", name):
        if word in _RANKS:
            return _RANKS[word]
    number = _LAST_NUMBER.search(name)
    return int(number[1]) if number else 0


def _looks_like_a_share(text: str) -> bool:
    return bool(text) and (text[0] in "+-." or _NUMBER.fullmatch(text) is not None)


def _share(text: str, share: str) -> Fraction:
    if not _NUMBER.fullmatch(share) or Fraction(share) > 1:
        raise _error(text, f'"{share}" is not a share from 0 to 1', _EXAMPLE)
    return Fraction(share)


def _error(text: str, message: str, help: str) -> ConfigError:  # noqa: A002
    return ConfigError(f'--worker_pod_priority="{text}": {message}', help)
