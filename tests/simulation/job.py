"""A whole job in one process and one thread: the real cores on a simulated network, clock and disk.

Messages are delayed, lost, doubled and delivered late (`network.py`); processes are killed, stalled (a zombie
that wakes up after its successor has begun) and cut off.  At the end the promises are checked against what the
partitions' states hold, not against what anybody says (`promises.py`).
"""

import dataclasses
import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from edlz.services import strict_json
from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.processes.desired_processes import DesiredProcesses
from edlz.services.master.core.vocabulary import inputs as to_master
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.protocol.growing_plan import Piece
from edlz.services.protocol.messages import Job, ProcessExit
from edlz.services.ps.core.inputs import LeaveWanted, Request, Tick
from edlz.services.ps.core.partition import Partition
from edlz.services.storage.state import State
from edlz.services.worker.core import inputs as worker_inputs
from edlz.services.worker.core.groups.inputs import Request as GroupRequest
from edlz.services.worker.core.groups.replica_phases import Phase
from edlz.services.worker.core.worker import WorkerCore
from edlz.services.worker.pace import Pace
from tests import builders
from tests.simulation.disk import CheckpointFolder, Disk
from tests.simulation.groups.shells import GroupMasterShell, MemberShell, Replicas, moments_of
from tests.simulation.homes import Home, Machine, Pods
from tests.simulation.network import Network
from tests.simulation.processes import Process, Violation
from tests.simulation.promises import check_end, check_failure
from tests.simulation.schedule import Fault, Schedule, shard_of
from tests.simulation.shells import (
    MasterShell,
    PartitionShell,
    Shell,
    leave_first_checkpoint,
    leave_foreign_checkpoint,
)
from tests.simulation.worker_shell import WorkerShell

__all__ = ["Fault", "Schedule", "SimulatedJob", "Violation"]

_JOURNALLED = frozenset(field.name for field in dataclasses.fields(JournalState))
_HOMES: dict[str, type[Home]] = {"hand": Home, "machine": Machine, "pods": Pods}
_KILLED = ProcessExit(name="", code=None, signal=9, reason="killed by signal 9 (SIGKILL)")
_TAKEN = ProcessExit(name="", code=143, reason="exit code 143")
_TICKS = (Tick, to_master.Tick, worker_inputs.Tick)
RELAUNCHES = 100  # whatever befalls workers, some are there at the end
LEAVE_S = 18.0  # in which a partition may leave
PATIENCE_S = 1000.0  # after the last fault; an undisturbed job takes a tenth of it


