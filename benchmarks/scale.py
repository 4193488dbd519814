"""The master of a job with a thousand workers.

In virtual time (virtual_job.py): CPU time of the master's core, how long the last tasks take, and whether each task is
in the ledger once, while a worker dies each second.

In real time: a master process, `python -m edlz.services.master`, asked over Unix sockets by this process as 500
workers, each of which reports a task done and asks for the next one as soon as it has its answer.  The master is
held to processor 1, this process to processor 0.
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import zmq

from benchmarks.processes import cpu_s, held_to_processor, start
from benchmarks.rows import Row
from benchmarks.virtual_job import Outcome, Size, VirtualJob
from edlz.api.recordio import Writer
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.protocol.messages import (
    NO_IDENTITY,
    DoneTask,
    Granted,
    Identity,
    PartitionStatus,
    WorkerOrders,
    WorkerStatus,
    WorkerTelemetry,
)
from edlz.services.transport.codec import Codec

__all__ = ["MasterProcess", "measure"]

ASYNC, SYNC = Size("async", tasks=100_000), Size("sync", tasks=5_000)
MOST_CORE_SHARE = 0.5  # CPU seconds in a virtual second
MOST_TAIL = 3.0  # of the median task
WORKERS, PARTITIONS = 500, 10
RECORDS, EPOCHS = 10_000, 1_000  # a task each
LEAST_REPORTS_PER_S = 5_000
WARM_UP_S, MEASURED_S = 2.0, 10.0
ANSWER_MS = 60_000


def measure() -> list[Row]:
    """Measure; takes some minutes, most of them for the workers that are not there."""
    rows = [row for size in (ASYNC, SYNC) for row in _rows_of_job(size, VirtualJob(size).run())]
    with held_to_processor(0), tempfile.TemporaryDirectory(prefix="edlz-bench-") as folder:
        return [*rows, _measure_reports(Path(folder))]


# ---------------------------------------------------------------- virtual time


def _rows_of_job(size: Size, outcome: Outcome) -> list[Row]:
    label = f"scale: {size.mode}, {size.workers} workers, {size.partitions} ps, {size.tasks} tasks"
    share = outcome.core_s / outcome.passed_s
    events = (
        f"{outcome.deaths} deaths, {outcome.statuses / outcome.passed_s:.0f} statuses a second, "
        f"{outcome.core_s / outcome.statuses * 1e6:.0f} us each"
    )
    core = Row(f"{label}, core's CPU / time", f"{share:.3f} s/s", events, share, MOST_CORE_SHARE, False)
    if size.mode == "sync":  # the last tasks are those of the last round, and all end at once
        return [core]
    others = f"median task {outcome.median_s:.1f} s, longest from lease to ledger {outcome.longest_s:.0f} s"
    tail = outcome.tail_s / outcome.median_s
    return [
        core,
        Row(f"{label}, last 1 % / median task", f"{outcome.tail_s:.1f} s", others, tail, MOST_TAIL, False),
    ]


# ---------------------------------------------------------------- real time


def _measure_reports(folder: Path) -> Row:
    with MasterProcess(folder) as master:
        workers = [master.join(str(number)) for number in range(WORKERS)]
        master.exchange(workers, WARM_UP_S)
        began_s, began_cpu_s = time.perf_counter(), master.cpu_s
        reports = master.exchange(workers, MEASURED_S)
        passed_s, used_cpu_s = time.perf_counter() - began_s, master.cpu_s - began_cpu_s
    rate = reports / passed_s
    return Row(
        f"scale: {WORKERS} workers report tasks to a master process, reports/s / wanted",
        f"{rate:.0f}/s, master {used_cpu_s:.1f} s CPU in {passed_s:.1f} s, {used_cpu_s / reports * 1e6:.0f} us each",
        f"wanted {LEAST_REPORTS_PER_S}/s",
        rate / LEAST_REPORTS_PER_S,
        1.0,
        True,
    )


class _Worker:
    """One identity, its socket and the task in hand."""

    def __init__(self, name: str, socket: "zmq.Socket[bytes]") -> None:
        self.name, self.socket = name, socket
        self.seq = 0
        self.incarnation: Identity | None = None
        self.address_list = NO_IDENTITY
        self.task: int | None = None


class MasterProcess:
    """A master process in its folder, with partitions that say they are there, and no more."""

    def __init__(
        self, folder: Path, *, records: int = RECORDS, epochs: int = EPOCHS, flags: Sequence[str] = ()
    ) -> None:
        self._records, self._flags = records, [f"--num_epochs={epochs}", *flags]
        self._folder, self._endpoint = folder, f"ipc://{folder}/m"
        self._context = zmq.Context()
        self._codec = Codec("answers")
        self._lives: list[Identity] = []
        self._run = ""  # of the job, as soon as a partition has heard of it

    def __enter__(self) -> Self:
        with Writer(self._folder / "records") as writer:
            for number in range(self._records):
                writer.write(str(number).encode())
        flags = [
            f"--endpoint={self._endpoint}",
            f"--job_dir={self._folder}",
            f"--num_ps_pods={PARTITIONS}",
            f"--training_data={self._folder}/records",
            *self._flags,
            "--model_file=none.py",
            "--job_name=scale",
            "--use_async",
            "--minibatch_size=1",
            "--records_per_task=1",
        ]
        self._process = start(self._folder / "master.log", ["edlz.services.master", *flags], {1})
        try:
            for index in range(PARTITIONS):
                self._add_partition(index)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._context.destroy(linger=0)

    @property
    def cpu_s(self) -> float:
        return cpu_s(self._process.pid)

    def join(self, name: str) -> _Worker:
        """Let another worker begin."""
        worker = _Worker(name, self._connect(f"worker-{name}"))
        self._report(worker)
        self._receive(worker)
        return worker

    def exchange(self, workers: list[_Worker], for_s: float) -> int:
        """Have all workers report and ask; return how many reports the master has noted.

        Each has one status under way.  They are answered in the order in which they came, so that to wait for
        them one by one costs less than to find out who has an answer.
        """
        noted, end_s = 0, time.perf_counter() + for_s
        for worker in workers:
            self._report(worker)
        while time.perf_counter() < end_s:
            for worker in workers:
                noted += self._receive(worker)
                self._report(worker)
        return noted + sum(map(self._receive, workers))

    def tell(self, workers: list[_Worker], for_s: float) -> None:
        """Have all workers say once a second that they are at their task, each at its own moment of the second."""
        began_s, asked = time.perf_counter(), min(len(workers), round(for_s * len(workers)))
        for number in range(round(for_s * len(workers))):
            time.sleep(max(0.0, began_s + number / len(workers) - time.perf_counter()))
            worker = workers[number % len(workers)]
            if number >= len(workers):
                self._receive(worker, is_done=False)
            self._report(worker, is_done=False)
        for worker in workers[:asked]:
            self._receive(worker, is_done=False)

    def _report(self, worker: _Worker, *, is_done: bool = True) -> None:
        worker.seq += 1
        held = () if worker.task is None else (worker.task,)
        lives = tuple(self._lives)
        status = WorkerStatus(
            worker=worker.name,
            boot=int(worker.name),
            incarnation=worker.incarnation,
            seq=worker.seq,
            era=NO_IDENTITY,
            holding=held,
            done=tuple(DoneTask(task=task, era=NO_IDENTITY, incarnations=lives) for task in held if is_done),
            wants_task=True,
            telemetry=WorkerTelemetry(state="training", task=worker.task, loss=0.5, minibatches=1, records=1),
            steps=worker.seq,
            run=self._run,
            address_list=worker.address_list,
        )
        worker.socket.send_multipart(self._codec.encode(status, worker.seq))

    def _receive(self, worker: _Worker, *, is_done: bool = True) -> int:
        """Take an answer; return how many done tasks it notes."""
        _, orders = self._codec.decode(worker.socket.recv_multipart())
        assert isinstance(orders, WorkerOrders), f"the master answered {orders}"
        if worker.incarnation is None:
            worker.incarnation = orders.incarnation
            return 0
        noted = (worker.task,) if is_done and worker.task is not None else ()
        assert orders.noted == noted, f"not noted: {orders}"
        if is_done or worker.task is None:
            worker.task = None if orders.lease is None else orders.lease.task
        worker.address_list = orders.address_list
        return len(orders.noted)

    def _connect(self, identity: str) -> "zmq.Socket[bytes]":
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.IDENTITY, identity.encode())
        socket.setsockopt(zmq.RCVTIMEO, ANSWER_MS)
        socket.connect(self._endpoint)
        return socket

    # -- partitions

    def _add_partition(self, index: int) -> None:
        socket = self._connect(f"ps-{index}")
        term, life = 0, None
        for seq in range(1, 4):  # learns the term, its life, and becomes the partition
            status = _status(index, seq, term, life, self._run)
            socket.send_multipart(self._codec.encode(status, seq))
            _, answer = self._codec.decode(socket.recv_multipart())
            if isinstance(answer, Granted):
                term, life = answer.term, answer.incarnation
                self._run = answer.job.run if answer.job is not None else self._run
        assert life is not None
        self._lives.append(life)


def _status(index: int, seq: int, term: int, life: Identity | None, run: str) -> PartitionStatus:
    return PartitionStatus(
        partition=index,
        boot=WORKERS + index,
        incarnation=life,
        seq=seq,
        term=term,
        endpoint=f"tcp://127.0.0.1:{50_000 + index}",
        era=None,
        version=0,
        has_base=True,
        ledger=LedgerRecord(),
        finished_tasks=0,
        minibatches=0,
        open_minibatches=0,
        snapshots=((NO_IDENTITY, 0),),
        is_sealed=False,
        run=run,
    )
