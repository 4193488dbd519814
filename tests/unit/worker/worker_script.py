"""A worker's core in hand: told what happens in words, it answers what it asks for in words.

A script is a table of lines, `event | instructions`, played on a worker that has joined a job of two partitions
and has built its model.  `0.1` is minibatch 1 of task 0.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edlz.services.protocol.messages import (
    Exchange,
    Exchanged,
    FailedTask,
    Initialised,
    Lease,
    NewestPull,
    PartitionAddress,
    Push,
    Refused,
    RowIds,
    WorkerOrders,
)
from edlz.services.protocol.plan import Shard
from edlz.services.worker.core import instructions as asked
from edlz.services.worker.core.inputs import (
    Answered,
    IdsFound,
    MinibatchComputed,
    ModelBuilt,
    Ordered,
    TaskFailed,
    Tick,
)
from edlz.services.worker.core.instructions import Outcome
from edlz.services.worker.core.worker import WorkerCore
from tests import builders

__all__ = ["Script"]

LIFE, RATE = (1, 1), 0.1


def _ids_of(index: int) -> tuple[RowIds, ...]:
    """Of each partition one row, whose id is the minibatch's index."""
    return (RowIds(counts=(1,), ids=np.array([index])),) * 2


@dataclass
class _Question:
    """An exchange that a partition has not answered."""

    key: Any
    body: Exchange


