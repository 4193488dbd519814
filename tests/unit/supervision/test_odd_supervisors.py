"""A supervisor's status of services that no job has, or of numbers that nothing has, is refused, and changes nothing."""

import asyncio
from pathlib import Path

import pytest

from edlz.services.errors import RemoteProtocolError
from edlz.services.master.core.tasks.refusals import check_supervisor
from edlz.services.master.service import MasterService, serve_master
from edlz.services.process.runtime import Stop
from edlz.services.protocol.messages import ProcessExit, SupervisorStatus
from edlz.services.transport.rpc import ReplyTo
from tests.builders import settings_in

ODD = (
    *("", "ps", "ps-", "ps-x", "ps--1", "ps-01", "ps-1 ", "ps-2", "ps-\u0663", "PS-0"),
    *(
        "worker",
        "worker-abc",
        "worker-1-2",
        "worker-1_0",
        f"worker-{2**53}",
        "worker-" + "9" * 5000,
        "worker-1\n",
    ),
    *("master-0", "spare-1", "x-1"),
)


def statuses_of(name: str) -> dict[str, SupervisorStatus]:
    """Every way to name a service."""
    return {
        "running": SupervisorStatus(seq=1, running=("ps-0", name)),
        "placed": SupervisorStatus(seq=1, placed=(name,)),
        "crowded": SupervisorStatus(seq=1, crowded=(name,)),
        "unreachable": SupervisorStatus(seq=1, unreachable=(name,)),
        "notes": SupervisorStatus(seq=1, notes={name: "no room"}),
        "exits": SupervisorStatus(seq=1, exits=(ProcessExit(name=name, code=1),)),
    }


@pytest.mark.parametrize("name", ODD)
def test_a_name_that_no_service_has_is_refused(name: str) -> None:
    for status in statuses_of(name).values():
        with pytest.raises(RemoteProtocolError, match="a supervisor names "):
            check_supervisor(status, partitions=2)


@pytest.mark.parametrize(
    "status",
    [
        SupervisorStatus(seq=-1),
        SupervisorStatus(seq=1, room=-1),
        SupervisorStatus(seq=1, room=2**62),
        SupervisorStatus(seq=1, exits=(ProcessExit(name="ps-0", code=1, launch=-1),)),
    ],
)
def test_a_number_that_nothing_has_is_refused(status: SupervisorStatus) -> None:
    with pytest.raises(RemoteProtocolError, match="a supervisor counts "):
        check_supervisor(status, partitions=2)


@pytest.mark.parametrize("name", ["master", "ps-0", "ps-1", "worker-0", "worker-12", f"worker-{2**53 - 1}"])
def test_a_name_that_a_service_has_is_taken(name: str) -> None:
    for status in statuses_of(name).values():
        check_supervisor(status, partitions=2)


def facts_of(service: MasterService) -> object:
    processes = service._core.processes
    return processes.running, processes.desired.record, processes.notes


@pytest.mark.parametrize("field", statuses_of(""))
def test_a_master_refuses_it_and_goes_on(tmp_path: Path, field: str) -> None:
    config = settings_in(tmp_path, num_workers=1)
    stop, seen = Stop(), []

    async def attend(service: MasterService) -> None:
        service._is_led_here = False  # as if its launcher was another process
        try:
            for name in ("ps-x", "worker-abc", "ps-7"):
                status = statuses_of(name)[field]
                before = facts_of(service)
                with pytest.raises(RemoteProtocolError, match="a supervisor names "):
                    service._on_request(ReplyTo(b"x", 1), status)
                assert facts_of(service) == before
                assert not service._core.processes.silent_servers.unreachable
                assert not service._core.processes.live.unreachable
                assert not service._core.processes.is_supervised
                seen.append(service.status().state)
        finally:
            stop.set(0, "the test is over")

    assert asyncio.run(serve_master(config, stop, attend)) == 0
    assert len(seen) == 3
