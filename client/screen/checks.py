"""What a check found, as a row of a page: fine, a warning, a refusal, or no more than a fact.  Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from edlz.client.screen.columns import Cell, aligned
from edlz.client.screen.spans import Line, Role, Span

__all__ = ["Check", "Mark", "check_lines"]

Mark = Literal["ok", "warn", "no", "later", "info"]

_ROLES: dict[Mark, Role] = {"ok": "good", "warn": "wait", "no": "bad", "later": "dim", "info": "dim"}


@dataclass(frozen=True, slots=True)
class Check:
    """What came out of one check.

    Attributes
    ----------
    mark : Mark
        `ok`; `warn`: a job can begin; `no`: it cannot; `later`: the master will see; `info`: a fact, neither good nor bad.
    about : str
        What was checked, in a word or two.
    text : str
        What was found.
    help : str
        What to do about it.
    """

    mark: Mark
    about: str
    text: str
    help: str = ""


def check_lines(checks: Sequence[Check]) -> list[Line]:
    """Return a row for each check."""
    rows: list[list[Cell]] = [
        [Span(check.mark, _ROLES[check.mark]), check.about, check.text] for check in checks
    ]
    _, *table = aligned(["", "", ""], rows)
    return [[Span("  "), *line] for line in table]
