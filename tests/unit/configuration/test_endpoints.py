"""Addresses: what users may write, what others are told, and what is admitted without keys."""

import logging

import pytest

from edlz.services.configuration.endpoints import (
    is_wildcard,
    listening_endpoint,
    local_endpoint,
    parse_endpoint,
    reachable_endpoint,
)
from edlz.services.errors import ConfigError
from edlz.services.transport.keys import make_job_keys
from edlz.services.transport.security import Security

KEYS = make_job_keys()


@pytest.mark.parametrize(
    ("text", "is_beyond"),
    [
        ("tcp://localhost:50001", False),
        ("tcp://127.0.0.1:50001", False),
        ("tcp://127.3.4.5:50001", False),
        ("tcp://[::1]:50001", False),
        ("tcp://10.0.0.1:50001", True),
        ("tcp://[fd00::1]:50001", True),
        ("tcp://node7:50001", True),
        ("tcp://elasticdl-j-ps-0.default.svc:2222", True),
        ("ipc:///tmp/x", False),
    ],
)
def test_where_a_client_connects(text: str, is_beyond: bool) -> None:
    assert parse_endpoint(text).is_beyond == is_beyond


@pytest.mark.parametrize(
    "text",
    [
        "tcp://0.0.0.0:5000",
        "tcp://*:5000",
        "tcp://[::]:5000",
        "tcp://10.0.0.1:0",
        "tcp://10.0.0.1:*",
        "tcp://:5000",
        "tcp://node7",
        "tcp://no de:5000",
        "tcp://-x:5000",
        "tcp://node7;10.0.0.1:5000",
        "tcp://10.0.0:5000",
        "tcp://300.0.0.1:5000",
        "tcp://::1:5000",
    ],
)
def test_where_no_client_can_connect(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_endpoint(text)


@pytest.mark.parametrize(
    "text", ["tcp://0.0.0.0:5000", "tcp://*:5000", "tcp://[::]:0", "tcp://10.0.0.1:*", "tcp://[fd00::1]:1"]
)
def test_where_a_server_listens(text: str) -> None:
    assert parse_endpoint(text, binding=True).is_beyond


def test_a_server_does_not_listen_at_a_name() -> None:
    with pytest.raises(ConfigError, match="'node7' is not an IP address of this machine"):
        parse_endpoint("tcp://node7:5000", binding=True)


@pytest.mark.parametrize(
    ("host", "listens", "told"),
    [
        ("", "tcp://127.0.0.1:7", "tcp://127.0.0.1:7"),
        ("localhost", "tcp://127.0.0.1:7", "tcp://127.0.0.1:7"),
        ("10.0.0.1", "tcp://10.0.0.1:7", "tcp://10.0.0.1:7"),
        ("fd00::1", "tcp://[fd00::1]:7", "tcp://[fd00::1]:7"),
        ("[fd00::1]", "tcp://[fd00::1]:7", "tcp://[fd00::1]:7"),
        ("node7", "tcp://*:7", "tcp://node7:7"),
    ],
)
def test_a_host_is_where_others_find_a_service(host: str, listens: str, told: str) -> None:
    assert listening_endpoint(host, 7) == listens
    assert parse_endpoint(listens, binding=True)
    bound = listens.replace("*", "0.0.0.0")  # as ZeroMQ tells it
    assert reachable_endpoint(bound, host) == told
    assert parse_endpoint(told)


@pytest.mark.parametrize("bound", ["tcp://0.0.0.0:7", "tcp://[::]:7"])
def test_all_addresses_are_none_to_connect_to(bound: str) -> None:
    for host in ("", "*", "0.0.0.0", "::"):
        with pytest.raises(ConfigError, match="no address that others can connect to") as caught:
            reachable_endpoint(bound, host)
        assert "--host" in caught.value.help
    assert reachable_endpoint(bound, "10.0.0.1") == "tcp://10.0.0.1:7"
    assert reachable_endpoint(bound, "fd00::1") == "tcp://[fd00::1]:7"
    assert not parse_endpoint(local_endpoint(bound)).is_beyond


def test_other_addresses_are_told_as_they_are() -> None:
    for bound in ("ipc:///tmp/x", "tcp://10.0.0.1:7"):
        assert reachable_endpoint(bound, "node7") == local_endpoint(bound) == bound


def test_wildcards() -> None:
    assert all(is_wildcard(host) for host in ("*", "0.0.0.0", "::", "[::]"))
    assert not any(is_wildcard(host) for host in ("", "127.0.0.1", "::1", "node7"))


@pytest.mark.parametrize(
    ("text", "binding"),
    [
        ("tcp://0.0.0.0:7", True),
        ("tcp://10.0.0.1:7", True),
        ("tcp://10.0.0.1:7", False),
        ("tcp://n:7", False),
    ],
)
def test_nothing_leaves_this_machine_without_keys(text: str, binding: bool) -> None:
    with pytest.raises(ConfigError, match="beyond this machine needs encryption") as caught:
        Security().admit(text, binding=binding)
    assert "--keys_dir" in caught.value.help
    assert "--transport_security=none" in caught.value.help
    assert Security(KEYS.of("worker")).admit(text, binding=binding).is_beyond


def test_an_open_job_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    security = Security(is_open=True)
    security.admit("tcp://127.0.0.1:7")
    assert caplog.records == []
    for port in (7, 8):
        security.admit(f"tcp://10.0.0.1:{port}")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "NOT ENCRYPTED" in record.message
    assert "tcp://10.0.0.1:7" in record.message


def test_keys_warn_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    Security(KEYS.of("ps")).admit("tcp://0.0.0.0:7", binding=True)
    assert caplog.records == []
