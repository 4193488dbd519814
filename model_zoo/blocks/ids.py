"""Ids of embedding rows: 64-bit hashes of a field's number and its value.

One table serves all fields: a million values of 26 fields collide with a chance of 2e-5, so each pair has a row
of its own without anybody counting values.
"""

from typing import Any

import tensorflow as tf

__all__ = ["crossed_ids", "field_ids", "mixed", "text_values"]

_SHIFTS, _FACTORS = (30, 27, 31), (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio


def mixed(numbers: Any) -> Any:
    """Return a bijection of 64-bit numbers in which each bit depends on all bits of the argument.

    Parameters
    ----------
    numbers : tensor, int64, of any shape

    Returns
    -------
    tensor, int64, of the same shape; equal to `mixing.mixed`

    References
    ----------
    Steele, Lea, Flood, OOPSLA 2014, the finaliser of SplitMix64.
    """
    x = tf.bitcast(numbers, tf.uint64)
    for shift, factor in zip(_SHIFTS, _FACTORS, strict=False):
        x = _folded(x, shift) * tf.constant(factor, tf.uint64)
    return tf.bitcast(_folded(x, _SHIFTS[-1]), tf.int64)


def field_ids(values: Any, first_field: int = 0) -> Any:
    """Return ids of values, each column a field of its own.

    Parameters
    ----------
    values : tensor, shape (n, fields), int64
    first_field : int
        Number of the first column's field; fields of one table have different numbers.

    Returns
    -------
    tensor, shape (n, fields), int64
    """
    fields = range(first_field, first_field + values.shape[-1])
    return mixed(values + tf.constant([_salt(field) for field in fields], tf.int64))


def crossed_ids(field: int, *columns: Any) -> Any:
    """Return ids of combinations of values.

    Parameters
    ----------
    field : int
    columns : tensors, int64, of one shape, or of shapes that broadcast
        The order matters.

    Returns
    -------
    tensor, int64
    """
    ids = tf.constant(_salt(field), tf.int64)
    for column in columns:
        ids = mixed(ids + column)
    return ids


def text_values(texts: Any) -> Any:
    """Return numbers for texts, any int64 from 0 on: the first argument of `field_ids`, not yet an id.

    Parameters
    ----------
    texts : tensor, string
    """
    return tf.strings.to_hash_bucket_fast(texts, (1 << 63) - 1)


def _salt(field: int) -> int:
    salt = (field + 1) * _GOLDEN % (1 << 64)
    return salt - (1 << 64) if salt >= 1 << 63 else salt


def _folded(x: Any, shift: int) -> Any:
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(shift, tf.uint64)))
