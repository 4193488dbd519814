"""Bytes of the wire: a message and its tensors as frames, and back.

Frame 0 is a msgpack header, `[version, request id, message, tensor descriptors]`; in the message an array
is the number of its descriptor, `[dtype, shape, number of frames]`.  Behind it come the raw bytes of the
tensors, C-ordered and little-endian, in descriptor order, at most 1 MiB a frame (frames that fit the L2
cache travel 1.5 times as fast as 16 MiB ones).  An empty tensor has no frame.  The first two elements of
the header keep their place in every version, so that even a foreign message can be answered.

What is received is judged before anything is allocated for it.  Which messages there are is
`services/messages.py`'s affair; how frames reach the peer is `services/sockets.py`'s.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Union

import msgspec
import numpy as np

from edlz.core_ext._tensors import TensorReader, TensorWriter, size_in_bytes
from edlz.services.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from edlz.services.messages import ANSWERS, REQUESTS
from edlz.services.records import Message

__all__ = ["FRAME_BYTES", "PROTOCOL_VERSION", "Buffer", "Codec", "Limits", "MalformedMessage"]

Buffer = bytes | memoryview

PROTOCOL_VERSION: Final = 1
FRAME_BYTES: Final = 1 << 20
DTYPES: Final[dict[str, np.dtype[Any]]] = {
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


class _Descriptor(msgspec.Struct, array_like=True, frozen=True, gc=False):
    dtype: str
    shape: tuple[int, ...]
    frames: int


class _Preamble(msgspec.Struct, array_like=True, frozen=True):
    """The part of a header that no version may move."""

    version: int
    request_id: int


class _Header(msgspec.Struct, array_like=True, frozen=True, gc=False):
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
    Not for two threads: the arrays of the message in hand are collected in the object.  What is done to
    each of them is compiled (core_ext/_tensors.pyx).
    """

    def __init__(self, expects: Literal["requests", "answers"], limits: Limits | None = None) -> None:
        if sys.byteorder != "little":
            raise ConfigError(
                "this machine is big-endian; edlz sends little-endian tensors as they lie in memory"
            )
        kinds = REQUESTS if expects == "requests" else ANSWERS
        self._limits = limits = limits or Limits()
        self._writer = TensorWriter(DTYPES, FRAME_BYTES)
        self._reader = TensorReader(
            DTYPES,
            most_tensors=limits.tensors,
            most_frames=limits.frames,
            most_bytes=limits.message_bytes,
        )
        self._encode = msgspec.msgpack.Encoder(enc_hook=self._writer).encode
        self._decode = msgspec.msgpack.Decoder(Union[kinds], dec_hook=self._reader).decode  # noqa: UP007

    def encode(self, message: Message, request_id: int) -> list[Buffer]:
        """Return the frames of a message; those of its arrays are views, not copies.

        An array of the message must not be written while anybody still holds one of the frames.

        Raises
        ------
        LocalProtocolError
            If an array is not C-contiguous or has a dtype that does not travel, if a field holds what
            msgpack cannot express, or if the message exceeds the limits.
        """
        descriptors = self._writer.begin()
        try:
            # The descriptors are encoded behind the message, when the hook has filled the list.
            header = self._encode((PROTOCOL_VERSION, request_id, message, descriptors))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            self._writer.begin()  # lets go of the arrays
            raise LocalProtocolError(f"{type(message).__name__} cannot be sent: {error}") from error
        frames = self._writer.end(header)
        if descriptors or len(header) > self._limits.header_bytes:
            self._check_outgoing(message, frames, len(descriptors))
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
            self._reader.open(header.tensors, frames)
            message = self._decode(header.message)
            self._reader.close()
        except _DECODE_ERRORS as error:
            self._reader.forget()
            raise MalformedMessage(f"a message that does not fit: {error}", header.request_id) from error
        return header.request_id, message

    # ------------------------------------------------------------ limits

    def _check_outgoing(self, message: Message, frames: list[Buffer], tensors: int) -> None:
        limits = self._limits
        if len(frames[0]) > limits.header_bytes:
            what, most = f"a header of {len(frames[0])} bytes", limits.header_bytes
        elif tensors > limits.tensors:
            what, most = f"{tensors} tensors", limits.tensors
        elif len(frames) > 1 and (size := size_in_bytes(frames)) > limits.message_bytes:
            what, most = f"{size} bytes", limits.message_bytes
        else:
            return
        raise LocalProtocolError(f"{type(message).__name__} has {what}; at most {most} travel in one message")


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
