"""Whole messages through live sockets of one process: the compiled way and pyzmq's do the same."""

import ctypes
import errno
import gc
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import zmq

from edlz.core_ext import _wire
from edlz.services.transport import wire as wire_module
from edlz.services.transport.codec import Buffer
from edlz.services.transport.wire import (
    LARGE_BYTES,
    PyzmqWire,
    Wire,
    is_compiled_usable,
    open_wire,
    release_departed,
)

MOST_FRAMES = 5
WAIT_MS = 5000
POLLIN, POLLOUT = int(zmq.POLLIN), int(zmq.POLLOUT)

Open = Callable[["zmq.Socket[bytes]"], Wire]


def open_compiled(socket: "zmq.Socket[bytes]") -> Wire:
    wire = open_wire(socket, MOST_FRAMES)
    assert isinstance(wire, _wire.MessageSocket)
    return wire


def open_pyzmq(socket: "zmq.Socket[bytes]") -> Wire:
    return PyzmqWire(socket, MOST_FRAMES)


@pytest.fixture(params=[open_compiled, open_pyzmq], ids=["compiled", "pyzmq"])
def open_it(request: pytest.FixtureRequest) -> Open:
    way: Open = request.param
    return way


class Sockets:
    """A ROUTER and its only peer, named `peer`, with a wire each."""

    def __init__(self, open_it: Open) -> None:
        self.context = zmq.Context()
        self.router, self.dealer = self.context.socket(zmq.ROUTER), self.context.socket(zmq.DEALER)
        self.router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.dealer.setsockopt(zmq.IDENTITY, b"peer")
        port = self.router.bind_to_random_port("tcp://127.0.0.1")
        self.dealer.connect(f"tcp://127.0.0.1:{port}")
        self.server, self.client = open_it(self.router), open_it(self.dealer)

    def close(self) -> None:
        for wire, socket in ((self.server, self.router), (self.client, self.dealer)):
            wire.close()
            socket.close(0)
        self.context.term()


@pytest.fixture
def sockets(open_it: Open) -> Iterator[Sockets]:
    made = Sockets(open_it)
    yield made
    made.close()


def received(wire: Wire, socket: "zmq.Socket[bytes]") -> list[Any]:
    assert socket.poll(WAIT_MS), "nothing came"
    frames = wire.receive()
    assert frames is not None
    return frames


def until(is_true: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_MS / 1000
    while not is_true():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.001)


def test_messages_travel_both_ways(sockets: Sockets) -> None:
    assert sockets.server.receive() is None
    messages: list[list[Buffer]] = [
        [b"one"],
        [b"", b"two", b""],
        [memoryview(b"three"), b"\0" * (LARGE_BYTES - 1)],
    ]
    for frames in messages:
        departure = sockets.client.send(frames)
        assert departure is not None
        assert departure.done
        assert received(sockets.server, sockets.router) == [b"peer", *frames]
        assert sockets.server.send(frames, b"peer") is not None
        assert received(sockets.client, sockets.dealer) == frames
    assert sockets.client.receive() is None


def test_small_frames_are_bytes_and_large_ones_views_that_outlive_the_sockets(open_it: Open) -> None:
    sockets = Sockets(open_it)
    sizes = (LARGE_BYTES - 1, LARGE_BYTES, 3_000_000)
    sent = [np.arange(size, dtype=np.uint8).data for size in sizes]
    sockets.client.send(sent)
    _, small, *large = received(sockets.server, sockets.router)
    assert type(small) is bytes
    sockets.close()
    assert small == sent[0]
    for view, frame in zip(large, sent[1:], strict=True):
        assert type(view) is memoryview
        assert view.readonly
        assert view == frame


def test_events_are_those_of_the_socket(sockets: Sockets) -> None:
    until(lambda: sockets.client.events() & POLLOUT)
    assert not sockets.server.events() & POLLIN
    sockets.client.send([b"1"])
    until(lambda: sockets.server.events() & POLLIN)


def test_the_rest_of_a_message_with_too_many_frames_is_left_out(sockets: Sockets) -> None:
    sockets.client.send([b"%d" % number for number in range(MOST_FRAMES + 7)])
    sockets.client.send([b"next"])
    assert received(sockets.server, sockets.router) == [b"peer", b"0", b"1", b"2", b"3"]
    assert received(sockets.server, sockets.router) == [b"peer", b"next"]


def test_an_unknown_peer_takes_nothing(sockets: Sockets) -> None:
    assert sockets.server.send([b"1", b"2"], b"nobody") is None
    sockets.client.send([b"3"])
    assert received(sockets.server, sockets.router) == [b"peer", b"3"]


