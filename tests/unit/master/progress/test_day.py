"""A day of a job with a thousand workers: what is shown of it takes no more room in the evening than in the morning."""

import gc
import sys
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any

import msgspec
import pytest

from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.processes.desired_processes import DesiredProcesses
from edlz.services.master.core.vocabulary.inputs import Request, Start
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.master.page.encoded import Encoded
from edlz.services.master.page.look import looking_at
from edlz.services.master.page.metrics import metrics_text
from edlz.services.master.progress.curves import MOST
from edlz.services.master.progress.events import MOST as MOST_EVENTS
from edlz.services.master.progress.progress import Progress
from edlz.services.master.progress.shown_evaluations import MOST as MOST_EVALUATIONS
from edlz.services.protocol.concluded_rounds import LossSum
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.protocol.messages import (
    NO_IDENTITY,
    Message,
    OperationTelemetry,
    PartitionTelemetry,
    ProcessExit,
    SupervisorStatus,
    WorkerOrders,
    WorkerStatus,
    WorkerTelemetry,
)
from tests import builders
from tests.statuses import partition_status

TASKS, WORKERS = 10_000, 1_000
STEP_S = 60.0
DAY_S, LOOK_S = 86_400.0, 3600.0
MINIBATCHES = 100  # of a task


class LongJob:
    """A job whose workers are lost one after the other, as its master's core and screens see it; on a clock of the test's."""

    def __init__(self) -> None:
        plan = builders.plan(
            TASKS * MINIBATCHES, mode="async", records_per_task=MINIBATCHES, minibatch_size=1
        )
        self.core = MasterCore(
            builders.job(plan, name="day"), JournalState(), desired=DesiredProcesses(WORKERS, 1)
        )
        self.now, self._seq, self._minibatches = 0.0, 0, 0
        self.core.feed(Start(), self.now)
        self.progress = Progress(self.core, 1e9, self.now, JournalState())
        config = builders.settings(num_workers=WORKERS)
        self.look = looking_at(config, self.core, self.progress, lambda: self.now, lambda: (1, 2))
        self._partition = partition_status(boot=1, incarnation=None, seq=1, ledger=LedgerRecord())
        granted: Any = self._ask(self._partition)
        self._partition = msgspec.structs.replace(self._partition, incarnation=granted.incarnation)
        self._workers: list[str] = []
        self._supervise()
        self.joined = 0

    def _ask(self, body: Message) -> Message | None:
        answers = [i.body for i in self.core.feed(Request(0, body), self.now) if hasattr(i, "body")]
        return answers[0] if answers else None

    def _supervise(self, *lost: str) -> None:
        """Let what runs be what should, and let new workers join."""
        self._seq += 1
        exits = tuple(ProcessExit(name=f"worker-{worker}", code=-9, reason="killed") for worker in lost)
        running = tuple(f"worker-{worker}" for worker in self._workers if worker not in lost)
        orders: Any = self._ask(SupervisorStatus(seq=self._seq, running=("ps-0", *running), exits=exits))
        wanted = [name.removeprefix("worker-") for name in orders.desired if name.startswith("worker-")]
        for worker in sorted(set(wanted) - set(self._workers), key=int):
            self._join(worker)
        self._workers = wanted

    def _join(self, worker: str) -> None:
        said = WorkerStatus(worker=worker, boot=1, incarnation=None, seq=1, era=NO_IDENTITY)
        orders = self._ask(said)
        assert isinstance(orders, WorkerOrders)
        telemetry = WorkerTelemetry(
            state="training", task=int(worker) % TASKS, minibatches=3, records=300, compute_s=0.1, wait_s=0.01
        )
        again = msgspec.structs.replace(
            said, incarnation=orders.incarnation, seq=2, telemetry=telemetry, run="r"
        )
        self._ask(again)
        self.progress.on_worker(again, self.now)

    def step(self) -> None:
        """Let a minute pass: some work is done, an evaluation ends; now and then a worker is lost, and another one joins."""
        self.now += STEP_S
        self._seq += 1
        if self._minibatches < TASKS * MINIBATCHES - MINIBATCHES:
            self._minibatches += 660
        tasks, more = divmod(self._minibatches, MINIBATCHES)
        version = self._minibatches
        buckets = tuple(range(version, version + 17))
        self._partition = msgspec.structs.replace(
            self._partition,
            seq=self._seq,
            version=version,
            ledger=LedgerRecord(finished=(0, tasks), minibatches=self._minibatches),
            finished_tasks=tasks,
            minibatches=self._minibatches,
            open_minibatches=more,
            losses=LossSum(total=0.5 * version, count=version),
            telemetry=PartitionTelemetry(
                requests=2 * version,
                staleness=buckets[:8],
                staleness_sum=float(version),
                rejected=(("stale", version),),
                operations=(OperationTelemetry(name="exchange", seconds=1.0 * version, counts=buckets),),
            ),
        )
        self._ask(self._partition)
        if self.now % (3 * STEP_S) == 0:
            self._supervise(self._workers[0])
        self.progress.add_event("worker", f"worker-{self._seq} lost: killed by signal 9 (SIGKILL).", self.now)
        self.core.work.results.append((version, {"accuracy": 1 - 1 / (1 + version), "auc": 0.5}))
        self.progress.sample(self.now)
        self.progress.curves.due(self.now)


def bytes_of(roots: Iterable[object], besides: Iterable[object]) -> int:
    """Return the memory of objects and all that they refer to, without others and what these refer to alone."""
    seen = {id(each) for each in besides}
    total, todo = 0, list(roots)
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, type | ModuleType | FunctionType):
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        todo += gc.get_referents(each)
    return total


@pytest.mark.slow
def test_a_day_takes_no_more_room_than_a_morning() -> None:
    job, rooms, answers, metrics = LongJob(), [], [], []
    while job.now < DAY_S:
        job.step()
        if job.now % LOOK_S == 0:
            results = job.core.work.results
            rooms.append(bytes_of([job.progress], [job.core, results, *results]))
            content = job.look()
            answers.append(len(Encoded(content).json()))
            metrics.append(len(metrics_text(content)))
    shown = job.progress.status(0, job.now)
    assert len(job.core.work.results) == DAY_S / STEP_S
    assert len(shown.workers) == WORKERS
    assert len(shown.evaluations) <= MOST_EVALUATIONS + 5
    assert len(shown.events) <= MOST_EVENTS
    assert len(job.progress.curves.rows) < MOST
    for sizes, most in ((rooms, 4_000_000), (answers, 500_000), (metrics, 100_000)):
        assert max(sizes[12:]) <= 1.1 * max(sizes[:12])
        assert max(sizes) <= most
