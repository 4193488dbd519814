"""The plan of a job: which records make which task, and which tasks make a round.

The plan is fixed and journalled before the first lease (PROTOCOL: "plan").  Everything here is a pure
function of it, so every process that holds the plan agrees on the work without asking.
"""

import hashlib
from functools import cached_property
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from edlz.services.errors import ConfigError
from edlz.services.protocol.seeds import permutation

__all__ = [
    "ENDLESS",
    "Column",
    "ColumnKind",
    "DataSource",
    "FileFacts",
    "Mode",
    "Plan",
    "Shard",
    "TaskRange",
    "cut",
]

Mode = Literal["sync", "async"]
ColumnKind = Literal["bool", "float32", "float64", "int32", "int64", "string"]

_SLOTS_IN_ORDER = (
    3  # so many gradients have one sum, as a tree or one after another as before there was the tree
)
MAX_TASKS = 1 << 24  # of one pass over the data: each takes some 100 bytes in every process
ENDLESS = 1 << 40
"""How many tasks a job has that nothing but a decision ends: more than any gets to."""


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """A range of input records: what a reader can open by name."""

    name: str
    first: int
    count: int


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a file was like when the job was planned: whoever finds it otherwise refuses it.

    `checksum` is of what its format looks at when a file is opened; `index` says where records lie, as that format
    writes it.  `mark` is what the place has given a file that lies elsewhere: an ETag, or a time.
    """

    name: str
    size_bytes: int
    checksum: int = 0
    index: bytes = b""
    mark: str = ""


class TaskRange(msgspec.Struct, frozen=True, kw_only=True):
    """The records of one task: `count` records of shard `name`, from `first` on.

    `file`: what the file must be like, if the plan of whoever reads it does not say so: it has come later.
    """

    name: str
    first: int
    count: int
    file: FileFacts | None = None


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column of records that have columns.  `width`: values of a record, in a vector; 0: one, in none."""

    name: str
    kind: ColumnKind
    width: int = 0

    @property
    def type(self) -> str:
        """What its values are, as it is shown."""
        return f"{self.kind}, {self.width} each" if self.width else self.kind


class DataSource(msgspec.Struct, frozen=True, kw_only=True):
    """How the records of shards are read: the same for every process, and for as long as the job lasts.

    `params` is `--data_reader_params` as it was given.  `origin`: what the data's flag says, for a reader of the
    model's own, whose format is "custom".  `form`: what a record is, by `columns`: their values by
    name, in a tuple, or the value of the only one; bytes, if there are none.  `masks`: values that are not there are
    masked, where else they would be the column's default, or an error.
    """

    format: str
    params: str = ""
    origin: str = ""
    form: Literal["bytes", "columns", "tuple", "value"] = "bytes"
    columns: tuple[Column, ...] = ()
    files: tuple[FileFacts, ...] = ()
    masks: bool = False

    @property
    def identity(self) -> dict[str, object]:
        """What minibatches depend on: not where in the files the records lie."""
        files = [
            {"name": file.name, "size_bytes": file.size_bytes, "checksum": file.checksum}
            for file in self.files
        ]
        fields = {**msgspec.to_builtins(self), "files": files}
        del fields["masks"]  # younger than the first ledgers with a source
        return fields


