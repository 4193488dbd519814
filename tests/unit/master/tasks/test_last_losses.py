"""What a master tells of the loss that its job fails of."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

from edlz.services.master.service import MasterService, serve_master
from edlz.services.process.runtime import Stop
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import NO_IDENTITY, Identity, ProcessExit, SupervisorStatus, WorkerStatus
from edlz.services.transport.rpc import RpcClient
from tests.builders import settings_in
from tests.statuses import partition_status


class Deaths:
    """Workers that die with a task in hand, one after the other."""

    def __init__(self, link: RpcClient) -> None:
        self.link, self.seqs, self.run = link, itertools.count(1), ""

    async def ask(self, body: Message) -> Any:
        return await self.link.request(body, 10.0)

    async def begin(self) -> None:
        """Have a partition join."""
        boot = next(self.seqs)
        started = partition_status(0, boot=boot, incarnation=None, seq=boot, run="", ledger=LedgerRecord())
        self.run = (await self.ask(started)).job.run

    async def die(self, worker: int) -> None:
        name = f"worker-{worker}"
        await self.supervise("ps-0", name)
        life = (await self.say(worker, incarnation=None)).incarnation
        await self.say(worker, incarnation=life)
        await self.say(worker, incarnation=life, holding=(0,))
        gone = ProcessExit(name=name, code=None, signal=9, reason="killed by signal 9", launch=worker + 1)
        await self.supervise("ps-0", exits=(gone,))

    async def say(self, worker: int, *, incarnation: Identity | None, holding: tuple[int, ...] = ()) -> Any:
        status = WorkerStatus(
            worker=str(worker),
            boot=1,
            seq=next(self.seqs),
            era=NO_IDENTITY,
            run=self.run if incarnation else "",
            incarnation=incarnation,
            holding=holding,
        )
        return await self.ask(status)

    async def supervise(self, *running: str, exits: tuple[ProcessExit, ...] = ()) -> None:
        await self.ask(SupervisorStatus(seq=next(self.seqs), running=running, exits=exits))


def test_nobody_takes_the_place_of_the_worker_that_a_job_fails_of(tmp_path: Path) -> None:
    config = settings_in(tmp_path, num_workers=1, use_async=True)
    stop, texts = Stop(), []

    async def attend(service: MasterService) -> None:
        link = RpcClient(config.endpoint, role="supervisor", identity="1")
        try:
            service._is_led_here = False  # as if its launcher was another process
            deaths = Deaths(link)
            await deaths.begin()
            for worker in range(4):
                assert service.status().failure is None
                await deaths.die(worker)
            assert service.status().failure is not None
            texts.extend(event.text for event in service.status().events)
        finally:
            link.close()
            stop.set(0, "the test is over")

    asyncio.run(serve_master(config, stop, attend))
    assert sum("starts in its place" in text for text in texts) == 3
    assert texts[-1].startswith("task 0 ")
    assert not any("worker-4" in text for text in texts)
