"""The core of a worker: which minibatch to compute next, on which parameters, and whom to tell.

Theory of operation.  A *run* is one leased task in hand.  It pulls (where does each partition stand
with this task, and what are its parameters), computes the smallest minibatch that some partition lacks,
pushes it to all, and so on; a partition that has the minibatch ignores it.  One exchange carries a
push and the next pull.  When all partitions have finished the task the run is reported.

In synchronous mode the pull is held by a partition until the step before is committed.  A worker may
fill several slots of one step: only the last of them pulls, and its answer, which proves that the step is
committed, moves all of them on.  Runs of a later round wait in hand until this worker has nothing left
in the round before.  After any refusal a run begins again with a pull.  PROTOCOL: sections 3 to 5.

The core knows no tensors: parameters pass through it as the messages that brought them.
"""

import itertools
from collections.abc import Callable, Hashable

import msgspec

from edlz.services.errors import EdlzError
from edlz.services.messages import (
    ANY_VERSION,
    NO_IDENTITY,
    DoneEvaluation,
    EvaluationResult,
    Exchange,
    Exchanged,
    FailedTask,
    Failure,
    Identity,
    Initialised,
    Job,
    Message,
    PartitionAddress,
    Pull,
    Push,
    Refused,
    WorkerOrders,
    WorkerStatus,
    WorkerTelemetry,
)
from edlz.services.plan import Plan
from edlz.services.worker.evaluations import Evaluations
from edlz.services.worker.instructions import (
    AskMaster,
    AskPartition,
    Begin,
    Build,
    Compute,
    Drop,
    Exit,
    Instruction,
    Outcome,
)
from edlz.services.worker.known_partitions import KnownPartitions
from edlz.services.worker.runs import BACK_OFF_S, Phase, Run

__all__ = ["TaskRunner"]

HEARTBEAT_S = 1.0
ASK_AGAIN_S = 0.2  # a worker without work asks again this often


