"""Arrow's types as columns, and its arrays as NumPy's; pyarrow is an extra, and is imported when it is needed."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edlz.core_ext import scanning
from edlz.core_ext.columns import number, numbers
from edlz.services.errors import ConfigError
from edlz.services.protocol.plan import Column, ColumnKind

__all__ = [
    "KINDS",
    "BadValueError",
    "MissingValueError",
    "arrow_type",
    "columns_of",
    "kind_of",
    "plain_numbers",
    "require_pyarrow",
    "to_numpy",
]

KINDS: tuple[ColumnKind, ...] = ("bool", "float32", "float64", "int32", "int64", "string")
_DTYPES: dict[str, np.dtype[Any]] = {kind: np.dtype(kind) for kind in KINDS if kind != "string"}

_GREATEST = np.iinfo(np.int64).max


def require_pyarrow(reader: str, instead: str = "") -> None:
    """See that pyarrow is installed.

    Raises
    ------
    ConfigError
        If it is not; it names the extra that brings it.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise ConfigError(
            f"the {reader} reader needs pyarrow, which is not installed",
            "pip install 'edlz[data]'" + (f", or {instead}" if instead else ""),
        )


def arrow_type(kind: ColumnKind) -> Any:
    """Return Arrow's type of a column's values."""
    import pyarrow

    types = {
        "bool": pyarrow.bool_(),
        "float32": pyarrow.float32(),
        "float64": pyarrow.float64(),
        "int32": pyarrow.int32(),
        "int64": pyarrow.int64(),
        "string": pyarrow.string(),
    }
    return types[kind]


def kind_of(found: Any) -> ColumnKind | None:
    """Return the kind that values of one of Arrow's types are read as; None if they have none."""
    from pyarrow import types

    if types.is_dictionary(found):
        return kind_of(found.value_type)
    if types.is_boolean(found):
        return "bool"
    if types.is_integer(found):
        small = types.is_int8(found) or types.is_int16(found) or types.is_int32(found)
        return "int32" if small or types.is_uint8(found) or types.is_uint16(found) else "int64"
    if types.is_float64(found):
        return "float64"
    if types.is_floating(found):
        return "float32"
    plain = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return "string" if any(is_text(found) for is_text in (*plain, *_other_texts())) else None


def _other_texts() -> Sequence[Callable[[Any], bool]]:
    """Tests of types of texts that are first made plain ones."""
    from pyarrow import types

    return types.is_string_view, types.is_binary_view, types.is_fixed_size_binary


