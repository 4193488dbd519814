"""A master with a launcher in its own process takes no orders from the network, whoever holds the job's keys."""

import asyncio
from pathlib import Path

import pytest

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import EdlzError, RemoteProtocolError
from edlz.services.master.service import MasterService, serve_master
from edlz.services.process.runtime import Stop
from edlz.services.protocol.job_status import JobStatus, StatusRequest
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import Scaled, ScaleRequest, SupervisorOrders, SupervisorStatus
from edlz.services.transport.keys import make_job_keys, write_keys
from edlz.services.transport.rpc import RpcClient
from edlz.services.transport.security import Security

ORDERS = (SupervisorStatus(seq=1, stop=True), ScaleRequest(workers=0))


async def answers(folder: Path, data: Path, *, is_led_here: bool) -> list[Message | EdlzError]:
    """Return what a master answers to a worker's key."""
    keys = make_job_keys()
    write_keys(folder / "keys", keys)
    config = JobConfig(
        job_name="mnist",
        job_dir=str(folder / "job"),
        keys_dir=str(folder / "keys"),
        training_data=str(data / "train"),
        model_def="mnist.mnist_functional_api.custom_model",
        endpoint=f"ipc://{folder}/m",
    )
    stop, found = Stop(), list[Message | EdlzError]()

    async def attend(_: MasterService) -> None:
        await asyncio.Event().wait()

    async def ask() -> None:
        security = Security(keys.of("worker"))
        client = RpcClient(config.endpoint, role="worker", identity="0", linger_s=0, security=security)
        try:
            for request in (*ORDERS, StatusRequest()):
                try:
                    found.append(await client.request(request, 20.0))
                except EdlzError as error:
                    found.append(error)
        finally:
            client.close()
            stop.set(0, "the test is over")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ask(), name="ask")
        await serve_master(config, stop, attend if is_led_here else None)
    return found


@pytest.mark.parametrize("is_led_here", [True, False])
def test_orders_from_the_network(tmp_path: Path, small_mnist: Path, is_led_here: bool) -> None:
    first, second, status = asyncio.run(answers(tmp_path, small_mnist, is_led_here=is_led_here))
    kinds = [RemoteProtocolError] * 2 if is_led_here else [SupervisorOrders, Scaled]
    assert [type(first), type(second)] == kinds
    assert isinstance(status, JobStatus), "whoever has a key may look"
    if is_led_here:
        assert status.state not in ("Stopping", "Stopped")
        assert status.target_workers == 0, "nobody was counted as its supervisor"
