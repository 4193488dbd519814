"""Bytes of the wire: a message and its tensors as frames, and back.

Frame 0 is a msgpack header, `[version, request id, message, tensor descriptors]`; in the message an array
is the number of its descriptor, `[dtype, shape, number of frames]`.  Behind it come the raw bytes of the
tensors, C-ordered and little-endian, in descriptor order, at most 1 MiB a frame (frames that fit the L2
cache travel 1.5 times as fast as 16 MiB ones).  An empty tensor has no frame.  The first two elements of
the header keep their place in every version, so that even a foreign message can be answered.

What is received is judged before anything is allocated for it.  Which messages there are is
`services/messages.py`'s affair; how frames reach the peer is `services/sockets.py`'s.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Union

import msgspec
import numpy as np
import numpy.typing as npt

from edlz.services.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from edlz.services.messages import ANSWERS, REQUESTS, Message

__all__ = ["FRAME_BYTES", "PROTOCOL_VERSION", "Buffer", "Codec", "Limits", "MalformedMessage"]

Buffer = bytes | memoryview
Array = npt.NDArray[Any]

PROTOCOL_VERSION: Final = 1
FRAME_BYTES: Final = 1 << 20
ALIGNMENT: Final = 64  # bytes: what TensorFlow takes without a copy
MAX_RANK: Final = 16
DTYPES: Final = {
    np.dtype(scalar).str: np.dtype(scalar)
    for scalar in (
        np.float32,
        np.float64,
        np.int8,
        np.int16,
        np.int32,
        np.int64,
        np.uint8,
        np.uint16,
        np.uint32,
        np.uint64,
        np.bool_,
    )
}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The largest message that is sent or taken."""

    header_bytes: int = 16 << 20  # a plan with 200,000 shards
    message_bytes: int = 2 << 30
    tensors: int = 16_384

    @property
    def frame_bytes(self) -> int:
        """The largest single frame."""
        return max(self.header_bytes, FRAME_BYTES)

    @property
    def frames(self) -> int:
        """The most frames that a valid message can have: each tensor ends with a frame that is not full."""
        return 1 + self.tensors + self.message_bytes // FRAME_BYTES


class MalformedMessage(RemoteProtocolError):
    """The frames are no message; `request_id` is what an error reply can name, if it was readable."""

    def __init__(self, message: str, request_id: int | None, help: str = "") -> None:  # noqa: A002
        super().__init__(message, help or "run the same version of edlz everywhere")
        self.request_id = request_id


class _Descriptor(msgspec.Struct, array_like=True, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    frames: int


class _Preamble(msgspec.Struct, array_like=True, frozen=True):
    """The part of a header that no version may move."""

    version: int
    request_id: int


class _Header(msgspec.Struct, array_like=True, frozen=True):
    version: int
    request_id: int
    message: msgspec.Raw
    tensors: list[_Descriptor]


# What msgspec raises for bytes that do not fit; deep nesting ends in a RecursionError.
_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)
_decode_preamble = msgspec.msgpack.Decoder(_Preamble).decode
_decode_header = msgspec.msgpack.Decoder(_Header).decode


