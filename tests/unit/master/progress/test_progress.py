"""What screens are told of rates, times and events, on a clock of the test's and with a core that is real."""

from typing import Any

import msgspec
import pytest

from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.vocabulary.inputs import ManifestWritten, Request, Start, StopWanted, Tick
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.master.progress.progress import Progress
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.protocol.messages import (
    NO_IDENTITY,
    DoneTask,
    Identity,
    MemberStatus,
    PartitionStatus,
    WorkerOrders,
    WorkerStatus,
    WorkerTelemetry,
)
from tests import builders
from tests.statuses import partition_status

RECORDS, TASK, MINIBATCH = 100_000, 1000, 100
TICK_S = 0.25


class Watched:
    """A job of one partition and one worker that train at a given pace, and its master's word on it."""

    def __init__(self, mode: str = "async", *, applied: int = 0, now: float = 1000.0, term: int = 0) -> None:
        plan = builders.plan(RECORDS, mode=mode, records_per_task=TASK, minibatch_size=MINIBATCH, epochs=2)
        job = builders.job(plan, name="job")
        journal = JournalState(term=term)
        self.core = MasterCore(job, journal)
        self.core.feed(Start(), 0.0)
        self.progress = Progress(self.core, 1e9, now, journal)
        self.now, self.applied, self.told = now, float(applied), 0.0
        self._seq = 0
        self._worker: Identity | None = None
        self._partition = self._join()

    def _join(self) -> PartitionStatus:
        """Let the partition begin a life."""
        status = partition_status(
            boot=self._next(), incarnation=None, seq=self._next(), term=self.core.term, ledger=LedgerRecord()
        )
        (granted,) = [i.body for i in self.core.feed(Request(0, status), self.now) if hasattr(i, "body")]
        era = self.core.eras.newest if self.core.plan.is_sync else None
        return msgspec.structs.replace(status, incarnation=granted.incarnation, era=era)

    def restart_partition(self, applied: int) -> None:
        """It is lost, and back with fewer records in it."""
        self.applied = float(applied)
        self._partition = self._join()

    def run(self, seconds: float, records_per_s: float = 0.0) -> None:
        """Let time pass: the partition says once a second what it has, and the worker what it has done."""
        for tick in range(round(seconds / TICK_S)):
            self.now += TICK_S
            self.applied += records_per_s * TICK_S
            self.told += records_per_s * TICK_S
            if tick % 4 == 0:
                self.tell()
            self.core.feed(Tick(), self.now)
            self.progress.sample(self.now)

    def be_at(self, version: int) -> None:
        """Let the partition be at a version of the newest era, and time pass."""
        about = {"version": version, "era": self.core.eras.newest, "snapshots": ((NO_IDENTITY, 0),)}
        self._partition = msgspec.structs.replace(self._partition, **about)
        self.run(2.0)

    def tell(self) -> None:
        minibatches = int(self.applied / MINIBATCH)
        tasks, more = divmod(minibatches, TASK // MINIBATCH)
        finished = (0, tasks) if tasks else ()
        self._partition = msgspec.structs.replace(
            self._partition,
            seq=self._next(),
            ledger=LedgerRecord(finished=finished),
            finished_tasks=tasks,
            minibatches=minibatches,
            open_minibatches=more,
        )
        self.core.feed(Request(0, self._partition), self.now)
        lives = (self._partition.incarnation or NO_IDENTITY,)
        era = self.core.eras.newest or NO_IDENTITY
        self.say(
            done=tuple(DoneTask(task=i, era=era, incarnations=lives) for i in range(tasks)),
            records=int(self.told),
        )
        self.told = 0.0

    def say(self, *, done: tuple[DoneTask, ...] = (), is_copy: bool = False, **told: Any) -> None:
        """Let the worker speak."""
        if self._worker is None:
            hello = WorkerStatus(worker="0", boot=1, incarnation=None, seq=self._next(), era=NO_IDENTITY)
            (answer,) = [i.body for i in self.core.feed(Request(0, hello), self.now) if hasattr(i, "body")]
            self._worker = answer.incarnation
        telemetry = WorkerTelemetry(state="training", minibatches=1, **told)
        status = WorkerStatus(
            worker="0",
            boot=1,
            incarnation=self._worker,
            seq=self._next(),
            era=NO_IDENTITY,
            run="r",
            done=done,
        )
        status = msgspec.structs.replace(status, telemetry=telemetry)
        for _ in range(1 + is_copy):
            self.core.feed(Request(0, status), self.now)
            self.told_of_worker = self.progress.on_worker(status, self.now)

    @property
    def rate(self) -> float:
        return self.progress.status(0, self.now).records_per_s

    def _next(self) -> int:
        self._seq += 1
        return self._seq


def test_workers_of_a_group_are_shown_with_their_ranks() -> None:
    config = {"distribution_strategy": "AllreduceStrategy"}
    job = builders.job(builders.plan(RECORDS, mode="sync"), config=config)
    core, journal = MasterCore(job, JournalState()), JournalState()
    core.feed(Start(), 0.0)
    progress = Progress(core, 1e9, 0.0, journal)

    def hear(seq: int, incarnation: Identity | None, member: MemberStatus | None) -> WorkerOrders:
        status = WorkerStatus(
            worker="0",
            boot=1,
            incarnation=incarnation,
            seq=seq,
            era=NO_IDENTITY,
            run="r" if incarnation else "",
            member=member,
            member_endpoint="ipc:///tmp/0",
        )
        progress.on_worker(status, seq)
        (orders,) = [i.body for i in core.feed(Request(0, status), seq) if hasattr(i, "body")]
        assert isinstance(orders, WorkerOrders)
        return orders

    life = hear(1, None, None).incarnation
    about = {"term": core.term, "members": (), "name": (NO_IDENTITY, 0), "finished": ()}
    orders = hear(2, life, MemberStatus(phase="waiting", generation=NO_IDENTITY, **about))
    seq = 3
    while orders.group is None or not orders.group.members:
        phase = "waiting" if orders.group is None or not any(orders.group.generation) else "promised"
        generation = NO_IDENTITY if orders.group is None else orders.group.generation
        assert [view.rank for view in progress.status(0, seq).workers] == [None]
        orders = hear(seq, life, MemberStatus(phase=phase, generation=generation, **about))
        seq += 1
        assert seq < 30
    shown = progress.status(0, seq)
    assert [view.rank for view in shown.workers] == [0]
    assert (shown.is_allreduce, shown.servers, shown.members) == (True, (), ("0",))


def test_the_rate_is_right_from_the_tenth_second_on() -> None:
    job = Watched()
    job.run(30)  # the model is being built
    assert job.rate == 0
    for _ in range(30):
        job.run(1, records_per_s=900)
        assert job.rate == 0 or job.rate == pytest.approx(900, rel=0.15)
    assert job.rate == pytest.approx(900, rel=0.05)


def test_a_master_that_comes_to_a_job_under_way_counts_from_where_it_stands() -> None:
    job = Watched(applied=80_000, term=3)
    job.run(10, records_per_s=900)
    assert job.rate == pytest.approx(900, rel=0.1)


def test_a_partition_that_goes_back_is_not_compared_with_what_it_had() -> None:
    job = Watched()
    job.run(30, records_per_s=900)
    job.restart_partition(applied=12_000)
    for _ in range(40):
        job.run(1, records_per_s=900)
        assert job.rate == 0 or job.rate == pytest.approx(900, rel=0.15)
    assert job.rate == pytest.approx(900, rel=0.05)


def test_a_master_that_stood_still_does_not_take_what_was_done_meanwhile_for_its_last_second() -> None:
    job = Watched()
    job.run(30, records_per_s=900)
    job.applied += 900 * 40
    job.progress.on_pause(40.0)
    for _ in range(20):
        job.run(1, records_per_s=900)
        assert job.rate == 0 or job.rate == pytest.approx(900, rel=0.15)


def test_the_time_left_is_told_only_from_a_rate_that_can_be_trusted() -> None:
    job = Watched()
    job.run(19, records_per_s=900)
    assert job.progress.status(0, job.now).eta_s is None
    job.run(5, records_per_s=900)
    status = job.progress.status(0, job.now)
    assert status.eta_s == pytest.approx((2 * RECORDS - status.records) / 900, rel=0.05)
    job.run(12)
    stalled = job.progress.status(0, job.now)
    assert stalled.stalled_s is not None
    assert stalled.eta_s is None  # not the months that a rate of nearly nothing makes


def test_a_workers_rate_is_right_from_the_tenth_second_on_and_copies_do_not_count() -> None:
    job = Watched()
    for second in range(30):
        job.now += 1.0
        job.say(records=250, is_copy=second % 3 == 0)
        job.progress.sample(job.now)
        (worker,) = job.progress.status(0, job.now).workers
        if second >= 10:
            assert worker.records_per_s == pytest.approx(250, rel=0.1)


def test_a_stopped_job_is_at_the_version_of_its_checkpoint() -> None:
    """Partitions train on until they hear of the stop; the log, the screens and what is resumed name one version."""
    job = Watched("sync")
    job.be_at(0)
    job.be_at(7)
    job.core.feed(StopWanted(), job.now)
    job.core.feed(ManifestWritten(9), job.now)
    job.be_at(12)
    status = job.progress.status(0, job.now)
    assert job.core.version == 12
    assert (status.state, status.version, status.checkpoint) == ("Stopped", 9, 9)


def test_what_a_worker_waits_for_is_told_once_and_shown_until_it_is_over() -> None:
    job, note = Watched(), "no room on the disk for /x/out: it is waited for"
    told = []
    for waits_for in ("", note, note, "", note):
        job.say(waits_for=waits_for)
        told.append(job.told_of_worker)
        assert [view.note for view in job.progress.status(0, job.now).workers] == [waits_for]
    assert told == [
        "",
        f"worker-0: {note}.",
        "",
        "worker-0 goes on: it waits no longer.",
        f"worker-0: {note}.",
    ]


def test_when_training_is_over_its_last_rate_stays() -> None:
    job = Watched()
    job.run(2 * RECORDS / 5000, records_per_s=5000)
    job.run(60)
    assert job.core.work.queue.is_done
    assert job.rate == pytest.approx(5000, rel=0.1)
