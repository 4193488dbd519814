"""Jobs in a home of their own, with a master that answers as a test wants."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from edlz.client.local.job_directory import JobDirectory, open_job_directory
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError
from edlz.services.protocol.job_status import (
    EventView,
    JobStatus,
    PartitionView,
    StatusRequest,
    WorkerView,
)
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import Scaled, ScaleRequest
from edlz.services.protocol.plan import Shard
from edlz.services.transport.rpc import RpcServer
from tests import builders
from tests.shown_jobs import changed

__all__ = ["PLAN", "RUNNING", "SHARDS", "config", "ended", "master", "training"]

RUNNING = changed(
    loss=None,
    evaluations=(),
    workers=(WorkerView(id="0", state="training", task=7),),
    partitions=(PartitionView(id="0", state="serving", version=354),),
    events=(EventView(seq=3, at=110.0, kind="worker", text="worker-0 joined."),),
)
"""What its master says."""

SHARDS = (Shard(name="a", first=0, count=9),)
PLAN = builders.plan(shards=SHARDS, records_per_task=2)


def config(name: str = "mnist") -> JobConfig:
    return builders.settings(job_name=name, num_workers=2)


def ended(home: Path, status: JobStatus, name: str = "mnist") -> Path:
    """A job that has ended so."""
    with open_job_directory(config(name)) as folder:
        pass
    (folder.path / "journal.sqlite").touch()
    (folder.path / "status.json").write_bytes(msgspec.json.encode(status))
    return folder.path


@contextmanager
def master(folder: JobDirectory, answer: Callable[[Message], Message]) -> Iterator[list[Message]]:
    """A master of this job in a thread; yields what it was asked."""
    asked: list[Message] = []
    is_ready, loop = threading.Event(), asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        def handle(to: object, body: Message) -> None:
            asked.append(body)
            server.reply(to, answer(body))

        server = RpcServer(folder.endpoint("master"), handle, role="master", job="mnist", linger_s=0.1)
        is_ready.set()
        await over.wait()
        server.close()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert is_ready.wait(20)
        yield asked
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def training(body: Message) -> Message:
    assert isinstance(body, StatusRequest | ScaleRequest)
    if isinstance(body, ScaleRequest):
        if body.workers > 8:
            raise ConfigError(f"{body.workers} workers are above --max_workers=8", "ask for 8")
        return Scaled(before=2, after=body.workers, warning="why" if body.workers > 4 else "")
    return RUNNING