class Codec:
    """Encodes messages, and decodes requests (a server's codec) or answers (a client's).

    Parameters
    ----------
    expects : "requests" or "answers"
        Which messages `decode` takes; the others are malformed.
    limits : Limits, optional

    Notes
    -----
    Not for two threads: the arrays of the message in hand are collected in the object.
    """

    def __init__(self, expects: Literal["requests", "answers"], limits: Limits | None = None) -> None:
        if sys.byteorder != "little":
            raise ConfigError(
                "this machine is big-endian; edlz sends little-endian tensors as they lie in memory"
            )
        kinds = REQUESTS if expects == "requests" else ANSWERS
        self._limits = limits or Limits()
        self._encode = msgspec.msgpack.Encoder(enc_hook=self._enter_array).encode
        self._decode = msgspec.msgpack.Decoder(Union[kinds], dec_hook=self._next_array).decode  # noqa: UP007
        self._descriptors: list[tuple[str, tuple[int, ...], int]] = []  # of the message being encoded
        self._outgoing: list[Buffer] = []
        self._incoming: Sequence[Buffer] = ()
        self._headers: list[_Descriptor] = []  # of the message being decoded
        self._taken = 0  # arrays, and ...
        self._place = 1  # ... the frame where the next one begins

    def encode(self, message: Message, request_id: int) -> list[Buffer]:
        """Return the frames of a message; those of its arrays are views, not copies.

        An array of the message must not be written while anybody still holds one of the frames.

        Raises
        ------
        LocalProtocolError
            If an array is not C-contiguous or has a dtype that does not travel, if a field holds what
            msgpack cannot express, or if the message exceeds the limits.
        """
        self._descriptors, self._outgoing = [], []
        try:
            # The descriptors are encoded behind the message, when the hook has filled the list.
            header = self._encode((PROTOCOL_VERSION, request_id, message, self._descriptors))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise LocalProtocolError(f"{type(message).__name__} cannot be sent: {error}") from error
        frames, self._outgoing = [header, *self._outgoing], []
        self._check_outgoing(message, frames)
        return frames

    def decode(self, frames: Sequence[Buffer]) -> tuple[int, Message]:
        """Return request id and message of received frames.

        Arrays are read-only.  One that came in one frame is a view that keeps the frame alive (copy what
        outlives the handler); one in several frames is assembled in a fresh, 64-byte aligned block.

        Raises
        ------
        MalformedMessage
            If anything about the frames is not as it should be; nothing larger than them was allocated.
        """
        limits = self._limits
        if not frames or len(frames[0]) > limits.header_bytes:
            size = len(frames[0]) if frames else 0
            raise MalformedMessage(f"a header of {size} bytes; at most {limits.header_bytes} are taken", None)
        try:
            header = _decode_header(frames[0])
        except _DECODE_ERRORS as error:
            raise _foreign_header(frames[0], error) from error
        if header.version != PROTOCOL_VERSION:
            raise _foreign_version(header.version, header.request_id)
        try:
            if len(frames) > 1 or header.tensors:
                self._check_descriptors(header.tensors, frames)
            self._incoming, self._headers, self._taken, self._place = frames, header.tensors, 0, 1
            message = self._decode(header.message)
            if self._taken != len(header.tensors):
                raise ValueError(f"{len(header.tensors)} tensors, of which the message names {self._taken}")
        except _DECODE_ERRORS as error:
            raise MalformedMessage(f"a message that does not fit: {error}", header.request_id) from error
        finally:
            self._incoming = ()
        return header.request_id, message

    # ------------------------------------------------------------ outgoing

    def _enter_array(self, value: object) -> object:
        """Put an array into frames; return what stands for it in the message (msgspec's enc_hook)."""
        if not isinstance(value, np.ndarray):
            if isinstance(value, (np.bool_, np.integer, np.float32, np.float64)):
                return value.item()
            raise TypeError(f"a value of type {type(value).__name__}")
        dtype = value.dtype.str
        if dtype not in DTYPES:
            raise TypeError(f"an array of dtype {value.dtype}; these travel: {_dtype_names()}")
        if not value.flags.c_contiguous:
            raise ValueError(
                f"an array of shape {value.shape} and strides {value.strides} is not C-contiguous; "
                "make it so with numpy.ascontiguousarray"
            )
        # A view's chain of references ends at this very array: whoever waits for ZeroMQ to be done with
        # it may watch the array itself.
        count = 0
        if size := value.nbytes:
            view = value.data.cast("B")
            pieces = [view] if size <= FRAME_BYTES else _pieces(view)
            self._outgoing += pieces
            count = len(pieces)
        self._descriptors.append((dtype, value.shape, count))
        return len(self._descriptors) - 1

    def _check_outgoing(self, message: Message, frames: list[Buffer]) -> None:
        limits = self._limits
        if len(frames[0]) > limits.header_bytes:
            what, most = f"a header of {len(frames[0])} bytes", limits.header_bytes
        elif len(self._descriptors) > limits.tensors:
            what, most = f"{len(self._descriptors)} tensors", limits.tensors
        elif len(frames) > 1 and (size := sum(map(len, frames))) > limits.message_bytes:
            what, most = f"{size} bytes", limits.message_bytes
        else:
            return
        raise LocalProtocolError(f"{type(message).__name__} has {what}; at most {most} travel in one message")

    # ------------------------------------------------------------ incoming

    def _check_descriptors(self, descriptors: list[_Descriptor], frames: Sequence[Buffer]) -> None:
        """Check descriptors against each other, the limits and the frames; the dtypes' turn comes later."""
        limits = self._limits
        if len(descriptors) > limits.tensors:
            raise ValueError(f"{len(descriptors)} tensors; at most {limits.tensors} are taken")
        if len(frames) > limits.frames:
            raise ValueError(f"more than {limits.frames} frames")
        if (size := sum(map(len, frames))) > limits.message_bytes:
            raise ValueError(f"{size} bytes; at most {limits.message_bytes} are taken")
        place = 1
        for number, (dtype, shape, count) in enumerate(map(_fields, descriptors)):
            if dtype not in DTYPES:
                raise ValueError(
                    f"tensor {number} of dtype {dtype[:16]!r}; these are taken: {_dtype_names()}"
                )
            if len(shape) > MAX_RANK or (shape and min(shape) < 0):
                raise ValueError(f"tensor {number} of shape {shape[: MAX_RANK + 1]}")
            if count < 0 or place + count > len(frames):
                raise ValueError(
                    f"tensor {number} in {count} frames, of which {len(frames) - place} are there"
                )
            due, size = (
                math.prod(shape) * DTYPES[dtype].itemsize,
                sum(map(len, frames[place : place + count])),
            )
            if due != size or (count and not due):
                raise ValueError(f"tensor {number} of shape {shape} in {size} bytes; {due} are due")
            place += count
        if place != len(frames):
            raise ValueError(f"{len(frames) - place} frames that belong to no tensor")

    def _next_array(self, annotation: Any, number: object) -> Array:
        """Return the array that a field names, which must be the next one (msgspec's dec_hook)."""
        if type(number) is not int or number != self._taken or number >= len(self._headers):
            raise ValueError(f"tensor {number!r:.20} where tensor {self._taken} is due")
        descriptor = self._headers[number]
        dtype = DTYPES[descriptor.dtype]
        if dtype != _annotated_dtype(annotation):
            raise ValueError(f"tensor {number} of dtype {dtype}; {_annotated_dtype(annotation)} is due")
        pieces = self._incoming[self._place : self._place + descriptor.frames]
        self._taken += 1
        self._place += descriptor.frames
        array = np.frombuffer(pieces[0], dtype) if len(pieces) == 1 else _assembled(pieces, dtype)
        if not array.flags.aligned:  # small frames lie where they arrived in ZeroMQ's input buffer
            array = _assembled(pieces, dtype)
        array.flags.writeable = False
        return array if len(descriptor.shape) == 1 else array.reshape(descriptor.shape)


