"""How often a worker without work asks the master for some."""

from typing import Any

from edlz.services.protocol.messages import (
    Decided,
    DoneEvaluation,
    EvaluationLease,
    GroupOrders,
    Initialised,
    Member,
    PartitionAddress,
    WorkerOrders,
    WorkerStatus,
)
from edlz.services.protocol.plan import TaskRange
from edlz.services.worker.core.groups.inputs import Loaded
from edlz.services.worker.core.heartbeat import ASK_AGAIN_S, HEARTBEAT_S
from edlz.services.worker.core.inputs import Answered, Evaluated, Input, ModelBuilt, OfGroup, Ordered, Tick
from edlz.services.worker.core.instructions import AskMaster, SendInitialise
from edlz.services.worker.core.worker import WorkerCore
from tests import builders
from tests.simulation.groups.reference import initial_store
from tests.simulation.groups.schedule import GroupSchedule

SCHEDULE = GroupSchedule(seed=1, slots=2, epochs=1, lengths=(2, 2), workers=1)
LIFE, SERVER = (1, 2), (1, 3)


class IdleWorker:
    """A worker's core that has built its model, is known to its one partition, and has asked for work."""

    def __init__(self) -> None:
        self.core = WorkerCore("0", 7)
        self.now = 0.0
        job = builders.job(builders.plan(2, 2))
        self.status = self.feed(Tick())[0]
        self.status = self.answer(incarnation=LIFE, job=job)[0]
        address = PartitionAddress(index=0, incarnation=SERVER, endpoint="p", has_base=True)
        self.answer(partitions=(address,), address_list=(1, 4))
        (initialise,) = (
            each
            for each in self.core.feed(ModelBuilt(False, None, False), self.now)
            if isinstance(each, SendInitialise)
        )
        self.answer()
        self.status = self.feed(Answered(0, initialise.key, Initialised(partition=0)))[0]

    def feed(self, event: Input) -> list[WorkerStatus]:
        """Return what it asks the master then."""
        out = self.core.feed(event, self.now)
        return [each.body for each in out if isinstance(each, AskMaster)]

    def answer(self, **fields: Any) -> list[WorkerStatus]:
        about = {"incarnation": LIFE, "era": (1, 1), "address_list": (1, 4), **fields}
        orders = WorkerOrders(term=1, seq=self.core._heartbeat.count, stop=False, finished=False, **about)
        return self.feed(Ordered(orders))


class WaitingMember(IdleWorker):
    """A worker's core of an all-reduce job that has built its model, and has told its master so."""

    def __init__(self) -> None:
        self.core, self.now = WorkerCore("0", 7), 0.0
        config = builders.settings(distribution_strategy="AllreduceStrategy").to_record()
        self.feed(Tick())
        self.answer(incarnation=LIFE, job=builders.job(SCHEDULE.plan, config=config))
        self.answer()
        base = initial_store(SCHEDULE)
        (self.status,) = self.feed(ModelBuilt(False, None, False, base=base, endpoint="m"))

    def order(self, **fields: Any) -> list[WorkerStatus]:
        decided = Decided(fence=2, task_count=2)
        return self.answer(group=GroupOrders(term=1, decided=decided, **fields))


def test_a_worker_that_has_nothing_says_that_the_answer_can_wait() -> None:
    worker = IdleWorker()
    assert (worker.status.wants_task, worker.status.can_wait) == (True, True)


def test_an_ask_that_was_held_is_followed_by_the_next_at_once() -> None:
    worker = IdleWorker()
    worker.now = 0.9 * HEARTBEAT_S
    (asked,) = worker.answer()
    assert asked.can_wait


def test_an_ask_that_was_not_held_is_not() -> None:
    """However a master answers, it is not asked without end."""
    worker = IdleWorker()
    worker.now = 0.5 * ASK_AGAIN_S
    assert worker.answer() == []
    assert worker.feed(Tick()) == []
    worker.now = ASK_AGAIN_S
    assert [asked.can_wait for asked in worker.feed(Tick())] == [True]


def test_who_has_reported_all_it_had_asks_at_once() -> None:
    worker = IdleWorker()
    lease = EvaluationLease(round=1, task=0, records=TaskRange(name="test", first=0, count=1))
    assert worker.answer(evaluation=lease) == []
    done = DoneEvaluation(round=1, task=0, records=1, states={})
    (report,) = worker.feed(Evaluated(done))
    assert (report.evaluated, report.can_wait) == ((done,), False)
    (asked,) = worker.answer(noted_evaluations=((1, 0),))
    assert (asked.evaluated, asked.can_wait) == ((), True)


def test_where_training_stands_still_the_next_evaluation_is_asked_for_ahead() -> None:
    """Its parameters come while the first one is computed; elsewhere it would keep training from the worker's thread."""
    records = TaskRange(name="test", first=0, count=1)
    worker = IdleWorker()
    (asked,) = worker.answer(evaluation=EvaluationLease(round=1, task=0, records=records, version=3))
    assert (asked.evaluating, asked.wants_evaluation) == (((1, 0),), True)
    later = TaskRange(name="test", first=1, count=1)
    assert worker.answer(evaluation=EvaluationLease(round=1, task=1, records=later, version=3)) == []
    (report,) = worker.feed(Evaluated(DoneEvaluation(round=1, task=0, records=1, states={})))
    assert (report.evaluating, report.wants_evaluation) == (((1, 1), (1, 0)), True)
    worker = IdleWorker()
    assert worker.answer(evaluation=EvaluationLease(round=1, task=0, records=records)) == []


def test_who_waits_for_orders_of_its_group_says_so_and_who_trains_does_not() -> None:
    """A spare hears at once that it is called, a member that has promised who the others are."""
    worker = WaitingMember()
    assert worker.status.can_wait
    (promised,) = worker.order(generation=(1, 1))
    assert (promised.member.phase, promised.can_wait) == ("promised", True)
    (computing,) = worker.order(generation=(1, 1), members=(Member(incarnation=LIFE, worker="0"),))
    assert (computing.member.phase, computing.can_wait) == ("computing", False)
    (again,) = worker.order(generation=(1, 2))
    assert again.can_wait
    assert worker.order(generation=(1, 2), load=((1, 1), 3)) == []
    (loaded,) = worker.feed(OfGroup(Loaded(((1, 1), 3), None)))
    assert not loaded.can_wait, "what it has read is to be told"
