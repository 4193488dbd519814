"""What is made of connections that are refused, without any."""

import dataclasses
import logging

import pytest

from edlz.services.transport import handshakes
from edlz.services.transport.handshakes import (
    ACCEPTED,
    CONNECTED,
    CRYPTOGRAPHIC,
    DISCONNECTED,
    FAILED,
    FAILED_AUTH,
    FAILED_PROTOCOL,
    HUNG_UP_S,
    LOG_EVERY_S,
    MISMATCH,
    MOST_ADDRESSES,
    PAUSE_S,
    REFUSED_S,
    STALLED_S,
    SURE_HANG_UPS,
    Refusals,
    RefusedPeers,
)
from edlz.services.transport.keys import make_job_keys

KEYS = dataclasses.replace(make_job_keys().of("worker"), source="/jobs/j/keys")

# ---------------------------------------------------------------- a client's side


@pytest.mark.parametrize(
    ("has_keys", "event", "value", "text"),
    [
        (True, FAILED_AUTH, 400, "does not know the keys"),
        (True, FAILED_PROTOCOL, MISMATCH, "does not encrypt"),
        (False, FAILED_PROTOCOL, MISMATCH, "takes encrypted connections only"),
        (True, FAILED_PROTOCOL, CRYPTOGRAPHIC, "does not answer as a service"),
        (True, FAILED, 32, "hangs up"),
    ],
)
def test_a_client_gives_up_when_nothing_but_refusals_comes(
    has_keys: bool, event: int, value: int, text: str
) -> None:
    refusals = Refusals("tcp://host:1", KEYS if has_keys else None)
    limit_s = HUNG_UP_S if event == FAILED else REFUSED_S
    now = 100.0
    while now < 100.0 + limit_s:
        refusals.on_event(CONNECTED, 5, now)
        assert refusals.on_event(event, value, now) is None
        assert refusals.error is not None
        assert refusals.is_final_for_zeromq == (event != FAILED)
        now += 2.0
    refusals.on_event(CONNECTED, 5, now)
    error = refusals.on_event(event, value, now)
    assert error is not None
    assert text in error.message
    assert "tcp://host:1" in error.message
    assert "keys_dir" in error.help


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (FAILED_AUTH, "does not know the keys of this process (worker, of /jobs/j/keys)"),
        (FAILED, "hangs up on this process: its keys (worker, of /jobs/j/keys) are probably not those"),
    ],
)
def test_what_was_refused_and_by_whom_is_logged_at_once_and_once(
    event: int, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    refusals = Refusals("tcp://host:1", KEYS, "ps")
    first = SURE_HANG_UPS if event == FAILED else 1
    for number in range(1, 6):
        refusals.on_event(CONNECTED, 5, number / 10)
        assert refusals.on_event(event, 400, number / 10) is None
        assert len(caplog.records) == (number >= first)
    assert f"the ps at tcp://host:1 {told}" in caplog.text
    assert "--keys_dir" in caplog.text
    refusals.on_event(CONNECTED, 5, PAUSE_S + 10.0)
    refusals.on_event(event, 400, PAUSE_S + 10.0)
    refusals.on_event(event, 400, PAUSE_S + 10.1)
    assert len(caplog.records) == 2, "after a pause it is news again"


def test_a_server_that_ends_in_a_handshake_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals("tcp://host:1", KEYS)
    refusals.on_event(CONNECTED, 5, 0.0)
    refusals.on_event(FAILED, 32, 0.1)
    assert caplog.records == []


def test_a_pause_begins_anew() -> None:
    refusals = Refusals("tcp://host:1", KEYS)
    assert refusals.on_event(FAILED_AUTH, 400, 0.0) is None
    assert refusals.on_event(FAILED_AUTH, 400, PAUSE_S + 1.0) is None
    assert refusals.on_event(FAILED_AUTH, 400, PAUSE_S + 1.0 + REFUSED_S) is not None


def test_a_connection_begins_anew() -> None:
    refusals = Refusals("tcp://host:1", KEYS)
    refusals.on_event(FAILED_AUTH, 400, 0.0)
    refusals.clear()
    assert refusals.error is None
    assert not refusals.is_final_for_zeromq
    assert refusals.on_event(FAILED_AUTH, 400, REFUSED_S + 1.0) is None


def test_a_server_that_is_slow_or_ends_refuses_nobody() -> None:
    refusals = Refusals("tcp://host:1", KEYS)
    for now in range(0, 100, 10):
        refusals.on_event(CONNECTED, 5, now)
        assert refusals.on_event(FAILED, 32, now + STALLED_S + 1.0) is None
    assert refusals.error is None


def test_hanging_up_on_a_client_without_keys_is_no_refusal() -> None:
    refusals = Refusals("tcp://host:1", None)
    for now in range(100):
        assert refusals.on_event(FAILED, 32, now) is None
    assert refusals.error is None


# ---------------------------------------------------------------- a server's side


class Door:
    """A server's monitor, with a clock and the addresses of connections."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.addresses: dict[int, str] = {}
        self.peers = RefusedPeers(lambda: self.now, lambda fd: self.addresses[fd])

    def refuse(self, address: str, event: int = FAILED_AUTH, value: int = 400, fd: int = 9) -> None:
        self.addresses[fd] = address
        self.peers.on_event(ACCEPTED, fd)
        self.peers.on_event(event, value)
        self.peers.on_event(DISCONNECTED, fd)


@pytest.mark.parametrize(
    ("event", "value", "reason"),
    [
        (FAILED_AUTH, 400, "its key is not one of this job's keys"),
        (FAILED_PROTOCOL, MISMATCH, "it does not encrypt"),
        (FAILED_PROTOCOL, CRYPTOGRAPHIC, "it expects another server key than this job's"),
        (FAILED_PROTOCOL, 0x10000000, "it does not speak ZeroMQ's protocol"),
    ],
)
def test_a_refused_peer_is_logged(
    event: int, value: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    Door().refuse("10.0.0.1", event, value)
    assert caplog.messages == [f"connection refused: peer=10.0.0.1 reason={reason}"]


def test_one_line_an_address_and_minute(caplog: pytest.LogCaptureFixture) -> None:
    door = Door()
    for _ in range(100):
        door.refuse("10.0.0.1")
        door.refuse("10.0.0.2")
    assert len(caplog.messages) == 2
    door.now += LOG_EVERY_S
    door.refuse("10.0.0.1")
    assert "(99 more" in caplog.messages[2]


def test_the_log_does_not_grow_with_addresses(caplog: pytest.LogCaptureFixture) -> None:
    door = Door()
    for number in range(10 * MOST_ADDRESSES):
        door.refuse(f"10.0.{number // 256}.{number % 256}")
    assert len(caplog.messages) == MOST_ADDRESSES + 1
    assert "peer=others" in caplog.messages[-1]
    assert len(door.peers._logged) == MOST_ADDRESSES + 1
    door.now += 2 * LOG_EVERY_S
    door.refuse("10.9.9.9")
    assert "peer=10.9.9.9" in caplog.messages[-1]
    assert len(door.peers._logged) == 1


def test_who_connects_and_leaves_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    door = Door()
    door.refuse("10.0.0.1", FAILED, 104)  # a port scan, or a probe
    door.peers.on_event(ACCEPTED, 9)
    door.peers.on_event(DISCONNECTED, 9)  # an admitted peer
    assert [r for r in caplog.records if r.levelno > logging.DEBUG] == []
    assert door.peers._peers == {}


def test_a_descriptor_that_is_no_connection_has_no_address(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("x") / "file"
    with path.open("w") as file:
        assert handshakes._address_of(file.fileno()) == "unknown"
        assert file.write("still open")
    assert handshakes._address_of(10_000) == "unknown"