def columns_of(
    columns: Sequence[Column], table: Any, defaults: Mapping[str, Any], *, masks: bool = False
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of a table by their names, as `to_numpy` has each one.

    Parameters
    ----------
    columns : sequence of Column
        All that it has, in its order.
    table : pyarrow.Table

    Raises
    ------
    BadValueError
        As `to_numpy`.
    """
    batches = table.to_batches()
    plain = numbers(batches[0]) if len(batches) == 1 else [None] * len(columns)
    found = {}
    for place, (column, array) in enumerate(zip(columns, plain, strict=True)):
        if array is None or array.dtype != _DTYPES.get(column.kind) or column.name in defaults:
            array = to_numpy(column, table.column(place), defaults, masks=masks)
        found[column.name] = array
    return found


def plain_numbers(column: Column, values: Any) -> npt.NDArray[Any] | None:
    """Return a column's numbers as `to_numpy` has them without defaults; None if they are none of its type, or whole ones with gaps.

    Parameters
    ----------
    values : pyarrow.Array or ChunkedArray
    """
    if column.kind not in _DTYPES or column.width:
        return None
    found = number(_one_array(values))
    return found if found is not None and found.dtype == _DTYPES[column.kind] else None


def to_numpy(
    column: Column, values: Any, defaults: Mapping[str, Any], *, masks: bool = False
) -> npt.NDArray[Any]:
    """Return a column's values, one row each; what has no value is NaN, an empty text, or the column's default.

    Parameters
    ----------
    values : pyarrow.Array or ChunkedArray
        Of the column's type, or a list of it.
    masks : bool
        Whole numbers and truth values that are not there are masked; there are no defaults.

    Raises
    ------
    MissingValueError
        If a whole number or a truth value has none, and no default.
    BadValueError
        If a value is none of the column's kind.
    """
    import pyarrow

    values = _one_array(values)
    if column.width:
        return _vectors(column, values, defaults, masks=masks)
    if masks and values.null_count and column.kind in ("bool", "int32", "int64"):
        is_missing = values.is_null().to_numpy(zero_copy_only=False)
        plain = to_numpy(column, values.fill_null(False if column.kind == "bool" else 0), {})
        return np.ma.MaskedArray(plain, is_missing)
    if column.kind == "string" and any(is_other(values.type) for is_other in _other_texts()):
        values = values.cast(pyarrow.binary())
    if values.null_count:
        values = _filled(column, values, defaults)
    if column.kind == "string":
        return _texts(values)
    array: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    if array.dtype == np.uint64 and len(array) and array.max() > _GREATEST:
        row = int(np.argmax(array > _GREATEST))
        raise BadValueError(column, row, f"has {array[row]}, which is no {column.kind}")
    return array.astype(_DTYPES[column.kind], copy=False)


def _texts(values: Any) -> npt.NDArray[np.object_]:
    """Return texts as bytes objects, of which those that repeat are few: to make them anew costs more than to parse them."""
    from pyarrow import types

    if not len(values):
        return np.empty(0, object)
    is_large = types.is_large_string(values.type) or types.is_large_binary(values.type)
    kind = np.dtype(np.int64 if is_large else np.int32)
    _, ends, data = values.buffers()
    places = np.frombuffer(ends, kind, len(values) + 1, values.offset * kind.itemsize)
    return scanning.texts(memoryview(data or b"").cast("B"), places.astype(np.int64, copy=False))


def _one_array(values: Any) -> Any:
    import pyarrow

    if not isinstance(values, pyarrow.ChunkedArray):
        return values
    if values.num_chunks == 1:
        return values.chunk(0)
    return pyarrow.concat_arrays(values.chunks) if values.num_chunks else pyarrow.array([], values.type)


class BadValueError(Exception):
    """A row has a value that its column cannot have."""

    def __init__(self, column: Column, row: int, text: str) -> None:
        super().__init__(column, row, text)
        self.column, self.row, self.text = column, row, text


class MissingValueError(BadValueError):
    """A row has no value where there must be one."""

    def __init__(self, column: Column, row: int) -> None:
        super().__init__(column, row, "has no value")


def _vectors(column: Column, values: Any, defaults: Mapping[str, Any], *, masks: bool) -> npt.NDArray[Any]:
    """Return a column of vectors; where there is none, as if each of its values were not there."""
    import pyarrow
    from pyarrow import compute

    flat = values.flatten()
    if values.null_count:
        first = values.offset * column.width
        flat = values.values.slice(first, len(values) * column.width)
        is_there = np.repeat(values.is_valid().to_numpy(zero_copy_only=False), column.width)
        flat = compute.if_else(pyarrow.array(is_there), flat, pyarrow.scalar(None, flat.type))
    try:
        found = to_numpy(Column(name=column.name, kind=column.kind), flat, defaults, masks=masks)
    except BadValueError as error:
        error.row //= column.width
        raise
    return found.reshape(len(values), column.width)


def _filled(column: Column, values: Any, defaults: Mapping[str, Any]) -> Any:
    if column.name in defaults:
        return values.fill_null(defaults[column.name])
    if column.kind in ("float32", "float64"):
        return values  # NaN
    if column.kind == "string":
        return values.fill_null("" if not _is_binary(values) else b"")
    raise MissingValueError(column, _first_null(values))


def _is_binary(values: Any) -> bool:
    from pyarrow import types

    return bool(types.is_binary(values.type) or types.is_large_binary(values.type))


def _first_null(values: Any) -> int:
    return int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
