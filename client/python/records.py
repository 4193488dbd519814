"""A job's status in Python: the object of `/api/status` as typed records.

What is not declared here is left out: fields are only ever added there.
"""

from typing import Any

import msgspec

from edlz.client.screen.jobs import job_object

__all__ = [
    "Checkpoint",
    "Evaluation",
    "Event",
    "Group",
    "JobFacts",
    "Partition",
    "Progress",
    "Status",
    "Tasks",
    "Worker",
    "status_of",
]


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Of the job itself; `reason`: why it failed."""

    name: str
    state: str
    where: str
    mode: str
    started_at: float
    reason: str | None = None
    strategy: str = ""
    digest: str | None = None
    worker_threads: int | None = None
    asked_workers: int = 0


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far it is; times in seconds."""

    ratio: float | None  # None if nobody knows of how much
    epoch: int
    epochs: int
    records: int
    records_total: int
    minibatches: int
    minibatches_total: int
    version: int
    records_per_s: float
    duplicates_ignored: int = 0
    eta_s: float | None = None
    stalled_s: float | None = None
    is_endless: bool = False
    waits_for_data_s: float | None = None


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of a version of the model."""

    version: int
    metrics: dict[str, float | None]


class Tasks(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks stand where."""

    todo: int
    leased: int
    done: int
    skipped: int = 0
    failed_attempts: int = 0


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker; `step_s`: seconds of a step by what they went to; `step_bytes`: of a member of a group, from and to the others."""

    id: str
    state: str
    task: int | None = None
    records_per_s: float = 0.0
    step_s: dict[str, float] = msgspec.field(default_factory=dict)
    memory_bytes: int = 0
    note: str | None = None
    started_at: float | None = None
    joined_at: float | None = None
    restarts: int = 0
    rank: int | None = None
    step_bytes: dict[str, int] | None = None


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Who trains together in an all-reduce job; `members`: ids of workers, by rank."""

    members: tuple[str, ...] = ()
    generation: str | None = None
    version: int = 0
    checkpoint_version: int | None = None


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter server."""

    id: str
    state: str
    version: int
    rows: int = 0
    memory_bytes: int = 0
    checkpoint_version: int | None = None


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The newest complete one."""

    version: int
    age_s: float | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that has happened; `at`: seconds since the epoch."""

    seq: int
    at: float
    kind: str
    text: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How a job fares; `page`: where its status page is, while it runs."""

    job: JobFacts
    progress: Progress
    tasks: Tasks
    loss: float | None = None
    evaluations: tuple[Evaluation, ...] = ()
    workers: tuple[Worker, ...] = ()
    ps: tuple[Partition, ...] = ()
    group: Group | None = None
    checkpoint: Checkpoint | None = None
    events: tuple[Event, ...] = ()
    nonfinite_losses: int = 0
    exported: dict[str, Any] | None = None
    predictions: str | None = None
    page: str | None = None


def status_of(view: Any) -> Status:
    """Return how a job fares that was looked at (`JobView`)."""
    return msgspec.convert(job_object(view), Status)
