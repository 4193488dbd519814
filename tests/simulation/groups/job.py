"""A simulated all-reduce job: the real cores of master and members on a simulated network, disk and clock."""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any

from edlz.services.errors import RemoteProtocolError
from edlz.services.master.core.groups import events
from edlz.services.master.core.groups.rendezvous import Rendezvous
from edlz.services.parameters.mean_step import NextValues
from edlz.services.protocol.ledger import TaskSet
from edlz.services.protocol.messages import Decided, GroupOrders, Member, MemberStatus, Reduce, SlotHeader
from edlz.services.storage.state import State
from edlz.services.worker.core.groups import inputs
from edlz.services.worker.core.groups.instructions import (
    Abandon,
    Advance,
    AskMember,
    AssembleState,
    Compute,
    DigestState,
    Instruction,
    Load,
    Reply,
    Slot,
    StageOwn,
    Tell,
    WritePart,
)
from edlz.services.worker.core.groups.milestones import Milestones
from edlz.services.worker.core.groups.node_sums import NodeSums
from edlz.services.worker.core.groups.reduction import OWN
from edlz.services.worker.core.groups.replica import Replica
from edlz.services.worker.core.groups.replica_phases import IN_STEP, Phase
from edlz.services.worker.core.groups.state_transfer import copy_of, state_digest
from tests.simulation.groups.disk import GroupDisk
from tests.simulation.groups.reference import group_reference, initial_store, learning_rate
from tests.simulation.groups.schedule import GroupFault, GroupSchedule
from tests.simulation.groups.shells import joined
from tests.simulation.model import compute_gradient, final_bytes
from tests.simulation.processes import Violation

__all__ = ["GroupJob"]

RETRY_S = 2.0
TURN_S = 0.01  # until a process comes to what it asks of itself
HEARTBEAT_S = 1.0
NEAR_HEARTBEAT_S = 0.3  # of who waits for others
BUCKET = 16  # elements: several buckets in a chunk
EVALUATION_TASKS = 2
HANG_S = 30.0  # longer than the slowest slot
GIVEN_UP_S = 600.0
LIMIT_S = 500.0  # behind the last fault a job ends sooner
MASTER = 0


@dataclass
class Asked:
    """A request that has no answer yet."""

    to: int
    key: Hashable
    body: Any
    sent_s: float
    again: Any = None  # what it is repeated with


@dataclass
class Process:
    """A life of a worker, or a master; `number` tells it from all others."""

    number: int
    core: Any
    is_up: bool = True
    stalled_until: float = 0.0
    asked: dict[int, Asked] = field(default_factory=dict)
    seq: int = 0
    is_status_due: bool = False
    next_status_s: float = 0.0
    computing: int = 0  # the newest attempt
    sums: NodeSums | None = None  # of its block
    heard: dict[int, int] = field(default_factory=dict)  # of a master: by worker, its newest status
    damaged: Any = None  # the state in memory that was changed,
    took_damage: bool = False  # or taken over so
    evicted: dict[int, bool] = field(
        default_factory=dict
    )  # of a master: workers, and whether another one may come
    hangs: bool = False  # of a worker: what it computes does not end
    host: str = ""  # of a worker