class Plan(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What the job trains on, and what it evaluates on; a job that trains nothing has no shards and no epochs.

    A task's number is its place in the fixed order over all epochs.  `slots` is k, the number of
    gradients in one synchronous step.  `predicts`: the evaluation shards have no labels, and each of their
    tasks gives predictions in place of metrics; `analyzes`: statistics, and there is no model.  `statistics`: of other data, for the model, packed.  Without a source shards are RecordIO files.

    With shards and no number of epochs the job has no end of its own.  Then there is one epoch after another, or, with
    a `stream`, one that becomes longer: `shards` is what it begins with, what follows is journalled piece by
    piece (`GrowingPlan`), and the stream's name tells this job's pieces from another one's.
    """

    mode: Mode
    seed: int
    shards: tuple[Shard, ...]
    records_per_task: int
    minibatch_size: int
    epochs: int
    slots: int
    evaluation_shards: tuple[Shard, ...] = ()
    predicts: bool = False
    analyzes: bool = False
    statistics: tuple[bytes, ...] = ()
    source: DataSource | None = None
    evaluation_source: DataSource | None = None
    stream: str = ""

    @property
    def is_sync(self) -> bool:
        return self.mode == "sync"

    @property
    def is_training(self) -> bool:
        return bool(self.shards)

    @property
    def is_endless(self) -> bool:
        """Whether only a decision ends the training."""
        return bool(self.shards) and not self.epochs

    @property
    def grows(self) -> bool:
        """Whether there will be more data than there is."""
        return bool(self.stream)

    @property
    def other_work(self) -> str:
        """What is done with the evaluation shards."""
        return "analysis" if self.analyzes else "prediction" if self.predicts else "evaluation"

    @property
    def gives_parts(self) -> bool:
        """Whether each task with evaluation shards gives a part of what comes out, and no metrics."""
        return self.predicts or self.analyzes

    @cached_property
    def ranges(self) -> tuple[TaskRange, ...]:
        """The tasks of one epoch, in the order of the data."""
        return cut(self.shards, self.records_per_task)

    @cached_property
    def evaluation_ranges(self) -> tuple[TaskRange, ...]:
        return cut(self.evaluation_shards, self.records_per_task)

    @cached_property
    def hash(self) -> str:
        """What a ledger says it is a ledger of; two jobs with one hash have the same minibatches."""
        fields = {**msgspec.to_builtins(self), "evaluation_shards": []}
        for name in (
            "predicts",
            "analyzes",
            "statistics",
            "source",
            "evaluation_source",
        ):  # younger than the first ledgers
            del fields[name]
        if not self.stream:
            del fields["stream"]
        if self.source is not None and self.source.format != "RecordIO":
            fields["source"] = self.source.identity
        if self.is_sync and self.slots > _SLOTS_IN_ORDER:
            fields["sum"] = "tree"
        return hashlib.sha256(msgspec.json.encode(fields)).hexdigest()

    @property
    def tasks_per_epoch(self) -> int:
        """How many tasks there were to an epoch when the job was planned."""
        return len(self.ranges)

    @property
    def task_count(self) -> int:
        return ENDLESS if self.is_endless else self.epochs * self.tasks_per_epoch

    @property
    def records_per_epoch(self) -> int:
        return sum(shard.count for shard in self.shards)

    @property
    def evaluation_records(self) -> int:
        return sum(shard.count for shard in self.evaluation_shards)

    @cached_property
    def minibatches_per_epoch(self) -> int:
        """Minibatches in an epoch, for a feed that keeps every record."""
        return int(self._minibatches_by_place.sum())

    @cached_property
    def minibatches(self) -> npt.NDArray[np.int32]:
        """Minibatches of each task of a job that has an end, for a feed that keeps every record."""
        epochs = [self.minibatches_of_epoch(epoch) for epoch in range(self.epochs)]
        return np.concatenate([self._minibatches_by_place[:0], *epochs])

    def minibatches_of_epoch(self, epoch: int) -> npt.NDArray[np.int32]:
        """Return the same for the tasks of one epoch."""
        return self._minibatches_by_place[self._order(epoch)]

    @cached_property
    def _minibatches_by_place(self) -> npt.NDArray[np.int32]:
        return np.array([-(-r.count // self.minibatch_size) for r in self.ranges], np.int32)

    def count_by(self, done: int) -> int:
        """Return how many tasks there are by now, with so many done: of an endless job, those up to the epoch's end."""
        if not self.is_endless:
            return self.task_count
        return (done // self.tasks_per_epoch + 1) * self.tasks_per_epoch

    def size_of(self, tasks: int) -> tuple[int, int]:
        """Return the records and minibatches of the first tasks of the job, for a feed that keeps every record."""
        if not self.is_training:
            return 0, 0
        whole, rest = divmod(tasks, self.tasks_per_epoch)
        records, minibatches = whole * self.records_per_epoch, whole * self.minibatches_per_epoch
        if rest:
            places = self._order(whole)[:rest]
            records += sum(self.ranges[int(place)].count for place in places)
            minibatches += int(self._minibatches_by_place[places].sum())
        return records, minibatches

    def barriers(self, every: int) -> npt.NDArray[np.int64]:
        """Return the last task before each place where callbacks are called, of a job that has an end: its last one always.

        Parameters
        ----------
        every : int
            The first rounds of tasks that end at or behind multiples of so many versions, for a feed that keeps
            every record; 0: epochs' ends.
        """
        ends = np.arange(1, self.epochs + 1, dtype=np.int64) * self.tasks_per_epoch - 1
        if not every or not self.task_count:
            return ends
        of_epoch = np.arange(0, self.tasks_per_epoch, self.slots)
        firsts = (ends[:, None] + 1 - self.tasks_per_epoch + of_epoch[None, :]).ravel()
        reduce = np.maximum if self.is_sync else np.add
        versions = np.cumsum(reduce.reduceat(self.minibatches.astype(np.int64), firsts))
        is_passed = versions // every > np.concatenate([[0], versions[:-1]]) // every
        lasts = np.append(firsts[1:], self.task_count) - 1
        return np.union1d(lasts[is_passed], ends[-1:])

    @property
    def _epoch_length(self) -> int:
        """How many tasks an epoch has: one that becomes longer, as many as the job."""
        return ENDLESS if self.stream else self.tasks_per_epoch

    def epoch(self, task: int) -> int:
        return task // self._epoch_length

    def epoch_by(self, done: int) -> int:
        """Return the epoch, from 1, that is under way when so many tasks are done; 0 if there is none."""
        if not self.is_training:
            return 0
        epoch = 1 + self.epoch(done)
        return epoch if self.is_endless else min(self.epochs, epoch)

    def task_range(self, task: int) -> TaskRange:
        """Return the records of a task, of those that were there when the job was planned."""
        epoch, place = divmod(task, self._epoch_length)
        return self.ranges[int(self._order(epoch)[place])]

    def task_records(self, task: int) -> int:
        return self.task_range(task).count

    def record_order(self, task: int, count: int | None = None) -> npt.NDArray[np.int64]:
        """Return the order, inside the task's range, in which its records are read; `count`: how many these are."""
        return permutation(self.task_records(task) if count is None else count, self.seed, 1, task)

    def round_tasks(self, task: int) -> range:
        """Return the tasks of this task's round, in slot order; a round never spans two epochs."""
        epoch, place = divmod(task, self._epoch_length)
        first = epoch * self._epoch_length + place - place % self.slots
        return range(first, min(first + self.slots, (epoch + 1) * self._epoch_length))

    def slot(self, task: int) -> int:
        """Return the task's place in its round."""
        return task % self._epoch_length % self.slots

    def is_same_round(self, task: int, other: int) -> bool:
        return other in self.round_tasks(task)

    def is_later_round(self, task: int, than: int) -> bool:
        """Whether a task's round opens only after the other one's is over."""
        return self.round_tasks(than)[-1] < task

    def _order(self, epoch: int) -> npt.NDArray[np.int64]:
        orders = self._orders
        if epoch not in orders:
            orders.clear()
            orders[epoch] = permutation(self.tasks_per_epoch, self.seed, 0, epoch)
        return orders[epoch]

    @cached_property
    def _orders(self) -> dict[int, npt.NDArray[np.int64]]:
        return {}


def cut(shards: tuple[Shard, ...], records_per_task: int) -> tuple[TaskRange, ...]:
    """Return the tasks of shards, in their order.

    Raises
    ------
    ConfigError
        If there are too many.
    """
    if records_per_task < 1:
        raise ConfigError(f"records_per_task={records_per_task}: a task needs at least one record")
    count = sum(-(-shard.count // records_per_task) for shard in shards)
    if count > MAX_TASKS:
        raise ConfigError(
            f"the data would be cut into {count:,} tasks; {MAX_TASKS:,} are the most",
            "more minibatches in a task: a larger --num_minibatches_per_task",
        )
    return tuple(
        TaskRange(
            name=shard.name, first=first, count=min(records_per_task, shard.first + shard.count - first)
        )
        for shard in shards
        for first in range(shard.first, shard.first + shard.count, records_per_task)
    )