def test_a_full_peer_takes_nothing(open_it: Open) -> None:
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.set_hwm(1)
    socket.connect("inproc://nobody-listens")
    wire = open_it(socket)
    while wire.send([b"1", b"2"]) is not None:
        pass
    assert not wire.events() & POLLOUT
    socket.close(0)
    context.term()


def test_a_large_frame_is_lent_until_it_has_left(sockets: Sockets) -> None:
    values = np.ones(2_000_000, np.float32)
    array = weakref.ref(values)
    departure = sockets.client.send(
        [b"head", values.data.cast("B")[: 1 << 20], values.data.cast("B")[1 << 20 :]]
    )
    assert departure is not None
    del values
    assert len(received(sockets.server, sockets.router)) == 4
    until(lambda: departure.done and array() is None)


def test_a_large_frame_is_held_until_its_socket_gives_it_up(open_it: Open) -> None:
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.connect("inproc://nobody-listens")
    wire, values = open_it(socket), np.ones(LARGE_BYTES, np.uint8)
    array = weakref.ref(values)
    departure = wire.send([values.data])
    assert departure is not None
    del values
    gc.collect()
    assert array() is not None
    assert not departure.done
    wire.close()
    socket.close(0)
    context.term()
    until(lambda: departure.done and array() is None)


def test_what_cannot_be_a_frame_is_an_error_and_nothing_is_kept(sockets: Sockets) -> None:
    wrong: Any = ["text"]
    with pytest.raises(TypeError):
        sockets.client.send(wrong)
    sockets.client.send([b"1"])
    assert received(sockets.server, sockets.router) == [b"peer", b"1"]


def test_a_closed_wire_says_so() -> None:
    sockets = Sockets(open_compiled)
    sockets.close()
    for call in (sockets.server.receive, sockets.server.events, lambda: sockets.server.send([b"1"])):
        with pytest.raises(RuntimeError, match="closed"):
            call()


# ---------------------------------------------------------------- a connection that breaks within a message

MSG_SEND = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
ERRNO = ctypes.CFUNCTYPE(ctypes.c_int)


def test_a_message_that_breaks_off_is_shown_to_its_end_by_pyzmq(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZeroMQ refuses one frame and drops the rest of the message, if it is shown the rest."""
    shown: list[tuple[bytes, bool]] = []
    sockets = Sockets(open_pyzmq)

    def send(frame: bytes, flags: int, *rest: Any) -> None:
        shown.append((bytes(frame), bool(flags & zmq.SNDMORE)))
        if len(shown) == 2:
            raise zmq.Again

    monkeypatch.setattr(sockets.client, "_send", send)
    assert sockets.client.send([b"1", b"2", b"3"]) is None
    assert shown == [(b"1", True), (b"2", True), (b"3", False)]
    shown[:] = [(b"", False)]
    assert sockets.client.send([b"1", b"2"]) is None
    assert shown[1:] == [(b"1", True)]
    sockets.close()


def test_a_message_that_breaks_off_is_shown_to_its_end_by_the_compiled_way() -> None:
    real = wire_module.addresses()
    shown: list[bool] = []
    sockets = Sockets(open_compiled)

    def send(message: int, socket: int, flags: int) -> int:
        shown.append(bool(flags & zmq.SNDMORE))
        return -1 if len(shown) == 2 else 1

    fakes = MSG_SEND(send), ERRNO(lambda: errno.EAGAIN)
    names = "zmq_msg_send", "zmq_errno"
    try:
        fake = {
            name: ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in zip(names, fakes, strict=True)
        }
        _wire.load({**real, **fake})
        large = np.ones(LARGE_BYTES, np.uint8)
        array = weakref.ref(large)
        assert sockets.client.send([b"1", large.data, b"3"]) is None
        assert shown == [True, True, False]
        del large
        release_departed()
        assert array() is None, "what was refused is held"
        shown[:] = [False]
        assert sockets.client.send([b"1", b"2"]) is None
        assert shown[1:] == [True]
    finally:
        _wire.load(real)
        sockets.close()


# ---------------------------------------------------------------- where libzmq's functions are not found


@pytest.mark.parametrize("missing", ["library", "function"])
def test_without_the_functions_pyzmq_does_it(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(path: str) -> object:
        if missing == "library":
            raise OSError("no such file")
        return object()

    is_compiled_usable.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", load)
    try:
        sockets = Sockets(lambda socket: open_wire(socket, MOST_FRAMES))
        assert isinstance(sockets.client, PyzmqWire)
        sockets.client.send([b"1"])
        assert received(sockets.server, sockets.router) == [b"peer", b"1"]
        sockets.close()
    finally:
        is_compiled_usable.cache_clear()
