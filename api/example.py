"""Encodes `tf.train.Example` records without TensorFlow.

An Example is the record that TensorFlow's own parsers take (`tf.io.parse_single_example`): named lists of
floats, integers or byte strings.  The encoding is canonical: names sorted, numbers packed, so the same
features are the same bytes (as in protobuf's deterministic serialisation).  Decoding is left to TensorFlow.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["FeatureValue", "encode_example"]

FeatureValue = (
    npt.NDArray[np.generic]
    | bytes
    | bytearray
    | memoryview
    | float
    | Sequence[float]
    | Sequence[bytes]
    | np.generic
)

# Field tags of tensorflow/core/example/{example,feature}.proto: number << 3 | 2 (length-delimited).
_FEATURES, _MAP_ENTRY, _KEY, _VALUE, _ITEM = b"\x0a", b"\x0a", b"\x0a", b"\x12", b"\x0a"
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = b"\x0a", b"\x12", b"\x1a"
_NO_KIND = b""
_SHIFTS = 7 * np.arange(10, dtype=np.uint64)


def encode_example(features: Mapping[str, FeatureValue]) -> bytes:
    """Return the serialised `tf.train.Example` of these features.

    Parameters
    ----------
    features : mapping of str to value
        A value is one of: an array, number or sequence of numbers, of a floating kind (kept as float32)
        or of an integer or boolean kind (kept as int64); bytes, or a sequence or object array of bytes.
        Arrays are flattened in C order; their shape is not kept.  A list of nothing has no kind, and is written
        without one: parsers take it as an empty list of whatever they expect.

    Raises
    ------
    TypeError
        If a value is of another kind (text must be encoded first).
    OverflowError
        If an unsigned integer does not fit int64.
    """
    entries = []
    for name in sorted(features):
        value = features[name]
        key = name.encode()
        try:
            feature = _encode_feature(value)
        except (TypeError, OverflowError) as error:
            raise type(error)(f"feature {name!r}: {error}") from error
        entry = _KEY + _size(key) + key + _VALUE + _size(feature) + feature
        entries.append(_MAP_ENTRY + _size(entry) + entry)
    message = b"".join(entries)
    return _FEATURES + _size(message) + message


def _encode_feature(value: FeatureValue) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return _encode_bytes_list([bytes(value)])
    if isinstance(value, Sequence) and value and isinstance(value[0], bytes):
        return _encode_bytes_list(value)
    array = np.asarray(value)
    if not array.size and (array.dtype.kind == "O" or not isinstance(value, np.ndarray)):
        return _NO_KIND
    if array.dtype.kind == "f":
        packed = array.astype("<f4", copy=False).tobytes()
        return _wrap(_FLOAT_LIST, packed)
    if array.dtype.kind in "iub":
        return _wrap(_INT64_LIST, _encode_varints(array.ravel()))
    if array.dtype.kind == "O":
        return _encode_bytes_list(array.ravel().tolist())
    raise TypeError(
        f"{type(value).__name__} of {array.dtype} is neither numbers nor bytes; convert or encode it first"
    )


def _encode_bytes_list(items: Sequence[object]) -> bytes:
    parts = []
    for item in items:
        if not isinstance(item, bytes):
            raise TypeError(f"{type(item).__name__} among bytes; encode it first")
        parts.append(_ITEM + _size(item) + item)
    content = b"".join(parts)
    return _BYTES_LIST + _size(content) + content


def _wrap(tag: bytes, packed: bytes) -> bytes:
    """Return a Feature with one packed list; an empty list has no field in it."""
    content = _ITEM + _size(packed) + packed if packed else b""
    return tag + _size(content) + content


def _encode_varints(values: npt.NDArray[np.generic]) -> bytes:
    """Encode integers as base-128 varints, least significant group first; negative ones take 10 bytes.

    References
    ----------
    Protocol Buffers documentation, "Encoding", Base 128 Varints.
    """
    if values.dtype.kind == "u" and values.size and int(values.max()) > np.iinfo(np.int64).max:
        raise OverflowError(f"{values.max()} does not fit int64")
    numbers = values.astype(np.int64).view(np.uint64)
    if not numbers.size or int(numbers.max()) < 0x80:
        return numbers.astype(np.uint8).tobytes()
    groups = numbers[:, None] >> _SHIFTS
    is_used = groups != 0
    is_used[:, 0] = True
    is_last = np.ones_like(is_used)
    is_last[:, :-1] = ~is_used[:, 1:]
    encoded = (groups & np.uint64(0x7F)).astype(np.uint8) | np.where(is_last, 0, 0x80).astype(np.uint8)
    content: bytes = encoded[is_used].tobytes()
    return content


def _size(content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((size,))
    parts = bytearray()
    while size >= 0x80:
        parts.append(size & 0x7F | 0x80)
        size >>= 7
    parts.append(size)
    return bytes(parts)
