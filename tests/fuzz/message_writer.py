"""Writes messages with values of any kind that their fields may have."""

import functools
import math
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import inspect

from edlz.services.protocol.message_types import Message

__all__ = ["TEXTS", "MessageWriter", "made"]

INTS = (0, 0, 0, 1, 1, 2, 3, 5, -1, -2, 7, 50, 2**31, 2**62, -(2**63), 2**63 - 1)
FLOATS = (0.0, 1.0, -1.0, 0.01, 1e300, math.nan, math.inf, -math.inf)
TEXTS = ("", "0", "1", "dense", "state", "velocity", "ps-0", "worker-0", "worker-1", "x" * 300, "ä\ud7ff")


class MessageWriter:
    """Makes values of any type that a message has; some are those of a message that was really sent."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def changed(self, body: Message) -> Message:
        """Return a message with some other fields."""
        fields = {field.name: field.type for field in _type_info(type(body)).fields}
        chosen = self._rng.sample(sorted(fields), self._rng.randint(0, min(3, len(fields))))
        return msgspec.structs.replace(body, **{name: self.value(fields[name]) for name in chosen})

    def message(self, kind: type[Any]) -> Any:
        return self.value(_type_info(kind))

    def value(self, kind: Any) -> Any:
        rng = self._rng
        match kind:
            case inspect.UnionType():
                return self.value(rng.choice(kind.types))
            case inspect.NoneType():
                return None
            case inspect.BoolType():
                return rng.random() < 0.5
            case inspect.IntType():
                return rng.choice(INTS)
            case inspect.FloatType():
                return rng.choice(FLOATS)
            case inspect.StrType():
                return rng.choice(TEXTS)
            case inspect.BytesType():
                return rng.randbytes(rng.choice((0, 1, 16)))
            case inspect.LiteralType():
                return rng.choice(kind.values)
            case inspect.VarTupleType() | inspect.ListType():
                items = [self.value(kind.item_type) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
                return tuple(items) if isinstance(kind, inspect.VarTupleType) else items
            case inspect.TupleType():
                return tuple(self.value(item) for item in kind.item_types)
            case inspect.DictType():
                keys = [self.value(kind.key_type) for _ in range(rng.randint(0, 2))]
                return {key: self.value(kind.value_type) for key in keys}
            case inspect.StructType():
                return kind.cls(**{field.name: self.value(field.type) for field in kind.fields})
            case inspect.CustomType():
                return self._array(kind.cls)
        raise TypeError(kind)

    def _array(self, kind: Any) -> np.ndarray:
        dtype = np.float32
        if "int64" in str(kind):
            dtype = np.int64
        elif "float64" in str(kind):
            dtype = np.float64
        shape = self._rng.choice(((0,), (1,), (2,), (16,), (96,), (3, 2), ()))
        return np.full(shape, self._rng.choice((0, 1, -1, 7)), dtype)


@functools.cache
def _type_info(kind: Any) -> Any:
    """Return what msgspec finds out about a type anew at each call, in milliseconds."""
    return inspect.type_info(kind)


def made(
    known: Sequence[Message], kinds: Sequence[type[Message]], writer: MessageWriter, rng: random.Random
) -> Message:
    """Return a message: one that was sent, with some other fields, or a new one."""
    fitting = [body for body in known if isinstance(body, tuple(kinds))]
    if fitting and rng.random() < 0.8:
        return writer.changed(rng.choice(fitting))
    return writer.message(rng.choice(kinds))
