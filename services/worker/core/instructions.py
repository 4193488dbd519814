"""What the worker's core asks its shell to do."""

from collections.abc import Hashable
from dataclasses import dataclass

from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    Conclusion,
    EvaluationLease,
    Exchanged,
    ExportLease,
    Identity,
    Job,
    Push,
    RowIds,
    WorkerStatus,
)
from edlz.services.protocol.plan import TaskRange
from edlz.services.worker.core.groups import instructions as members

__all__ = [
    "AskMaster",
    "AskPartition",
    "Begin",
    "Build",
    "Cancel",
    "Compute",
    "Conclude",
    "Drop",
    "Evaluate",
    "Exit",
    "ExportModel",
    "FindEvaluationIds",
    "FindIds",
    "Instruction",
    "Outcome",
    "SendInitialise",
]


@dataclass(frozen=True)
class AskMaster:
    """Send this status; the answer comes back through `on_orders`."""

    body: WorkerStatus


@dataclass(frozen=True)
class AskPartition:
    """Send to partition `index`; the answer comes back through `on_answer` with `key`."""

    index: int
    endpoint: str
    key: Hashable
    body: Message


@dataclass(frozen=True)
class Cancel:
    """Forget all requests to a partition that has begun another life, or has moved, and hang up."""

    index: int


@dataclass(frozen=True)
class SendInitialise:
    """Send the initial values (or only their digest) to a partition, in this life."""

    index: int
    endpoint: str
    key: Hashable
    incarnation: Identity
    with_values: bool


@dataclass(frozen=True)
class Build:
    """Build the model of this job, then `on_built`; with `check`, try it on a minibatch before."""

    job: Job
    check: bool = False


@dataclass(frozen=True)
class Begin:
    """A task is in hand: its records can be read ahead, up to minibatch `end_at` if there is one.

    `records`: which these are, if the plan does not say it.
    """

    task: int
    lane: int
    end_at: int | None = None
    records: TaskRange | None = None


@dataclass(frozen=True)
class Drop:
    """A task is no longer in hand."""

    task: int


@dataclass(frozen=True)
class FindIds:
    """Find which rows of the embedding tables minibatch (task, index) needs, then `on_ids`."""

    task: int
    index: int
    attempt: int


@dataclass(frozen=True)
class Compute:
    """Compute minibatch (task, index) on these parameters, then `on_computed`.

    `vectors` are the newest answers with vectors, `rows` those with the rows that `ids` asked of each partition;
    `ahead`: also find the ids of this minibatch of the task; `learning_rate`: in place of the model's own.
    """

    task: int
    index: int
    attempt: int
    version: int
    vectors: tuple[Exchanged, ...]
    ids: tuple[RowIds, ...] = ()
    rows: tuple[Exchanged, ...] = ()
    ahead: int | None = None
    learning_rate: float | None = None


@dataclass(frozen=True)
class FindEvaluationIds:
    """Find which rows an evaluation task needs, then `on_evaluation_ids`."""

    lease: EvaluationLease


@dataclass(frozen=True)
class Evaluate:
    """Evaluate a task on these parameters, rows included, then `on_evaluated`."""

    lease: EvaluationLease
    vectors: tuple[Exchanged, ...]
    ids: tuple[RowIds, ...] = ()


@dataclass(frozen=True)
class Conclude:
    """Turn a merged metric state into metrics, then `on_concluded`."""

    conclusion: Conclusion


@dataclass(frozen=True)
class ExportModel:
    """Export the finished model, then `on_exported` or `on_export_failed`."""

    lease: ExportLease


@dataclass(frozen=True)
class Exit:
    """End this process with an exit code; the reason is logged."""

    reason: str
    code: int = 0


Instruction = (
    AskMaster
    | AskPartition
    | Cancel
    | SendInitialise
    | Build
    | Begin
    | Drop
    | FindIds
    | Compute
    | FindEvaluationIds
    | Evaluate
    | Conclude
    | ExportModel
    | Exit
    | members.AskMember
    | members.StageOwn
    | members.Reply
    | members.Compute
    | members.Proceed
    | members.Advance
    | members.Abandon
    | members.DigestState
    | members.AssembleState
    | members.Load
    | members.WritePart
)


@dataclass(frozen=True)
class Outcome:
    """What a computation gave: a push for each partition.

    `ahead`: what each partition has to give for the minibatch that was to be looked at, or None when the
    task ends before it; unless it could not be looked at.  `loss`: None of an empty minibatch.
    """

    is_last: bool
    pushes: tuple[Push, ...]
    ahead: tuple[RowIds, ...] | None = None
    has_looked_ahead: bool = True
    loss: float | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there were no records in it."""
        return self.pushes[0].gradient is None
