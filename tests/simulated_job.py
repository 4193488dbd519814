"""A whole job in one process and one thread: the real cores on a simulated network, clock and disk.

Messages are delayed, lost, doubled and delivered late; processes are killed, stalled (a zombie that wakes
up after its successor has begun) and cut off.  At the end the promises are checked against what the
partitions' states hold, not against what anybody says.
"""

import dataclasses
import heapq
import itertools
import random
import zlib
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from edlz.core_ext.ids import group_ids
from edlz.services.errors import EdlzError
from edlz.services.job_status import FailureView
from edlz.services.layout import Layout, Variable, VectorLayout, slice_bounds
from edlz.services.ledger import TaskSet
from edlz.services.master import instructions as master_core
from edlz.services.master.entries import JournalState
from edlz.services.master.job import MasterCore
from edlz.services.master.task_queue import MAX_ATTEMPTS
from edlz.services.messages import (
    DoneEvaluation,
    ErrorReply,
    EvaluationResult,
    FailedTask,
    Initialise,
    InitializerSpec,
    Job,
    OptimizerSpec,
    PartInfo,
    Push,
    RowIds,
    TableSpec,
    WorkerOrders,
)
from edlz.services.plan import Plan, Shard
from edlz.services.ps import instructions as ps_core
from edlz.services.ps.partition import BASE, Partition
from edlz.services.ps.state import MemoryRows, State
from edlz.services.ps.store import Store, initial_digest
from edlz.services.records import Message
from edlz.services.worker import instructions as worker_core
from edlz.services.worker.instructions import Outcome
from edlz.services.worker.row_traffic import join_rows, row_ids, split_gradients
from edlz.services.worker.task_runner import TaskRunner

__all__ = ["Fault", "Schedule", "SimulatedJob", "Violation", "reference_values"]

