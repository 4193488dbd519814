"""A job of a thousand workers in virtual time: the master's real core, and stand-ins for all others.

The stand-ins speak to the master as workers and partitions do: a status each second and after a change, and
another question each 0.2 s while there is nothing to compute.  The partitions share one ledger, since here no
minibatch is ever under way to some of them only.  Messages take no time.

A worker dies each second.  Its launcher sees it, tells the master, and starts another one under a new id.
"""

import heapq
import itertools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from benchmarks.stand_ins import RUN, Partitions, TaskState, Work, Worker
from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.processes.desired_processes import DesiredProcesses
from edlz.services.master.core.vocabulary.inputs import DigestRead, Input, Request, Start, Tick
from edlz.services.master.core.vocabulary.instructions import Reply, TakeDigest
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import Job, ProcessExit, SupervisorStatus, WorkerOrders
from edlz.services.protocol.plan import Plan, Shard
from edlz.services.worker.core.heartbeat import ASK_AGAIN_S, HEARTBEAT_S

__all__ = ["Outcome", "Size", "VirtualJob"]

MEDIAN_S = 4.0  # of a task
DEVIATION = 0.3  # of the logarithm of a task's seconds: one in a thousand takes 2.5 medians
STEPS = {"async": 8, "sync": 2}  # minibatches of a task
LAUNCH_S = (3.0, 8.0)  # from a worker's death until another one asks for work
NOTICE_S = (0.1, 1.0)  # from a worker's death until its launcher tells the master
TICK_S = 0.25
BATCH = 5000  # events of the core between two looks at the clock
PATIENCE_S = 20_000.0


@dataclass(frozen=True)
class Size:
    """How large the job is."""

    mode: Literal["sync", "async"]
    tasks: int
    workers: int = 1000
    partitions: int = 100


@dataclass(frozen=True)
class Outcome:
    """What a run has shown; seconds are virtual but for `core_s`, the CPU time inside the master's core."""

    core_s: float
    passed_s: float
    tail_s: float  # from when 99 % of the tasks are in the ledger until all are
    median_s: float  # of a task
    longest_s: float  # from a task's first lease until it is in the ledger
    statuses: int
    deaths: int
    twice: int  # tasks that a worker finished after another one had done so


class _Twin:
    """A second core that is fed with the same events, many at a time: reading a clock costs more than an event."""

    def __init__(self, core: MasterCore) -> None:
        self._core = core
        self._events: list[tuple[Input, float]] = []
        self.cpu_s = 0.0

    def feed(self, event: Input, now: float) -> None:
        self._events.append((event, now))
        if len(self._events) == BATCH:
            self.catch_up()

    def catch_up(self) -> None:
        events = self._events.copy()
        self._events.clear()
        began_s = time.process_time()
        for event, now in events:
            self._core.feed(event, now)
        self.cpu_s += time.process_time() - began_s


