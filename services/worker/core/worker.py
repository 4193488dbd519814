"""The core of a worker: its life with the master, and what it has in hand for it.

Theory of operation.  A worker joins, builds the model, makes itself known to every partition, and then asks
for work.  Its statuses say what it holds and what it has done; the master's answers say what it should
have.  Training tasks are `Training`'s affair, evaluation tasks `Evaluations'`, the export of the finished model `Exports'`.  PROTOCOL: section 3.
"""

from collections.abc import Callable, Hashable

import msgspec

from edlz.services.configuration.job_settings import JobSettings
from edlz.services.errors import EdlzError, RemoteProtocolError
from edlz.services.parameters.store import Store
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    NO_IDENTITY,
    DoneEvaluation,
    Exchanged,
    FailedTask,
    Failure,
    Identity,
    Initialised,
    Job,
    Lease,
    NewestPull,
    PartitionAddress,
    Refused,
    RowIds,
    WorkerOrders,
    WorkerStatus,
    WorkerTelemetry,
)
from edlz.services.protocol.plan import Plan
from edlz.services.worker.core.evaluations import Evaluations
from edlz.services.worker.core.exports import Exports
from edlz.services.worker.core.groups import inputs as groups
from edlz.services.worker.core.heartbeat import Heartbeat
from edlz.services.worker.core.held_tasks import Phase
from edlz.services.worker.core.inputs import (
    Answered,
    Concluded,
    Evaluated,
    EvaluationFailed,
    EvaluationIdsFound,
    Exported,
    ExportFailed,
    ExportWished,
    Fatal,
    IdsFound,
    Input,
    MinibatchComputed,
    ModelBuilt,
    OfGroup,
    Ordered,
    OutputsComputed,
    RareInput,
    TaskFailed,
    Tick,
)
from edlz.services.worker.core.instructions import AskMaster, AskPartition, Build, Exit, Instruction, Outcome
from edlz.services.worker.core.member import MemberTraining
from edlz.services.worker.core.nonfinite_losses import NonFiniteLosses, is_nonfinite
from edlz.services.worker.core.order_check import check_orders
from edlz.services.worker.core.partition_directory import PartitionDirectory
from edlz.services.worker.core.requests import Requests
from edlz.services.worker.core.training import Training
from edlz.services.worker.core.training_choice import member_training, training_with_servers

__all__ = ["WorkerCore"]

_NOT_BUILT = ModelBuilt(has_tables=False, callbacks=None, stops_on_nan=False, computes_ahead=False)