@dataclass
class Script:
    """One worker, and what it waits for."""

    mode: str
    has_tables: bool = False
    flags: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shard = Shard(name="data", first=0, count=12)
        about: dict[str, Any] = {"records_per_task": 3, "minibatch_size": 1, "epochs": 1, "slots": 2}
        plan = builders.plan(mode=self.mode, shards=(shard,), **about)
        self.job = builders.job(plan, config=self.flags, partitions=2)
        self.now, self._seq, self._era = 0.0, 0, (1, 1)
        self._lives = [LIFE, LIFE]
        self._questions: dict[int, list[_Question]] = {0: [], 1: []}
        self._computing: asked.Compute | None = None
        self._finding: list[asked.FindIds] = []
        self._initialising: asked.SendInitialise | None = None
        self.core = WorkerCore("0", 1)
        self._join()

    def _join(self) -> None:
        self.core.feed(Tick(), self.now)
        self._order(job=self.job)
        self.core.feed(ModelBuilt(self.has_tables, None, False), self.now)
        for instruction in self._order():
            if isinstance(instruction, asked.SendInitialise):
                self._initialising = instruction
                self._on_initialised()
        self._order()

    def _order(self, **fields: Any) -> list[asked.Instruction]:
        self._seq += 1
        if "job" not in fields:
            fields["partitions"] = tuple(
                PartitionAddress(index=p, incarnation=life, endpoint=f"ps-{p}", has_base=True)
                for p, life in enumerate(self._lives)
            )
        orders = WorkerOrders(term=1, seq=self._seq, incarnation=LIFE, era=self._era, **fields)
        return self.core.feed(Ordered(orders), self.now)

    # -- lines

    def play(self, text: str) -> None:
        """Play the lines of a table; each must bring about just what stands behind its bar."""
        for line in filter(None, map(str.strip, text.splitlines())):
            event, _, expected = (part.strip() for part in line.partition("|"))
            happened = ", ".join(self.tell(event))
            assert happened == expected, f"{event}: {happened or 'nothing'}, not {expected or 'nothing'}"
            self.core.check_invariants()

    def tell(self, event: str) -> list[str]:
        """Let something happen; return what is asked for, in words."""
        word, *about = event.split()
        if word in ("p0", "p1"):
            out = self._answer(int(word[1]), *about)
        else:
            out = getattr(self, f"_on_{word}")(*about)
        return [said for instruction in out if (said := self._said(instruction))]

    def _on_lease(self, task: str, *end: str) -> list[asked.Instruction]:
        ends = ((int(task), int(end[1])),) if end else ()
        return self._order(lease=Lease(task=int(task)), ends=ends)

    def _on_barred(self, task: str) -> list[asked.Instruction]:
        return self._order(lease=Lease(task=int(task), is_barred=True))

    def _on_released(self, *tasks: str) -> list[asked.Instruction]:
        """`released TASKS [at RATE]`."""
        tasks, rate = (tasks[:-2], float(tasks[-1])) if "at" in tasks else (tasks, None)
        return self._order(released=tuple(Lease(task=int(task), learning_rate=rate) for task in tasks))

    def _on_noted(self, task: str) -> list[asked.Instruction]:
        return self._order(noted=(int(task),))

    def _on_doubted(self, task: str) -> list[asked.Instruction]:
        return self._order(again=(int(task),))

    def _on_ended(self, name: str) -> list[asked.Instruction]:
        task, index = map(int, name.split("."))
        return self._order(ends=((task, index),))

    def _on_era(self) -> list[asked.Instruction]:
        self._era = (1, self._era[1] + 1)
        return self._order()

    def _on_lost(self, partition: str) -> list[asked.Instruction]:
        index = int(partition[1])
        self._lives[index] = (1, self._lives[index][1] + 1)
        self._questions[index] = []
        return self._order()

    def _on_initialised(self) -> list[asked.Instruction]:
        sent = self._initialising
        assert sent is not None
        return self.core.feed(Answered(sent.index, sent.key, Initialised(partition=sent.index)), self.now)

    def _on_later(self, seconds: str) -> list[asked.Instruction]:
        self.now += float(seconds)
        return self.core.feed(Tick(), self.now)

    def _on_ids(self, *what: str) -> list[asked.Instruction]:
        found = self._finding.pop(0)
        ids = None if what == ("missing",) else _ids_of(found.index)
        return self.core.feed(IdsFound(found.task, found.index, found.attempt, ids), self.now)

    def _on_computed(self, *what: str) -> list[asked.Instruction]:
        compute, self._computing = self._computing, None
        assert compute is not None
        push = Push(
            task=compute.task,
            index=compute.index,
            is_last="last" in what,
            learning_rate=RATE,
            gradient=None if "empty" in what else np.zeros(1, np.float32),
            state=None,
            counters=None,
        )
        is_known = compute.ahead is not None and "before-end" not in what
        ahead = _ids_of(compute.ahead or 0) if is_known else None
        loss = math.nan if "nan" in what else None
        outcome = Outcome(push.is_last, (push, push), ahead, loss=loss)
        return self.core.feed(MinibatchComputed(compute.task, compute.attempt, outcome), self.now)

    def _on_raised(self) -> list[asked.Instruction]:
        compute, self._computing = self._computing, None
        assert compute is not None
        failed = FailedTask(
            kind="training", task=compute.task, index=compute.index, error="no", where="", traceback=""
        )
        return self.core.feed(TaskFailed(compute.task, compute.attempt, failed), self.now)

    def _answer(self, index: int, *what: str) -> list[asked.Instruction]:
        """`answers [MARK] [vVERSION] [finished]`, or `refuses REASON`, to what was asked first."""
        question = self._questions[index].pop(0)
        verb, *rest = what
        if verb == "refuses":
            answer: Any = Refused(reason=" ".join(rest))  # type: ignore[arg-type]
        else:
            numbers = [int(word) for word in rest if word.isdigit()]
            versions = [int(word[1:]) for word in rest if word[0] == "v"]
            pull = question.body.pull
            values = np.zeros(1, np.float32) if pull is not None and pull.want_vectors else None
            answer = Exchanged(
                incarnation=self._lives[index],
                mark=numbers[0] if numbers else 0,
                finished="finished" in rest,
                version=versions[0] if versions else 0,
                dense=values,
                state=values,
                counters=None if values is None else np.zeros(1, np.int64),
            )
        return self.core.feed(Answered(index, question.key, answer), self.now)

    # -- words

    def _said(self, instruction: asked.Instruction) -> str:
        match instruction:
            case asked.AskMaster():
                return "tell"
            case asked.AskPartition(index, _, key, Exchange() as body):
                self._questions[index].append(_Question(key, body))
                return f"p{index}{_pushed(body)}{_pulled(body)}"
            case asked.AskPartition(index, _, _, NewestPull()):
                return f"p{index} newest"
            case asked.Compute(task, index):
                self._computing = instruction
                return f"compute {task}.{index}"
            case asked.FindIds(task, index):
                self._finding.append(instruction)
                return f"find {task}.{index}"
            case asked.Begin(task):
                return (
                    f"begin {task}" if instruction.end_at is None else f"begin {task} to {instruction.end_at}"
                )
            case asked.Drop(task):
                return f"drop {task}"
            case asked.Cancel(index):
                return f"hang up {index}"
            case asked.SendInitialise(index):
                self._initialising = instruction
                return f"initialise {index}"
        raise AssertionError(instruction)


def _pushed(body: Exchange) -> str:
    push = body.push
    if push is None:
        return ""
    kind = " end" if push.gradient is None else " last" if push.is_last else ""
    rate = "" if push.learning_rate in (RATE, 0.0) else f" at {push.learning_rate}"
    return f" push {push.task}.{push.index}{kind}{rate}"


def _pulled(body: Exchange) -> str:
    pull = body.pull
    if pull is None:
        return ""
    rows = "" if pull.rows is None else f" rows {pull.rows.ids[0]}"
    version = "" if pull.version is None else f" v{pull.version}"
    return f" pull {pull.task}.{pull.index}{rows}{version}"