class VirtualJob:
    """Runs a job from its start to its end.

    Parameters
    ----------
    size : Size
    seed : int
        Of task times and deaths.
    """

    def __init__(self, size: Size, seed: int = 1) -> None:
        self._size, self._random = size, random.Random(seed)
        self._is_sync = size.mode == "sync"
        self.plan = Plan(
            mode=size.mode,
            seed=1,
            shards=(Shard(name="data", first=0, count=size.tasks),),
            records_per_task=1,
            minibatch_size=1,
            epochs=1,
            slots=size.workers if self._is_sync else 1,
        )
        job = Job(name="virtual", run=RUN, config={}, plan=self.plan, partitions=size.partitions)
        self._core, twin = (
            MasterCore(job, JournalState(), desired=DesiredProcesses(size.workers, size.partitions))
            for _ in range(2)
        )
        self._twin = _Twin(twin)
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._partitions = Partitions(self.plan, size.partitions)
        self._workers: dict[str, Worker] = {}
        self._names = itertools.count()
        self._staged: set[int] = (
            set()
        )  # sync: tasks whose gradient of the present step is with the partitions
        self._step = 0  # sync: of the present round
        self._steps = STEPS[size.mode]
        self._statuses = self._deaths = self._twice = 0
        self._times_s: list[float] = []
        self._leased_s: dict[int, float] = {}
        self._done_s: dict[int, float] = {}

    def run(self) -> Outcome:
        """Run to the end; an AssertionError if a promise is broken."""
        for index in range(self._size.partitions):
            self._at(self._random.random(), partial(self._tell_of_partition, index))
        for _ in range(self._size.workers):
            self._at(1 + self._random.random(), self._launch)
        self._at(0.0, self._tick)
        self._at(5.0, self._kill_one)
        self._call(Start())
        self._supervise()
        while not self._core.verdict.is_complete:
            self._now, _, event = heapq.heappop(self._events)
            assert self._now < PATIENCE_S, f"the job does not end: {self._partitions.ledger}"
            event()
        self._core.check_invariants()
        self._twin.catch_up()
        return self._outcome()

    def _outcome(self) -> Outcome:
        count, ledger = self._size.tasks, self._partitions.ledger
        assert ledger.finished.bounds == (0, count)
        assert ledger.minibatches == count * self._steps
        ends_s = sorted(self._done_s.values())
        return Outcome(
            core_s=self._twin.cpu_s,
            passed_s=self._now,
            tail_s=ends_s[-1] - ends_s[count * 99 // 100 - 1],
            median_s=sorted(self._times_s)[len(self._times_s) // 2],
            longest_s=max(end_s - self._leased_s[task] for task, end_s in self._done_s.items()),
            statuses=self._statuses,
            deaths=self._deaths,
            twice=self._twice,
        )

    # -- the master

    def _at(self, when_s: float, event: Callable[[], object]) -> None:
        heapq.heappush(self._events, (when_s, next(self._order), event))

    def _call(self, event: Input) -> Message | None:
        """Let the core take an event; return what it answers."""
        self._twin.feed(event, self._now)
        answer = None
        for instruction in self._core.feed(event, self._now):
            if isinstance(instruction, Reply):
                answer = instruction.body
            elif isinstance(instruction, TakeDigest):
                self._call(DigestRead(instruction.lives, "digest"))
        return answer

    def _ask(self, body: Message) -> Message:
        self._statuses += 1
        answer = self._call(Request(0, body))
        assert answer is not None
        return answer

    def _tick(self) -> None:
        self._call(Tick())
        self._at(self._now + TICK_S, self._tick)

    def _tell_of_partition(self, index: int) -> None:
        self._partitions.on_answer(index, self._ask(self._partitions.status(index)))
        self._at(self._now + HEARTBEAT_S, partial(self._tell_of_partition, index))

    # -- lives and deaths

    def _launch(self) -> None:
        number = next(self._names)
        worker = self._workers[str(number)] = Worker(str(number))
        self._tell(worker)
        self._wake(worker)

    def _kill_one(self) -> None:
        self._at(self._now + 1.0, self._kill_one)
        worker = self._workers.pop(self._random.choice(list(self._workers)))
        worker.is_up = False
        self._deaths += 1
        if worker.work is not None and not self._is_sync:
            self._note(worker.work.task, worker.work.reached(self._now))
        self._at(self._now + self._random.uniform(*NOTICE_S), partial(self._supervise, worker))
        self._at(self._now + self._random.uniform(*LAUNCH_S), self._launch)

    def _supervise(self, dead: Worker | None = None) -> None:
        """Tell the master what runs, and who has ended."""
        running = [f"ps-{index}" for index in range(self._size.partitions)]
        running += [f"worker-{name}" for name in self._workers]
        exits = () if dead is None else (ProcessExit(name=f"worker-{dead.name}", code=143),)
        self._call(Request(0, SupervisorStatus(seq=0, running=tuple(running), exits=exits)))

    # -- a worker's line to the master

    def _wake(self, worker: Worker) -> None:
        """Send a status when it is time, over and over."""
        if not worker.is_up:
            return
        is_idle = worker.work is None and worker.wants_task(is_sync=self._is_sync)
        due_s = worker.next_status_s - (HEARTBEAT_S - ASK_AGAIN_S if is_idle else 0.0)
        if self._now >= due_s - 1e-9:
            self._tell(worker)
            due_s = self._now + ASK_AGAIN_S
        self._at(min(due_s, self._now + ASK_AGAIN_S), partial(self._wake, worker))

    def _tell(self, worker: Worker) -> None:
        """Send a status and follow the answer; at once another one while the answers bring work."""
        is_asking = worker.is_up
        while is_asking:
            worker.next_status_s = self._now + HEARTBEAT_S
            orders = self._ask(worker.status(self._partitions.known_lives, is_sync=self._is_sync))
            assert isinstance(orders, WorkerOrders)
            assert not orders.stop
            assert not orders.again, "a true report is not believed"
            if worker.incarnation is None:
                worker.incarnation = orders.incarnation
                continue
            self._follow(worker, orders)
            is_asking = orders.lease is not None and worker.wants_task(is_sync=self._is_sync)

    def _follow(self, worker: Worker, orders: WorkerOrders) -> None:
        worker.era, worker.address_list = orders.era, orders.address_list
        for task in orders.noted:
            del worker.in_hand[task]
        if orders.lease is not None:
            task = orders.lease.task
            self._leased_s.setdefault(task, self._now)
            worker.in_hand[task] = "done" if task in self._partitions.ledger.finished else "queued"
        self._schedule(worker)

    # -- work

    def _schedule(self, worker: Worker) -> None:
        """Begin what can begin, as worker/training.py does."""
        queued = worker.tasks("queued")
        if self._is_sync and queued:
            earliest = self.plan.round_tasks(min(worker.tasks("queued", "waiting", "ready")))
            for task in queued:
                if task in earliest:
                    worker.in_hand[task] = self._state_of(task)
        elif queued and not worker.tasks("ready"):
            worker.in_hand[queued[0]] = "ready"
        ready = worker.tasks("ready")
        if ready and worker.work is None:
            self._begin(worker, min(ready))

    def _begin(self, worker: Worker, task: int) -> None:
        seconds = MEDIAN_S * self._random.lognormvariate(0.0, DEVIATION)
        self._times_s.append(seconds)
        index = 0 if self._is_sync else self._partitions.ledger.mark(task)
        worker.work = work = Work(task, self._now, seconds / self._steps, index)
        steps = 1 if self._is_sync else self._steps - index
        self._at(self._now + steps * work.step_s, partial(self._on_computed, worker, work))

    def _on_computed(self, worker: Worker, work: Work) -> None:
        if not worker.is_up:
            return
        worker.work = None
        worker.steps += 1
        if self._is_sync:
            self._stage(worker, work.task)
            return
        self._twice += work.task in self._partitions.ledger.finished
        self._note(work.task, self._steps)
        worker.in_hand[work.task] = "done"
        self._schedule(worker)
        self._tell(worker)

    def _note(self, task: int, reached: int) -> None:
        """The ledger takes a task's minibatches below `reached`, as far as it does not have them."""
        ledger = self._partitions.ledger
        if task in ledger.finished:
            return
        for index in range(ledger.mark(task), reached):
            ledger.note(task, index, is_last=index + 1 == self._steps, is_empty=False)
        if reached == self._steps:
            self._done_s[task] = self._now

    # -- synchronous steps

    def _round(self) -> range:
        return self.plan.round_tasks(self._partitions.ledger.finished.first_missing())

    def _state_of(self, task: int) -> TaskState:
        if task in self._partitions.ledger.finished:
            return "done"
        is_due = task in self._round() and task not in self._staged
        return "ready" if is_due else "waiting"

    def _stage(self, worker: Worker, task: int) -> None:
        """A gradient is with the partitions; the last one of a step commits it."""
        if task in worker.in_hand:
            worker.in_hand[task] = "waiting"
        tasks = self._round()
        if task in tasks:
            self._staged.add(task)
        if len(self._staged) < len(tasks):
            self._schedule(worker)
            return
        self._staged.clear()
        self._partitions.version += 1
        self._step = (self._step + 1) % self._steps
        if self._step == 0:
            for finished in tasks:
                self._note(finished, self._steps)
        for other in list(self._workers.values()):
            self._on_commit(other)

    def _on_commit(self, worker: Worker) -> None:
        for task in worker.tasks("waiting"):
            worker.in_hand[task] = self._state_of(task)
        self._schedule(worker)
        if worker.tasks("done"):
            self._tell(worker)