class GroupJob:
    """One job; `run` raises Violation if a promise is broken.

    `has_majority`: most members' states are right at all times.
    """

    def __init__(self, schedule: GroupSchedule, *, has_majority: bool = False) -> None:
        self.schedule, self.plan = schedule, schedule.plan
        self.rng = random.Random(schedule.seed)
        self.now = self.ended_s = 0.0
        self.log: list[str] = []
        self.figures: Counter[str] = Counter()  # commits, steps that were dropped, generations, ...
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._numbers = itertools.count(1)
        self._requests = itertools.count(1)
        self.processes: dict[int, Process] = {}
        self.journal: dict[str, Any] = {"term": 0, "ends": {}, "complete": None, "evaluated": {}}
        self._disk = GroupDisk()
        self._sealed: dict[Any, State] = {}  # in memory, where members share no folder
        self._history: dict[Any, bytes] = {}
        self._cuts: list[tuple[frozenset[int], float]] = []
        self._cut_hosts: dict[frozenset[str], float] = {}  # pairs that do not reach each other, until when
        self._patience_s = LIMIT_S  # how long the job may take behind the last fault
        self._lone: set[int] = set()  # workers that reach the master, and no other worker
        self._tries: Counter[tuple[int, int]] = Counter()
        self._unreadable = schedule.unreadable
        self._moments: Counter[str] = Counter()
        self._has_majority = has_majority
        self._last_fault_s = max(
            [fault.at + min(fault.seconds, 20) for fault in schedule.faults], default=0.0
        )
        self.master = self._start_master()
        for _ in range(schedule.workers + schedule.spares):
            self._start_worker()
        for fault in schedule.faults:
            if not fault.during:
                self._at(fault.at, lambda fault=fault: self._suffer(fault))

    # -- clock

    def _at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (when, next(self._order), action))

    def _within(self, least: float, most: float, action: Callable[[], None]) -> None:
        self._at(self.now + self.rng.uniform(least, most), action)

    def _when_awake(self, process: Process, action: Callable[[], None]) -> None:
        """Do something in a process now, or when it goes on; never in one that has ended."""
        if process.stalled_until > self.now:
            self._at(process.stalled_until + 0.001, lambda: self._when_awake(process, action))
        elif process.is_up:
            action()

    def run(self) -> "GroupJob":
        """Let everything happen, and check what was promised."""
        while self._heap and self.now < self._last_fault_s + self._patience_s:
            self.now, _, action = heapq.heappop(self._heap)
            action()
            if self.journal["complete"] is not None and self.now > self._last_fault_s + 30:
                break
        self._check()
        return self

    def run_until(self, when: float) -> None:
        """Let everything happen until then."""
        while self._heap and self._heap[0][0] <= when:
            self.now, _, action = heapq.heappop(self._heap)
            action()

    # -- processes

    def _start_master(self) -> Process:
        self.journal["term"] += 1
        core = Rendezvous(self.plan, self.journal["term"], self.now, self._disk.names(), HANG_S)
        core.ends = dict(self.journal["ends"])
        core.keeps_states = self.schedule.snapshot_s is not None
        core.decided = Decided(fence=self.plan.task_count, task_count=self.plan.task_count)
        process = self.processes[-self.journal["term"]] = Process(-self.journal["term"], core)
        self.master = process
        self._tick_master(process)
        return process

    def _tick_master(self, process: Process) -> None:
        def tick() -> None:
            if self.journal["term"] == process.core._term:
                self._feed_master(process, events.Tick())

        self._when_awake(process, tick)
        if process.is_up:
            self._at(self.now + 0.5, lambda: self._tick_master(process))

    def _start_worker(self, host: str = "") -> None:
        number = next(self._numbers)
        schedule = self.schedule
        milestones = Milestones(
            schedule.snapshot_s, schedule.checkpoint_steps, schedule.evaluation_steps, schedule.check_steps
        )
        core = Replica((1, number), self.plan, milestones, BUCKET)
        process = self.processes[number] = Process(
            number, core, host=host or f"host-{number % schedule.hosts}"
        )
        self._within(
            0.5,
            4,
            lambda: self._when_awake(
                process, lambda: self._feed(process, inputs.Built(initial_store(self.schedule)))
            ),
        )
        self._beat(process)

    def _beat(self, process: Process) -> None:
        def beat() -> None:
            self._feed(process, inputs.Tick())
            self._retry(process)
            if self.now >= process.next_status_s:
                self._tell(process)

        self._when_awake(process, beat)
        if process.is_up:
            self._at(self.now + 0.2, lambda: self._beat(process))

    @property
    def workers(self) -> list[Process]:
        return [process for number, process in self.processes.items() if number > 0 and process.is_up]

    @property
    def _active(self) -> set[int]:
        """The workers that may be members: the oldest ones, as many as there should be."""
        joined = self.figures["joined"] - self.figures["left"]
        return {process.number for process in self.workers[: max(1, self.schedule.workers + joined)]}

    def _end(self, process: Process, *, is_replaced: bool) -> None:
        if not process.is_up:
            return
        process.is_up = False
        self.log.append(f"{self.now:8.2f} worker {process.number} ends")
        if process.core.phase in IN_STEP:
            self.figures["in step when it ended"] += 1
        if self.rng.random() < 0.7:

            def lose() -> None:
                active = [(1, number) for number in self._active]
                self._feed_master(self.master, events.Lost(process.core.me, active))

            self._within(0.1, 1, lambda: self._when_awake(self.master, lose))
        if is_replaced:
            self._within(0.5, 3, lambda: self._start_worker(process.host))

    # -- network

    def _is_cut(self, one: int, other: int) -> bool:
        self._cuts = [(pair, until) for pair, until in self._cuts if until > self.now]
        pair = frozenset((max(one, MASTER), max(other, MASTER)))
        if MASTER not in pair and self._cut_hosts:
            hosts = frozenset(self.processes[number].host for number in pair)
            if len(pair) > 1 and self._cut_hosts.get(hosts, 0.0) > self.now:
                return True
        is_lone = MASTER not in pair and len(pair) > 1 and not pair.isdisjoint(self._lone)
        return is_lone or any(pair == cut for cut, _ in self._cuts)

    def _ask(self, process: Process, to: int, key: Hashable, body: Any, again: Any = None) -> None:
        number = next(self._requests)
        process.asked[number] = Asked(to, key, body, self.now, again)
        self._send(process, number, body)

    def _retry(self, process: Process) -> None:
        for number, asked in list(process.asked.items()):
            if self.now - asked.sent_s > RETRY_S:
                asked.sent_s = self.now
                self._send(process, number, asked.again or asked.body)

    def _send(self, process: Process, number: int, body: Any) -> None:
        to = process.asked[number].to
        self._carry(process.number, to, lambda server: self._arrive(process, number, server, body))

    def _carry(self, sender: int, to: int, action: Callable[[Process], None]) -> None:
        """Bring something to a process, sometimes late, twice or not at all; to MASTER: whoever that is by then."""
        if self._is_cut(sender, to) or self.rng.random() < self.schedule.noise:
            return
        for _ in range(2 if self.rng.random() < 0.03 else 1):
            delay = self.rng.choice((0.01, 0.05, 0.2, self.rng.uniform(0, 3)))

            def arrive() -> None:
                process = self.master if to == MASTER else self.processes[to]
                self._when_awake(process, lambda: action(process))

            self._at(self.now + delay, arrive)

    def _arrive(self, client: Process, number: int, server: Process, body: Any) -> None:
        to = (client.number, number)
        if server.number > 0:
            self._feed(server, inputs.Request(to, body))
        else:
            self._on_status(server, to, *body)

    def _reply(self, server: Process, to: tuple[int, int], body: Any) -> None:
        client, number = to

        def deliver(process: Process) -> None:
            asked = process.asked.pop(number, None)
            if asked is None:
                return
            if body is None:
                self.log.append(f"{self.now:8.2f} worker {process.number} is told to end")
                is_replaced = self.journal["complete"] is None and self.master.evicted.get(
                    process.number, True
                )
                self._end(process, is_replaced=is_replaced)
            elif isinstance(body, GroupOrders):
                self._feed(process, inputs.MemberOrdered(body))
                if process.is_status_due:
                    self._tell(process)
            else:
                self._feed(process, inputs.Answered((1, asked.to), asked.key, body))

        self._carry(server.number, client, deliver)

    # -- the master's shell

    def _answer(self, master: Process, to: tuple[int, int]) -> None:
        """Tell a worker what is to be true of it, or (None) to end."""
        is_over = self.journal["complete"] is not None or to[0] in master.evicted
        self._reply(master, to, None if is_over else master.core.orders((1, to[0])))

    def _on_status(self, master: Process, to: tuple[int, int], seq: int, status: MemberStatus) -> None:
        if self.journal["term"] != master.core._term:
            if self.rng.random() < 0.5:  # an old master may still speak for a while
                self._answer(master, to)
            return
        if seq >= master.heard.get(to[0], 0):
            master.heard[to[0]] = seq
            where = self.processes[to[0]].host
            member = Member(incarnation=(1, to[0]), worker=str(to[0]), endpoint=f"tcp://{where}:1")
            master.core.check(status)
            is_spare = to[0] not in self._active
            self._feed_master(master, events.Heard(member, status, is_spare))
        self._answer(master, to)

    def _feed_master(self, master: Process, event: events.Input) -> None:
        if self.journal["term"] != master.core._term or self.journal["complete"] is not None:
            return
        before, stage = master.core.generation, master.core.stage
        instructions = master.core.feed(event, self.now)
        if master.core.stage is not stage:
            self._reach(master.core.stage.value, master)
        for instruction in instructions:
            match instruction:
                case events.GiveUpTask(task, index):
                    self.journal["ends"][task] = index
                    master.core.ends[task] = index
                case events.WriteManifest(name, count, is_checkpoint):
                    self._write_manifest(master, name, count, is_checkpoint=is_checkpoint)
                case events.Evaluate(name):
                    self._reach("evaluating", master)
                    self._evaluate(master, name, 0, [])
                case events.Complete(name):
                    self.journal["complete"] = name
                    self.ended_s = self.now
                case events.Evict(incarnation):
                    self.figures["hung"] += instruction.is_hung
                    self.figures["evicted"] += 1
                    master.evicted[incarnation[1]] = instruction.is_replaced
                case events.Tell(text, is_warning=True):
                    self.figures["warned"] += 1
                    self.log.append(text)
        if master.core.generation != before:
            self.figures["generations"] += 1
            self.log.append(
                f"{self.now:8.2f} master {master.core._term}: {master.core.generation} of {master.core._candidates}"
            )

    def _evaluate(self, master: Process, name: Any, task: int, measured: list[bytes]) -> None:
        """Have some member evaluate a task on the state with this name, then the next one; none has it: another tries.

        What an earlier master has had evaluated is so.
        """

        def go_on() -> None:
            if self.journal["term"] != master.core._term or master.core.evaluating != name:
                return
            if name in self.journal["evaluated"]:
                self._feed_master(master, events.Evaluated(name))
                return
            if task == EVALUATION_TASKS:
                self.journal["evaluated"][name] = measured
                self._feed_master(master, events.Evaluated(name))
                return
            worker = self.rng.choice(self.workers) if self.workers else None
            if worker and worker.core.name == name and not self._is_cut(worker.number, MASTER):
                state = worker.core.store.view(name[0])
                self._evaluate(master, name, task + 1, [*measured, _bits(state)])
            else:
                self._evaluate(master, name, task, measured)

        self._within(0.1, 1.0, lambda: self._when_awake(master, go_on))

    def _write_manifest(self, master: Process, name: Any, count: int, *, is_checkpoint: bool) -> None:
        def write() -> None:
            if self.journal["term"] != master.core._term:
                return
            if not self._disk.complete(name, count, is_checkpoint=is_checkpoint):
                self.figures["not completed"] += 1
                return
            self.figures["completed"] += 1
            self._feed_master(master, events.Durable(name, is_checkpoint))

        self._within(0.05, 0.5, lambda: self._when_awake(master, write))

    # -- a member's shell

    def _tell(self, process: Process) -> None:
        """Send a status, or as soon as the one under way is answered."""
        if any(asked.to == MASTER for asked in process.asked.values()):
            process.is_status_due = True
            return
        process.is_status_due = False
        process.seq += 1
        status = process.core.status(self.now)
        is_near = status.phase in ("promised", "fetching", "staged")
        process.next_status_s = self.now + (NEAR_HEARTBEAT_S if is_near else HEARTBEAT_S)
        self._ask(process, MASTER, "status", (process.seq, status))

    def _feed(self, process: Process, event: inputs.Input) -> None:
        if not process.is_up:
            return
        core = process.core
        before, phase = core.name, core.phase
        try:
            instructions = core.feed(event, self.now)
        except RemoteProtocolError:
            if not self.schedule.is_damaged:
                raise
            self._end(process, is_replaced=True)  # it got no state whole, from a holder that was damaged
            return
        if core.phase is not phase:
            self._reach(core.phase.value, process)
            self._reach(f"{core.phase.value} v{core.name[1]}", process)
        if core.phase is Phase.SEALED:
            self._sealed[core.name] = core.store.view(core.name[0])
        for instruction in instructions:
            self._carry_out(process, instruction)
        if core.name != before and core.store is not None:
            self._note_state(process)
            if core.name[0] == core.generation and before[1] + 1 == core.name[1]:
                self._check_barrier(before)

    def _note_state(self, process: Process) -> None:
        core = process.core
        state = core.store.view(core.name[0])
        self.figures["commits"] += 1
        marks = dict(state.ledger.marks)
        for task, count in enumerate(state.counts):
            if task in marks and count != marks[task]:
                raise Violation(
                    f"worker {process.number}: {count} of task {task}, and its mark is {marks[task]}"
                )
        if core.store is process.damaged:
            if self._has_majority and process.took_damage:
                raise Violation(f"worker {process.number} trains on a damaged state that it took over")
            return
        seen = self._history.setdefault(core.name, _bits(state))
        if seen != _bits(state) and self.schedule.is_damaged:
            process.damaged, process.took_damage = core.store, True  # before anybody knew
        elif seen != _bits(state):
            raise Violation(f"two states have the name {core.name}")

    def _check_barrier(self, before: Any) -> None:
        """A step was taken from this state: if it is one to evaluate, that was done, on its very bits."""
        every = self.schedule.evaluation_steps
        if not every or not before[1] or before[1] % every:
            return
        measured = self.journal["evaluated"].get(before)
        if self.schedule.is_damaged and measured:
            return  # perhaps by a member that was
        if measured != [self._history[before]] * EVALUATION_TASKS:
            raise Violation(f"a step was taken from {before}, which was not evaluated")

    def _carry_out(self, process: Process, instruction: Instruction) -> None:
        match instruction:
            case Tell():
                self._tell(process)
            case Compute():
                process.computing = instruction.attempt
                process.sums = NodeSums(instruction.block, instruction.count)
                self._compute(process, instruction, 0)
            case Abandon():
                process.computing = 0
                process.asked = {n: a for n, a in process.asked.items() if a.to == MASTER}
            case AskMember(member, key, body, again):
                self.figures["sent to members"] += 1
                self._ask(process, member.incarnation[1], key, body, again)
            case StageOwn(part):
                self._at(
                    self.now + TURN_S, lambda: self._when_awake(process, lambda: self._stage(process, part))
                )
            case Reply(to, body):
                self._reply(process, to, body)
            case Advance(values):
                self._beside(process, lambda: self._advanced(values))
            case DigestState(key, state):  # steps may change it meanwhile
                self._beside(process, lambda: inputs.Digested(key, state_digest(state)))
            case AssembleState(attempt, incoming):
                self._reach("assembling", process)
                self._beside(process, lambda: inputs.Assembled(attempt, incoming.whole()))
            case Load(name):
                self._reach("loading", process)
                self._within(0.2, 2, lambda: self._when_awake(process, lambda: self._load(process, name)))
            case WritePart():
                copied = replace(instruction, state=copy_of(instruction.state))
                self._within(
                    0.1, 1.5, lambda: self._when_awake(process, lambda: self._write(process, copied))
                )

    def _beside(self, process: Process, work: Callable[[], inputs.Input]) -> None:
        """Have a thread of a process do something that takes a while."""
        self._within(0.02, 1.0, lambda: self._when_awake(process, lambda: self._feed(process, work())))

    def _stage(self, process: Process, part: Reduce) -> None:
        self._feed(process, inputs.Request(OWN, part))

    def _advanced(self, values: NextValues) -> inputs.Input:
        values.run()
        return inputs.Advanced()

    def _compute(self, process: Process, order: Compute, place: int) -> None:
        """Compute a block's slots one after another."""

        def go_on() -> None:
            if process.hangs or process.computing != order.attempt:
                return
            if place == len(order.slots):
                rate, sums = learning_rate(order.version), process.sums.take()
                self._feed(process, inputs.BlockComputed(order.attempt, rate, sums))
            elif self._compute_slot(process, order.attempt, order.slots[place]):
                self._compute(process, order, place + 1)

        took = 0.0
        if place < len(order.slots):
            slot = order.slots[place]
            slow = {(task, index): seconds for task, index, seconds in self.schedule.slow}
            took = slow.get((slot.task, slot.index), self.rng.uniform(0.05, 0.6))
        self._at(self.now + took, lambda: self._when_awake(process, go_on))

    def _compute_slot(self, process: Process, attempt: int, slot: Slot) -> bool:
        task, index, length = slot.task, slot.index, self.schedule.lengths[slot.task]
        self.figures["slots computed"] += 1
        if self._raises(task, index):
            self.figures["raised"] += 1
            self._feed(process, inputs.SlotFailed(attempt, task, index, "it raises"))
            return False
        is_empty = index >= length
        header = SlotHeader(
            slot=slot.slot,
            task=task,
            index=index,
            is_last=index + 1 >= length and (slot.end_at is None or is_empty),
            is_empty=is_empty,
        )
        counters = None
        if not is_empty:
            values = process.core.store.values()
            noise = b"" if self.schedule.is_function else str(self.rng.random()).encode()
            about = (values.dense, values.state, values.counters, task, index, noise)
            gradient, state, counters = compute_gradient(*about)
            process.sums.add(slot.slot, gradient, state)
        self._feed(process, inputs.SlotComputed(attempt, header, counters))
        return True

    def _raises(self, task: int, index: int) -> bool:
        for flaky, at, times in self.schedule.flaky:
            if (flaky, at) == (task, index) and self._tries[task, index] < times:
                self._tries[task, index] += 1
                return True
        return (task, index) in self.schedule.bad

    def _load(self, process: Process, name: Any) -> None:
        state = None
        if self._unreadable:
            self._unreadable -= 1
        elif parts := self._disk.parts(name):
            state = joined(parts)
            self.figures["loaded"] += 1
        self._feed(process, inputs.Loaded(name, state))

    def _write(self, process: Process, order: WritePart) -> None:
        part = order.state
        is_written = self._disk.write(part, is_checkpoint=order.is_checkpoint)
        about = (part.name, part.partition, part.partitions, order.is_checkpoint)
        if is_written or not order.is_last:  # the last one is tried until it is there
            error = "" if is_written else "a later one has its place"
            self._feed(process, inputs.PartWritten(order.generation, *about, error=error))

    # -- faults

    def _reach(self, moment: str, process: Process) -> None:
        """A member, or the group, enters a state: what is to happen then happens a little later."""
        self._moments[moment] += 1
        for fault in self.schedule.faults:
            if (fault.during, fault.nth) == (moment, self._moments[moment]):
                when = self.now + fault.at
                self._last_fault_s = max(self._last_fault_s, when + min(fault.seconds, 20))
                self._at(when, lambda fault=fault: self._suffer(fault, process))

    def _struck(self, fault: GroupFault, whose: Process | None) -> Process | None:
        """Return whom a fault befalls, if it is a worker's."""
        if whose is not None and whose.number > 0 and fault.who == 0 and whose.is_up:
            return whose
        alive = self.workers
        return alive[fault.who % len(alive)] if alive else None

    def _suffer(self, fault: GroupFault, whose: Process | None = None) -> None:
        struck = self._struck(fault, whose)
        if fault.kind == "damage" and struck is not None and struck.core.phase is Phase.ADVANCING:
            self._at(self.now + 0.05, lambda: self._suffer(fault, struck))  # between two states it has none
            return
        self.log.append(f"{self.now:8.2f} FAULT {fault}")
        self.figures["faults"] += 1
        alive, until, process = self.workers, self.now + fault.seconds, self._struck(fault, whose)
        match fault.kind:
            case "kill" if process:
                self._end(process, is_replaced=True)
            case "leave" if process and len(alive) > 1:
                self.figures["left"] += 1
                self._end(process, is_replaced=False)
            case "all":
                for each in alive:
                    self._end(each, is_replaced=True)
            case "join":
                self.figures["joined"] += 1
                self._start_worker()
            case "stall" if process:
                process.stalled_until = until
            case "master":
                self.master.is_up = False
                self._within(0.2, 4, self._start_master)
            case "stall master":
                self.master.stalled_until = until
                if self.rng.random() < 0.5:
                    self._within(0.2, 4, self._start_master)
            case "cut" if process:
                self._cuts.append((frozenset((MASTER, process.number)), until))
            case "link" if process and len(alive) > 1:
                other = alive[(fault.who + 1) % len(alive)]
                self._cuts.append((frozenset((process.number, other.number)), until))
            case "hang" if process:
                process.hangs = True
                # Somebody else sees to who hangs while nobody waits for it.
                self._at(self.now + GIVEN_UP_S, lambda: self._end(process, is_replaced=True))
                self._patience_s += GIVEN_UP_S
            case "hosts" if process and len(alive) > 1:
                other = alive[(fault.who + 1) % len(alive)]
                self._cut_hosts[frozenset((process.host, other.host))] = until
            case "island" if process:
                self._lone.add(process.number)
            case "damage" if process and process.core.store is not None:
                process.damaged = store = process.core.store
                before, store._dense = store._dense, store._buffers.take(store._dense)
                store._dense[:] = before
                store._dense[fault.who] += 1.0
                self.figures["damaged"] += 1

    # -- promises

    @property
    def _is_exact(self) -> bool:
        """Whether no damage can get into another state: each step is compared, and most members are always right."""
        schedule = self.schedule
        return schedule.is_function and schedule.check_steps == 1 and self._has_majority

    def _check(self) -> None:
        self.figures["evaluated"] = len(self.journal["evaluated"])
        name = self.journal["complete"]
        if name is None:
            raise Violation("the job does not end")
        final, ends = self._final(name), self.journal["ends"]
        if ends != dict(self.schedule.bad):
            raise Violation(f"tasks were ended at {ends}")
        wanted = [min(ends.get(task, length), length) for task, length in enumerate(self.schedule.lengths)]
        if list(final.counts) != wanted:
            raise Violation(f"the final state has {list(final.counts)}, not {wanted}")
        if len(TaskSet(final.ledger.finished)) != self.plan.task_count:
            raise Violation(f"the final state has the ledger {final.ledger}")
        has_bits = self._is_exact or (self.schedule.is_function and not self.schedule.is_damaged)
        if has_bits and final_bytes([final]) != group_reference(self.schedule):
            raise Violation("the final parameters are not the same bits")
        if self._has_majority and _bits(final) != self._history[name]:
            raise Violation("the job ends with what a damaged member had")

    def _final(self, name: Any) -> State:
        """The state that a complete job has ended with."""
        if self.schedule.snapshot_s is None:
            return self._sealed[name]
        if (parts := self._disk.parts(name)) is None:
            raise Violation("the job is complete, and its last state is not durable")
        return joined(parts)


def _bits(state: State) -> bytes:
    return final_bytes([state]) + repr(state.ledger).encode()
