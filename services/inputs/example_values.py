"""The values in `tf.train.Example` records, without TensorFlow: of each feature, those of some records one after another.

References
----------
tensorflow/core/example/{example,feature}.proto; Protocol Buffers documentation, "Encoding".
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

__all__ = ["ExampleError", "FeatureValues", "example_values"]

_VARINT, _LENGTH, _FIXED32 = 0, 2, 5
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3
_FLOAT_BYTES = 4
_KINDS: dict[int, Literal["string", "float64", "int64"]] = {
    _BYTES_LIST: "string",
    _FLOAT_LIST: "float64",
    _INT64_LIST: "int64",
}


class ExampleError(Exception):
    """A record is not what it should be; `place` is its number among those given."""

    def __init__(self, place: int, text: str) -> None:
        super().__init__(text)
        self.place = place


@dataclass
class FeatureValues:
    """Values of a feature.

    Attributes
    ----------
    rows : int
        Records that have one.
    """

    kind: Literal["string", "float64", "int64"]
    rows: int = 0
    values: list[Any] = field(default_factory=list)

    def array(self) -> npt.NDArray[Any]:
        """Return all values; texts are bytes objects."""
        if self.kind == "string":
            return np.array(self.values, object)
        if self.kind == "float64":
            parts = [np.frombuffer(part, "<f4") for part in self.values]
            return np.concatenate(parts).astype(np.float64)
        return np.array(self.values, np.int64)


def example_values(records: Sequence[bytes]) -> dict[str, FeatureValues]:
    """Return the values of each feature that some of the records have.

    Raises
    ------
    ExampleError
        If a record is no Example, or a feature is of another kind than in one before.
    """
    found: dict[str, FeatureValues] = {}
    for place, record in enumerate(records):
        try:
            for name, kind, values in _features(memoryview(record)):
                of_name = found.setdefault(name, FeatureValues(kind))
                if of_name.kind != kind:
                    raise ExampleError(
                        place, f'has {kind} in feature "{name}", where others have {of_name.kind}'
                    )
                of_name.rows += 1
                of_name.values += values
        except (ValueError, IndexError, struct.error) as error:
            raise ExampleError(place, "is no tf.train.Example") from error
    return found


def _features(record: memoryview) -> Iterator[tuple[str, Literal["string", "float64", "int64"], list[Any]]]:
    """Yield the features of a record that have values."""
    for number, features in _fields(record):
        if number != 1 or not isinstance(features, memoryview):
            raise ValueError("an Example has one field")
        for _, entry in _fields(_message(features)):
            name, feature = "", memoryview(b"")
            for part, content in _fields(_message(entry)):
                if part == 1:
                    name = bytes(_message(content)).decode()
                else:
                    feature = _message(content)
            for kind, values in _fields(feature):
                listed = _values(kind, _message(values))
                if listed:
                    yield name, _KINDS[kind], listed


def _values(kind: int, listed: memoryview) -> list[Any]:
    """Return the values of a list; floats as pieces of bytes."""
    if kind not in _KINDS:
        raise ValueError("no such list")
    found: list[Any] = []
    for _, value in _fields(listed):
        if kind == _BYTES_LIST:
            found.append(bytes(_message(value)))
        elif kind == _FLOAT_LIST:
            found.append(value if isinstance(value, bytes) else _floats(_message(value)))
        elif isinstance(value, int):
            found.append(_signed(value))
        else:
            found += map(_signed, _varints(_message(value)))
    return found


def _floats(packed: memoryview) -> bytes:
    if len(packed) % _FLOAT_BYTES:
        raise ValueError("a float is cut off")
    return bytes(packed)


def _message(value: "memoryview | int | bytes") -> memoryview:
    if not isinstance(value, memoryview):
        raise ValueError("a number where a message should be")
    return value


def _fields(data: memoryview) -> "Iterator[tuple[int, memoryview | int | bytes]]":
    """Yield number and content of each field: a message, a number, or four bytes."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _LENGTH:
            size, at = _varint(data, at)
            if at + size > end:
                raise ValueError("a field is longer than its message")
            yield number, data[at : at + size]
            at += size
        elif wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
        elif wire == _FIXED32 and at + 4 <= end:
            yield number, bytes(data[at : at + 4])
            at += 4
        else:
            raise ValueError("no such field")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _varints(data: memoryview) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
