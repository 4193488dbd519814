"""The codec: what is encoded comes back the same, and nothing but RemoteProtocolError comes of anything else."""

import contextlib
import math
import tracemalloc
import types
import typing
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edlz.services.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from edlz.services.protocol.job_status import JobStatus
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    ANSWERS,
    REQUESTS,
    Exchange,
    Exchanged,
    Ping,
    Pull,
    Push,
    VectorPart,
    WorkerStatus,
    WorkerTelemetry,
)
from edlz.services.transport import codec as codec_module
from edlz.services.transport.codec import PROTOCOL_VERSION, Codec, MalformedMessage
from edlz.services.transport.limits import FRAME_BYTES, HeaderLimits, Limits

VECTOR_PART_TAG = 37
FULL = FRAME_BYTES // 8  # elements of 8 bytes that fill a frame

# ---------------------------------------------------------------- any message


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


# ---------------------------------------------------------------- what is encoded comes back


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_every_message_comes_back_the_same(kind: type[Message]) -> None:
    @settings(max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(MESSAGES[kind], st.integers(0, 2**63 - 1))
    def check(message: Message, request_id: int) -> None:
        codec = codec_for(message)
        frames = codec.encode(message, request_id)
        assert all(len(frame) <= FRAME_BYTES for frame in frames[1:])
        got_id, got = codec.decode(copied(frames))
        assert got_id == request_id
        assert is_same(message, got)

    check()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0])
def test_floats_that_are_no_numbers_travel(value: float) -> None:
    got = Codec("requests").decode(Codec("requests").encode(status(loss=value), 1))[1]
    assert isinstance(got, WorkerStatus)
    assert np.float64(got.telemetry.loss).tobytes() == np.float64(value).tobytes()


@pytest.mark.parametrize("count", [0, 1, 2 * FULL, 2 * FULL + 1, 5 * FULL])
def test_a_tensor_is_cut_into_frames_of_a_mebibyte_that_are_views_of_it(count: int) -> None:
    message = part(count)
    frames = Codec("answers").encode(message, 1)
    assert len(frames) == 1 + -(-message.values.nbytes // FRAME_BYTES)
    for frame in frames[1:]:
        assert isinstance(frame, memoryview)
        owner: Any = frame.obj
        assert owner is message.values
    got = decoded_values(copied(frames))
    assert got.tobytes() == message.values.tobytes()
    assert not got.flags.writeable


def test_a_tensor_in_one_frame_is_not_copied() -> None:
    frames = copied(Codec("answers").encode(part(9), 1))
    assert np.shares_memory(decoded_values(frames), np.frombuffer(frames[1], np.uint8))


def test_tensors_are_aligned_wherever_their_frame_lies() -> None:
    frames = Codec("answers").encode(part(99), 1)
    room = bytearray(b"." + bytes(frames[1]))
    got = decoded_values([frames[0], memoryview(room)[1:]])
    assert got.flags.aligned
    assert not got.flags.writeable
    assert got.tolist() == list(range(99))


def test_a_tensor_in_several_frames_starts_at_a_cache_line() -> None:
    assert decoded_values(copied(Codec("answers").encode(part(600_000), 1))).ctypes.data % 64 == 0


def test_numpy_scalars_travel_as_numbers() -> None:
    fields: dict[str, Any] = {"slots": np.int64(3), "started_at": np.float64(1.5), "now": np.float32(2.5)}
    message = JobStatus(name="j", state="Training", mode="sync", **fields)
    got = Codec("answers").decode(Codec("answers").encode(message, 1))[1]
    assert isinstance(got, JobStatus)
    assert (got.slots, got.started_at, got.now) == (3, 1.5, 2.5)


# ---------------------------------------------------------------- what cannot be sent


@pytest.mark.parametrize(
    ("gradient", "complaint"),
    [
        (np.zeros((4, 4), np.float32)[:, 1], "not C-contiguous"),
        (np.zeros((4, 4), np.float32, order="F"), "not C-contiguous"),
        (np.zeros(4, np.float16), "float16"),
        (np.zeros(4, ">f4"), ">f4"),
        (np.array([object()]), "object"),
        (np.zeros(4, "M8[s]"), "datetime64"),
    ],
)
def test_an_array_that_cannot_be_sent_as_it_lies_is_refused(gradient: Any, complaint: str) -> None:
    with pytest.raises(LocalProtocolError, match=complaint):
        Codec("answers").encode(push(gradient), 1)


@pytest.mark.parametrize("loss", [object(), 1j, "\ud800", np.longdouble(1)])
def test_a_value_that_msgpack_does_not_know_is_refused(loss: Any) -> None:
    with pytest.raises(LocalProtocolError, match="WorkerStatus cannot be sent"):
        Codec("answers").encode(status(loss=loss), 1)


def test_an_integer_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="WorkerStatus cannot be sent"):
        Codec("answers").encode(status(boot=2**64), 1)


@pytest.mark.parametrize(
    "limits",
    [
        Limits(request_header=HeaderLimits(total_bytes=20, containers=9)),
        Limits(message_bytes=4000),
        Limits(tensors=1),
    ],
    ids=["header", "message", "tensors"],
)
def test_limits_hold_for_both_sides(limits: Limits) -> None:
    message = push(np.zeros(1000, np.float32))
    with pytest.raises(LocalProtocolError, match="at most"):
        Codec("requests", limits).encode(message, 1)
    with pytest.raises(MalformedMessage, match="at most"):
        Codec("requests", limits).decode(Codec("requests").encode(message, 1))


def test_an_encoding_that_failed_leaves_nothing_behind() -> None:
    codec = Codec("requests")
    with pytest.raises(LocalProtocolError):
        codec.encode(push(np.zeros(4, np.float16)), 1)
    assert codec.decode(codec.encode(push(np.zeros(4, np.float32)), 2))[0] == 2


def test_big_endian_machines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_module, "sys", types.SimpleNamespace(byteorder="big"))
    with pytest.raises(ConfigError, match="big-endian"):
        Codec("requests")


# ---------------------------------------------------------------- what is no message


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
