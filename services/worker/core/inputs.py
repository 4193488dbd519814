"""What the worker's core is told by its shell."""

from collections.abc import Hashable

import msgspec

from edlz.services.errors import EdlzError
from edlz.services.parameters.store import Store
from edlz.services.protocol.concluded_rounds import CallbackNeeds
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    DoneEvaluation,
    EvaluationResult,
    ExportReport,
    ExportWish,
    FailedTask,
    Failure,
    RowIds,
    WorkerOrders,
)
from edlz.services.worker.core.groups import inputs as groups
from edlz.services.worker.core.instructions import Outcome

__all__ = [
    "Answered",
    "Concluded",
    "Evaluated",
    "EvaluationFailed",
    "EvaluationIdsFound",
    "ExportFailed",
    "ExportWished",
    "Exported",
    "Fatal",
    "IdsFound",
    "Input",
    "MinibatchComputed",
    "ModelBuilt",
    "OfGroup",
    "Ordered",
    "OutputsComputed",
    "RareInput",
    "TaskFailed",
    "Tick",
]


class Tick(msgspec.Struct, frozen=True):
    """Time has passed."""


# ---------------------------------------------------------------- from others


class Ordered(msgspec.Struct, frozen=True):
    """The master's answer to the status that is under way."""

    orders: WorkerOrders


class Answered(msgspec.Struct, frozen=True):
    """A partition's answer to what was asked with `key`, or the error that it answered with."""

    index: int
    key: Hashable
    answer: Message | EdlzError


# ---------------------------------------------------------------- of the model


class ExportWished(msgspec.Struct, frozen=True):
    """The model's callbacks() wish for an export at the end; comes before `ModelBuilt`."""

    wish: ExportWish


class ModelBuilt(msgspec.Struct, frozen=True):
    """The model is built from the job's seed.

    `stops_on_nan`: its callbacks end the job at such a loss.  `computes_ahead`: a minibatch may be computed before it is known
    whether it is trained on; not if callbacks are called with each.
    """

    has_tables: bool
    callbacks: CallbackNeeds | None
    stops_on_nan: bool
    computes_ahead: bool = True
    base: Store | None = None  # of a member of an all-reduce group: the state that the job begins with,
    endpoint: str = ""  # and where other members ask this one
    sees_job_dir: bool = True  # and whether it sees the master's folder of the job


class OfGroup(msgspec.Struct, frozen=True):
    """Something that the replica of a member of an all-reduce group is told."""

    event: groups.Input


class Fatal(msgspec.Struct, frozen=True):
    """Something that no other attempt can mend: the master ends the job."""

    failure: Failure


# ---------------------------------------------------------------- of training


class IdsFound(msgspec.Struct, frozen=True):
    """The rows that minibatch (task, index) needs from each partition; None if the task ends before it."""

    task: int
    index: int
    attempt: int
    ids: tuple[RowIds, ...] | None


class MinibatchComputed(msgspec.Struct, frozen=True):
    """A gradient is there."""

    task: int
    attempt: int
    outcome: Outcome


class TaskFailed(msgspec.Struct, frozen=True):
    """The user's code raised on a training task's records."""

    task: int
    attempt: int
    failed: FailedTask


# ---------------------------------------------------------------- of evaluation and prediction


class EvaluationIdsFound(msgspec.Struct, frozen=True):
    """The rows that evaluation task `key`, a (round, task), needs."""

    key: tuple[int, int]
    ids: tuple[RowIds, ...]


class OutputsComputed(msgspec.Struct, frozen=True):
    """The outputs of prediction task `key` are computed, and are being written: another one may be computed."""

    key: tuple[int, int]


class Evaluated(msgspec.Struct, frozen=True):
    """The metric state of an evaluation task is there, or the file of a prediction task."""

    done: DoneEvaluation


class EvaluationFailed(msgspec.Struct, frozen=True):
    """The user's code raised on an evaluation task's records."""

    failed: FailedTask


class Concluded(msgspec.Struct, frozen=True):
    """A round's metrics are computed."""

    result: EvaluationResult


# ---------------------------------------------------------------- of the export


class Exported(msgspec.Struct, frozen=True):
    """The finished model is exported."""

    report: ExportReport


class ExportFailed(msgspec.Struct, frozen=True):
    """It cannot be exported."""

    failure: Failure


RareInput = (
    ExportWished
    | ModelBuilt
    | Fatal
    | TaskFailed
    | EvaluationIdsFound
    | OutputsComputed
    | Evaluated
    | EvaluationFailed
    | Concluded
    | Exported
    | ExportFailed
)
"""What does not come with each minibatch."""

Input = Tick | Ordered | Answered | IdsFound | MinibatchComputed | OfGroup | RareInput