WIDTH = 70  # elements of the dense vector: five blocks of 16, so that four partitions differ in size
RETRY_S = 2.0
PATIENCE_S = 1000.0  # after the last fault; an undisturbed job takes a tenth of it
OPTIMIZER = OptimizerSpec(name="Adam", settings={"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7})
LAYOUT = Layout(
    dense=VectorLayout(variables=(Variable(path="kernel", shape=(7, 10)),)),
    state=VectorLayout(variables=(Variable(path="mean", shape=(20,)),)),
    counters=VectorLayout(variables=(Variable(path="count", shape=()),)),
)
TABLES = (
    TableSpec(
        path="users",
        dim=3,
        initializer=InitializerSpec(kind="uniform", a=-0.05, b=0.05),
        optimizer=OptimizerSpec(name="Adagrad", settings={}),
    ),
    TableSpec(
        path="items",
        dim=4,
        initializer=InitializerSpec(kind="normal", a=0.0, b=1.0),
        optimizer=OPTIMIZER,
    ),
)


class Violation(Exception):
    """A promise is broken."""


@dataclass(frozen=True)
class Fault:
    at: float
    kind: str  # kill, stall (a zombie: replaced, wakes up later), cut, join
    role: str
    seconds: float = 0.0
    is_replaced: bool = True


@dataclass(frozen=True)
class Schedule:
    """Everything that happens, apart from delays and losses, which follow from `seed`."""

    seed: int
    mode: str
    slots: int
    epochs: int
    lengths: tuple[int, ...]  # minibatches of each task, over all epochs; only workers know them
    partitions: int
    workers: int
    noise: float = 0.0
    snapshot_every_s: float = 10.0
    evaluation_steps: int = 0
    evaluation_tasks: int = 0
    failing: tuple[tuple[int, int], ...] = ()  # (task, times its code raises)
    has_tables: bool = False
    checkpoint_steps: int = 0
    tolerance: int = 0  # of versions; above 0 the mode is "async" with sums of `slots` gradients
    vectors_every: int = 1
    stop_at: float = 0.0  # somebody asks the job to stop; 0 for never
    skips: bool = False  # --skip_bad_tasks
    bad: tuple[tuple[int, int], ...] = ()  # minibatches (task, index) whose code always raises
    bad_evaluations: tuple[int, ...] = ()  # evaluation tasks whose code always raises
    lame: tuple[tuple[str, int], ...] = ()  # (worker, task): it raises there, others need not
    faults: tuple[Fault, ...] = ()

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return TABLES if self.has_tables else ()

    @property
    def plan(self) -> Plan:
        tasks = len(self.lengths) // max(1, self.epochs)
        return Plan(
            mode=self.mode,
            seed=1,
            shards=(Shard(name="data", first=0, count=tasks * 4),) if tasks else (),
            records_per_task=4,
            minibatch_size=1,
            epochs=self.epochs,
            slots=self.slots if self.mode == "sync" or self.tolerance else 1,
            evaluation_shards=(Shard(name="test", first=0, count=self.evaluation_tasks * 4),),
        )


# ---------------------------------------------------------------- the model that is trained


def initial_vectors() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    dense = np.zeros(LAYOUT.dense.size, np.float32)
    dense[:WIDTH] = np.linspace(-1, 1, WIDTH, dtype=np.float32)
    return dense, np.zeros(LAYOUT.state.size, np.float32), np.zeros(LAYOUT.counters.size, np.int64)


def compute_gradient(
    dense: np.ndarray,
    state: np.ndarray,
    counters: np.ndarray,
    task: int,
    index: int,
    rows: bytes = b"",
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A gradient that depends on every bit of the parameters and on the minibatch's name."""
    key = zlib.crc32(dense.tobytes() + state.tobytes() + rows + repr((task, index)).encode())
    rng = np.random.Generator(np.random.PCG64(key))
    gradient = np.zeros_like(dense)
    gradient[:WIDTH] = rng.standard_normal(WIDTH, np.float32)
    new_state = (state * np.float32(0.9) + rng.standard_normal(1, np.float32)).astype(np.float32)
    return gradient, new_state, counters + 1


def ids_of(schedule: Schedule, task: int, index: int, partitions: int) -> tuple[RowIds, ...] | None:
    """The rows that a minibatch looks up, as each partition is asked; None if the task ends before it."""
    length = schedule.lengths[task]
    if index >= max(length, 1):
        return None
    rng = np.random.Generator(np.random.PCG64([schedule.seed, task, index]))
    count = 0 if length == 0 else 6
    tables = [group_ids(rng.integers(-3, 9, count), partitions)[:2] for _ in schedule.tables]
    return row_ids(tables, partitions)


def compute_rows(
    asked: tuple[RowIds, ...], rows: tuple[np.ndarray, ...], task: int, index: int
) -> tuple[bytes, tuple[np.ndarray, ...]]:
    """The bytes of all rows by id, and their gradients: the same for any number of partitions."""
    seen, gradients, starts = [], [], [0] * len(asked)
    for t, block in enumerate(rows):
        ids = np.concatenate(
            [part.ids[s : s + part.counts[t]] for part, s in zip(asked, starts, strict=True)]
        )
        starts = [s + part.counts[t] for part, s in zip(asked, starts, strict=True)]
        order = np.argsort(ids)
        seen += [ids[order].tobytes(), block[order].tobytes()]
        key = zlib.crc32(b"".join(seen) + repr((task, index, t)).encode())
        gradient = np.empty_like(block)
        gradient[order] = np.random.Generator(np.random.PCG64(key)).standard_normal(block.shape, np.float32)
        gradients.append(gradient)
    return b"".join(seen), tuple(gradients)


def raises_at(schedule: Schedule, task: int, index: int, end_at: int | None) -> int | None:
    """The bad minibatch that is met when this one is looked at; half of them raise when they are read.

    To know whether a minibatch is the last one, the next one is read, unless the task has been ended there.
    """
    for bad in bad_minibatches(schedule, task):
        if bad == index or (bad == index + 1 and bad % 2 == 0 and bad != end_at):
            return bad
    return None


def bad_minibatches(schedule: Schedule, task: int) -> list[int]:
    return sorted(bad for t, bad in schedule.bad if t == task and bad < schedule.lengths[task])


def reference_values(schedule: Schedule, ends: dict[int, int]) -> bytes:
    """One worker, one partition, no faults: what synchronous mode must end with."""
    plan, (dense, state, counters) = schedule.plan, initial_vectors()
    store = Store(
        Store.initial(
            plan_hash=plan.hash,
            task_count=plan.task_count,
            partition=0,
            partitions=1,
            layout=LAYOUT,
            optimizer=OPTIMIZER,
            dense=dense,
            state=state,
            counters=counters,
            tables=schedule.tables,
        ),
        plan.seed,
    )
    first = 0
    while first < plan.task_count:
        tasks = plan.round_tasks(first)
        steps = [ends[task] + 1 if task in ends else schedule.lengths[task] for task in tasks]
        for index in range(max(1, *steps)):
            pushes = [reference_push(schedule, store, task, index, ends.get(task)) for task in tasks]
            store.commit([push for push in pushes if push is not None])
        first = tasks[-1] + 1
    return final_bytes([store.capture((0, 0))])


def reference_push(schedule: Schedule, store: Store, task: int, index: int, end: int | None) -> Push | None:
    asked, length = ids_of(schedule, task, index, 1), schedule.lengths[task]
    if end is not None and index >= end:
        return make_push(task, index, 0) if index == end else None
    if asked is None:
        return None
    values = store.values()
    joined = join_rows(asked, [store.tables.gather(asked[0])], [table.dim for table in schedule.tables])
    seen, row_gradients = compute_rows(asked, joined, task, index)
    parts = compute_gradient(values.dense, values.state, values.counters, task, index, seen)
    push = make_push(task, index, length, *parts)
    if end is not None:
        push = msgspec.structs.replace(push, is_last=False)
    return with_rows(push, asked[0], split_gradients(asked, row_gradients)[0]) if schedule.tables else push


def with_rows(push: Push, rows: RowIds, gradients: np.ndarray) -> Push:
    if push.gradient is None:
        return push
    return msgspec.structs.replace(push, rows=rows, row_gradients=gradients)


def make_push(task: int, index: int, length: int, *parts: np.ndarray) -> Push:
    gradient, state, counters = parts if length else (None, None, None)
    return Push(
        task=task,
        index=index,
        is_last=index + 1 >= length,
        learning_rate=0.01,
        gradient=gradient,
        state=state,
        counters=counters,
    )


def final_bytes(states: list[State]) -> bytes:
    parts = [np.concatenate([state.dense for state in states]), np.concatenate([s.state for s in states])]
    parts += [np.concatenate([s.slots[name] for s in states]) for name in states[0].slots]
    parts += [np.concatenate([s.counters for s in states])]
    for t in range(len(states[0].tables)):
        copies = [MemoryRows.of(state.rows[t]) for state in states]
        ids = np.concatenate([copy.ids for copy in copies])
        rows = np.concatenate([copy.rows for copy in copies])
        order = np.argsort(ids)
        parts += [ids[order], rows[order]]
    return b"".join(part.tobytes() for part in parts)


def same_ids(one: tuple[RowIds, ...] | None, other: tuple[RowIds, ...] | None) -> bool:
    if one is None or other is None:
        return one is other
    pairs = zip(one, other, strict=True)
    return all(a.counts == b.counts and a.ids.tolist() == b.ids.tolist() for a, b in pairs)


# ---------------------------------------------------------------- the world


class Disk:
    """One partition's folder: snapshots by name, and which lives have a link to each."""

    def __init__(self) -> None:
        self.states: dict[Any, State] = {}
        self.links: dict[Any, set[Any]] = {}

    def open(self, job: Job) -> None:
        """The folder is there from the start."""

    def names(self) -> tuple[Any, ...]:
        return tuple(self.states)

    def load(self, name: Any) -> State:
        return self.states[name]

    def load_checkpoint(self, folder: str) -> State:
        raise NotImplementedError(folder)

    def write(self, state: State, life: Any) -> None:
        self.states[state.name] = state
        self.links.setdefault(state.name, set()).add(life)

    def unlink(self, name: Any, life: Any) -> None:
        """A life removes its own links and those of older lives, never a later life's."""
        if name == BASE:
            return
        self.links[name] = {other for other in self.links.get(name, ()) if other > life}
        if not self.links[name]:
            self.states.pop(name, None)


@dataclass
class Process:
    name: int
    role: str
    core: Any
    is_up: bool = True
    stalled_until: float = 0.0
    requests: dict[int, list[Any]] = field(default_factory=dict)  # id -> [role, key, body, sent at]
    ends: dict[int, int | None] = field(default_factory=dict)  # of a worker's tasks in hand


@dataclass(eq=False)
class Connection:
    client: int
    role: str
    server: int
    is_up: bool = True


class SimulatedJob:
    """Delivers messages, keeps disks and the journal, carries out faults, checks the end."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.plan = schedule, schedule.plan
        self.rng = random.Random(schedule.seed)
        self.now, self._heap, self._order = 0.0, [], itertools.count()
        self.processes: dict[int, Process] = {}
        self.address: dict[str, int] = {}
        self._boots, self._requests = itertools.count(1), itertools.count(1)
        self._connections: dict[tuple[int, str], Connection] = {}
        self._last_delivery: dict[tuple[int, str], float] = {}
        self.journal: dict[str, Any] = {
            "term": 0,
            "is_complete": False,
            "digest": "",
            "evaluations": (),
            "saved": -1,
            "ends": (),
            "skipped_evaluations": (),
        }
        self.disks = [Disk() for _ in range(schedule.partitions)]
        self.sealed: dict[Any, State] = {}
        self.parts: dict[Any, State] = {}  # of checkpoints: (number, version, partition)
        self.checkpoints: dict[int, list[State]] = {}
        self.failures_left = dict(schedule.failing)
        self.log: list[str] = []
        self.job = Job(
            name="simulated",
            run="1",
            config={
                "evaluation_steps": schedule.evaluation_steps,
                "recovery_snapshot_secs": schedule.snapshot_every_s,
                "checkpoint_steps": schedule.checkpoint_steps,
                "sync_version_tolerance": schedule.tolerance,
                "get_model_steps": schedule.vectors_every,
                "skip_bad_tasks": schedule.skips,
            },
            plan=self.plan,
            partitions=schedule.partitions,
        )
        self.faults_end = max([f.at + f.seconds for f in schedule.faults], default=0.0)
        for fault in schedule.faults:
            self._at(fault.at, "fault", fault)
        if schedule.stop_at:
            self._at(schedule.stop_at, "stop", None)
        for role in ["m", *(f"p{p}" for p in range(schedule.partitions))]:
            self._launch(role)
        for worker in range(schedule.workers):
            self._at(self.rng.uniform(0, 3), "launch", f"w{worker}")

    def run(self) -> "SimulatedJob":
        limit = self.faults_end + PATIENCE_S
        while self._heap:
            self.now, _, kind, body = heapq.heappop(self._heap)
            if self.now > limit:
                raise Violation(f"the job does not end: {self._where()}")
            getattr(self, f"_do_{kind}")(body)
            if self.journal["is_complete"] and self.now > self.faults_end:
                break
            master = self._process("m")
            if master is not None and master.core.is_stopped:
                return self
            if master is not None and master.core.failure is not None:
                self._check_failure(master.core.failure)
                return self
        self._check_end()
        return self

    def _do_stop(self, _: None) -> None:
        master = self._process("m")
        if master is not None:
            self._carry_out(master, master.core.stop(self.now))

    def _where(self) -> str:
        lines = []
        for role in sorted(self.address):
            process = self._process(role)
            core = process.core if process else None
            if isinstance(core, MasterCore):
                lines.append(f"m {core.phase} done={core.queue.done} leases={core.queue._leases}")
            elif isinstance(core, Partition):
                state = core.store and (core.store.version, core.store.ledger)
                staged = core._synchronous.staged if core._synchronous else ()
                lines.append(f"{role} {core.condition} {state} staged={staged}")
            elif core is not None:
                lines.append(f"{role} ready={core._is_ready} {core.phases}")
        return "\n".join(lines)

    def _process(self, role: str) -> Process | None:
        process = self.processes.get(self.address.get(role, -1))
        return process if process and process.is_up else None

    def _at(self, when: float, kind: str, body: Any) -> None:
        heapq.heappush(self._heap, (when, next(self._order), kind, body))

    # -- processes

    def _launch(self, role: str) -> None:
        boot = next(self._boots)
        core: Any
        if role == "m":
            names = ("term", "is_complete", "digest", "evaluations", "saved", "ends", "skipped_evaluations")
            state = JournalState(**{name: self.journal[name] for name in names})
            schedule = self.schedule
            core = MasterCore(self.job, state, schedule.evaluation_steps, schedule.checkpoint_steps)
        elif role[0] == "p":
            index = int(role[1:])
            core = Partition(index, boot, role, self.disks[index])
        else:
            core = TaskRunner(role[1:], boot)
        process = Process(boot, role, core)
        self.processes[boot] = process
        self.address[role] = boot
        if role == "m":
            self._carry_out(process, core.start())
        self._at(self.now, "tick", boot)

    def _do_launch(self, role: str) -> None:
        if self._process(role) is None:
            self._launch(role)

    def _do_tick(self, name: int) -> None:
        process = self.processes[name]
        if not process.is_up:
            return
        if self.now >= process.stalled_until:
            self._feed(process, "on_tick", self.now)
            for request, entry in list(process.requests.items()):
                if self.now - entry[3] > RETRY_S:
                    entry[3] = self.now
                    self._send(process, entry[0], request, entry[2])
        self._at(max(self.now, process.stalled_until) + self.rng.uniform(0.2, 0.6), "tick", name)

    def _do_fault(self, fault: Fault) -> None:
        if self.journal["is_complete"]:
            return
        self.log.append(f"{self.now:8.2f} FAULT {fault}")
        process = self._process(fault.role)
        if fault.kind == "kill" and process:
            self._kill(process)
            if fault.role[0] != "w" or fault.is_replaced:
                self._at(self.now + self.rng.uniform(0.5, 8), "launch", fault.role)
            master = self._process("m")
            if fault.role[0] == "w" and master and self.rng.random() < 0.5:  # its launcher says so
                self._carry_out(master, master.core.lose_worker(fault.role[1:], "killed"))
        elif fault.kind == "stall" and process:
            process.stalled_until = self.now + fault.seconds
            if self.rng.random() < 0.7:
                del self.address[fault.role]
                self._at(self.now + self.rng.uniform(0.5, 15), "launch", fault.role)
        elif fault.kind == "cut":
            for key, connection in list(self._connections.items()):
                if fault.role in (connection.role, self.processes[connection.client].role):
                    self._break(key)
        elif fault.kind == "join":
            self._do_launch(fault.role)

    def _kill(self, process: Process) -> None:
        process.is_up = False
        for key, connection in list(self._connections.items()):
            if process.name in (connection.client, connection.server):
                self._break(key)

    def _exit(self, process: Process) -> None:
        self._kill(process)
        if process.role[0] != "w" and self.address.get(process.role) == process.name:
            self._at(self.now + self.rng.uniform(0.5, 8), "launch", process.role)

    # -- network

    def _break(self, key: tuple[int, str]) -> None:
        self._connections.pop(key).is_up = False

    def _ask(self, process: Process, role: str, key: Hashable, body: Message) -> None:
        request = next(self._requests)
        process.requests[request] = [role, key, body, self.now]
        self._send(process, role, request, body)

    def _send(self, process: Process, role: str, request: int, body: Message) -> None:
        key = (process.name, role)
        if not process.is_up:
            return
        if key not in self._connections:
            server = self._process(role)
            if server is None:
                return
            self._connections[key] = Connection(process.name, role, server.name)
        moved = self.address.get(role) not in (None, self._connections[key].server)
        if self.rng.random() < self.schedule.noise / 4 or (moved and self.rng.random() < 0.1):
            self._break(key)
            return
        connection = self._connections[key]
        to = (connection, process.name, request)
        self._deliver(connection, connection.server, "on_request", (to, body), "request")
        if self.rng.random() < self.schedule.noise:  # a late copy, over whatever connection there is then
            self._at(self.now + self.rng.uniform(0, 40), "copy", (role, to, body))

    def _do_copy(self, item: tuple[str, Any, Message]) -> None:
        role, to, body = item
        server = self._process(role)
        if server:
            self._at(self.now, "deliver", (None, server.name, "on_request", (to, body)))

    def _deliver(self, connection: Connection, name: int, method: str, args: Any, way: str) -> None:
        lane = (id(connection), way)
        delay = self.rng.choice((0.01, 0.05, 0.3, 1.5)) * self.rng.random()
        when = self._last_delivery[lane] = max(self._last_delivery.get(lane, 0), self.now + delay)
        self._at(when, "deliver", (connection, name, method, args))

    def _do_deliver(self, item: tuple[Connection | None, int, str, Any]) -> None:
        connection, name, method, args = item
        process = self.processes[name]
        if connection and not connection.is_up:
            if (
                method == "on_request" and self.rng.random() < 0.5
            ):  # queued by the client, sent on reconnection
                self._send(self.processes[connection.client], connection.role, args[0][2], args[1])
            return
        if not process.is_up:
            return
        if self.now < process.stalled_until:
            self._at(process.stalled_until + self.rng.random() * 0.1, "deliver", item)
            return
        if method == "on_request":
            try:
                self._feed(process, method, *args, self.now)
            except EdlzError as error:
                raise Violation(f"{process.role} cannot take {args[1]}: {error}") from error
            return
        request, body = args
        entry = process.requests.pop(request, None)
        if entry is not None:
            self._on_answer(process, entry[1], body, entry[2])

    def _on_answer(self, process: Process, key: Any, body: Message, asked: Message) -> None:
        if isinstance(body, ErrorReply):
            raise Violation(f"{process.role} got {body}")
        if isinstance(process.core, Partition):
            self._feed(process, "on_answer", asked, body, self.now)
        elif isinstance(body, WorkerOrders):
            self._feed(process, "on_orders", body, self.now)
        else:
            index, inner = key
            self._feed(process, "on_answer", index, inner, body, self.now)

    def _do_event(self, item: tuple[int, str, Any]) -> None:
        """Something a process waits for itself: a computation, a write."""
        name, method, args = item
        process = self.processes[name]
        if not process.is_up:
            return
        if self.now < process.stalled_until:
            self._at(process.stalled_until, "event", item)
            return
        self._feed(process, method, *args, self.now)

    def _feed(self, process: Process, method: str, *args: Any) -> None:
        instructions = getattr(process.core, method)(*args)
        process.core.check_invariants()
        self._carry_out(process, instructions)

    # -- instructions

    def _carry_out(self, process: Process, instructions: list[Any]) -> None:
        for instruction in instructions:
            if not process.is_up:
                return
            kind = type(instruction).__name__
            getattr(self, f"_carry_{process.role[0]}_{kind.lower()}")(process, instruction)

    def _reply(self, process: Process, instruction: Any) -> None:
        connection, client, request = instruction.to
        self._deliver(connection, client, "on_answer", (request, instruction.body), "answer")

    _carry_m_reply = _carry_p_reply = _reply

    def _carry_m_announce(self, process: Process, instruction: master_core.Announce) -> None:
        self.log.append(f"{self.now:8.2f} {instruction.text}")

    def _carry_m_exit(self, process: Process, instruction: Any) -> None:
        self._exit(process)

    _carry_p_exit = _carry_w_exit = _carry_m_exit

    def _carry_m_journal(self, process: Process, instruction: master_core.Journal) -> None:
        stored, is_start = self.journal["term"], "term" in instruction.fields
        term = process.core.term
        if term <= stored if is_start else term != stored:
            self._exit(process)
            return
        self.journal.update(instruction.fields)

    def _carry_m_takedigest(self, process: Process, instruction: master_core.TakeDigest) -> None:
        is_lucky = self.rng.random() < 0.8
        self._at(self.now + self.rng.uniform(0.1, 3), "digest", (process.name, "sha" if is_lucky else None))

    def _do_digest(self, item: tuple[int, str | None]) -> None:
        process = self.processes[item[0]]
        if process.is_up:
            self._carry_out(process, process.core.on_digest(item[1]))

    def _carry_p_report(self, process: Process, instruction: ps_core.Report) -> None:
        self._ask(process, "m", None, instruction.body)

    def _carry_p_write(self, process: Process, instruction: ps_core.Write) -> None:
        kept = msgspec.structs.replace(
            instruction.state, rows=[MemoryRows.of(rows) for rows in instruction.state.rows]
        )
        instruction.state.close()
        instruction = dataclasses.replace(instruction, state=kept)
        self._at(self.now + self.rng.uniform(0.1, 5), "written", (process.name, instruction))

    def _do_written(self, item: tuple[int, ps_core.Write]) -> None:
        process, write = self.processes[item[0]], item[1]
        if not process.is_up:
            return
        if self.now < process.stalled_until:
            self._at(process.stalled_until, "written", item)
            return
        core = process.core
        if write.kind == "checkpoint":
            self._finish_part(process, write)
            return
        if core.is_wanted(write):
            self.disks[core.index].write(write.state, core.incarnation)
            if write.kind == "seal":
                self.sealed[core.index, core.incarnation] = write.state
        self._feed(process, "on_written", write, self.now)

    def _finish_part(self, process: Process, write: ps_core.Write) -> None:
        if self.rng.random() < self.schedule.noise:
            self._feed(process, "on_part_failed", write, "no room", self.now)
            return
        index = process.core.index
        self.parts[write.number, write.version, index] = write.state
        checksum = f"{zlib.crc32(final_bytes([write.state])):x}"
        info = PartInfo(
            partition=index,
            partitions=self.schedule.partitions,
            bytes=1,
            body_checksum=checksum,
            head_checksum="",
        )
        self._feed(process, "on_part_written", write, info, self.now)

    def _carry_m_writemanifest(self, process: Process, order: master_core.WriteManifest) -> None:
        states = [self.parts[order.number, order.version, p] for p in range(self.schedule.partitions)]
        if [part.partition for part in order.parts] != list(range(self.schedule.partitions)):
            raise Violation(f"a manifest of {order.parts}")
        if any(state.ledger != states[0].ledger for state in states):
            raise Violation(f"checkpoint {order.version} is no cut: {[state.ledger for state in states]}")
        self.checkpoints[order.version] = states
        self._at(self.now + self.rng.uniform(0.1, 2), "manifest", (process.name, order.version))

    def _carry_m_dropparts(self, process: Process, order: master_core.DropParts) -> None:
        """Nothing is kept of what was not completed."""

    def _do_manifest(self, item: tuple[int, int]) -> None:
        process = self.processes[item[0]]
        if process.is_up:
            self._carry_out(process, process.core.on_manifest(item[1]))

    def _carry_p_link(self, process: Process, instruction: ps_core.Link) -> None:
        core = process.core
        self.disks[core.index].links.setdefault(instruction.name, set()).add(core.incarnation)

    def _carry_p_drop(self, process: Process, instruction: ps_core.Drop) -> None:
        core = process.core
        self.disks[core.index].unlink(instruction.name, core.incarnation)

    def _carry_w_askmaster(self, process: Process, instruction: worker_core.AskMaster) -> None:
        self._ask(process, "m", None, instruction.body)

    def _carry_w_askpartition(self, process: Process, instruction: worker_core.AskPartition) -> None:
        self._ask(process, instruction.endpoint, (instruction.index, instruction.key), instruction.body)

    def _carry_w_sendinitialise(self, process: Process, instruction: worker_core.SendInitialise) -> None:
        n = self.schedule.partitions
        parts = [v[slice(*slice_bounds(len(v), instruction.index, n))] for v in initial_vectors()]
        values = parts if instruction.with_values else (None, None, None)
        body = Initialise(
            plan_hash=self.plan.hash,
            digest=initial_digest(self.plan.hash, LAYOUT, OPTIMIZER, self.schedule.tables, *parts),
            layout=LAYOUT,
            optimizer=OPTIMIZER,
            tables=self.schedule.tables,
            dense=values[0],
            state=values[1],
            counters=values[2],
        )
        self._ask(process, instruction.endpoint, (instruction.index, instruction.key), body)

    def _carry_w_build(self, process: Process, instruction: worker_core.Build) -> None:
        event = (process.name, "on_built", (self.schedule.has_tables,))
        self._at(self.now + self.rng.uniform(0.5, 4), "event", event)

    def _carry_w_begin(self, process: Process, begin: worker_core.Begin) -> None:
        """Records are read when they are needed here."""
        process.ends.setdefault(begin.task, begin.end_at)  # a task in hand stays as it is

    def _carry_w_drop(self, process: Process, drop: worker_core.Drop) -> None:
        process.ends.pop(drop.task, None)

    def _carry_w_cancel(self, process: Process, cancel: worker_core.Cancel) -> None:
        """Late answers do no harm."""

    def _meets_bad(self, process: Process, task: int, index: int) -> int | None:
        end_at = process.ends.get(task)
        if end_at is not None and index >= end_at:
            raise Violation(f"minibatch {task, index} is looked at, but its task ends at {end_at}")
        return raises_at(self.schedule, task, index, end_at)

    def _fail(self, process: Process, task: int, index: int, attempt: int, delay: float) -> None:
        failed = FailedTask(
            kind="training",
            task=task,
            index=index,
            error="ValueError: no",
            where="",
            traceback="",
            attempt=attempt,
        )
        self._at(self.now + delay, "event", (process.name, "on_failed", (task, attempt, failed)))

    def _carry_w_findids(self, process: Process, find: worker_core.FindIds) -> None:
        bad = self._meets_bad(process, find.task, find.index)
        if bad is not None and bad % 2 == 0:
            self._fail(process, find.task, bad, find.attempt, self.rng.uniform(0, 0.5))
            return
        ids = ids_of(self.schedule, find.task, find.index, self.schedule.partitions)
        event = (process.name, "on_ids", (find.task, find.index, find.attempt, ids))
        self._at(self.now + self.rng.uniform(0, 0.5), "event", event)

    def _carry_w_findevaluationids(self, process: Process, find: worker_core.FindEvaluationIds) -> None:
        ids = ids_of(dataclasses.replace(self.schedule, lengths=(1,)), 0, 0, self.schedule.partitions)
        event = (process.name, "on_evaluation_ids", ((find.lease.round, find.lease.task), ids))
        self._at(self.now + self.rng.uniform(0, 0.5), "event", event)

    def _carry_w_compute(self, process: Process, compute: worker_core.Compute) -> None:
        task, index, length = compute.task, compute.index, self.schedule.lengths[compute.task]
        delay = self.rng.uniform(0.1, 1.0)
        bad = self._meets_bad(process, task, index)
        if bad is None and (process.role, task) in self.schedule.lame:
            bad = index
        if bad is None and self.failures_left.get(task):
            self.failures_left[task] -= 1
            bad = index
        if bad is not None:
            self._fail(process, task, bad, compute.attempt, delay)
            return
        if self.plan.is_sync and len({part.version for part in compute.parts}) != 1:
            raise Violation(f"gradient of {task, index} on parameters of several versions")
        count, names = self.schedule.partitions, ("dense", "state", "counters")
        seen, row_gradients = b"", ()
        if self.schedule.has_tables:
            if self.plan.is_sync and {part.version for part in compute.rows} != {compute.version}:
                raise Violation(f"gradient of {task, index} on rows of other versions")
            if not same_ids(compute.ids, ids_of(self.schedule, task, index, count)):
                raise Violation(f"gradient of {task, index} on the rows of another minibatch")
            dims = [table.dim for table in TABLES]
            joined = join_rows(compute.ids, [part.rows for part in compute.rows], dims)
            seen, row_gradients = compute_rows(compute.ids, joined, task, index)
        vectors = [np.concatenate([getattr(part, name) for part in compute.parts]) for name in names]
        parts = compute_gradient(*vectors, task, index, seen)
        pushes = []
        for p in range(count):
            mine = [v[slice(*slice_bounds(len(v), p, count))] for v in parts]
            pushes.append(make_push(task, index, length, *mine))
        if self.schedule.has_tables:
            split = split_gradients(compute.ids, row_gradients)
            pushes = [with_rows(*each) for each in zip(pushes, compute.ids, split, strict=True)]
        ahead, has_looked = None, self.rng.random() > self.schedule.noise
        if compute.ahead is not None and has_looked:
            bad = self._meets_bad(process, task, compute.ahead)
            has_looked = bad is None or bad % 2 == 1
        if compute.ahead is not None and has_looked:
            ahead = ids_of(self.schedule, task, compute.ahead, count)
        outcome = Outcome(index + 1 >= length, tuple(pushes), ahead, has_looked)
        event = (process.name, "on_computed", (task, compute.attempt, outcome))
        self._at(self.now + delay, "event", event)

    def _carry_w_evaluate(self, process: Process, evaluate: worker_core.Evaluate) -> None:
        lease = evaluate.lease
        if lease.task in self.schedule.bad_evaluations:
            failed = FailedTask(
                kind="evaluation",
                task=lease.task,
                index=0,
                error="ValueError: no",
                where="",
                traceback="",
                round=lease.round,
                attempt=self.rng.randrange(1 << 30),
            )
            self._at(self.now + 0.1, "event", (process.name, "on_evaluation_failed", (failed,)))
            return
        done = DoneEvaluation(
            round=lease.round,
            task=lease.task,
            records=lease.records.count,
            states={"n": [np.array([float(lease.records.count)])]},
        )
        self._at(self.now + self.rng.uniform(0.1, 2), "event", (process.name, "on_evaluated", (done,)))

    def _carry_w_conclude(self, process: Process, conclude: worker_core.Conclude) -> None:
        states = conclude.conclusion.states
        result = EvaluationResult(round=conclude.conclusion.round, metrics={"n": float(states["n"][0][0])})
        self._at(self.now + self.rng.uniform(0.1, 2), "event", (process.name, "on_concluded", (result,)))

    # -- the promises

    def _check_end(self) -> None:
        if not self.journal["is_complete"]:
            raise Violation("the job does not end: nothing left to happen")
        finals = [self.sealed[p, self.journal["sealed"][p]] for p in range(self.schedule.partitions)]
        ends = dict(self.journal["ends"])
        self._check_ends(ends)
        wanted = [ends.get(task, length) for task, length in enumerate(self.schedule.lengths)]
        for p, state in enumerate(finals):
            if list(state.counts) != wanted:
                raise Violation(f"partition {p} applied {list(state.counts)}, not {wanted}")
            if len(TaskSet(state.ledger.finished)) != self.plan.task_count:
                raise Violation(f"partition {p} sealed {state.ledger}")
        if self.plan.is_sync and final_bytes(finals) != reference_values(self.schedule, ends):
            raise Violation("the final parameters are not the same bits")
        if self.schedule.evaluation_tasks:
            self._check_evaluations(finals[0].version)

    def _check_ends(self, ends: dict[int, int]) -> None:
        """What always raises has ended its task, and nothing else has, but for what raised often."""
        sometimes, often = self._sometimes_bad()
        for task in range(len(self.schedule.lengths)):
            end, bad = ends.get(task), bad_minibatches(self.schedule, task)
            if not bad and end is not None and task not in often:
                raise Violation(f"task {task} was ended at {end}, but could be computed")
            if bad and (end is None or end > bad[0] or (end < bad[0] and task not in sometimes)):
                raise Violation(f"task {task} was ended at {end}, but raises at {bad[0]}")

    def _sometimes_bad(self) -> tuple[set[int], set[int]]:
        """The tasks that raise for somebody, and those of them that do so often enough to be ended."""
        failing, lame = self.schedule.failing, {task for _, task in self.schedule.lame}
        often = {task for task, times in failing if times >= MAX_ATTEMPTS}
        return {task for task, _ in failing} | lame, often | lame

    def _check_failure(self, failure: FailureView) -> None:
        """A job may only fail for a task that cannot be left out."""
        schedule = self.schedule
        often = self._sometimes_bad()[1]
        bad = {task for task, _ in schedule.bad if bad_minibatches(schedule, task)}
        if failure.task not in (often if schedule.skips else often | bad):
            raise Violation(f"the job failed: {failure}")

    def _check_evaluations(self, final_version: int) -> None:
        versions = [version for version, _ in self.journal["evaluations"]]
        wanted = float((self.schedule.evaluation_tasks - len(self.schedule.bad_evaluations)) * 4)
        if not wanted:
            if versions:
                raise Violation(f"evaluated, but every task raises: {versions}")
            return
        if any(metrics["n"] != wanted for _, metrics in self.journal["evaluations"]):
            raise Violation(f"a round counted a record twice or never: {self.journal['evaluations']}")
        if not versions or (self.plan.is_sync and versions[-1] != final_version):
            raise Violation(f"no evaluation of the final model: {versions}")
