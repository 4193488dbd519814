"""What the functions of `columns` do, in plain Python: the specification that tests hold them to.

Arrow's data comes through the Arrow C data interface, so that nothing here knows the library that has made it.
"""

import ctypes
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["ArrowData", "number", "numbers"]

_DTYPES: dict[bytes, np.dtype[Any]] = {
    b"i": np.dtype(np.int32),
    b"l": np.dtype(np.int64),
    b"f": np.dtype(np.float32),
    b"g": np.dtype(np.float64),
}


class ArrowData(Protocol):
    """An array of Arrow's, or a record batch."""

    def __arrow_c_array__(self) -> tuple[Any, Any]:
        """Return its schema and its data, as capsules."""


def numbers(batch: ArrowData) -> list[npt.NDArray[Any] | None]:
    """Return the columns of a record batch as NumPy has them, without a copy where all numbers are there.

    Parameters
    ----------
    batch : record batch
        Of columns of any types.

    Returns
    -------
    list of (ndarray or None)
        Read-only, of int32, int64, float32 or float64.  Where a float is missing, a copy has NaN.  None: a column of
        another type, or of whole numbers of which some are missing.

    Raises
    ------
    TypeError
        If it is no record batch.
    """
    owner, schema, array = _opened(batch)
    if schema.format != b"+s":
        raise TypeError("it is no record batch")
    return [
        _column(schema.children[place].contents, array.children[place].contents, array, owner)
        for place in range(array.n_children)
    ]


def number(values: ArrowData) -> npt.NDArray[Any] | None:
    """Return one column, as `numbers` does."""
    owner, schema, array = _opened(values)
    return _column(schema, array, _Array(length=array.length), owner)


class _Schema(ctypes.Structure):
    pass


_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(_Schema))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]


class _Array(ctypes.Structure):
    pass


_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]


def _opened(data: ArrowData) -> tuple[Any, _Schema, _Array]:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    schema, array = data.__arrow_c_array__()
    return (
        (schema, array),
        _Schema.from_address(pointer(schema, b"arrow_schema")),
        _Array.from_address(pointer(array, b"arrow_array")),
    )


def _column(schema: _Schema, array: _Array, whole: _Array, owner: Any) -> npt.NDArray[Any] | None:
    dtype, count, first = _DTYPES.get(schema.format), whole.length, array.offset + whole.offset
    if dtype is None or schema.dictionary:
        return None
    if not count:
        return np.empty(0, dtype)
    found = np.frombuffer(_memory(array.buffers[1], (first + count) * dtype.itemsize), dtype)[first:].copy()
    if array.null_count and array.buffers[0]:
        bits = np.frombuffer(_memory(array.buffers[0], (first + count + 7) // 8), np.uint8)
        is_there = np.unpackbits(bits, bitorder="little")[first : first + count]
        if not is_there.all() and dtype.kind == "i":
            return None
        found[is_there == 0] = np.nan
    found.flags.writeable = False
    del owner  # until here nobody has let go of the memory
    return found


def _memory(start: int, size: int) -> Any:
    return (ctypes.c_uint8 * size).from_address(start)
