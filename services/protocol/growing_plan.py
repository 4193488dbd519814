"""A plan that becomes longer while the job runs, as its master has it.

Theory of operation.  What has come is a *piece*: some shards, journalled before any task of it is leased.  Its tasks
follow those of the piece before, in an order that the seed gives; the first piece is what the job was planned with.  In
synchronous mode a piece is filled up with empty tasks to whole rounds, so that which tasks make a round follows from
their numbers alone, and partitions need not know of pieces.  Whoever gets a lease is told its records with it.

A piece that is over is of use only if the model goes back behind it, so it is kept packed.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from functools import cached_property, lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

from edlz.services.protocol.plan import FileFacts, Plan, Shard, TaskRange, cut
from edlz.services.protocol.seeds import permutation

__all__ = ["GrowingPlan", "Piece"]

_OPENED = 4  # pieces that are unpacked: those that are worked on
_EMPTY = TaskRange(name="", first=0, count=0)


class Piece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What has come at once: shards, and the files they lie in; a reader of the model's own has none."""

    shards: tuple[Shard, ...]
    files: tuple[FileFacts, ...] = ()


class GrowingPlan(Plan, frozen=True, kw_only=True, dict=True):
    """The plan, and what has been added to it."""

    @classmethod
    def of(cls, plan: Plan, pieces: Iterable[Piece] = ()) -> "GrowingPlan":
        """Return a plan with these pieces behind what it began with."""
        plan = cls(**msgspec.structs.asdict(plan))
        for piece in pieces:
            plan.add(piece)
        return plan

    @property
    def known(self) -> int:
        """How many tasks there are by now."""
        return self._pieces.ends[-1]

    @property
    def pieces(self) -> int:
        """How many pieces there are, with that which the job began with."""
        return len(self._pieces.ends)

    def add(self, piece: Piece) -> None:
        """Add a piece, which is journalled.

        Raises
        ------
        ConfigError
            If it has too many tasks; nothing has changed.
        """
        self._pieces.add(piece)

    def minibatches_of_piece(self, number: int) -> npt.NDArray[np.int32]:
        """Return the minibatches of each task of a piece, for a feed that keeps every record."""
        return np.diff(self._pieces.sums(number)[1], prepend=0).astype(np.int32)

    def first_of_piece(self, number: int) -> int:
        """Return the number of a piece's first task."""
        return self._pieces.ends[number - 1] if number else 0

    def task_range(self, task: int) -> TaskRange:
        """Return the records of a task; of an empty one none, of no file."""
        number = bisect_right(self._pieces.ends, task)
        return self._pieces.tasks(number)[task - self.first_of_piece(number)]

    def count_by(self, done: int) -> int:
        return self.known

    def size_of(self, tasks: int) -> tuple[int, int]:
        number = bisect_right(self._pieces.ends, tasks)
        records, minibatches = self._pieces.size(number)
        within = tasks - self.first_of_piece(number)
        if number < self.pieces and within:
            of_piece = self._pieces.sums(number)
            records, minibatches = (
                records + int(of_piece[0][within - 1]),
                minibatches + int(of_piece[1][within - 1]),
            )
        return records, minibatches

    @cached_property
    def _pieces(self) -> "_Pieces":
        return _Pieces(self)


class _Pieces:
    """The pieces of a plan; of one that is not worked on some bytes are kept for each of its files.

    Attributes
    ----------
    ends : array of int
        Behind the last task of each.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.ends = array("q")
        self._records, self._minibatches = array("q"), array("q")  # of each and of those before it
        self._packed: list[bytes] = []
        self.tasks, self.sums = lru_cache(_OPENED)(self._opened), lru_cache(_OPENED)(self._summed)
        self.add(Piece(shards=plan.shards))

    def add(self, piece: Piece) -> None:
        tasks = cut(piece.shards, self._plan.records_per_task)
        end, records, minibatches = (self.ends[-1], *self.size(len(self.ends))) if self.ends else (0, 0, 0)
        self._packed.append(msgspec.msgpack.encode(piece))
        self.ends.append(end + len(tasks) + self._missing(len(tasks)))
        self._records.append(records + sum(task.count for task in tasks))
        self._minibatches.append(minibatches + sum(-(-t.count // self._plan.minibatch_size) for t in tasks))

    def size(self, pieces: int) -> tuple[int, int]:
        """Return the records and minibatches of the first pieces."""
        return (self._records[pieces - 1], self._minibatches[pieces - 1]) if pieces else (0, 0)

    def _opened(self, number: int) -> tuple[TaskRange, ...]:
        """Return the tasks of a piece in their order; those of the first one are of files that the plan knows."""
        piece = msgspec.msgpack.decode(self._packed[number], type=Piece)
        tasks, files = (
            cut(piece.shards, self._plan.records_per_task),
            {file.name: file for file in piece.files},
        )
        in_order = [tasks[place] for place in permutation(len(tasks), self._plan.seed, 0, number)]
        ordered = [msgspec.structs.replace(task, file=files.get(task.name)) for task in in_order]
        return (*ordered, *[_EMPTY] * self._missing(len(tasks)))

    def _summed(self, number: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the records, and the minibatches, of each task of a piece and those before it there."""
        counts = np.array([task.count for task in self.tasks(number)], np.int64)
        return np.cumsum(counts), np.cumsum(-(-counts // self._plan.minibatch_size))

    def _missing(self, tasks: int) -> int:
        """How many tasks a piece lacks to whole rounds."""
        return -tasks % self._plan.slots
