"""Bytes of the wire: a message and its tensors as frames, and back.

Frame 0 is a msgpack header, `[version, request id, message, tensor descriptors]`; in the message an array
is the number of its descriptor, `[dtype, shape, number of frames]`.  Behind it come the raw bytes of the
tensors, C-ordered and little-endian, in descriptor order, at most `Limits.frame_bytes` a frame.  An empty
tensor has no frame.  The first two elements of the header keep their place in every version, so that even a
foreign message can be answered.

What is received is judged before anything is allocated for it.  Which messages there are is
`services/protocol/messages.py`'s affair; how frames reach the peer is `services/transport/sockets.py`'s.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Literal

import msgpack
import msgspec
import numpy as np
from msgspec import convert

from edlz.core_ext._headers import HeaderCheck
from edlz.core_ext._tensors import TensorReader, TensorWriter, size_in_bytes
from edlz.services.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import ANSWERS, REQUESTS
from edlz.services.transport.limits import HeaderLimits, Limits

__all__ = ["PROTOCOL_VERSION", "Buffer", "Codec", "MalformedMessage"]

Buffer = bytes | memoryview

PROTOCOL_VERSION: Final = 1
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
PREAMBLE_BYTES: Final = 32  # the head of a list and two numbers, amply
PACK_BYTES: Final = 4096  # room of a packer, which grows
SMALL_BYTES: Final = 1 << 16  # a header that holds no more than any limit of lists or texts


class MalformedMessage(RemoteProtocolError):
    """The frames are no message; `request_id` is what an error reply can name, if it was readable."""

    def __init__(self, message: str, request_id: int | None, help: str = "") -> None:  # noqa: A002
        super().__init__(message, help or "run the same version of edlz everywhere")
        self.request_id = request_id


_REQUEST_KINDS: Final = frozenset(REQUESTS)  # isinstance() would ask each of them in turn, which takes 3 us
# What a frame or a field that does not fit raises in msgpack and msgspec.
_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)


class _Plain(dict[type, Callable[[Any], object] | None]):
    """What makes a list, or a map, of a record, by its class; None for classes of other things."""

    def __missing__(self, kind: type) -> Callable[[Any], object] | None:
        plain = _plain_of(kind) if issubclass(kind, msgspec.Struct) else None
        self[kind] = plain
        return plain


def _plain_of(kind: type[msgspec.Struct]) -> Callable[[Any], object]:
    config = kind.__struct_config__
    if not config.array_like:
        return msgspec.structs.asdict
    if config.tag is None:
        return msgspec.structs.astuple
    tag = (config.tag,)
    return lambda message: tag + msgspec.structs.astuple(message)


_PLAIN: Final = _Plain()


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
    each of them is compiled (core_ext/_tensors.pyx), and so is the first look at a header (core_ext/_headers.pyx).
    """

    def __init__(self, expects: Literal["requests", "answers"], limits: Limits | None = None) -> None:
        if sys.byteorder != "little":
            raise ConfigError(
                "this machine is big-endian; edlz sends little-endian tensors as they lie in memory"
            )
        kinds = REQUESTS if expects == "requests" else ANSWERS
        self._kinds = {kind.__struct_config__.tag: kind for kind in kinds}
        self._expects = expects
        self._limits = limits = limits or Limits()
        self._header = limits.request_header if expects == "requests" else limits.answer_header
        self._surely_taken_bytes = min(
            SMALL_BYTES, limits.request_header.total_bytes, limits.answer_header.total_bytes
        )
        # So many tensors, or frames, break no limit behind a header of so many bytes.
        self._surely_taken = min(limits.tensors, limits.message_bytes // limits.frame_bytes - 1)
        self._writer = TensorWriter(DTYPES, _PLAIN, limits.frame_bytes)
        self._reader = TensorReader(
            DTYPES,
            most_tensors=limits.tensors,
            most_frames=limits.frames,
            most_bytes=limits.message_bytes,
        )
        self._checks = {limit: _check_of(limit) for limit in (limits.request_header, limits.answer_header)}
        self._check_header = self._checks[self._header]
        self._unpack = partial(msgpack.unpackb, **_unpack_options(self._header))
        self._packer = self._new_packer()

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
            # The descriptors are packed behind the message, when the writer has filled the list.
            plain = _PLAIN[type(message)]  # of the records in the message the writer makes lists
            fields = message if plain is None else plain(message)
            header = self._packer.pack((PROTOCOL_VERSION, request_id, fields, descriptors))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            self._writer.begin()  # lets go of the arrays
            raise LocalProtocolError(f"{type(message).__name__} cannot be sent: {error}") from error
        frames: list[Buffer] = self._writer.end(header)
        most = self._surely_taken
        if len(header) > self._surely_taken_bytes or len(descriptors) > most or len(frames) > most:
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
        header = frames[0] if frames else b""
        size = len(header)
        if not 0 < size <= self._header.total_bytes:
            raise _wrong_size(header, self._header)
        try:
            self._check_header(header)
            # Of a small header msgpack itself takes no list or text that is longer than the header.
            unpacked = (_unpack_small if size <= self._surely_taken_bytes else self._unpack)(header)
        except _DECODE_ERRORS as error:
            raise _foreign_header(header, str(error)) from error
        if type(unpacked) is not tuple or len(unpacked) < 4 or unpacked[0] != PROTOCOL_VERSION:
            raise _foreign_header(header, "no list of version, request id, message and tensors")
        request_id, fields, tensors = unpacked[1], unpacked[2], unpacked[3]
        if type(request_id) is not int:
            raise MalformedMessage("a header that does not fit: its request id is no whole number", None)
        reader = self._reader
        try:
            reader.open(tensors, frames)
            try:
                kind = self._kinds[fields[0]]
            except (TypeError, IndexError, KeyError):
                raise self._no_tag(fields) from None
            message = convert(fields, kind, dec_hook=reader) if tensors else convert(fields, kind)
            reader.close()
        except _DECODE_ERRORS as error:
            reader.forget()
            raise MalformedMessage(f"a message that does not fit: {error}", request_id) from error
        return request_id, message

    def _no_tag(self, fields: Any) -> ValueError:
        """Return what is wrong with a message whose first field, its tag, stands for no class."""
        tag = fields[0] if type(fields) is tuple and fields else None
        return ValueError(f"{tag!r:.20} is no tag of the {self._expects} that are taken")

    # ------------------------------------------------------------ limits

    def _check_outgoing(self, message: Message, frames: list[Buffer], tensors: int) -> None:
        limits = self._limits
        header = limits.request_header if type(message) in _REQUEST_KINDS else limits.answer_header
        if len(frames[0]) > SMALL_BYTES:
            self._packer = self._new_packer()  # one that has grown is not kept
            self._check_large(message, frames[0], self._checks[header])
        if len(frames[0]) > header.total_bytes:
            what, most = f"a header of {len(frames[0])} bytes", header.total_bytes
        elif tensors > limits.tensors:
            what, most = f"{tensors} tensors", limits.tensors
        elif len(frames) > 1 and (size := size_in_bytes(frames)) > limits.message_bytes:
            what, most = f"{size} bytes", limits.message_bytes
        else:
            return
        raise LocalProtocolError(f"{type(message).__name__} has {what}; at most {most} travel in one message")

    def _new_packer(self) -> msgpack.Packer:
        return msgpack.Packer(default=self._writer, buf_size=PACK_BYTES)

    def _check_large(self, message: Message, header: Buffer, check: HeaderCheck) -> None:
        try:
            check(header)
        except ValueError as error:
            raise LocalProtocolError(f"{type(message).__name__} cannot be sent: {error}") from error


def _wrong_size(header: Buffer, limits: HeaderLimits) -> MalformedMessage:
    return MalformedMessage(f"a header of {len(header)} bytes; at most {limits.total_bytes} are taken", None)


def _check_of(limits: HeaderLimits) -> HeaderCheck:
    return HeaderCheck(
        depth=limits.depth,
        containers=limits.containers,
        array_length=limits.array_length,
        map_length=limits.map_length,
        text_bytes=limits.text_bytes,
        binary_bytes=limits.binary_bytes,
    )


def _unpack_options(limits: HeaderLimits) -> dict[str, Any]:
    """Return how msgpack unpacks a header: into tuples, and within the limits."""
    return {
        "use_list": False,
        "raw": False,
        "strict_map_key": True,
        "object_pairs_hook": _map_of,
        "max_array_len": limits.array_length,
        "max_map_len": limits.map_length,
        "max_str_len": limits.text_bytes,
        "max_bin_len": limits.binary_bytes,
        "max_ext_len": 0,
    }


def _map_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a map that has a key twice")
    return found


_unpack_small: Final = partial(msgpack.unpackb, use_list=False, object_pairs_hook=_map_of)


def _foreign_header(frame: Buffer, reason: str) -> MalformedMessage:
    """Say what is wrong with a header, and find version and request id in it if that is possible."""
    version, request_id = _preamble(frame)
    if version is not None and version != PROTOCOL_VERSION:
        return MalformedMessage(
            f"the peer speaks protocol version {version}, this process speaks {PROTOCOL_VERSION}", request_id
        )
    return MalformedMessage(f"a header that does not fit: {reason}", request_id)


def _preamble(frame: Buffer) -> tuple[int | None, int | None]:
    """Return the part of a header that no version may move, of a header that may be damaged behind it."""
    unpacker = msgpack.Unpacker(max_buffer_size=PREAMBLE_BYTES, max_ext_len=0)
    unpacker.feed(bytes(frame[:PREAMBLE_BYTES]))
    try:
        count = unpacker.read_array_header()
        version, request_id = (unpacker.unpack(), unpacker.unpack()) if count >= 2 else (None, None)
    except (ValueError, msgpack.OutOfData, RecursionError):
        return None, None
    if type(version) is not int or type(request_id) is not int:
        return None, None
    return version, request_id
