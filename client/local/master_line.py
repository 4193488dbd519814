"""Asking the master of a job that runs, as anybody may who looks at it or leads it from outside."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from edlz.client.job_files.job_index import JOURNAL, LocalJob
from edlz.client.local.job_lock import LockHolder
from edlz.services.configuration.endpoints import local_endpoint, parse_endpoint
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import EdlzError, PeerUnavailable
from edlz.services.master.journal.journal import planned_job
from edlz.services.protocol.job_status import JobStatus, StatusRequest
from edlz.services.protocol.message_types import Message
from edlz.services.transport.rpc import RpcClient
from edlz.services.transport.security import Security

__all__ = [
    "ANSWER_S",
    "MASTER",
    "MasterAddress",
    "address_by_hand",
    "address_of",
    "address_of_runner",
    "ask",
    "ask_all",
    "ask_master",
]

ANSWER_S = 1.0
MASTER = "master"
_LINGER_S = 0.1


@dataclass(frozen=True, slots=True)
class MasterAddress:
    """Where a master listens, and the settings that say which keys it may want to see."""

    endpoint: str
    settings: JobConfig | None = None


def ask_master(holder: LockHolder, body: Message, deadline_s: float) -> Message | None:
    """Return the answer of a job's master; None if none came in time.

    Raises
    ------
    EdlzError
        The one that it answered with.
    """
    answer = asyncio.run(ask(address_of(holder), body, deadline_s))
    if isinstance(answer, EdlzError):
        raise answer
    return answer


def ask_all(addresses: Sequence[MasterAddress | None]) -> list[JobStatus | None]:
    """Return what the masters at these addresses say of their jobs; it takes ANSWER_S at most."""
    return asyncio.run(_ask_all(addresses)) if any(addresses) else [None] * len(addresses)


async def ask(address: MasterAddress | None, body: Message, deadline_s: float) -> Message | EdlzError | None:
    """Return a master's answer, the error that it answered with, or None if nothing came in time.

    The error is returned, not raised: a task group would wrap it.
    """
    if address is None:
        return None
    try:
        security = Security.of(address.settings, "client") if address.settings else None
        link = RpcClient(
            address.endpoint, role="viewer", identity=str(os.getpid()), linger_s=_LINGER_S, security=security
        )
    except EdlzError as e:
        return e
    try:
        return await link.request(body, deadline_s)
    except PeerUnavailable:
        return None
    except EdlzError as e:
        return e
    finally:
        link.close()


def address_of(holder: LockHolder) -> MasterAddress | None:
    """Return where the master of a supervised job listens; None if its supervisor has not said."""
    endpoint = holder.endpoint(MASTER)
    return None if endpoint is None else MasterAddress(endpoint)


def address_of_runner(job: LocalJob, holder: LockHolder | None, by_hand: str | None) -> MasterAddress | None:
    """Return where the master of a job listens, by its supervisor or by hand; None if nobody runs it."""
    if holder is not None:
        return address_of(holder)
    return address_by_hand(job) if by_hand is not None else None


def address_by_hand(job: LocalJob) -> MasterAddress | None:
    """Return where a master that was started by hand on this machine listens, as its journal has it."""
    planned = planned_job(job.path / JOURNAL)
    with suppress(EdlzError):
        if planned is not None:
            settings = JobConfig.from_record(planned.config)
            endpoint = local_endpoint(settings.listen_endpoint)
            return MasterAddress(parse_endpoint(endpoint).address, settings)
    return None  # none has been planned, or it took any free port


async def _ask_all(addresses: Sequence[MasterAddress | None]) -> list[JobStatus | None]:
    async with asyncio.TaskGroup() as tasks:
        asking = [
            tasks.create_task(ask(address, StatusRequest(), ANSWER_S), name=f"ask {address}")
            for address in addresses
        ]
    answers = [task.result() for task in asking]
    return [answer if isinstance(answer, JobStatus) else None for answer in answers]
