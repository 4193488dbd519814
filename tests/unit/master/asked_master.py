"""A master's core that runs, with partitions and workers that say what a test wants them to."""

import itertools
from typing import Any

import msgspec

from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.vocabulary.inputs import Input, Request, Start
from edlz.services.master.core.vocabulary.instructions import Journal, Reply
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    NO_IDENTITY,
    DoneTask,
    Identity,
    PartitionStatus,
    WorkerOrders,
    WorkerStatus,
)
from tests import builders
from tests.statuses import partition_status

__all__ = ["AskedMaster"]

seqs = itertools.count(1)


class AskedMaster:
    """A core that runs, with its partitions, and workers that say what a test wants them to.

    Attributes
    ----------
    now : float
        When the next thing is said.
    """

    def __init__(
        self, mode: str = "async", tasks: int = 6, slots: int = 1, partitions: int = 2, evaluated: int = 0
    ) -> None:
        self.plan = builders.plan(tasks, evaluated, mode=mode, slots=slots)
        job = builders.job(self.plan, name="job", partitions=partitions)
        self.core = MasterCore(job, JournalState())
        self.core.feed(Start(), 0.0)
        self.now = 0.0
        self.journalled: dict[str, object] = {}
        self.partitions = [self.partition(index) for index in range(partitions)]
        self.lives: dict[str, Identity] = {}

    def ask(self, body: Message, to: str = "asker") -> tuple[Any, list[Any]]:
        """Ask something; return the answer, or None if there is none yet, and all instructions."""
        instructions = self.feed(Request(to, body))
        answers = [each.body for each in instructions if isinstance(each, Reply) and each.to == to]
        return answers[0] if answers else None, instructions

    def feed(self, event: Input) -> list[Any]:
        instructions = self.core.feed(event, self.now)
        self.core.check_invariants()
        for instruction in instructions:
            if isinstance(instruction, Journal):
                self.journalled |= instruction.fields
        return instructions

    def partition(self, index: int, **fields: Any) -> PartitionStatus:
        """Let a partition begin a life."""
        status = partition_status(
            index,
            boot=next(seqs) + 1000,
            incarnation=None,
            seq=next(seqs),
            term=self.core.term,
            era=(1, 0) if self.plan.is_sync else None,
            ledger=LedgerRecord(),
        )
        granted, _ = self.ask(status)
        status = msgspec.structs.replace(status, incarnation=granted.incarnation)
        return self.say(status, **fields)

    def say(self, status: PartitionStatus, **fields: Any) -> PartitionStatus:
        status = self.after(status, **fields)
        self.ask(status)
        return status

    def after(self, status: PartitionStatus, **fields: Any) -> PartitionStatus:
        """Return a partition's next status after this one."""
        return msgspec.structs.replace(status, seq=next(seqs), **fields)

    def feed_status(self, status: PartitionStatus, **fields: Any) -> list[Any]:
        """Let a partition say something; return all instructions."""
        return self.ask(self.after(status, **fields))[1]

    def worker(self, name: str, **fields: Any) -> tuple[WorkerOrders, list[Any]]:
        """Send a worker's status; it joins with its first one."""
        return self.ask(self.status_of(name, **fields), to=name)

    def status_of(self, name: str, **fields: Any) -> WorkerStatus:
        """Return a worker's next status, which joins before the first one."""
        if name not in self.lives:
            hello = WorkerStatus(worker=name, boot=next(seqs), incarnation=None, seq=1, era=NO_IDENTITY)
            welcome, _ = self.ask(hello)
            self.lives[name] = welcome.incarnation
        era = (1, 0) if self.plan.is_sync else NO_IDENTITY
        life = self.lives[name]
        return WorkerStatus(worker=name, boot=0, incarnation=life, seq=next(seqs), era=era, run="r", **fields)

    def done(self, *tasks: int) -> tuple[DoneTask, ...]:
        lives = tuple(status.incarnation or NO_IDENTITY for status in self.partitions)
        return tuple(DoneTask(task=task, era=(1, 0), incarnations=lives) for task in tasks)
