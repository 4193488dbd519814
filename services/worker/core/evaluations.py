"""The evaluation tasks that a worker has in hand, and what it has to report of them.

In a job that predicts or analyzes they give outputs, which are written while the next task is computed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from edlz.services.protocol.concluded_rounds import ConcludedRound
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    ANY_VERSION,
    Conclusion,
    DoneEvaluation,
    EvaluationLease,
    EvaluationResult,
    Exchanged,
    NewestPull,
    RowIds,
    WorkerOrders,
)
from edlz.services.worker.core.held_tasks import BACK_OFF_MAX_S
from edlz.services.worker.core.instructions import (
    AskPartition,
    Conclude,
    Evaluate,
    FindEvaluationIds,
    Instruction,
)
from edlz.services.worker.core.partition_directory import PartitionDirectory

__all__ = ["Evaluations"]

MOST_WRITING = 4  # tasks whose outputs are in memory

Key = tuple[int, int]  # (round, task)


@dataclass
class _Evaluation:
    lease: EvaluationLease
    ids: tuple[RowIds, ...] | None = None  # of a model with embedding tables, as soon as they are found
    attempt: int = 0
    is_running: bool = False
    resume_s: float = 0.0
    answers: dict[int, Exchanged] = field(default_factory=dict)


class Evaluations:
    """Pulls the newest values once for each evaluation task, then has it evaluated.

    Parameters
    ----------
    partitions : PartitionDirectory
    ask : callable (index, key, body) -> AskPartition
        Addresses a request to a partition.
    """

    def __init__(
        self, partitions: PartitionDirectory, ask: Callable[[int, tuple[object, ...], Message], AskPartition]
    ) -> None:
        self._partitions, self._ask = partitions, ask
        self.has_tables = False
        self.run = ""  # of the job
        self._count = 0
        self._attempt = 0
        self._in_hand: dict[Key, _Evaluation] = {}
        self._writing: set[Key] = set()
        self._done: dict[Key, DoneEvaluation] = {}
        self._concluding: set[int] = set()
        self._rounds: tuple[
            ConcludedRound, ...
        ] = ()  # of barriers passed, as far as the master has told them
        self._results: dict[int, EvaluationResult] = {}

    # -- what is told

    @property
    def holding(self) -> tuple[Key, ...]:
        return (*self._in_hand, *self._writing, *self._done)

    @property
    def done(self) -> tuple[DoneEvaluation, ...]:
        return tuple(self._done.values())

    @property
    def results(self) -> tuple[EvaluationResult, ...]:
        return tuple(self._results.values())

    @property
    def rounds(self) -> int:
        """How many barriers' rounds it has been told of."""
        return len(self._rounds)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in hand, or to be reported."""
        return not (self.holding or self._concluding or self._results)

    @property
    def is_busy(self) -> bool:
        """Whether there is something to evaluate or to conclude, or the master is to say whether there is more."""
        return bool(self.holding or self._concluding - self._results.keys())

    @property
    def wants_lease(self) -> bool:
        """Whether there is room for another task: for one ahead only where training stands still meanwhile."""
        stands_still = all(each.lease.version != ANY_VERSION for each in self._in_hand.values())
        room = 2 if stands_still else 1
        return len(self._in_hand) < room and len(self._writing) < MOST_WRITING

    # -- events

    def on_tick(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for key, evaluation in list(self._in_hand.items()):
            if not evaluation.resume_s or now < evaluation.resume_s:
                continue
            if evaluation.lease.version == ANY_VERSION:
                out += self._pull(evaluation)
            else:  # those parameters may never come again; the master knows whether they are waited for
                del self._in_hand[key]
        return out

    def on_orders(self, orders: WorkerOrders, partitions: int) -> list[Instruction]:
        """Forget what the master has noted; take a lease, or a round to conclude."""
        self._count = partitions
        for key in orders.noted_evaluations:
            self._done.pop(key, None)
        for number in orders.noted_results:
            self._results.pop(number, None)
            self._concluding.discard(number)
        out: list[Instruction] = []
        if orders.evaluation is not None:
            out += self._take(orders.evaluation)
        if orders.conclude is not None:
            out += self._conclude(orders.conclude)
        return out

    def _take(self, lease: EvaluationLease) -> list[Instruction]:
        key = (lease.round, lease.task)
        if key in self.holding:
            return []
        self._in_hand[key] = _Evaluation(lease)
        return [FindEvaluationIds(lease)] if self.has_tables else self._pull(self._in_hand[key])

    def on_ids(self, key: Key, ids: tuple[RowIds, ...]) -> list[Instruction]:
        """The rows that a task needs from each partition."""
        evaluation = self._in_hand.get(key)
        if evaluation is None or evaluation.ids is not None:
            return []
        evaluation.ids = ids
        return self._pull(evaluation)

    def _conclude(self, conclusion: Conclusion) -> list[Instruction]:
        if conclusion.round in self._concluding:
            return []
        self._concluding.add(conclusion.round)
        shown = conclusion.shown
        if shown is not None:
            self._rounds = (*self._rounds[: shown.first], *shown.before)
            shown = msgspec.structs.replace(shown, before=self._rounds, first=0)
        return [Conclude(msgspec.structs.replace(conclusion, shown=shown))]

    def repeat_pulls(self) -> list[Instruction]:
        """A partition is another one, or elsewhere: ask again for what has not come."""
        out: list[Instruction] = []
        for evaluation in self._in_hand.values():
            is_looking = self.has_tables and evaluation.ids is None
            if not evaluation.is_running and not is_looking:
                out += self._pull(evaluation)
        return out

    def _pull(self, evaluation: _Evaluation) -> list[Instruction]:
        self._attempt += 1
        evaluation.attempt, evaluation.answers, evaluation.resume_s = self._attempt, {}, 0.0
        key = ("newest", (evaluation.lease.round, evaluation.lease.task), self._attempt)
        ids, version = evaluation.ids, evaluation.lease.version
        return [
            self._ask(
                p,
                key,
                NewestPull(
                    rows=ids[p] if ids else None,
                    run=self.run,
                    version=version,
                    incarnation=self._partitions.incarnation(p),
                ),
            )
            for p in range(self._count)
        ]

    def on_answer(self, index: int, key: Key, attempt: int, answer: Message, now: float) -> list[Instruction]:
        evaluation = self._in_hand.get(key)
        if evaluation is None or evaluation.attempt != attempt or evaluation.is_running:
            return []
        if not isinstance(answer, Exchanged):
            evaluation.attempt, evaluation.resume_s = 0, now + BACK_OFF_MAX_S
            return []
        evaluation.answers[index] = answer
        if len(evaluation.answers) < self._count:
            return []
        evaluation.is_running = True
        vectors = tuple(evaluation.answers[p] for p in range(self._count))
        return [Evaluate(evaluation.lease, vectors, evaluation.ids or ())]

    def on_writing(self, key: Key) -> None:
        """The outputs of a task are computed, and are being written."""
        if self._in_hand.pop(key, None):
            self._writing.add(key)

    def on_evaluated(self, done: DoneEvaluation) -> None:
        key = (done.round, done.task)
        if self._in_hand.pop(key, None) or key in self._writing:
            self._writing.discard(key)
            self._done[key] = done

    def on_failed(self, key: Key) -> None:
        self._in_hand.pop(key, None)
        self._writing.discard(key)

    def on_concluded(self, result: EvaluationResult) -> None:
        self._results[result.round] = result
