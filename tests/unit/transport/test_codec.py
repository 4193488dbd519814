"""The codec: what is encoded comes back the same, and what cannot be sent is refused."""

import math
import types
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edlz.services.errors import ConfigError, LocalProtocolError
from edlz.services.protocol.job_status import JobStatus
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    WorkerStatus,
)
from edlz.services.transport import codec as codec_module
from edlz.services.transport.codec import Codec, MalformedMessage
from edlz.services.transport.limits import FRAME_BYTES, HeaderLimits, Limits
from tests.unit.transport.any_messages import (
    FULL,
    MESSAGES,
    codec_for,
    copied,
    decoded_values,
    is_same,
    part,
    push,
    status,
)


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


def test_frames_may_be_larger_and_smaller_ones_are_taken_still() -> None:
    large = Codec("answers", Limits(frame_bytes=4 * FRAME_BYTES))
    whole, cut = (codec.encode(part(5 * FULL), 1) for codec in (large, Codec("answers")))
    assert (len(whole), len(cut)) == (2, 4)
    for frames in (whole, cut):
        assert np.array_equal(decoded_values(copied(frames)), part(5 * FULL).values)
        assert large.decode(copied(frames))[0] == 1


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