class TaskRunner:
    """A worker's decisions.

    Parameters
    ----------
    worker : str
        Its id.
    boot : int
        A random number that tells this process from the ones before it.
    telemetry : callable, optional
        Figures for display.
    """

    def __init__(
        self, worker: str, boot: int, telemetry: Callable[[], WorkerTelemetry] = WorkerTelemetry
    ) -> None:
        self.worker, self.boot = worker, boot
        self.job: Job | None = None
        self.incarnation: Identity | None = None
        self.era = NO_IDENTITY
        self.term = 0
        self._telemetry = telemetry
        self.steps = 0
        self._seq = 0
        self._is_status_under_way = False
        self._next_status_s = 0.0
        self._attempts = itertools.count(1)
        self._runs: dict[int, Run] = {}
        self._busy: int | None = None  # the task that is being computed
        self._evaluations = Evaluations(self._ask)
        self._failed: list[FailedTask] = []
        self._failure: Failure | None = None
        self._partitions = KnownPartitions()
        self._is_built = False
        self._parts: dict[int, Exchanged] = {}  # newest parameters received from each partition

    @property
    def plan(self) -> Plan:
        assert self.job is not None
        return self.job.plan

    @property
    def _count(self) -> int:
        return self.job.partitions if self.job else 0

    @property
    def phases(self) -> dict[int, Phase]:
        """Where each run stands."""
        return {task: run.phase for task, run in self._runs.items()}

    # -- time and the master

    def on_tick(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for run in self._runs.values():
            if run.phase is Phase.BACKING_OFF and now >= run.resume_s:
                out += self._pull(run)
        out += self._evaluations.on_tick(now)
        out += self._schedule()
        is_idle = self._wants_task() and self._busy is None
        asks_again_s = self._next_status_s - HEARTBEAT_S + ASK_AGAIN_S
        if not self._is_status_under_way and now >= (asks_again_s if is_idle else self._next_status_s):
            out += self._status(now)
        return out

    def _status(self, now: float) -> list[Instruction]:
        """A status, unless one is under way: its answer will be followed by another."""
        if self._is_status_under_way:
            self._next_status_s = now
            return []
        self._seq += 1
        self._is_status_under_way = True
        self._next_status_s = now + HEARTBEAT_S
        body = WorkerStatus(
            worker=self.worker,
            boot=self.boot,
            incarnation=self.incarnation,
            seq=self._seq,
            era=self.era,
            holding=tuple(self._runs),
            evaluating=self._evaluations.holding,
            done=tuple(
                r.done(self.era, self._count) for r in self._runs.values() if r.phase is Phase.REPORTING
            ),
            evaluated=self._evaluations.done,
            results=self._evaluations.results,
            failed=tuple(self._failed),
            failure=self._failure,
            wants_task=self._wants_task(),
            wants_evaluation=self._is_ready and self._evaluations.wants_lease,
            telemetry=self._telemetry(),
            steps=self.steps,
        )
        return [AskMaster(body)]

    @property
    def _is_ready(self) -> bool:
        return self._is_built and self._partitions.are_ready

    def _wants_task(self) -> bool:
        if not self._is_ready or self._failure:
            return False
        active = [r for r in self._runs.values() if r.phase not in (Phase.QUEUED, Phase.REPORTING)]
        queued = sum(run.phase is Phase.QUEUED for run in self._runs.values())
        if self.plan.is_sync and active and all(r.phase in (Phase.PULLING, Phase.STAGED) for r in active):
            return True  # it waits for slots that perhaps nobody has
        return queued < max(1, len(active) if self.plan.is_sync else 1)

    def on_orders(self, orders: WorkerOrders, now: float) -> list[Instruction]:
        """The master's answer to the status that is under way."""
        self._is_status_under_way = False
        if orders.term < self.term:
            return []
        self.term = orders.term
        if orders.finished:
            return [Exit("the job is finished")]
        if orders.stop:
            return [Exit("the master said stop", 1 if self._failure else 0)]
        out: list[Instruction] = []
        if orders.job is not None and self.job is None:
            self.job, self._partitions.count = orders.job, orders.job.partitions
            out.append(Build(orders.job))
        if self.incarnation is None:
            self.incarnation = orders.incarnation
            return [*out, *self._status(now)]
        out += self._learn_partitions(orders.partitions)
        if orders.era != self.era:  # an era is learnt from the master only
            self.era = orders.era
            out += self._drop_all()
        out += self._take_notes(orders, now)
        if orders.lease is not None and orders.lease.task not in self._runs:
            out += self._take(orders.lease.task)
        out += self._evaluations.on_orders(orders, self._count)
        out += self._schedule()
        if now >= self._next_status_s or (orders.lease is not None and self._wants_task()):
            out += self._status(now)
        return out

    def _take_notes(self, orders: WorkerOrders, now: float) -> list[Instruction]:
        """Forget what the master has noted, and begin again what it did not believe."""
        out: list[Instruction] = []
        failed = [task for round_, task in orders.noted_failures if round_ == -1]
        for task in (*orders.noted, *failed):
            out += self._forget(task)
        self._failed = [f for f in self._failed if f.key not in orders.noted_failures]
        for task in orders.again:
            run = self._runs.get(task)
            if run is not None and run.phase is Phase.REPORTING:
                out += [Begin(run.task, run.lane), *self._pull(run)]  # its records were given back
        return out

    # -- partitions

    def _learn_partitions(self, addresses: tuple[PartitionAddress, ...]) -> list[Instruction]:
        moved, out = self._partitions.learn(addresses)
        for index in moved:  # whoever waits for it begins again
            for run in self._runs.values():
                if run.phase in (Phase.PULLING, Phase.PUSHING) and index not in run.answers:
                    out += self._pull(run)
        if moved:
            out += self._evaluations.repeat_pulls()
        return out + (self._partitions.initialise() if self._is_built else [])

    def on_built(self, now: float) -> list[Instruction]:
        """The model is built from the job's seed."""
        self._is_built = True
        return [*self._partitions.initialise(), *self._status(now)]

    def on_fatal(self, failure: Failure, now: float) -> list[Instruction]:
        """Something that no other attempt can mend: the master ends the job."""
        self._failure = self._failure or failure
        return self._status(now)

    def _ask(self, index: int, key: Hashable, body: Message) -> AskPartition:
        return AskPartition(index, self._partitions.endpoint(index), key, body)

    def on_answer(
        self, index: int, key: Hashable, answer: Message | EdlzError, now: float
    ) -> list[Instruction]:
        """A partition's answer, or the error that it answered with."""
        assert isinstance(key, tuple)
        if isinstance(answer, EdlzError):  # this worker broke the protocol, or cannot be understood
            failure = Failure(code=answer.code, message=answer.message, help=answer.help)
            return self.on_fatal(failure, now)
        if key[0] == "initialise":
            self._partitions.on_answer(index, key[1], has_taken=isinstance(answer, Initialised))
            return self._status(now) if self._is_ready else []
        if key[0] == "newest":
            return self._evaluations.on_answer(index, key[1], key[2], answer, now)
        _, task, attempt, wanted = key
        run = self._runs.get(task)
        if run is None or run.attempt != attempt:
            return []
        if isinstance(answer, Refused):
            return self._on_refused(run, answer, now)
        assert isinstance(answer, Exchanged)
        run.incarnations[index] = answer.incarnation
        if wanted == "ack":
            out = self._on_ack(run, index, now)
        else:
            out = self._on_params(run, index, answer, now)
        return [*out, *self._schedule()]

    # -- leases

    def _take(self, task: int) -> list[Instruction]:
        # Tasks that follow one another share a lane: one stream of records serves them.
        is_later = self.plan.is_later_round if self.plan.is_sync else lambda task, than: True
        used = {run.lane for run in self._runs.values() if not is_later(task, run.task)}
        lane = next(lane for lane in itertools.count() if lane not in used)
        self._runs[task] = Run(task, next(self._attempts), lane)
        return [Begin(task, lane)]

    def _forget(self, task: int) -> list[Instruction]:
        run = self._runs.pop(task, None)
        if run is None:
            return []
        if run.phase is Phase.COMPUTING:
            self._busy = None
        return [Drop(task)]

    def _drop_all(self) -> list[Instruction]:
        out: list[Instruction] = [Drop(task) for task in self._runs]
        self._runs, self._parts, self._busy = {}, {}, None
        return out

    # -- scheduling

    def _schedule(self) -> list[Instruction]:
        """Begin what can begin: a queued run, a computation, a pull nobody else will send."""
        if not self._is_ready:
            return []
        out: list[Instruction] = []
        if self.plan.is_sync:
            out += self._begin_round()
            out += self._pull_for_staged()
        else:
            out += self._begin_next()
        return out + self._start_computing()

    def _begin_round(self) -> list[Instruction]:
        """Sync: begin the queued runs of the earliest round that this worker has in hand."""
        open_runs = [r for r in self._runs.values() if r.phase is not Phase.REPORTING]
        if not open_runs:
            return []
        earliest = self.plan.round_tasks(min(run.task for run in open_runs))
        out: list[Instruction] = []
        for run in open_runs:
            if run.phase is Phase.QUEUED and run.task in earliest:
                out += self._pull(run)
        return out

    def _begin_next(self) -> list[Instruction]:
        """Async: one run at a time."""
        if any(r.phase not in (Phase.QUEUED, Phase.REPORTING) for r in self._runs.values()):
            return []
        for run in self._runs.values():
            if run.phase is Phase.QUEUED:
                return self._pull(run)
        return []

    def _pull_for_staged(self) -> list[Instruction]:
        """Sync: a staged run whose step no other run of this worker will see committed asks itself."""
        out: list[Instruction] = []
        drivers = (Phase.READY, Phase.COMPUTING, Phase.PULLING, Phase.PUSHING)
        for run in self._runs.values():
            if run.phase is not Phase.STAGED:
                continue
            has_driver = any(
                other.phase in drivers
                and other.version == run.version
                and self.plan.is_same_round(other.task, run.task)
                for other in self._runs.values()
            )
            if not has_driver:
                run.index += 1
                out += self._pull(run)
        return out

    def _start_computing(self) -> list[Instruction]:
        if self._busy is not None:
            return []
        out: list[Instruction] = []
        for run in sorted(self._runs.values(), key=lambda run: run.task):
            if run.phase is not Phase.READY:
                continue
            parts = [self._parts.get(p) for p in range(self._count)]
            held = tuple(part for part in parts if part is not None)
            is_other_step = self.plan.is_sync and any(part.version != run.version for part in held)
            if len(held) < self._count or is_other_step:
                out += self._pull(run)  # the parameters in hand are of another step meanwhile
                continue
            run.phase, self._busy = Phase.COMPUTING, run.task
            return [*out, Compute(run.task, run.index, run.attempt, run.version, held)]
        return out

    # -- one task

    def _pull(self, run: Run) -> list[Instruction]:
        """Ask every partition where it stands with this task, for what this worker lacks."""
        if run.phase is Phase.COMPUTING:
            self._busy = None
        run.begin_pull(next(self._attempts))
        return [self._pull_from(run, p, None) for p in range(self._count)]

    def _pull_from(self, run: Run, index: int, version: int | None, push: Push | None = None) -> AskPartition:
        part = self._parts.get(index)
        pull = Pull(
            task=run.task,
            index=run.index + (1 if push else 0),
            version=version,
            have_version=part.version if part else ANY_VERSION,
        )
        body = Exchange(
            era=self.era,
            incarnation=part.incarnation if part else None,
            version=run.version,
            push=push,
            pull=pull,
        )
        return self._ask(index, ("run", run.task, run.attempt, "params"), body)

    def _back_off(self, run: Run, now: float) -> list[Instruction]:
        """Abandon what is under way; the run begins again with a pull a little later."""
        if run.phase is Phase.COMPUTING:
            self._busy = None
        run.back_off(next(self._attempts), now)
        return []

    def _on_refused(self, run: Run, refusal: Refused, now: float) -> list[Instruction]:
        if refusal.reason == "era":  # the master will tell the new one, and lease again
            return [*self._forget(run.task), *self._status(now), *self._schedule()]
        if refusal.reason != "not ready":
            run.index = 0
        for p, part in list(self._parts.items()):
            if not self._partitions.is_life(p, part.incarnation):
                del self._parts[p]
        return self._back_off(run, now)

    def _on_params(self, run: Run, index: int, answer: Exchanged, now: float) -> list[Instruction]:
        if answer.dense is not None:
            self._parts[index] = answer
        run.answers[index] = answer
        if len(run.answers) < self._count:
            return []
        if any(p not in self._parts for p in range(self._count)):
            return self._back_off(run, now)  # its values were in hand when it was asked, and are no more
        run.back_off_s = BACK_OFF_S
        return self._on_all_sync(run, now) if self.plan.is_sync else self._on_all_async(run, now)

    def _on_all_async(self, run: Run, now: float) -> list[Instruction]:
        left = [answer.mark for answer in run.answers.values() if not answer.finished]
        if not left:
            return self._finish(run, now)
        run.index, run.phase = min(left), Phase.READY
        run.version = min(answer.version for answer in run.answers.values())
        return []

    def _on_all_sync(self, run: Run, now: float) -> list[Instruction]:
        version = min(answer.version for answer in run.answers.values())
        ahead = [p for p, answer in run.answers.items() if answer.version > version]
        if ahead:  # they keep the version before, for just this
            for p in ahead:
                del run.answers[p]
            return [self._pull_from(run, p, version) for p in ahead]
        out = self._advance_staged(run, version, now)
        run.snapshot_at = max(answer.snapshot_at for answer in run.answers.values())
        left = [answer.mark for answer in run.answers.values() if not answer.finished]
        if not left:
            return [*out, *self._finish(run, now)]
        run.index, run.version, run.phase = min(left), version, Phase.READY
        return out

    def _advance_staged(self, run: Run, version: int, now: float) -> list[Instruction]:
        """All partitions have reached `version`: this worker's staged slots of older steps are in it."""
        out: list[Instruction] = []
        for other in list(self._runs.values()):
            if other.phase is not Phase.STAGED or other.version >= version:
                continue
            other.incarnations = dict(run.incarnations)
            if other.is_last:
                out += self._finish(other, now)
                continue
            other.index += 1
            if version == other.version + 1:
                other.version, other.phase = version, Phase.READY
                other.snapshot_at = max(answer.snapshot_at for answer in run.answers.values())
            else:
                out += self._pull(other)
        return out

    def _finish(self, run: Run, now: float) -> list[Instruction]:
        run.phase = Phase.REPORTING
        return [Drop(run.task), *self._status(now)]

    def on_computed(self, task: int, attempt: int, outcome: Outcome, now: float) -> list[Instruction]:
        """A gradient is there: push it to all partitions."""
        run = self._runs.get(task)
        if run is None or run.attempt != attempt or run.phase is not Phase.COMPUTING:
            return self._schedule()  # abandoned meanwhile
        self._busy = None
        self.steps += 1
        run.is_last, run.acks, run.answers = outcome.is_last, set(), {}
        pushes = [msgspec.structs.replace(push, snapshot_at=run.snapshot_at) for push in outcome.pushes]
        has_more_slots = self.plan.is_sync and any(
            other.phase is Phase.READY
            and other.version == run.version
            and self.plan.is_same_round(other.task, run.task)
            for other in self._runs.values()
        )
        out: list[Instruction] = []
        if has_more_slots or (not self.plan.is_sync and outcome.is_last):
            run.phase = Phase.PUSHING
            for p, push in enumerate(pushes):
                life = self._parts[p].incarnation
                body = Exchange(era=self.era, incarnation=life, version=run.version, push=push)
                out.append(self._ask(p, ("run", task, run.attempt, "ack"), body))
        else:
            run.phase = Phase.PULLING
            out += [self._pull_from(run, p, None, push) for p, push in enumerate(pushes)]
        return [*out, *self._schedule()]

    def _on_ack(self, run: Run, index: int, now: float) -> list[Instruction]:
        run.acks.add(index)
        if len(run.acks) < self._count or run.phase is not Phase.PUSHING:
            return []
        if self.plan.is_sync:
            run.phase = Phase.STAGED
            return []
        return self._finish(run, now)  # async: its last minibatch is applied everywhere

    def on_failed(self, task: int, attempt: int, failed: FailedTask, now: float) -> list[Instruction]:
        """The user's code raised on this task's records."""
        run = self._runs.get(task)
        if run is None or run.attempt != attempt:
            return self._schedule()
        self._failed.append(failed)
        return [*self._forget(task), *self._status(now), *self._schedule()]

    # -- evaluation

    def on_evaluated(self, done: DoneEvaluation, now: float) -> list[Instruction]:
        """The metric state of an evaluation task is there."""
        self._evaluations.on_evaluated(done)
        return self._status(now)

    def on_evaluation_failed(self, failed: FailedTask, now: float) -> list[Instruction]:
        """The user's code raised on this evaluation task's records."""
        self._evaluations.on_failed((failed.round, failed.task))
        self._failed.append(failed)
        return self._status(now)

    def on_concluded(self, result: EvaluationResult, now: float) -> list[Instruction]:
        """A round's metrics are computed."""
        self._evaluations.on_concluded(result)
        return self._status(now)

    # -- checks

    def check_invariants(self) -> None:
        computing = [run.task for run in self._runs.values() if run.phase is Phase.COMPUTING]
        assert len(computing) <= 1, f"computing {computing} at once"
        assert not computing or computing[0] == self._busy, f"busy with {self._busy}, computing {computing}"