def _fields(descriptor: _Descriptor) -> tuple[str, tuple[int, ...], int]:
    return descriptor.dtype, descriptor.shape, descriptor.frames


def _pieces(view: memoryview) -> list[memoryview]:
    return [view[start : start + FRAME_BYTES] for start in range(0, len(view), FRAME_BYTES)]


def _assembled(pieces: Sequence[Buffer], dtype: np.dtype[Any]) -> Array:
    """Return the bytes of several frames as one flat, 64-byte aligned array."""
    size = sum(map(len, pieces))
    block = np.empty(size + ALIGNMENT, np.uint8)
    start = -block.__array_interface__["data"][0] % ALIGNMENT
    room = block[start : start + size]
    target, place = room.data, 0
    for piece in pieces:
        target[place : place + len(piece)] = piece
        place += len(piece)
    return room.view(dtype)


_dtypes_by_annotation: dict[Any, np.dtype[Any]] = {}


def _annotated_dtype(annotation: Any) -> np.dtype[Any]:
    """Return the dtype that a field's `npt.NDArray[...]` promises."""
    dtype = _dtypes_by_annotation.get(annotation)
    if dtype is None:
        dtype = np.dtype(annotation.__args__[1].__args__[0])
        _dtypes_by_annotation[annotation] = dtype
    return dtype


def _dtype_names() -> str:
    return ", ".join(dtype.name for dtype in DTYPES.values())


def _foreign_version(version: int, request_id: int) -> MalformedMessage:
    return MalformedMessage(
        f"the peer speaks protocol version {version}, this process speaks {PROTOCOL_VERSION}", request_id
    )


def _foreign_header(frame: Buffer, error: Exception) -> MalformedMessage:
    """Say what is wrong with a header, and find the request id in it if that is possible."""
    try:
        preamble = _decode_preamble(frame)
    except _DECODE_ERRORS:
        return MalformedMessage(f"a header that does not fit: {error}", None)
    if preamble.version != PROTOCOL_VERSION:
        return _foreign_version(preamble.version, preamble.request_id)
    return MalformedMessage(f"a header that does not fit: {error}", preamble.request_id)
