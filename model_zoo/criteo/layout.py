"""The columns of Criteo's click logs, and their records.

A record is a `tf.train.Example` with `label` (0 or 1), `numeric` (13 floats, NaN where missing) and
`categorical` (26 integers): 2**32 plus the column's 32-bit value, or 2**33 where it is missing.  Integers from
2**28 to 2**35 - 1 take 5 bytes, so all records have one length, and are written by the thousand.
"""

import numpy as np
import numpy.typing as npt

from edlz.api.example import encode_example

__all__ = ["CATEGORICAL", "MISSING", "NUMERIC", "PRESENT", "encode_clicks"]

NUMERIC, CATEGORICAL = 13, 26
PRESENT, MISSING = 1 << 32, 1 << 33

_VARINT_BYTES = 5


def encode_clicks(
    labels: npt.NDArray[np.integer],
    numeric: npt.NDArray[np.float32],
    categorical: npt.NDArray[np.int64],
) -> list[bytes]:
    """Return the records of n clicks, equal to those of `encode_example`.

    Parameters
    ----------
    labels : ndarray, shape (n,), 0 or 1
    numeric : ndarray, shape (n, 13)
    categorical : ndarray, shape (n, 26), in [2**28, 2**35)
    """
    pieces = {
        "categorical": _five_byte_varints(categorical),
        "numeric": np.ascontiguousarray(numeric, "<f4").view(np.uint8),
        "label": labels.astype(np.uint8)[:, None],
    }
    template, places = _template()
    content = np.tile(np.frombuffer(template, np.uint8), (len(labels), 1))
    for name, piece in pieces.items():
        content[:, places[name] : places[name] + piece.shape[1]] = piece
    width, joined = len(template), content.tobytes()
    return [joined[i : i + width] for i in range(0, len(joined), width)]


def _template() -> tuple[bytes, dict[str, int]]:
    """Return any record, and where in it the values of each feature begin."""
    values = {
        "label": np.array([0x7B]),
        "numeric": np.full(NUMERIC, 1.5, np.float32),
        "categorical": np.full(CATEGORICAL, PRESENT + 0x1234567),
    }
    record = encode_example(values)
    packed = {
        "label": b"\x7b",
        "numeric": values["numeric"].tobytes(),
        "categorical": _five_byte_varints(values["categorical"][None]).tobytes(),
    }
    # A name stands before its values.
    return record, {name: record.index(packed[name], record.index(name.encode())) for name in values}


def _five_byte_varints(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    groups = values[:, :, None] >> (7 * np.arange(_VARINT_BYTES))
    encoded = (groups & 0x7F).astype(np.uint8)
    encoded[:, :, :-1] |= 0x80
    return encoded.reshape(len(values), values.shape[1] * _VARINT_BYTES)