class WorkerCore:
    """A worker's decisions.

    Parameters
    ----------
    worker : str
        Its id.
    boot : int
        A random number that tells this process from the ones before it.
    telemetry : callable, optional
        Figures for display.
    pace : callable, optional
        What `Pace.told` says.
    """

    def __init__(
        self,
        worker: str,
        boot: int,
        telemetry: Callable[[], WorkerTelemetry] = WorkerTelemetry,
        pace: Callable[[], tuple[float, float, bool]] = lambda: (0.0, 0.0, False),
    ) -> None:
        self.worker, self.boot = worker, boot
        self.job: Job | None = None
        self._settings: JobSettings | None = None  # the job's
        self.incarnation: Identity | None = None
        self.term = 0
        self._telemetry, self._pace = telemetry, pace
        self._heartbeat = Heartbeat()
        self._exports = Exports()
        self._training: Training | None = None  # as soon as the model is built
        self._failure: Failure | None = None
        self._model = _NOT_BUILT  # without the state that the job begins with
        self._losses = NonFiniteLosses()
        self._member: MemberTraining | None = None  # the same as `_training`, in an all-reduce job
        self._partitions = PartitionDirectory()
        self._evaluations = Evaluations(self._partitions, self._ask)
        self._address_list: Identity = NO_IDENTITY  # the master's list that they were learnt from

    @property
    def plan(self) -> Plan:
        assert self.job is not None
        return self.job.plan

    @property
    def settings(self) -> JobSettings:
        assert self._settings is not None
        return self._settings

    @property
    def era(self) -> Identity:
        return self._training.era if self._training else NO_IDENTITY

    @property
    def replica(self) -> Store:
        """The whole state that this worker holds as a member of an all-reduce group."""
        assert self._member is not None, "this worker is no member"
        assert self._member.replica.store is not None, "the model is not built"
        return self._member.replica.store

    @property
    def phases(self) -> dict[int, Phase]:
        """Where each training task in hand stands."""
        return self._training.phases if self._training else {}

    # -- inputs

    def feed(self, event: Input, now: float) -> list[Instruction]:
        """Take an input; return what is to be done, in this order.

        Raises
        ------
        RemoteProtocolError
            If an answer does not fit this worker's job; it is ignored.
        """
        out = self._on(event, now)
        return out if self._member is None else self._with_answers(out, self._member, now)

    def _on(self, event: Input, now: float) -> list[Instruction]:
        match event:
            case Answered():
                return self._on_answer(event.index, event.key, event.answer, now)
            case MinibatchComputed():
                return self._on_computed(event.task, event.attempt, event.outcome, now)
            case IdsFound():
                return self._on_ids(event.task, event.index, event.attempt, event.ids)
            case Tick():
                return self._on_tick(now)
            case Ordered(orders):
                return self._on_orders(orders, now)
            case OfGroup(of_group):
                return self._on_group(of_group, now)
            case _:
                return self._on_rare(event, now)

    def _on_rare(self, event: RareInput, now: float) -> list[Instruction]:
        """Take an input that does not come with each minibatch."""
        match event:
            case ExportWished(wish):
                self._exports.wish = wish
                return []
            case ModelBuilt():
                return self._on_built(event, now)
            case Fatal(failure):
                return self._on_fatal(failure, now)
            case TaskFailed():
                return self._on_failed(event.task, event.attempt, event.failed, now)
            case EvaluationIdsFound(key, ids):
                return self._evaluations.on_ids(key, ids)
            case OutputsComputed(key):
                return self._on_outputs(key, now)
            case Evaluated(done):
                return self._on_evaluated(done, now)
            case EvaluationFailed(failed):
                return self._on_evaluation_failed(failed, now)
            case Concluded(result):
                self._evaluations.on_concluded(result)
                return [*self._status(now), *self._schedule()]
            case Exported(report):
                self._exports.on_exported(report)
                return self._status(now)
            case ExportFailed(failure):
                self._exports.on_failed(failure)
                return self._status(now)

    # -- time and the master

    def _on_tick(self, now: float) -> list[Instruction]:
        out = self._training.on_tick(now) if self._training else []
        out += self._evaluations.on_tick(now)
        out += self._schedule()
        out += self._on_group(groups.Tick(), now)
        is_waiting = self._wants_task() and not self._ready_training.is_busy
        is_near = self._member is not None and self._member.is_waiting
        if self._heartbeat.is_due(now, has_room=is_waiting, is_near=is_near):
            out += self._status(now)
        return out

    def _status(self, now: float) -> list[Instruction]:
        """A status, unless one is under way: its answer will be followed by another."""
        if not self._heartbeat.begin(now, is_idle=self._is_idle):
            return []
        return [AskMaster(self._told(now))]

    def _told(self, now: float) -> WorkerStatus:
        """What the master is told."""
        training, (busy_s, longest_s, is_starting) = self._training, self._pace()
        return WorkerStatus(
            worker=self.worker,
            boot=self.boot,
            incarnation=self.incarnation,
            seq=self._heartbeat.count,
            era=self.era,
            holding=training.holding if training else (),
            evaluating=self._evaluations.holding,
            done=training.done if training else (),
            evaluated=self._evaluations.done,
            results=self._evaluations.results,
            failed=training.failed if training else (),
            failure=self._failure,
            wants_task=self._wants_task(),
            wants_evaluation=self._is_ready and self._evaluations.wants_lease and not self._exports.is_busy,
            telemetry=self._telemetry(),
            steps=training.steps if training else 0,
            busy_s=busy_s,
            longest_s=longest_s,
            is_starting=is_starting,
            is_waiting=training.is_waiting if training else False,
            address_list=self._address_list,
            run=self.job.run if self.job is not None else "",
            **self._losses.told,
            export_wish=self._exports.wish,
            exporting=self._exports.holding,
            exported=self._exports.report,
            failed_export=self._exports.failed,
            callbacks=self._model.callbacks,
            can_wait=self._heartbeat.was_idle,
            rounds=self._evaluations.rounds,
            computes_ahead=self._model.computes_ahead,
            barred=training.barred if training else (),
            member=None if self._member is None else self._member.replica.status(now),
            member_endpoint=self._model.endpoint,
            sees_job_dir=self._model.sees_job_dir,
        )

    @property
    def _is_ready(self) -> bool:
        if self._member is not None:
            return self._member.is_member
        return self._training is not None and self._partitions.are_ready

    @property
    def _ready_training(self) -> Training:
        assert self._training is not None, "the model is not built"
        return self._training

    def _wants_task(self) -> bool:
        is_free = self._failure is None and not self._exports.is_busy
        return self._is_ready and is_free and self._ready_training.wants_task

    @property
    def _is_idle(self) -> bool:
        """Whether it wants work, or orders of its group, and has nothing to do or to report: then the master may answer later."""
        if self._member is not None:
            is_free = self._failure is None and not self._exports.is_busy
            return self._member.is_idle and is_free and self._evaluations.is_idle
        return self._wants_task() and self._ready_training.is_idle and self._evaluations.is_idle

    def _schedule(self) -> list[Instruction]:
        is_evaluating = self._evaluations.is_busy
        return self._ready_training.schedule(is_evaluating=is_evaluating) if self._is_ready else []

    def _on_orders(self, orders: WorkerOrders, now: float) -> list[Instruction]:
        self._heartbeat.on_answer()
        if orders.term < self.term:  # of a master that has a successor: whatever it says may be revoked
            return []
        check_orders(orders, self.job, self._partitions.known)
        self.term = orders.term
        if orders.finished:
            return [Exit("the job is finished")]
        if orders.stop:
            return [Exit("the master said stop", 1 if self._failure else 0)]
        out: list[Instruction] = []
        if orders.job is not None and self.job is None:
            self._take_job(orders.job)
            out.append(Build(orders.job, orders.check))
        if self.incarnation is None:  # a welcome, which has no work: who has no life yet cannot hold a lease
            self.incarnation = orders.incarnation
            return [*out, *self._status(now)]
        self._address_list = orders.address_list
        out += self._learn_partitions(orders.partitions)
        if self._training is not None:
            out += self._work_on(self._training, orders, now)
        if orders.group is not None:
            out += self._on_group(groups.MemberOrdered(orders.group), now)
        out += self._evaluations.on_orders(orders, self._partitions.count)
        out += self._exports.on_orders(orders)
        out += self._schedule()
        # After a lease at once, if there is room for more: one answer brings one task.
        wants_another = (orders.lease is not None and self._wants_task()) or (
            orders.evaluation is not None and self._evaluations.wants_lease
        )
        if wants_another or self._heartbeat.goes_on(now, is_idle=self._is_idle):
            out += self._status(now)
        return out

    def _take_job(self, job: Job) -> None:
        settings = JobSettings.of(job.config)  # raises before anything has changed
        self.job, self._settings, self._partitions.count = job, settings, job.partitions

    def _work_on(self, training: Training, orders: WorkerOrders, now: float) -> list[Instruction]:
        """Forget what the master has noted, begin again what it did not believe, take what it leases."""
        out: list[Instruction] = []
        if orders.era != training.era:  # an era is learnt from the master only
            out += training.enter(orders.era)
        failed = [task for round_, task in orders.noted_failures if round_ == -1]  # not evaluation's
        out += training.forget((*orders.noted, *failed))
        training.note_failures(orders.noted_failures)
        for task in orders.again:
            out += training.begin_again(task)
        out += training.end(orders.ends)
        for lease in orders.released:
            out += self._release(training, lease, now)
        if orders.lease is not None:
            out += training.take(orders.lease, dict(orders.ends).get(orders.lease.task))
        return out

    def _release(self, training: Training, lease: Lease, now: float) -> list[Instruction]:
        """The barrier before a task in hand is passed: what was held back of it counts now."""
        attempt, result, out = training.release(lease.task, lease.learning_rate)
        if isinstance(result, Outcome):
            out += self._on_computed(lease.task, attempt, result, now)
        elif result is not None:
            out += self._on_failed(lease.task, attempt, result, now)
        return out

    # -- partitions

    def _learn_partitions(self, addresses: tuple[PartitionAddress, ...]) -> list[Instruction]:
        moved, out = self._partitions.learn(addresses)
        if moved:
            out += self._training.on_moved(moved) if self._training else []
            out += self._evaluations.repeat_pulls()
        return out + (self._partitions.initialise() if self._training else [])

    def _on_built(self, built: ModelBuilt, now: float) -> list[Instruction]:
        assert self.job is not None
        self._model, settings = msgspec.structs.replace(built, base=None), self.settings
        self._losses.ends_job = built.stops_on_nan or settings.stop_on_nan
        requests = Requests(self.plan, self._partitions, settings.get_model_steps, self._ask, self.job.run)
        about = (self._partitions, requests, self._status)
        self._evaluations.has_tables, self._evaluations.run = built.has_tables, self.job.run
        if built.base is None:
            self._training = training_with_servers(built, self.plan, settings, about)
            return [*self._partitions.initialise(), *self._status(now)]
        assert self.incarnation is not None, "the model is built before the job is told"
        self._member = member_training(built, self.plan, settings, self.incarnation, about)
        self._training = self._member
        return self._member.feed(groups.Built(built.base), now)

    # -- the group

    def _on_group(self, event: groups.Input, now: float) -> list[Instruction]:
        if self._member is None:
            return []
        if isinstance(event, groups.SlotComputed) and is_nonfinite(event.header.loss):
            header = event.header
            failed = self._losses.note(header.task, header.index, event.attempt, event.header.loss)
            if failed is None:
                return [*self._member.feed(event, now), *self._first_loss(now)]
            self._member.end_job(failed)  # the step waits, as for any minibatch that raises
            event = groups.SlotFailed(event.attempt, header.task, header.index, failed.error, failed)
        return self._member.feed(event, now)

    def _with_answers(self, out: list[Instruction], member: MemberTraining, now: float) -> list[Instruction]:
        """What the one partition is asked for evaluations, the replica answers at once."""
        found: list[Instruction] = []
        for one in out:
            if isinstance(one, AskPartition):
                assert isinstance(one.body, NewestPull), "a member asks no partition but for evaluations"
                answered = self._on_answer(one.index, one.key, member.newest(one.body), now)
                found += self._with_answers(answered, member, now)
            else:
                found.append(one)
        return found

    def _on_fatal(self, failure: Failure, now: float) -> list[Instruction]:
        self._failure = self._failure or failure
        return self._status(now)

    def _ask(self, index: int, key: Hashable, body: Message) -> AskPartition:
        return AskPartition(index, self._partitions.endpoint(index), key, body)

    def _on_answer(
        self, index: int, key: Hashable, answer: Message | EdlzError, now: float
    ) -> list[Instruction]:
        assert isinstance(key, tuple)
        if isinstance(answer, EdlzError):  # this worker broke the protocol, or cannot be understood
            failure = Failure(code=answer.code, message=answer.message, help=answer.help)
            return self._on_fatal(failure, now)
        fitting = Initialised if key[0] == "initialise" else Exchanged
        if not isinstance(answer, fitting | Refused):
            raise RemoteProtocolError(
                f"ps-{index} answered {type(answer).__name__} where {fitting.__name__} was due"
            )
        if key[0] == "initialise":
            self._partitions.on_answer(index, key[1], has_taken=isinstance(answer, Initialised))
            return self._status(now) if self._is_ready else []
        if key[0] == "newest":
            return self._evaluations.on_answer(index, key[1], key[2], answer, now)
        return [*self._ready_training.on_answer(index, key[1:], answer, now), *self._schedule()]

    # -- training

    def _on_ids(
        self, task: int, index: int, attempt: int, ids: tuple[RowIds, ...] | None
    ) -> list[Instruction]:
        return [*self._ready_training.on_ids(task, index, attempt, ids), *self._schedule()]

    def _on_computed(self, task: int, attempt: int, outcome: Outcome, now: float) -> list[Instruction]:
        if self._ready_training.holds_back(task, attempt, outcome):
            return self._on_held_back(now)
        if is_nonfinite(outcome.loss) and self._ready_training.takes(task, attempt):
            return self._on_nonfinite(task, attempt, outcome, outcome.loss, now)
        return [*self._ready_training.on_computed(task, attempt, outcome, now), *self._schedule()]

    def _on_nonfinite(
        self, task: int, attempt: int, outcome: Outcome, loss: float, now: float
    ) -> list[Instruction]:
        """The gradient of a loss that is NaN or infinite: tell of it, and push it unless the job is to end there."""
        failed = self._losses.note(task, outcome.pushes[0].index, attempt, loss)  # the same index in all
        if failed is not None:
            return self._on_failed(task, attempt, failed, now)
        out = self._ready_training.on_computed(task, attempt, outcome, now)
        return [*out, *self._schedule(), *self._first_loss(now)]

    def _first_loss(self, now: float) -> list[Instruction]:
        """Tell at once of the first loss that is not finite: others may have one soon."""
        return self._status(now) if self._losses.count == 1 else []

    def _on_held_back(self, now: float) -> list[Instruction]:
        """What has come of a minibatch is kept until its barrier is passed; that is heard of at once by who says that it waits."""
        return [*self._schedule(), *(self._status(now) if self._is_idle else [])]

    def _on_failed(self, task: int, attempt: int, failed: FailedTask, now: float) -> list[Instruction]:
        if self._ready_training.holds_back(task, attempt, failed):
            return self._on_held_back(now)
        return [*self._ready_training.on_failed(task, attempt, failed, now), *self._schedule()]

    # -- evaluation

    def _on_outputs(self, key: tuple[int, int], now: float) -> list[Instruction]:
        self._ready_training.on_evaluating()
        self._evaluations.on_writing(key)
        return self._status(now) if self._evaluations.wants_lease else []

    def _on_evaluated(self, done: DoneEvaluation, now: float) -> list[Instruction]:
        self._ready_training.on_evaluating()
        self._evaluations.on_evaluated(done)
        # While another task is computed, the report goes with the wish for the one after that.
        return [] if self.plan.gives_parts and not self._evaluations.wants_lease else self._status(now)

    def _on_evaluation_failed(self, failed: FailedTask, now: float) -> list[Instruction]:
        self._evaluations.on_failed((failed.round, failed.task))
        self._ready_training.note_failed(failed)
        return self._status(now)

    # -- checks

    def check_invariants(self) -> None:
        if self._training is not None:
            self._training.check_invariants()
