"""Bytes that are no message: refused with what is wrong, whatever they claim."""

import contextlib
import math
import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edlz.services.errors import RemoteProtocolError
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    Exchanged,
    Ping,
)
from edlz.services.transport.codec import PROTOCOL_VERSION, Codec, MalformedMessage
from edlz.services.transport.limits import FRAME_BYTES, Limits
from tests.unit.transport.any_messages import (
    ANY_MESSAGE,
    VECTOR_PART_TAG,
    codec_for,
    copied,
    is_same,
    push,
    status,
)


def header(*fields: Any, version: int = PROTOCOL_VERSION, request_id: Any = 7) -> bytes:
    return msgspec.msgpack.encode((version, request_id, *fields))


def one_tensor(dtype: str, shape: list[int], frames: int, number: Any = 0) -> bytes:
    """Return the header of a VectorPart whose values are tensor `number`, with one descriptor."""
    return header([VECTOR_PART_TAG, 3, [], number], [[dtype, shape, frames]])


ONES = np.ones(3, np.float32).tobytes()
NESTED = b"\x91" * 500 + b"\x90"
MALFORMED: dict[str, tuple[list[bytes], int | None, str]] = {
    # frames, the request id that an answer can name, part of what is said
    "no frame": ([], None, "header of 0 bytes"),
    "empty header": ([b""], None, "header"),
    "no msgpack": ([b"\xc1"], None, "header"),
    "not an array": ([b"\x01"], None, "header"),
    "deep nesting": ([b"\x91" * 100_000], None, "header"),
    "only an id": ([header()], 7, "header"),
    "other version": ([header("what", "ever", version=9)], 7, "protocol version 9, this process speaks 1"),
    "other version, other form": ([header(version=9)], 7, "protocol version 9"),
    "other version, same form": ([header([2, "ps", "j"], [], version=9)], 7, "protocol version 9"),
    "deep nesting inside": ([b"\x94\x01\x07" + b"\x91" * 100_000], 7, "more than 32 deep"),
    "deep nesting in a field": (
        [header([2, "ps", "DEEP"], []).replace(b"\xa4DEEP", NESTED)],
        7,
        "does not fit",
    ),
    "id a text": ([header([1], [], request_id="7")], None, "header"),
    "unknown tag": ([header([999], [])], 7, "999"),
    "a request to a client": ([header([1], [])], 7, "1 is no tag of the answers"),
    "tag that is true": ([header([True], [])], 7, "True is no tag"),
    "tag a list": ([header([[2], "ps", "j"], [])], 7, "is no tag"),
    "message a map": ([header({"a": 1}, [])], 7, "is no tag"),
    "message empty": ([header([], [])], 7, "is no tag"),
    "bytes behind it": ([header([2, "ps", "j"], []) + b"\x00"], 7, "1 bytes behind its end"),
    "no such fields": ([header([VECTOR_PART_TAG], [])], 7, "length"),
    "field of another type": ([header([2, 3, "j"], [])], 7, "Expected `str`"),
    "text not in UTF-8": ([header([2, "XY", "j"], []).replace(b"XY", b"\xff\xfe")], 7, "utf-8"),
    "huge array": ([b"\x94\x01\x07\xdd\xff\xff\xff\xff"], 7, "a list of 4294967295 items; at most"),
    "array that is not there": ([b"\x94\x01\x07\xdd\x00\x01\x00\x00"], 7, "truncated"),
    "huge map": ([b"\x94\x01\x07\xdf\xff\xff\xff\xff"], 7, "a map of 4294967295 pairs; at most"),
    "map that is not there": ([b"\x94\x01\x07\x82\x01\x01\x01"], 7, "truncated"),
    "huge text": ([b"\x94\x01\x07\xdb\xff\xff\xff\xff"], 7, "a text of 4294967295 bytes; at most"),
    "huge binary": ([b"\x94\x01\x07\xc6\xff\xff\xff\xff"], 7, "4294967295 bytes of binary data; at most"),
    "text that is not there": ([b"\x94\x01\x07\xaaabc"], 7, "truncated: a text of 10 bytes"),
    "half a number": ([b"\x94\x01\x07\xcf\x00\x00"], 7, "truncated"),
    "half a length": ([b"\x94\x01\x07\xdd\x00"], 7, "truncated"),
    "extension type": ([b"\x94\x01\x07\xd4\x05\x00\x90"], 7, "0xd4"),
    "extension type without data": ([b"\x94\x01\x07\xc7\x00\x05\x90"], 7, "0xc7"),
    "timestamp": ([b"\x94\x01\x07\xd6\xff\x00\x00\x00\x00\x90"], 7, "0xd6"),
    "key twice": ([b"\x94\x01\x07\x82\xa1a\x01\xa1a\x02\x90"], 7, "a key twice"),
    "key that is a number": ([b"\x94\x01\x07\x81\x01\x01\x90"], 7, "header"),
    "more lists than are taken": (
        [b"\x94\x01\x07\xdd\x00\x0f\xff\xff" + b"\x90" * 0xFFFFF + b"\x90"],
        7,
        "lists and maps",
    ),
    "id beyond 64 bits, or none": ([b"\x94\x01\xc0\x92\x02\xa0\x90"], None, "header"),
    "field beyond its range": (
        [header([33, [2**64 - 1, 2**64 - 1], -(2**63), 0, 1, 0, 0, 0], [])],
        7,
        "bool",
    ),
    "descriptors that are no list": ([header([2, "ps", "j"], 5)], 7, "no list of tensors"),
    "descriptor that is no list": ([header([2, "ps", "j"], [5])], 7, "not described"),
    "descriptor too short": ([header([2, "ps", "j"], [["<f4", [3]]])], 7, "not described"),
    "shape that is a text": ([header([2, "ps", "j"], [["<f4", "3", 1]]), ONES], 7, "not described"),
    "shape of floats": ([header([2, "ps", "j"], [["<f4", [3.0], 1]]), ONES], 7, "not described"),
    "shape that is true": ([header([2, "ps", "j"], [["<f4", [True], 1]]), ONES], 7, "not described"),
    "frames that are true": ([header([2, "ps", "j"], [["<f4", [3], True]]), ONES], 7, "not described"),
    "tensor not described": ([header([VECTOR_PART_TAG, 3, [], 0], []), ONES], 7, "no tensor"),
    "tensor not there": ([one_tensor("<f4", [3], 1)], 7, "0 are there"),
    "another tensor's number": ([one_tensor("<f4", [3], 1, number=1), ONES], 7, "tensor 1 where tensor 0"),
    "number that is no number": ([one_tensor("<f4", [3], 1, number="0" * 99), ONES], 7, "tensor 0 is due"),
    "number below zero": ([one_tensor("<f4", [3], 1, number=-1), ONES], 7, "tensor -1"),
    "number that is true": ([one_tensor("<f4", [3], 1, number=False), ONES], 7, "tensor False"),
    "other dtype": ([one_tensor("<i4", [3], 1), ONES], 7, "float32 is due"),
    "dtype of objects": ([one_tensor("|O", [3], 1), ONES * 2], 7, "'|O'"),
    "big-endian dtype": ([one_tensor(">f4", [3], 1), ONES], 7, "'>f4'"),
    "wrong size": ([one_tensor("<f4", [4], 1), ONES], 7, "16 are due"),
    "negative shape": ([one_tensor("<f4", [-3, -1], 1), ONES], 7, "shape"),
    "huge shape": ([one_tensor("<f4", [2**40], 1), ONES], 7, "are due"),
    "shape whose size overflows": ([one_tensor("<f4", [2**32, 2**32], 0)], 7, "are due"),
    "huge empty shape": ([one_tensor("<f4", [2**62, 2**62, 0], 0)], 7, "does not fit"),
    "many dimensions": ([one_tensor("<f4", [1] * 99, 1), b"1234"], 7, "shape"),
    "negative frames": ([one_tensor("<f4", [3], -1), ONES], 7, "in -1 frames"),
    "frames that are not there": ([one_tensor("<f4", [3], 2**40), ONES], 7, "1 are there"),
    "empty frame": ([one_tensor("<f4", [0], 1), b""], 7, "due"),
    "frame left over": ([one_tensor("<f4", [3], 1), ONES, ONES], 7, "1 frames that belong to no tensor"),
    "tensor left over": ([header([2, "ps", "j"], [["<f4", [3], 1]]), ONES], 7, "the message names 0"),
    "tensor named twice": (
        [header([33, [1, 1], 0, False, 1, 0, 0, 0], [["<f4", [3], 1]]), ONES],
        7,
        "tensor 0 where tensor 1",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_does_not_fit_is_malformed_and_says_so(name: str) -> None:
    frames, request_id, complaint = MALFORMED[name]
    with pytest.raises(RemoteProtocolError) as caught:
        Codec("answers").decode(frames)
    assert isinstance(caught.value, MalformedMessage)
    assert caught.value.request_id == request_id
    assert complaint in caught.value.message
    assert caught.value.help


def test_more_frames_than_any_message_has_are_malformed() -> None:
    limits = Limits(message_bytes=FRAME_BYTES, tensors=1)
    frames = [one_tensor("|u1", [limits.frames], limits.frames), *[b"x"] * limits.frames]
    with pytest.raises(MalformedMessage, match="more than 3 frames"):
        Codec("answers", limits).decode(frames)


@pytest.mark.parametrize(
    "claim",
    [
        one_tensor("<f4", [2**40], 1),
        one_tensor("<f4", [2**31, 2**31], 1),
        one_tensor("<f4", [2**40, 0], 1),
        b"\x94\x01\x07\x94\x25\x03\xdd\xff\xff\xff\xff\x00\x90",  # a list of 2**32 slots
        b"\x94\x01\x07\x91\x01\xdd\xff\xff\xff\xff",  # 2**32 descriptors
        b"\x94\x01\x07\xdb\xff\xff\xff\xff",  # a text of 4 GiB
    ],
)
def test_nothing_is_allocated_for_a_size_that_is_only_claimed(claim: bytes) -> None:
    codec = Codec("answers")
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage):
            codec.decode([claim, ONES])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000


ANY_FRAMES = st.lists(st.binary(max_size=200), max_size=5)
NUMBERS = st.integers(-(2**63), 2**64 - 1)
ATOMS = st.none() | st.booleans() | NUMBERS | st.floats() | st.text(max_size=8) | st.binary(max_size=8)
OBJECTS = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
DESCRIPTORS = st.tuples(
    st.sampled_from(["<f4", "<i8", "|u1", "x"]), st.lists(st.integers(-1, 3), max_size=4), st.integers(-1, 3)
)


@settings(max_examples=300, deadline=None, database=None)
@given(ANY_FRAMES, st.sampled_from(["requests", "answers"]))
def test_random_frames_are_malformed_and_nothing_worse(frames: list[bytes], expects: Any) -> None:
    with pytest.raises(MalformedMessage):
        Codec(expects).decode(frames)


@settings(max_examples=120, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(0, 50),
    st.lists(OBJECTS, max_size=12),
    st.lists(DESCRIPTORS | OBJECTS, max_size=4),
    ANY_FRAMES,
)
def test_random_fields_end_in_a_message_or_are_malformed(
    tag: int, fields: list[Any], tensors: list[Any], frames: list[bytes]
) -> None:
    for codec in (Codec("requests"), Codec("answers")):
        try:
            codec.decode([header([tag, *fields], tensors), *frames])
        except RemoteProtocolError as error:
            assert isinstance(error, MalformedMessage)  # noqa: PT017
            assert error.request_id == 7  # noqa: PT017


@settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(ANY_MESSAGE, st.data())
def test_damaged_messages_end_in_a_message_or_are_malformed(message: Message, data: st.DataObject) -> None:
    codec = codec_for(message)
    frames = copied(codec.encode(message, 7))
    for _ in range(data.draw(st.integers(1, 3))):
        which = data.draw(st.integers(0, len(frames) - 1))
        frame, place = frames[which], data.draw(st.integers(0, min(len(frames[which]), 2000)))
        damage = data.draw(st.sampled_from(["cut", "change", "insert", "drop", "repeat", "swap"]))
        if damage == "cut":
            frames[which] = frame[:place]
        elif damage == "change":
            frames[which] = frame[:place] + data.draw(st.binary(min_size=1, max_size=2)) + frame[place + 1 :]
        elif damage == "insert":
            frames[which] = frame[:place] + data.draw(st.binary(min_size=1, max_size=4)) + frame[place:]
        elif damage == "drop" and len(frames) > 1:
            del frames[which]
        elif damage == "repeat":
            frames.insert(which, frame)
        else:
            frames[0], frames[which] = frame, frames[0]
    try:
        codec.decode(frames)
    except RemoteProtocolError as error:
        assert isinstance(error, MalformedMessage)  # noqa: PT017


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0])
def test_seconds_that_decide_something_are_numbers(value: float) -> None:
    body = msgspec.structs.replace(status(), busy_s=value)
    with pytest.raises(MalformedMessage, match="Expected `float`"):
        Codec("requests").decode(Codec("requests").encode(body, 1))


