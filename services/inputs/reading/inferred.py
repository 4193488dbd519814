"""Types of the columns of CSV text, by the first rows; from then on they stay what they are."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from edlz.services.errors import DataError
from edlz.services.inputs.reading.arrow import kind_of
from edlz.services.inputs.reading.bad_rows import explain
from edlz.services.inputs.reading.lines import Lines, line_at
from edlz.services.inputs.reading.rows import Dialect, parse_rows
from edlz.services.protocol.plan import Column, ColumnKind

__all__ = ["infer_kinds"]

_AS_MODELS_COMPUTE: Mapping[ColumnKind, ColumnKind] = {"float64": "float32", "int32": "int64"}
_WHOLE = re.compile(r"\s*[+-]?\d+\s*")
_INT64_END = 2.0**63


def infer_kinds(
    name: str,
    lines: Lines,
    dialect: Dialect,
    names: Sequence[str],
    chosen: Sequence[str],
    known: Mapping[str, ColumnKind],
) -> dict[str, ColumnKind]:
    """Return the types of the chosen columns, of which some are known, by the first rows.

    Parameters
    ----------
    names : sequence of str
        Of all columns that a row has.

    Raises
    ------
    DataError
        If these rows cannot be read.
    """
    from pyarrow import types

    columns = tuple(Column(name=one, kind=kind) for one, kind in known.items())
    try:
        table = parse_rows(lines.sample, dialect, names, columns, infers=True)
        if any(types.is_binary(table.column(one).type) for one in chosen):
            raise ValueError("a text is not UTF-8")
    except Exception as error:  # pyarrow's have many classes
        offset, text, advice = explain(lines.sample, dialect, names, columns, error)
        line = line_at(lines.header + lines.sample, len(lines.header) + offset) + bool(lines.header)
        raise DataError(f"{name}, line {line}: {text}", advice) from error
    found: dict[str, ColumnKind] = {}
    for one in chosen:
        kind = kind_of(table.column(one).type) or "string"
        # Whole numbers as they are; others as models compute: types= says otherwise.
        found[one] = known.get(one) or _AS_MODELS_COMPUTE.get(kind, kind)
    large = [one for one in chosen if one not in known and _is_beyond_int64(table.column(one))]
    if large:
        texts = [Column(name=one, kind="string") for one in large]
        table = parse_rows(lines.sample, dialect, names, texts)
        found.update((one, "string") for one in large if _is_whole(table.column(one), dialect.nulls))
    return found


def _is_beyond_int64(values: Any) -> bool:
    """Whether numbers may be whole ones that only look like float64, as they are so large."""
    from pyarrow import types

    if not types.is_float64(values.type):
        return False
    numbers = values.to_numpy()
    numbers = numbers[~np.isnan(numbers)]
    return bool(len(numbers) and np.abs(numbers).max() >= _INT64_END and (numbers == np.floor(numbers)).all())


def _is_whole(texts: Any, nulls: Collection[str]) -> bool:
    return all(_WHOLE.fullmatch(text) for text in texts.to_pylist() if text not in nulls)
