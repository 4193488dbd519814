"""Arbitrary values for the fields of messages, by their annotations."""

import functools
import random
import types
import typing
from typing import Any

import msgspec
import numpy as np

__all__ = ["arbitrary"]

INTEGERS = (0, 1, -1, 2, 7, 2**31, 2**32, 2**53 + 1, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 0.1, 1e-300, 1e300, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "0", "worker-0", "ü", "\0", "x" * 300, "../..", "dense")
SHAPES = ((0,), (1,), (3,), (16,), (2, 3), (0, 4), ())


def arbitrary(chance: random.Random, annotation: Any) -> Any:
    """Return a value that an annotation allows."""
    make = PLAIN.get(annotation)
    if make is not None:
        return make(chance)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        hints = _hints(annotation)
        return annotation(**{name: arbitrary(chance, hints[name]) for name in annotation.__struct_fields__})
    if origin in (typing.Union, types.UnionType):
        return arbitrary(chance, chance.choice(args))
    if origin is typing.Annotated:
        return chance.random() * args[1].le
    if origin is typing.Literal:
        return chance.choice(args)
    if origin is np.ndarray:
        return _array(chance, np.dtype(typing.get_args(args[1])[0]))
    if origin is tuple and args[-1] is not Ellipsis:
        return tuple(arbitrary(chance, arg) for arg in args)
    if origin in (tuple, list):
        return origin(arbitrary(chance, args[0]) for _ in range(_count(chance)))
    if origin is dict:
        return {arbitrary(chance, args[0]): arbitrary(chance, args[1]) for _ in range(_count(chance))}
    raise NotImplementedError(annotation)


PLAIN: dict[Any, Any] = {
    int: lambda chance: chance.choice(INTEGERS) if chance.random() < 0.5 else chance.randrange(100),
    float: lambda chance: chance.choice(FLOATS) if chance.random() < 0.5 else chance.random(),
    str: lambda chance: chance.choice(TEXTS),
    bool: lambda chance: chance.random() < 0.5,
    bytes: lambda chance: chance.randbytes(chance.randrange(20)),
    type(None): lambda chance: None,
}


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _count(chance: random.Random) -> int:
    return chance.choice((0, 0, 1, 2, 3))


def _array(chance: random.Random, dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[Any]]:
    shape = chance.choice(SHAPES)
    size = int(np.prod(shape, dtype=int))
    return np.frombuffer(chance.randbytes(size * dtype.itemsize), dtype).reshape(shape)