def test_a_cut_message_is_always_malformed() -> None:
    message = push(np.ones(40, np.float32))
    codec = Codec("requests")
    frames = copied(codec.encode(message, 7))
    assert is_same(codec.decode(frames)[1], message)
    for place in range(len(frames[0])):
        with pytest.raises(MalformedMessage):
            codec.decode([frames[0][:place], *frames[1:]])
    for count in range(len(frames)):
        with pytest.raises(MalformedMessage):
            codec.decode(frames[:count])


def test_a_codec_goes_on_after_a_malformed_message() -> None:
    codec = Codec("answers")
    message = Exchanged(incarnation=(1, 1), mark=1, finished=False, version=2, dense=np.ones(4, np.float32))
    good = copied(codec.encode(message, 3))
    for frames, _, _ in MALFORMED.values():
        with pytest.raises(MalformedMessage):
            codec.decode(frames)
        request_id, got = codec.decode(good)
        assert request_id == 3
        assert is_same(message, got)


def test_fields_that_a_newer_peer_adds_at_the_end_are_skipped() -> None:
    assert Codec("requests").decode([header([1, "new", [3]], [], "newer")]) == (7, Ping())


# What unpacks to many times its bytes.
DENSE_FIELDS = {
    "lists of one": b"\x91\x00",
    "lists of nothing": b"\x90",
    "maps of nothing": b"\x80",
    "maps of one": b"\x81\xa1a\x00",
    "short texts": b"\xa2ab",
    "short binaries": b"\xc4\x01x",
    "floats": b"\xcb" + b"\x3f" * 8,
    "numbers": b"\xcd\x7f\x7f",
}


@pytest.mark.parametrize("name", DENSE_FIELDS)
def test_a_header_takes_no_more_than_a_few_times_its_bytes(name: str) -> None:
    item = DENSE_FIELDS[name]
    count = 1_000_000 // len(item)
    data = b"\x94\x01\x07\x92\x01\xdd" + count.to_bytes(4, "big") + item * count + b"\x90"
    codec = Codec("requests")
    tracemalloc.start()
    try:
        with contextlib.suppress(MalformedMessage):
            codec.decode([data])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 * len(data)