class SimulatedJob:
    """Lets events happen in their order, starts and ends processes, carries out faults.

    What is outside the processes and outlives them lies here, for the shells to read and write.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.plan = schedule.grown(()) if schedule.files else schedule, schedule.plan
        self.rng = random.Random(schedule.seed)
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order, self._boots = itertools.count(), itertools.count(1)
        self.processes: dict[int, Process] = {}
        self.address: dict[str, int] = {}
        self.network = Network(self)
        is_group = schedule.is_allreduce
        self._shells: dict[str, Shell] = {
            "m": GroupMasterShell(self) if is_group else MasterShell(self),
            "p": PartitionShell(self),
            "w": MemberShell(self) if is_group else WorkerShell(self),
        }
        self.journal: dict[str, Any] = {
            "term": 0,
            "is_complete": False,
            "digest": "",
            "evaluations": (),
            "saved": -1,
            "ends": (),
            "skipped_evaluations": (),
            "predicted": (),
            "rounds": (),
            "task_count": 0,
            "refusal": None,
            "pieces": (),
        }
        self.checkpoint_folder = CheckpointFolder(schedule.keeps)
        self.disks = [
            Disk(p, self.checkpoint_folder, can_link=schedule.can_link) for p in range(schedule.servers)
        ]
        self.begun_from = (schedule.begins_from,) if schedule.begins_from else ()  # versions that stay
        self.sealed: dict[Any, State] = {}
        self.replicas = Replicas()
        self.parts: dict[Any, State] = {}  # of checkpoints: (number, version, partition)
        self.checkpoints: dict[int, list[State]] = {}  # all that were ever completed
        self.failures_left = dict(schedule.failing)
        self.hangs_left = set(schedule.hangs)
        self.part_files: dict[int, str] = {}  # predictions: checksum by task
        self.files_to_lose = set(schedule.lost_files)
        self.published: dict[str, Any] | None = None  # the manifest of the predictions
        self.predicted: Counter[int] = Counter()  # how often each task was computed
        self.exports: list[tuple[str, bytes]] = []  # numbered folders: of which digest, and the model in it
        self.given_up: list[str] = []  # services that hung, or whose node was lost
        self.known_at_refusal = 0  # the newest process when the model's refusal was journalled; 0 before
        self.log: list[str] = []
        self.job = _job_record(schedule)
        self.faults_end = 0.0  # of those whose time is known
        self._reached: set[str] = set()
        self.home = _HOMES[schedule.home](self)
        self._begin()

    def _begin(self) -> None:
        schedule = self.schedule
        self.reach("")
        if schedule.begins_from:
            leave_first_checkpoint(self)
        if schedule.has_foreign:
            leave_foreign_checkpoint(self)
        if schedule.stop_at:
            self.at(schedule.stop_at, self._stop)
        for when, workers in schedule.scales:
            self.at(when, self.home.scale, workers)
        if schedule.files:
            self.within(0, 2, self._look)
        self.launch("m")
        self.home.begin()

    def run(self) -> "SimulatedJob":
        """Let everything happen; raises Violation when a promise is broken."""
        while self._events:
            self.now, _, method, args = heapq.heappop(self._events)
            if self.now > self.faults_end + PATIENCE_S:
                raise Violation(f"the job does not end: {self._where()}")
            method(*args)
            if self._is_over():
                break
            master = self.process("m")
            if master is None:
                continue
            if master.core.verdict.is_stopped:
                return self
            if self.schedule.refuses:
                if master.core.verdict.failure is not None and self._is_left_alone():
                    return self
                continue
            if master.core.verdict.failure is not None:
                check_failure(self.schedule, master.core.verdict.failure)
                return self
            self.reach(master.core.phase.value)
            if any(master.core._worker_answers._idle):
                self.reach("waiting")
            if any(master.core._partition_answers._held):
                self.reach("standing")
            if master.core.work.queue.has_all:
                self.reach("dry")
            if master.core.work.barriers.stands_at:
                self.reach("barrier")
            if master.core.work.barriers.rounds:
                self.reach("passed")
        check_end(self)
        return self

    def run_until(self, now: float) -> None:
        """Let everything happen until then, or until the job is over."""
        while self._events and self._events[0][0] <= now and not self._is_over():
            self.now, _, method, args = heapq.heappop(self._events)
            method(*args)

    def _is_over(self) -> bool:
        """Whether the job is complete, and all but its master have heard of it and left."""
        if not self.journal["is_complete"] or self.now <= self.faults_end:
            return False
        return self._is_left_alone()

    def _is_left_alone(self) -> bool:
        """Whether only the master is there, and nothing befalls it any more."""
        others = [
            p for p in self.processes.values() if p.is_up and p.role not in ("m", "s") and not p.is_apart
        ]
        return self.now > self.faults_end and not others and self.home.is_empty

    def reach(self, moment: str) -> None:
        """A moment of the job has come, perhaps not for the first time."""
        if moment in self._reached:
            return
        self._reached.add(moment)
        for fault in self.schedule.faults:
            if fault.during == moment:
                self.at(self.now + fault.at, self._suffer, fault)
                self.faults_end = max(self.faults_end, self.now + fault.at + fault.seconds)

    def _look(self) -> None:
        """The master's shell looks for data that nobody has planned."""
        master, schedule = self.process("m"), self.schedule
        planned = {shard.name for piece in self.journal["pieces"] for shard in piece.shards}
        there = [shard_of(i, tasks) for i, (when, tasks) in enumerate(schedule.files) if 0 < when <= self.now]
        new = tuple(shard for shard in there if shard.name not in planned)
        if new and master is not None and self.now >= master.stalled_until:
            self.give(master, to_master.Grown(Piece(shards=new)))
        self.within(0.2, 4, self._look)

    def _stop(self) -> None:
        master = self.process("m")
        if master is not None:
            self.give(master, to_master.StopWanted())

    def _where(self) -> str:
        lines = []
        for role in sorted(self.address):
            process = self.process(role)
            core = process.core if process else None
            if isinstance(core, MasterCore):
                lines.append(f"m {core.phase} done={core.work.queue.done} leases={core.work.queue._leases}")
            elif isinstance(core, Partition):
                state = core.store and (core.store.version, core.store.ledger)
                staged = core._synchronous.staged if core._synchronous else ()
                lines.append(f"{role} {core.condition} {state} staged={staged}")
            elif core is not None:
                lines.append(f"{role} ready={core._is_ready} {core.phases}")
        return "\n".join(lines)

    # -- events

    def at(self, when: float, method: Callable[..., None], *args: Any) -> None:
        """Let something happen then."""
        heapq.heappush(self._events, (when, next(self._order), method, args))

    def within(self, least_s: float, most_s: float, method: Callable[..., None], *args: Any) -> None:
        """Let something happen in so many seconds."""
        self.at(self.now + self.rng.uniform(least_s, most_s), method, *args)

    def event(self, name: int, event: Any) -> None:
        """Something that a process waits for itself has come: a computation, records."""
        process = self.processes[name]
        if not process.is_up:
            return
        if self.now < process.stalled_until:
            self.at(process.stalled_until, self.event, name, event)
            return
        self.feed(process, event)

    def feed(self, process: Process, event: Any) -> None:
        """Give a core an input, and do what it answers."""
        core = process.core
        if isinstance(core, MasterCore):
            is_request = isinstance(event, Request)
            self.give(
                process,
                to_master.Request(event.to, event.body) if is_request else to_master.Tick(),
            )
            return
        if isinstance(core, WorkerCore) and isinstance(event, Request):  # another member's
            event = worker_inputs.OfGroup(GroupRequest(event.to, event.body))
        self.give(process, event)

    def give(self, process: Process, event: Any) -> None:
        """Give a core an event, and do what it answers; half of all events are ticks that it answers by nothing."""
        instructions = process.core.feed(event, self.now)
        if instructions or type(event) not in _TICKS:
            process.core.check_invariants()
            self.carry_out(process, instructions)
        if self.schedule.is_allreduce and process.role[0] == "w":
            for moment in moments_of(process):
                self.reach(moment)

    def carry_out(self, process: Process, instructions: list[Any]) -> None:
        """Do what a core has asked for, as long as its process lives."""
        for instruction in instructions:
            if not process.is_up:
                return
            self._shells[process.role[0]].carry_out(process, instruction)

    # -- processes

    def process(self, role: str) -> Process | None:
        """Return who has a role now, if it is up."""
        process = self.processes.get(self.address.get(role, -1))
        return process if process and process.is_up else None

    def start(self, role: str) -> None:
        """Start who has a role, unless somebody has it."""
        if self.process(role) is None:
            self.launch(role)

    def launch(self, role: str) -> Process:
        """Begin a process's life, whoever had its role before."""
        boot = next(self._boots)
        pace = Pace()
        process = self.add(role, self._core(role, boot, pace), boot, pace)
        if role == "m":
            self.give(process, to_master.Start())
            self.home.on_master(process)
        self.at(self.now, self._tick, boot)
        return process

    def add(self, role: str, core: Any, boot: int = 0, pace: Pace | None = None) -> Process:
        """Let there be a process."""
        boot = boot or next(self._boots)
        process = self.processes[boot] = Process(boot, role, core, pace=pace or Pace())
        self.address[role] = boot
        return process

    def _core(self, role: str, boot: int, pace: Pace) -> MasterCore | Partition | WorkerCore:
        if role == "m":
            facts = {name: fact for name, fact in self.journal.items() if name in _JOURNALLED}
            state = strict_json.decode(strict_json.encode(facts), JournalState)  # as they lie on a disk
            schedule, record = self.schedule, state.fleet
            desired = DesiredProcesses(
                schedule.workers,
                schedule.servers,
                spares=schedule.spares,
                relaunches=RELAUNCHES,
                record=record,
            )
            steps = (schedule.evaluation_steps, schedule.checkpoint_steps)
            durable = tuple(self.replicas.durable)
            return MasterCore(self.job, state, *steps, desired=desired, durable=durable)
        if role[0] == "p":
            return Partition(int(role[1:]), boot, role, self.disks[int(role[1:])])
        return WorkerCore(role[1:], boot, pace=lambda: pace.told(self.now))

    def _tick(self, name: int) -> None:
        process = self.processes[name]
        if not process.is_up:
            return
        if self.now >= process.stalled_until:
            self.feed(process, worker_inputs.Tick() if process.role[0] == "w" else Tick())
            self.network.repeat(process)
        pause_s = self.rng.uniform(0.2, 0.6)
        if self.journal["is_complete"] and len(self._events) < 3:  # there is nobody whom it could wait for
            pause_s *= 10
        self.at(max(self.now, process.stalled_until) + pause_s, self._tick, name)

    def _kill(self, process: Process) -> None:
        process.is_up = False
        self.network.drop(process)

    def end(self, process: Process, how: ProcessExit, *, is_again: bool = True) -> None:
        """End a process; `is_again`: whoever has started it by hand would start it again."""
        if not process.is_up:
            return
        self._kill(process)
        if process.role != "m":
            self.home.on_end(process, how, is_again=is_again)
        elif self.address.get("m") == process.name:
            self.within(0.5, 8, self.start, "m")

    def exit(self, process: Process) -> None:
        """End a process that has said that it ends."""
        is_again = process.role[0] == "p" and not self.journal["is_complete"]
        code = 143 if process.is_leaving else 0
        how = ProcessExit(name=process.role, code=code, reason=f"exit code {code}")
        self.end(process, how, is_again=is_again)

    def die(self, name: int) -> None:
        """End a worker by what it reads."""
        self.end(self.processes[name], _KILLED)

    # -- faults

    def _suffer(self, fault: Fault) -> None:
        self.log.append(f"{self.now:8.2f} FAULT {fault}")
        role = self.home.target(fault.role)
        process = self.process(role)
        if fault.kind == "cut":
            self.network.cut(role)
        elif fault.kind == "join":
            self._join(fault.role)
        elif fault.kind == "full":
            self._fill(fault, process)
        elif process is not None:
            getattr(self, f"_{fault.kind}_by")(fault, process)

    def _join(self, role: str) -> None:
        if self.schedule.home == "hand":
            self.start(role)

    def _kill_by(self, fault: Fault, process: Process) -> None:
        """Kill a process, or take it away, as its launcher sees."""
        how = _KILLED if self.rng.random() < 0.5 else _TAKEN
        self.end(process, how, is_again=fault.role[0] != "w" or fault.is_replaced)

    def _term_by(self, fault: Fault, process: Process) -> None:
        """A process is told to end, and killed when its time is over."""
        if fault.role[0] != "p":
            self._kill_by(fault, process)
            return
        process.is_leaving = True
        self.event(process.name, LeaveWanted(LEAVE_S))
        self.at(self.now + fault.seconds, self._end_by_force, process)

    def _end_by_force(self, process: Process) -> None:
        if process.is_up:
            self.log.append(f"{self.now:8.2f} {process.role} is killed")
            self.end(process, _KILLED)

    def _foreign_by(self, fault: Fault, process: Process) -> None:
        self.network.forge(process)

    def _wipe_by(self, fault: Fault, process: Process) -> None:
        self._kill_by(fault, process)
        if fault.role[0] == "p":
            self.disks[int(fault.role[1:])].wipe()

    def _stall_by(self, fault: Fault, process: Process) -> None:
        process.stalled_until = self.now + fault.seconds
        self.home.on_stall(process, fault.seconds)

    def _apart_by(self, fault: Fault, process: Process) -> None:
        self.home.on_apart(process, fault.seconds)

    def _damage_by(self, fault: Fault, process: Process) -> None:
        """The state in a member's memory changes, when it has one."""
        member = process.core._member
        store = None if member is None else member.replica.store
        if store is None or member.replica.phase is Phase.ADVANCING:
            self.at(self.now + 0.1, self._damage_again, fault, process)
            return
        before, store._dense = store._dense, store._buffers.take(store._dense)
        store._dense[:] = before
        store._dense[0] += 1.0

    def _damage_again(self, fault: Fault, process: Process) -> None:
        if process.is_up:
            self._damage_by(fault, process)

    def _fill(self, fault: Fault, process: Process | None) -> None:
        """A disk is full for a while, whoever uses it: a partition's; under the journal the master waits."""
        if fault.role[0] == "p":
            self.disks[int(fault.role[1:])].full_until = self.now + fault.seconds
        elif fault.role == "m" and process is not None:
            process.stalled_until = self.now + fault.seconds


def _job_record(schedule: Schedule) -> Job:
    return builders.job(
        schedule.plan,
        name="simulated",
        run="1",
        config={
            "evaluation_steps": schedule.evaluation_steps,
            "recovery_snapshot_secs": schedule.snapshot_every_s,
            "checkpoint_steps": schedule.checkpoint_steps,
            "sync_version_tolerance": schedule.tolerance,
            "get_model_steps": schedule.vectors_every,
            "skip_bad_tasks": schedule.skips,
            "stop_on_nan": schedule.stops_on_nan,
            "prediction_output": "out" if schedule.predicts else "",
            "statistics_output": "out" if schedule.analyzes else "",
            "output": "out" if schedule.exports else "",
            "distribution_strategy": "AllreduceStrategy"
            if schedule.is_allreduce
            else "ParameterServerStrategy",
            "max_step": 0 if schedule.workers_tell_max_step else schedule.max_step,
        },
        partitions=schedule.partitions,
        begins_from=f"version-{schedule.begins_from}" if schedule.begins_from else "",
    )
