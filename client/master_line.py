"""Asking the master of a job that runs, as anybody may who looks at it or leads it from outside."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress

from edlz.client.job_index import JOURNAL, LocalJob
from edlz.client.job_lock import LockHolder
from edlz.services.config import JobConfig
from edlz.services.endpoints import parse_endpoint
from edlz.services.errors import EdlzError, PeerUnavailable
from edlz.services.job_status import JobStatus, StatusRequest
from edlz.services.master.journal import planned_job
from edlz.services.records import Message
from edlz.services.rpc import RpcClient

__all__ = ["ANSWER_S", "MASTER", "ask", "ask_all", "ask_master", "endpoint_by_hand"]

ANSWER_S = 1.0
MASTER = "master"
_LINGER_S = 0.1


def ask_master(holder: LockHolder, body: Message, deadline_s: float) -> Message | None:
    """Return the answer of a job's master; None if none came in time.

    Raises
    ------
    EdlzError
        The one that it answered with.
    """
    answer = asyncio.run(ask(holder.endpoint(MASTER), body, deadline_s))
    if isinstance(answer, EdlzError):
        raise answer
    return answer


def ask_all(endpoints: Sequence[str | None]) -> list[JobStatus | None]:
    """Return what the masters at these addresses say of their jobs; it takes ANSWER_S at most."""
    return asyncio.run(_ask_all(endpoints)) if any(endpoints) else [None] * len(endpoints)


async def ask(endpoint: str | None, body: Message, deadline_s: float) -> Message | EdlzError | None:
    """Return a master's answer, the error that it answered with, or None if nothing came in time.

    The error is returned, not raised: a task group would wrap it.
    """
    if endpoint is None:
        return None
    try:
        link = RpcClient(endpoint, role="viewer", identity=str(os.getpid()), linger_s=_LINGER_S)
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


def endpoint_by_hand(job: LocalJob) -> str | None:
    """Return where a master that was started by hand listens, as its journal has it."""
    planned = planned_job(job.path / JOURNAL)
    with suppress(EdlzError):
        if planned is not None:
            return parse_endpoint(JobConfig.from_record(planned.config).listen_endpoint).address
    return None  # none has been planned, or it took any free port


async def _ask_all(endpoints: Sequence[str | None]) -> list[JobStatus | None]:
    async with asyncio.TaskGroup() as tasks:
        asking = [
            tasks.create_task(ask(endpoint, StatusRequest(), ANSWER_S), name=f"ask {endpoint}")
            for endpoint in endpoints
        ]
    answers = [task.result() for task in asking]
    return [answer if isinstance(answer, JobStatus) else None for answer in answers]
