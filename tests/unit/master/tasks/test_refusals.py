"""An odd status of a key holder is refused by a message, and changes nothing."""

from typing import Any

import numpy as np
import pytest

from edlz.services.errors import RemoteProtocolError
from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.vocabulary.inputs import Request, Start
from edlz.services.master.core.vocabulary.instructions import Journal, Reply
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.protocol.concluded_rounds import CallbackNeeds, Decision
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.protocol.messages import (
    NO_IDENTITY,
    ClosedTask,
    DoneEvaluation,
    DoneTask,
    ErrorReply,
    EvaluationResult,
    FailedTask,
    MetricState,
    Recount,
    WorkerStatus,
)
from tests import builders
from tests.statuses import partition_status

PLAN = builders.plan(40, mode="async", seed=1, records_per_task=4, evaluated=8)


@pytest.fixture
def core() -> MasterCore:
    """A master in whose job a round of evaluation is under way."""
    core = MasterCore(builders.job(PLAN), JournalState(), evaluation_steps=1)
    core.feed(Start(), 0.0)
    done = LedgerRecord(finished=(0, 1), minibatches=4)
    core.feed(Request("p", partition_status(version=5, ledger=done, minibatches=4)), 0.0)
    return core


def worker(**fields: Any) -> WorkerStatus:
    defaults = {"boot": 2, "incarnation": (1, 9), "seq": 1, "era": NO_IDENTITY, "run": "r"}
    return WorkerStatus(worker="0", **{**defaults, **fields})


def refused(core: MasterCore, status: Any, complaint: str) -> None:
    before = (
        dict(core.processes.live.workers),
        core.partitions.entries[0].status,
        len(core.work.queue.done),
        core.phase,
    )
    with pytest.raises(RemoteProtocolError, match=complaint):
        core.feed(Request("x", status), 1.0)
    core.check_invariants()
    after = (
        dict(core.processes.live.workers),
        core.partitions.entries[0].status,
        len(core.work.queue.done),
        core.phase,
    )
    assert after == before


def evaluated(core: MasterCore, *states: MetricState) -> tuple[DoneEvaluation, ...]:
    (number,) = core.work.evaluation._rounds
    return tuple(
        DoneEvaluation(round=number, task=task, records=4, states=state) for task, state in enumerate(states)
    )


@pytest.mark.parametrize("other", [{"x": [np.ones(1)]}, {"n": [np.ones(2)]}, {"n": []}, {}])
def test_metric_states_that_cannot_be_added(core: MasterCore, other: MetricState) -> None:
    both = evaluated(core, {"n": [np.ones(1)]}, other)
    refused(core, worker(evaluated=both), "task 1 of the evaluation has metric states")
    core.feed(Request("w", worker(evaluated=both[:1])), 1.0)
    refused(core, worker(seq=2, evaluated=both[1:]), r"task 0 has \{'n': \[\(1,\)\]\}")


def failed(kind: Any, task: int, index: int = 0) -> tuple[FailedTask, ...]:
    return tuple(
        FailedTask(
            kind=kind, task=task, index=index, error="e", where="", traceback="", attempt=attempt, round=1
        )
        for attempt in range(3)
    )


def decided(**fields: Any) -> tuple[EvaluationResult, ...]:
    return (EvaluationResult(round=1, metrics={}, decision=Decision(logs={}, **fields)),)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"failed": failed("training", 10**6)}, "worker-0 speaks of task 1000000; this job has 10 of them"),
        ({"failed": failed("training", -1)}, "task -1"),
        ({"failed": failed("training", 1, -3)}, "counts -3"),
        ({"failed": failed("evaluation", 99)}, "evaluation task 99; this job has 2 of them"),
        ({"failed": failed("evaluation", -5)}, "evaluation task -5"),
        ({"holding": (3, 10)}, "task 10"),
        ({"done": (DoneTask(task=-2, era=(0, 0), incarnations=()),)}, "task -2"),
        ({"evaluated": (DoneEvaluation(round=1, task=2, records=4, states={}),)}, "evaluation task 2"),
        ({"evaluated": (DoneEvaluation(round=1, task=1, records=-4, states={}),)}, "counts -4"),
        ({"incarnation": (1, -1)}, "lives in"),
        ({"steps": -1}, "counts -1"),
        ({"callbacks": CallbackNeeds(max_steps=-1)}, "counts -1"),
        ({"results": decided(kept=(-2,))}, "counts -2"),
        ({"results": decided(learning_rate=float("nan"))}, "learning rate to nan"),
        ({"results": decided(kept=(1,), result=2)}, "put back v2, which is not kept"),
    ],
)
def test_odd_workers(core: MasterCore, fields: dict[str, Any], complaint: str) -> None:
    refused(core, worker(**fields), complaint)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"version": -1}, "ps-0 counts -1"),
        ({"minibatches": 2**60}, "counts"),
        ({"incarnation": (9, 1)}, "lives in"),
        ({"era": (2, 0)}, "lives in"),
        ({"ledger": LedgerRecord(finished=(5, 3))}, "a malformed ledger"),
        ({"ledger": LedgerRecord(finished=(5,))}, "a malformed ledger"),
        ({"ledger": LedgerRecord(finished=(0, 11))}, "finished tasks up to 11; this job has 10"),
        ({"ledger": LedgerRecord(marks=((10, 1),))}, "task 10"),
        ({"ledger": LedgerRecord(marks=((1, -1),))}, "counts -1"),
        ({"snapshots": (((1, 1), -4),)}, "counts -4"),
        ({"closed": (ClosedTask(task=10, number=1, mark=0, finished=False),)}, "task 10"),
        ({"recount": Recount(applied=-7)}, "counts -7"),
    ],
)
def test_odd_partitions(core: MasterCore, fields: dict[str, Any], complaint: str) -> None:
    refused(core, partition_status(seq=2, **fields), complaint)


def test_whoever_names_a_later_term_is_not_believed_but_looked_up(core: MasterCore) -> None:
    """Only the journal knows whether there is a younger master."""
    for status in (partition_status(term=2**62), worker(incarnation=(2, 1))):
        check, answer = core.feed(Request("x", status), 1.0)
        assert check == Journal({}), "which ends a master whose time is over"
        assert isinstance(answer, Reply)
        assert isinstance(answer.body, ErrorReply)
