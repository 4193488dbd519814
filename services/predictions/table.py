"""The predictions of one task, column by column, as the formats take them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edlz.services.errors import ModelError

__all__ = ["RECORD", "Column", "PredictionTable", "Ragged", "text_of"]

RECORD = "record"  # the column that says which record a row is of

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Ragged:
    """Rows of different lengths.

    Attributes
    ----------
    rows : list of object
        Nested lists, `depth` levels of them in each row.
    dtype : of the values
    """

    rows: list[Any]
    dtype: np.dtype[Any]
    depth: int


Column = Array | Ragged


@dataclass(frozen=True, slots=True)
class PredictionTable:
    """A row for each record of a task, in their order.

    Attributes
    ----------
    records : list of str
        `part-0:17` is record 17 of file part-0.
    columns : dict of str to Column
        By name, in the order of the model's outputs.
    """

    records: list[str]
    columns: dict[str, Column]


def text_of(name: str, values: Sequence[Any]) -> list[Any]:
    """Return nested lists of byte strings as lists of text.

    Raises
    ------
    ModelError
        If some of it is no UTF-8.
    """
    try:
        return _decoded(values)
    except UnicodeDecodeError as error:
        raise ModelError(
            f'output "{name}" has bytes that are no UTF-8 text: {error.reason}',
            "--prediction_format=recordio",
        ) from error


def _decoded(values: Sequence[Any]) -> list[Any]:
    return [_decoded(value) if isinstance(value, list) else value.decode() for value in values]
