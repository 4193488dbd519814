"""The formats of predictions: each writes the file of one task, not durably.  The same table gives the same bytes."""

import csv
import importlib.util
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edlz.api.example import encode_example
from edlz.api.recordio import Writer
from edlz.services import strict_json
from edlz.services.errors import ConfigError, ModelError
from edlz.services.predictions.table import RECORD, Column, PredictionTable, Ragged, text_of

__all__ = ["FORMATS", "check_format", "write_table"]

_TEXT_KINDS = "OS"  # of arrays of byte strings
_encoder = msgspec.json.Encoder()


def check_format(name: str) -> None:
    """See that this installation can write a format.

    Raises
    ------
    ConfigError
        If a package is missing; it names the extra that brings it.
    """
    if name == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise ConfigError(
            "--prediction_format=parquet needs pyarrow, which is not installed",
            "pip install 'edlz[data]', or --prediction_format=jsonl",
        )


def write_table(path: Path, name: str, table: PredictionTable) -> None:
    """Write a task's predictions to a file, in a format.

    Raises
    ------
    ModelError
        If the format has no place for what the model gives.
    OSError
        If the disk is full or fails.
    """
    FORMATS[name](path, table)


def _write_jsonl(path: Path, table: PredictionTable) -> None:
    """A JSON object in each line; numbers that are not finite are texts, as in all of edlz."""
    names = [RECORD, *table.columns]
    columns = [table.records, *(_values(name, column) for name, column in table.columns.items())]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    path.write_bytes(_encoder.encode_lines(rows))


def _values(name: str, column: Column) -> list[Any]:
    """Return a column's values as JSON has them."""
    if isinstance(column, Ragged):
        if column.dtype.kind in _TEXT_KINDS:
            return text_of(name, column.rows)
        plain: list[Any] = strict_json.plain(column.rows)
        return plain
    if column.dtype.kind in _TEXT_KINDS:
        return text_of(name, column.tolist())
    values: list[Any] = column.tolist()
    is_finite = column.dtype.kind != "f" or bool(np.isfinite(column).all())
    return values if is_finite else strict_json.plain(values)


def _write_csv(path: Path, table: PredictionTable) -> None:
    """A line of names, then a line for each record; a vector takes a column for each of its numbers."""
    names, columns = [RECORD], [table.records]
    for name, column in table.columns.items():
        for own, values in _flat(name, column):
            names.append(own)
            columns.append(values)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(zip(*columns, strict=True))
    path.write_bytes(text.getvalue().encode())


def _flat(name: str, column: Column) -> Iterator[tuple[str, list[Any]]]:
    if isinstance(column, Ragged) or column.ndim > 2:
        shape = "rows of different lengths" if isinstance(column, Ragged) else f"shape {column.shape[1:]}"
        raise ModelError(
            f'output "{name}" has {shape} for a record: --prediction_format=csv takes numbers and vectors',
            "--prediction_format=jsonl",
        )
    parts = [column] if column.ndim == 1 else list(column.T)
    for place, part in enumerate(parts):
        values = text_of(name, part.tolist()) if part.dtype.kind in _TEXT_KINDS else part.tolist()
        yield name if len(parts) == 1 else f"{name}_{place}", values


def _write_recordio(path: Path, table: PredictionTable) -> None:
    """A tf.train.Example for each record; what has more dimensions than one is flattened."""
    columns = [(name, _checked_flat(name, column)) for name, column in table.columns.items()]
    with Writer(path) as writer:
        for place, record in enumerate(table.records):
            features = {name: column[place] for name, column in columns}
            try:
                writer.write(encode_example({RECORD: record.encode(), **features}))
            except OverflowError as error:
                raise ModelError(f"record {record}: {error}", "--prediction_format=jsonl") from error


def _checked_flat(name: str, column: Column) -> Any:
    if isinstance(column, Ragged):
        if column.depth > 1:
            raise ModelError(
                f'output "{name}" is ragged in {column.depth} dimensions: --prediction_format=recordio takes one',
                "--prediction_format=jsonl",
            )
        is_text = column.dtype.kind in _TEXT_KINDS
        return [row if is_text and row else np.array(row, column.dtype) for row in column.rows]
    return column


def _write_parquet(path: Path, table: PredictionTable) -> None:
    """A column for each output; vectors are lists of a fixed size."""
    import pyarrow
    from pyarrow import parquet

    columns = {RECORD: pyarrow.array(table.records, pyarrow.string())}
    columns |= {name: _arrow_array(pyarrow, name, column) for name, column in table.columns.items()}
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), buffer)
    path.write_bytes(buffer.getvalue())


def _arrow_array(pyarrow: Any, name: str, column: Column) -> Any:
    if isinstance(column, Ragged):
        is_text = column.dtype.kind in _TEXT_KINDS
        kind = pyarrow.string() if is_text else pyarrow.from_numpy_dtype(column.dtype)
        for _ in range(column.depth):
            kind = pyarrow.list_(kind)
        rows = text_of(name, column.rows) if is_text else column.rows
        return pyarrow.array(rows, kind)
    if column.dtype.kind in _TEXT_KINDS:
        flat = pyarrow.array(text_of(name, column.reshape(-1).tolist()), pyarrow.string())
    else:
        flat = pyarrow.array(column.reshape(-1))
    for size in reversed(column.shape[1:]):
        flat = pyarrow.FixedSizeListArray.from_arrays(flat, size)
    return flat


FORMATS: dict[str, Callable[[Path, PredictionTable], None]] = {
    "jsonl": _write_jsonl,
    "csv": _write_csv,
    "recordio": _write_recordio,
    "parquet": _write_parquet,
}
