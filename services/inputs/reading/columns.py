"""What `--data_reader_params` says of columns: which of them are there, and values for rows that have none."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from edlz.services.configuration.nearest import did_you_mean, nearest
from edlz.services.errors import DataError
from edlz.services.inputs.reading.params import FLAG, Params
from edlz.services.protocol.plan import Column

__all__ = ["MOST_SHOWN", "default_for", "defaults_of", "no_such_column", "refuse_missing"]

MOST_SHOWN = 10  # names in one line
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def defaults_of(params: Params, columns: Sequence[Column]) -> dict[str, Any]:
    """Return the defaults of these columns.

    Raises
    ------
    ConfigError
        If one is no value of its column.
    """
    given = params.mapping("defaults")
    found = {}
    for column in columns:
        if column.name not in given:
            continue
        try:
            found[column.name] = _typed(given[column.name], column)
        except (ValueError, TypeError, OverflowError):
            shown = f"has {given[column.name]!r} for {column.name}, which is no {column.kind}"
            raise params.wrong(
                "defaults", shown, f"e.g. defaults={column.name}:{_EXAMPLES[column.kind]}"
            ) from None
    return found


def refuse_missing(where: str, names: Sequence[str], wanted: Iterable[str]) -> None:
    """Raise DataError if a column is wanted that is not there; it names near ones, or those that are."""
    for column in wanted:
        if column not in names:
            raise DataError(*no_such_column(where, column, names))


def no_such_column(where: str, column: str, names: Sequence[str]) -> tuple[str, str]:
    """Return message and help of a column that is not among those that there are."""
    shown = ", ".join(names[:MOST_SHOWN]) + (", …" if len(names) > MOST_SHOWN else "")
    help_text = did_you_mean(nearest(column, names)) or f"it has {shown}"
    return f'{where}: there is no column "{column}"', help_text


def default_for(column: Column) -> str:
    """Return which parameter gives rows without a value one."""
    return f'{FLAG}="defaults={column.name}:{_EXAMPLES[column.kind]}" reads none as {_EXAMPLES[column.kind]}'


_EXAMPLES = {"bool": "no", "int32": "-1", "int64": "-1", "float32": "0", "float64": "0", "string": "none"}


def _typed(value: Any, column: Column) -> Any:
    """Return a value as Arrow takes it; raise if it is another one then."""
    if column.kind == "string":
        return str(value)
    if column.kind == "bool":
        if str(value).lower() not in _TRUTH:
            raise ValueError(value)
        return _TRUTH[str(value).lower()]
    if column.kind in ("float32", "float64"):
        return float(value)
    if isinstance(value, bool) or (not isinstance(value, int) and int(value) != float(value)):
        raise ValueError(value)
    return np.array(int(value), column.kind).item()
