"""The figures of columns: `statistics.json`, made of what all tasks know, added in the tasks' order.

Theory of operation.  Everything is counted, or added without rounding, so the figures are a function of the records: the same
bits for any number of workers, whoever was lost.  Quantiles are exact, between two values as pandas takes them; of a
column of numbers with more than `MOST_DISTINCT` different ones they are the middles of bins, at most a 4,000th of the value
beside it, and `distinct` is estimated from a sample, here and in columns of as many texts.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from edlz.services import strict_json
from edlz.services.errors import DataError
from edlz.services.statistics.columns import ColumnState, NumberState, TextState, make_state
from edlz.services.statistics.parts import opened_part
from edlz.services.statistics.tallies import middles_of

__all__ = ["QUANTILES", "ColumnFigures", "Statistics", "encode", "figures_of", "merged"]

QUANTILES = 100  # steps between the smallest value and the greatest


class ColumnFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the records have in a column.

    Attributes
    ----------
    count : values
    missing : int
        Records without one.
    infinite : int
        Values that are infinite: they take no part in the figures of numbers.
    variance : float or None
        Of a sample: divided by one less than there are values, as pandas does.
    quantiles : tuple of float or int
        101 of them, from the smallest value to the greatest.
    distinct : int
        How many different values.
    is_exact : bool
        Whether quantiles and `distinct` are; else they are within 0.03 % and some 0.3 %.
    vocabulary : tuple of str or int
        Values of a column of texts or whole numbers, the most frequent first, those alike in rising order.
    frequencies : tuple of int
        How often each occurs.
    """

    kind: Literal["int64", "float64", "string"]
    count: int
    missing: int
    distinct: int
    is_exact: bool
    infinite: int = 0
    min: float | int | None = None
    max: float | int | None = None
    mean: float | None = None
    variance: float | None = None
    quantiles: tuple[float | int, ...] = ()
    vocabulary: tuple[str | int, ...] = ()
    frequencies: tuple[int, ...] = ()


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """All figures.  `skipped_tasks`: those that were left out (`--skip_bad_tasks`), with their records."""

    records: int
    columns: dict[str, ColumnFigures]
    skipped_tasks: int = 0


def encode(statistics: Statistics) -> bytes:
    """Return `statistics.json`."""
    return msgspec.json.format(strict_json.encode(statistics), indent=1) + b"\n"


def merged(
    paths: Sequence[Path],
    vocabulary_size: int,
    skipped_tasks: int = 0,
    on_part: Callable[[], None] = lambda: None,
) -> Statistics:
    """Return the figures of all tasks.

    Parameters
    ----------
    paths : sequence of Path
        The tasks' files, in their order.
    vocabulary_size : int
        How many values of a column are named at most.

    Raises
    ------
    DataError
        If a file is damaged, or tasks differ in what a column is.
    OSError
        If one cannot be read.
    """
    names: dict[str, None] = {}
    records = 0
    for path in paths:
        with opened_part(path) as part:
            records += part.records
            names.update(dict.fromkeys(part.names))
    columns = {}
    for name in sorted(names):
        state = _merged_column(paths, name, on_part)
        columns[name] = figures_of(state, records, vocabulary_size)
    return Statistics(records=records, columns=columns, skipped_tasks=skipped_tasks)


def _merged_column(paths: Sequence[Path], name: str, on_part: Callable[[], None]) -> ColumnState:
    state: ColumnState | None = None
    for path in paths:
        with opened_part(path) as part:
            found = part.column(name)
        on_part()
        if found is None:
            continue
        state = state or make_state(found.kind)
        if found.kind != state.kind:
            raise DataError(
                f'column "{name}" is {state.kind} in some records, and {found.kind} in others',
                "leave it out: --columns=…",
            )
        state.merge(found)
    assert state is not None, "its name is from one of the files"
    return state


def figures_of(state: ColumnState, records: int, vocabulary_size: int) -> ColumnFigures:
    """Return the figures of a column of so many records."""
    if isinstance(state, TextState):
        return _figures_of_texts(state, records, vocabulary_size)
    state.tally.settle()
    tally, count = state.tally, state.count - state.infinite
    is_exact = not tally.level
    words: dict[int, int] = {}
    if is_exact and state.kind == "int64":
        counts = dict(zip(tally.values.tolist(), tally.counts.tolist(), strict=True))
        words = _most_frequent(counts, vocabulary_size)
    return ColumnFigures(
        kind=state.kind,
        count=state.count,
        missing=records - state.rows,
        infinite=state.infinite,
        distinct=len(tally.values) << tally.level,
        is_exact=is_exact,
        min=state.low,
        max=state.high,
        mean=state.sums.mean(count) if count else None,
        variance=state.sums.variance(count) if count > 1 else None,
        quantiles=_quantiles(state) if count else (),
        vocabulary=tuple(words),
        frequencies=tuple(words.values()),
    )


def _figures_of_texts(state: TextState, records: int, vocabulary_size: int) -> ColumnFigures:
    is_exact = not state.tally.level
    words = _most_frequent(state.tally.counts, vocabulary_size) if is_exact else {}
    return ColumnFigures(
        kind=state.kind,
        count=state.count,
        missing=records - state.rows,
        distinct=len(state.tally.counts) << state.tally.level,
        is_exact=is_exact,
        vocabulary=tuple(text.decode(errors="backslashreplace") for text in words),
        frequencies=tuple(words.values()),
    )


def _most_frequent(counts: Mapping[Any, int], most: int) -> dict[Any, int]:
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:most])


def _quantiles(state: NumberState) -> tuple[float | int, ...]:
    """Return the quantiles of a column that has values.

    References
    ----------
    Hyndman, Fan, "Sample quantiles in statistical packages", The American Statistician 50 (1996), definition 7.
    """
    tally = state.tally
    values, counts = (
        (middles_of(tally.bins), tally.bin_counts) if tally.level else (tally.values, tally.counts)
    )
    assert state.low is not None
    assert state.high is not None
    if tally.level:
        values = np.clip(values, state.low, state.high)
        values[0], values[-1] = state.low, state.high
    ends = np.cumsum(counts)
    last = int(ends[-1]) - 1
    found = []
    for step in range(QUANTILES + 1):
        whole, rest = divmod(last * step, QUANTILES)
        low = values[np.searchsorted(ends, whole, side="right")].item()
        high = values[np.searchsorted(ends, min(whole + 1, last), side="right")].item()
        share = Fraction(rest, QUANTILES)
        between = Fraction(low) + (Fraction(high) - Fraction(low)) * share
        found.append(low if low == high else float(between))
    return tuple(found)
