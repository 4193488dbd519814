"""Messages of every kind with arbitrary content, and what tells whether they came back the same."""

import math
import types
import typing
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    ANSWERS,
    REQUESTS,
    Exchange,
    Pull,
    Push,
    VectorPart,
    WorkerStatus,
    WorkerTelemetry,
)
from edlz.services.transport.codec import Codec
from edlz.services.transport.limits import FRAME_BYTES

__all__ = [
    "ANY_MESSAGE",
    "FULL",
    "MESSAGES",
    "VECTOR_PART_TAG",
    "arrays_of",
    "codec_for",
    "copied",
    "decoded_values",
    "filled_array",
    "is_same",
    "part",
    "push",
    "status",
    "values_of",
]

VECTOR_PART_TAG = 37
FULL = FRAME_BYTES // 8  # elements of 8 bytes that fill a frame


def arrays_of(dtype: np.dtype[Any]) -> st.SearchStrategy[npt.NDArray[Any]]:
    small = st.lists(st.integers(0, 5), max_size=4).map(tuple)
    shapes = st.one_of(small, small, st.sampled_from([(FULL,), (FULL + 1,), (3, FULL), (2 * FULL + 7,)]))
    return st.builds(filled_array, st.just(dtype), shapes, st.integers(0, 100))


def filled_array(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int) -> npt.NDArray[Any]:
    content = np.random.default_rng(seed).bytes(math.prod(shape) * dtype.itemsize)
    return np.frombuffer(content, dtype).reshape(shape)


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a field, by its annotation."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is int:
        return st.integers(-(2**63), 2**63 - 1)
    if annotation in (float, str, bool, type(None)):
        return st.from_type(annotation)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        fields = typing.get_type_hints(annotation, include_extras=True)
        fields = {name: fields[name] for name in annotation.__struct_fields__}
        return st.builds(annotation, **{name: values_of(hint) for name, hint in fields.items()})
    if origin in (typing.Union, types.UnionType):
        return st.one_of([values_of(arg) for arg in args])
    if origin is typing.Annotated:
        return st.floats(args[1].ge, args[1].le)
    if origin is typing.Literal:
        return st.sampled_from(args)
    if origin is np.ndarray:
        return arrays_of(np.dtype(typing.get_args(args[1])[0]))
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(values_of(args[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, args))
    if origin is list:
        return st.lists(values_of(args[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(*map(values_of, args), max_size=3)
    if annotation is bytes:
        return st.binary(max_size=32)
    raise NotImplementedError(annotation)


MESSAGES: dict[type[Message], st.SearchStrategy[Any]] = {
    kind: values_of(kind) for kind in (*REQUESTS, *ANSWERS)
}
ANY_MESSAGE = st.one_of(list(MESSAGES.values()))


def is_same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and (a.dtype, a.shape, a.tobytes()) == (
            b.dtype,
            b.shape,
            b.tobytes(),
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, msgspec.Struct):
        return all(is_same(getattr(a, name), getattr(b, name)) for name in a.__struct_fields__)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(is_same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(is_same(a[key], b[key]) for key in a)
    return bool(a == b or (a != a and b != b))


def codec_for(message: Message) -> Codec:
    return Codec("requests" if isinstance(message, REQUESTS) else "answers")


def copied(frames: list[Any]) -> list[bytes]:
    return [bytes(frame) for frame in frames]


def part(count: int) -> VectorPart:
    return VectorPart(total=count, slots=(), values=np.arange(count, dtype=np.float32))


def push(gradient: npt.NDArray[Any]) -> Exchange:
    body = Push(
        task=1,
        index=2,
        is_last=False,
        learning_rate=0.1,
        gradient=gradient,
        state=None,
        counters=np.arange(3),
    )
    return Exchange(era=(1, 1), incarnation=None, version=4, push=body, pull=Pull(task=1))


def status(boot: int = 1, loss: Any = None) -> WorkerStatus:
    return WorkerStatus(
        worker="0", boot=boot, incarnation=None, seq=1, era=(0, 0), telemetry=WorkerTelemetry(loss=loss)
    )


def decoded_values(frames: list[Any]) -> npt.NDArray[Any]:
    message = Codec("answers").decode(frames)[1]
    assert isinstance(message, VectorPart)
    return message.values
