"""Owns the result of one measurement and the table that shows results."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Row", "Skipped", "format_rows"]

_HEADERS = ("measure", "ours", "limit or peer", "ratio", "target", "met")
_FIRST_NUMBER = 3


@dataclass(frozen=True)
class Row:
    """One measurement beside what it is compared with.

    Parameters
    ----------
    measure : str
        What was measured, with the size of the problem.
    ours, limit_or_peer : str
        Both results with their units; the second with the name of the limit or peer.
    ratio : float
        One result divided by the other; which way around is for the measure to say.
    target : float
        What `ratio` has to reach.
    higher_is_better : bool
        Whether `ratio` must be at least `target`, or at most.
    """

    measure: str
    ours: str
    limit_or_peer: str
    ratio: float
    target: float
    higher_is_better: bool

    @property
    def is_met(self) -> bool:
        """Whether the ratio reaches the target; never for a NaN."""
        return self.ratio >= self.target if self.higher_is_better else self.ratio <= self.target


@dataclass(frozen=True)
class Skipped:
    """A measurement that this machine does not allow; it misses no target.

    Parameters
    ----------
    measure : str
        What would have been measured.
    reason : str
        What is missing.
    """

    measure: str
    reason: str

    @property
    def is_met(self) -> bool:
        return True


def format_rows(rows: Sequence[Row | Skipped]) -> str:
    """Return the rows as a table of plain text.

    Parameters
    ----------
    rows : sequence of Row or Skipped

    Returns
    -------
    str
        One line for the headers, one of dashes and one a row, without a newline at the end; texts are
        aligned to the left, numbers to the right.
    """
    table = [_HEADERS, *(_cells(row) for row in rows)]
    widths = [max(len(cells[column]) for cells in table) for column in range(len(_HEADERS))]
    lines = [_line(cells, widths) for cells in table]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _cells(row: Row | Skipped) -> tuple[str, ...]:
    if isinstance(row, Skipped):
        return (row.measure, "skipped", row.reason, "", "", "-")
    bound = "≥" if row.higher_is_better else "≤"
    met = "yes" if row.is_met else "NO"
    return (row.measure, row.ours, row.limit_or_peer, f"{row.ratio:.2f}", f"{bound} {row.target:g}", met)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.ljust(width) if column < _FIRST_NUMBER else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()
