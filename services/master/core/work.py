"""The core of a job's work: tasks to train on, rounds of evaluation, the export; who has what of it in hand.

Theory of operation.  While the work is *open*, workers get leases and what they report is taken.  It opens when all
partitions are known (synchronous: in one era), and begins with what their ledgers say is done; when a synchronous
job has to go back it is closed until they stand together again.  A report counts only if it speaks of the partitions'
present lives.  A task that fails too often is left out, or ends the job; so does one that ends its workers.
"""

from collections.abc import Sequence
from dataclasses import replace

from edlz.services.configuration.job_settings import JobSettings
from edlz.services.master.core.barriers import Barriers
from edlz.services.master.core.checkpoints import Checkpoints
from edlz.services.master.core.exports import Exports
from edlz.services.master.core.growth import Growth
from edlz.services.master.core.predictions import Predictions
from edlz.services.master.core.processes.eras import Eras
from edlz.services.master.core.processes.live_workers import LiveWorkers
from edlz.services.master.core.processes.partitions import Partitions
from edlz.services.master.core.tasks.bad_tasks import BadTasks
from edlz.services.master.core.tasks.deadly_slots import DeadlySlots
from edlz.services.master.core.tasks.deadly_tasks import DeadlyTasks
from edlz.services.master.core.tasks.evaluation_rounds import EvaluationRounds
from edlz.services.master.core.tasks.nonfinite_losses import NonFiniteLosses
from edlz.services.master.core.tasks.task_failures import (
    Attempts,
    death_text,
    failure_of_loss,
    failure_of_task,
)
from edlz.services.master.core.tasks.task_queue import TaskQueue
from edlz.services.master.core.vocabulary.instructions import Announce, Instruction, Journal
from edlz.services.master.core.vocabulary.records import Added, JournalState, PartitionEntry, WorkerEntry
from edlz.services.master.core.vocabulary.verdict import Verdict
from edlz.services.protocol.ledger import TaskSet
from edlz.services.protocol.messages import (
    Conclusion,
    DoneTask,
    EvaluationLease,
    EvaluationResult,
    ExportLease,
    FailedTask,
    Identity,
    Job,
    Lease,
    PartitionStatus,
    WorkerStatus,
)

__all__ = ["Work"]


class Work:
    """The work of one job.

    Parameters
    ----------
    job : Job
    settings : JobSettings
    journal : JournalState
        What earlier masters left.
    cores : Partitions, Eras, Checkpoints, LiveWorkers, Verdict
        What reports are compared with, and what leases depend on; the last is told what ends the job.
    evaluation_steps, checkpoint_steps : int
        Model versions between rounds of evaluation and between checkpoints; 0 for none but the last.

    Attributes
    ----------
    queue, evaluation, exports : TaskQueue, EvaluationRounds, Exports
        What can be leased.
    bad_tasks, deadly_tasks, losses, predictions : BadTasks, DeadlyTasks, NonFiniteLosses, Predictions
    barriers, growth : Barriers, Growth
    results : list of (int, dict)
        Versions that were evaluated, with their metrics.
    is_open : bool
        Whether leases go out, and reports count.
    """

    def __init__(
        self,
        job: Job,
        settings: JobSettings,
        journal: JournalState,
        cores: tuple[Partitions, Eras, Checkpoints, LiveWorkers, Verdict],
        evaluation_steps: int,
        checkpoint_steps: int,
    ) -> None:
        self._job, self._plan, self._settings = job, job.plan, settings
        self._partitions, self._eras, self._checkpoints, self._live, self._verdict = cores
        plan, first_number = job.plan, ((journal.term + 1) << 20) + 1
        self.queue = TaskQueue(plan)
        self.evaluation = EvaluationRounds(plan, evaluation_steps, first_number=first_number)
        told = (self.queue, self.evaluation)
        self.bad_tasks = BadTasks(plan, journal, *told, first_number, is_allowed=settings.skip_bad_tasks)
        self._skipped_before = self._skipped  # by earlier masters
        self.losses = NonFiniteLosses.of(journal.losses)
        self.deadly_tasks, self._deadly_slots = DeadlyTasks(*told), DeadlySlots()
        self.results = list(journal.evaluations)
        for version, _ in journal.evaluations:
            self.evaluation.skip_to(version)
        self.barriers = Barriers(
            plan,
            evaluation_steps,
            checkpoint_steps,
            journal,
            (*told, self._checkpoints, self.bad_tasks),
            self.results,
            max_steps=settings.max_step,
        )
        has_files = bool(settings.prediction_output) or plan.analyzes
        self.predictions = Predictions(plan, journal, self.evaluation, has_files=has_files)
        self.exports = Exports(job, settings, journal)
        self.growth = Growth(plan, (self.queue, self.barriers, self._checkpoints, self._partitions))
        self.is_open = False
        self._idle_ticks = 0  # so many times nothing was left to do

    # -- what is told

    @property
    def is_all_done(self) -> bool:
        """Whether every task is done, and every barrier passed."""
        return self.queue.is_done and self.barriers.are_passed

    @property
    def achieved(self) -> int:
        """A number that rises from 0 with what is done once and for all, and while nothing is left to do until more data comes."""
        done = self.evaluation.reported + self.exports.reported + self._skipped - self._skipped_before
        return done + self._idle_ticks

    @property
    def _skipped(self) -> int:
        return self.bad_tasks.training_tasks + self.bad_tasks.evaluation_tasks

    @property
    def _is_under_way(self) -> bool:
        return self.is_open and not self._verdict.is_over

    @property
    def waits_for_data(self) -> bool:
        """Whether nothing is left to be trained on, and more data may come."""
        return self._is_under_way and self.queue.has_all

    def on_tick(self) -> None:
        """See whether there is anything to do: who has ended meanwhile has not failed."""
        self._idle_ticks += self.waits_for_data

    # -- the partitions' lives

    def open(self) -> list[Instruction]:
        """All partitions stand together: go on from what they have."""
        self.is_open = True
        done, version = self._partitions.finished(), self._partitions.version
        self.queue.restart(done)
        if self._job.begins_from and not self.results:  # it was trained, and evaluated, elsewhere
            self.evaluation.skip_to(version)
        what, count = "training", len(done)
        if not self._plan.is_training:
            what, count = self._plan.other_work, self.evaluation.final_tasks
        begins = Announce("job", f"{what} begins at v{version}, {count} tasks done.")
        return [begins, *self.barriers.on_running(self._partitions.sorted)]

    def close(self) -> None:
        """The partitions have to go back first."""
        self.is_open = False
        self.growth.on_closed()
        self._evaluate_again()

    def on_new_life(self, entry: PartitionEntry) -> None:
        """A partition has begun a life: what its ledger lacks is to be done again."""
        done = len(self.queue.done)
        if self._plan.is_sync:
            self._eras.on_new_life()
        else:
            self.queue.keep(entry.finished)
            self.queue.see(entry.ledger)
        self._evaluate_again(is_another=len(self.queue.done) < done)

    def get_on(self, status: PartitionStatus, begun_at: int) -> None:
        """A group that has begun at this version says where it is."""
        ledger = status.ledger
        if ledger is not None:
            finished, marks = TaskSet(ledger.finished), dict(ledger.marks)
            self._deadly_slots.get_on(begun_at, status.version, finished, marks)

    def follow(self, finished: TaskSet, *, is_back: bool, now: float) -> list[Instruction]:
        """A group of members has a ledger that is longer; or (`is_back`) it has gone back to another one."""
        if not self.is_open:
            return []
        if is_back:
            self.queue.restart(TaskSet(finished.bounds))
            # What callbacks have decided stays, and so does what they were shown.
            self.evaluation.begin_again(is_another=not self.barriers.are_used)
            self.barriers.begin_again(is_another=True)
            return []
        out: list[Instruction] = []
        for task in finished:
            if task not in self.queue.done:
                self.queue.finish(task, now)
                out.append(self._completed(task))
        return out

    def _completed(self, task: int) -> Announce:
        remaining = self.queue.task_count - len(self.queue.done)
        return Announce("task", f"Task:{task} completed, {remaining} remaining tasks", 10)

    def give_up(self, attempts: Attempts) -> list[Instruction]:
        """A task has failed as often as it may in the hands of members."""
        return self._take_attempts(attempts)

    def _evaluate_again(self, *, is_another: bool = False) -> None:
        """The model goes back; `is_another`: it will be another one at the same version."""
        self.evaluation.begin_again(is_another=is_another)
        self.barriers.begin_again()

    # -- reports

    def take_reports(
        self, status: WorkerStatus, out: list[Instruction], now: float
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Take what a worker has done; return the tasks that are noted, and those that are to be reported again."""
        if status.callbacks is not None and not self._verdict.is_over:
            known = self._partitions.sorted if self.is_open else None
            out += self.barriers.learn(status.callbacks, known)
        noted, again = self._take_tasks(status.done if self.is_open else (), out, now)
        for done in status.evaluated:
            if self.evaluation.report(done):
                self.predictions.take(done)
        for result in status.results:
            out += self._take_result(result)
        return noted, again

    def _take_tasks(
        self, reports: Sequence[DoneTask], out: list[Instruction], now: float
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        noted, again = [], []
        for done in reports:
            if not self._is_true(done):
                again.append(done.task)
                continue
            if done.task not in self.queue.done:
                self.queue.finish(done.task, now)
                out.append(self._completed(done.task))
            noted.append(done.task)
        return tuple(noted), tuple(again)

    def _is_true(self, done: DoneTask) -> bool:
        """Whether the report speaks of the partitions' present lives; otherwise what it says may be lost."""
        if not 0 <= done.task < self._plan.task_count:
            return False
        if self._plan.is_sync:
            return done.era == self._eras.newest
        return done.incarnations == self._partitions.incarnations

    def _take_result(self, result: EvaluationResult) -> list[Instruction]:
        finished = self.evaluation.conclude(result)
        if finished is None:
            return []
        if finished.decision is not None:
            return self.barriers.conclude(finished)
        values = ((finished.version, finished.metrics),)
        self.results += values
        return [
            Journal({}, {"evaluations": Added(len(self.results) - 1, values)}),
            Announce("evaluation", f"Evaluation metrics[v={finished.version}]: {finished.metrics}"),
        ]

    def take_failures(self, status: WorkerStatus, out: list[Instruction]) -> tuple[tuple[int, int], ...]:
        """Take the attempts that have failed; return which are noted."""
        noted = []
        for failed in status.failed:
            noted.append(failed.key)
            if self.bad_tasks.is_known(failed):
                continue
            if failed.ends_job:
                loss = failure_of_loss(self._job, failed, is_flag=self._settings.stop_on_nan)
                out += self._verdict.fail(loss)
                continue
            book = self.queue if failed.kind == "training" else self.evaluation
            out += self._take_attempts(book.fail(status.worker, status.boot, failed))
        return tuple(noted)

    def _take_attempts(self, attempts: Attempts | None) -> list[Instruction]:
        """A task has failed as often as it may: leave it out, or end the job."""
        return [] if not attempts or self.bad_tasks.take(attempts) else self.fail_for(attempts)

    def fail_for(self, attempts: Attempts) -> list[Instruction]:
        """A task that always fails ends the job."""
        failure = failure_of_task(self._job, attempts, skips=self._settings.skip_bad_tasks)
        return [*self._verdict.fail(failure)]

    def take_export(self, status: WorkerStatus, now: float) -> tuple[str, list[Instruction]]:
        """Take what a worker says of the export; return the digest of the model that is noted with it."""
        assert status.incarnation is not None
        out = self.exports.on_wish(status.export_wish)
        if status.exported is not None:
            out += [] if self._verdict.is_over else self.exports.take(status.exported)
            return status.exported.digest, out
        if status.failed_export is not None:
            failure = self.exports.fail(status.incarnation, status.failed_export, now)
            out += [] if failure is None else self._verdict.fail(failure)
            return status.failed_export.digest, out
        self.exports.note(status.incarnation, status.exporting)
        return "", out

    def reconcile(self, status: WorkerStatus, entry: WorkerEntry | None, now: float) -> None:
        """A worker's leases are what it says it holds; `entry`: its word before."""
        assert status.incarnation is not None
        has_progress = entry is not None and status.steps > entry.steps
        self.queue.reconcile(status, has_progress=has_progress, now=now)
        self.evaluation.reconcile(status.incarnation, status.evaluating)

    def has_news(self, status: WorkerStatus) -> bool:
        """Whether what a worker reports may take the job further; else only what partitions say does."""
        has_predicted = self._plan.gives_parts and status.evaluated and self.evaluation.is_idle
        is_held = not self.barriers.are_passed  # then callbacks may be waited for
        return (self.queue.is_done or is_held) and bool(status.done or status.results or has_predicted)

    # -- leases

    @property
    def stands_at(self) -> int:
        """Sync: the version at which all partitions stand, at a barrier or for want of data; 0 if they do not."""
        return self.barriers.stands_at or self.growth.stands_at

    def lease_of(self, task: int) -> Lease:
        """Return a task's lease, by what is known of the barriers now."""
        rate, records = self.barriers.learning_rate(task), self.growth.records_of(task)
        return Lease(task=task, learning_rate=rate, is_barred=self.queue.is_barred(task), records=records)

    def released(self, status: WorkerStatus) -> tuple[Lease, ...]:
        """Return the leases of a worker's barred tasks whose barrier is passed."""
        return tuple(self.lease_of(task) for task in status.barred if not self.queue.is_barred(task))

    def cut_off(self, status: WorkerStatus) -> tuple[int, ...]:
        """Return the tasks in a worker's hand that the job has no more: it was ended before them."""
        return tuple(task for task in status.barred if task >= self.queue.task_count)

    def lease_task(self, status: WorkerStatus, now: float) -> int | None:
        """Lease a task to train on, if the worker is to have one now."""
        if not (self._is_under_way and status.wants_task and self._live.is_active(status.worker)):
            return None
        if not self.evaluation.suspects.isdisjoint(status.evaluating) or (
            status.wants_evaluation and self.evaluation.has_free_suspect
        ):
            return None  # suspects are worked on alone
        return self.queue.next_task(status, self._live.asking, now, self._checkpoints.urgent)

    def lease_export(self, status: WorkerStatus, now: float) -> ExportLease | None:
        """Let a worker export the finished model that could be evaluating now, and is not."""
        is_free = self._is_under_way and status.wants_evaluation
        if not is_free or not self._live.is_active(status.worker):
            return None
        return self.exports.lease(status, self._checkpoints.newest, now)

    def lease_evaluation(
        self, status: WorkerStatus, now: float, *, has_task: bool
    ) -> tuple[EvaluationLease | None, Conclusion | None]:
        """Lease a task of an evaluation round, and the end of one; `has_task`: it has just got a task to train on."""
        assert status.incarnation is not None
        evaluation = None
        if not self._is_under_way:
            return None, None
        if status.wants_evaluation and self._live.is_active(status.worker):
            is_alone = self.queue.is_free_for_suspects(status) and not has_task
            is_ahead = len(status.evaluating) > len(status.evaluated) and not self._plan.predicts
            evaluation = self.evaluation.next_lease(
                status.incarnation,
                status.evaluating,
                now,
                is_alone=is_alone,
                wanted_by=len(self._live.asking) if is_ahead else 0,
            )
        return evaluation, self.evaluation.conclusion(status.incarnation, now, status.rounds)

    # -- losses

    def held_by(self, entry: WorkerEntry) -> list[int]:
        """Return the tasks to train on that are leased to a worker, by its newest word."""
        return [task for task in entry.holding if self.queue.holder(task) == entry.incarnation]

    def release(self, incarnation: Identity) -> None:
        """A worker's life is over: what it held is free."""
        self.queue.release(incarnation)
        self.evaluation.release(incarnation)
        self.exports.release(incarnation)

    def on_death(self, worker: str, reason: str, last: WorkerEntry) -> list[Instruction]:
        """A worker has ended, and nobody explains it: what it had in hand may have ended it."""
        found = list[tuple[FailedTask | None, Attempts | None]]()
        if self._settings.is_allreduce:  # of the tasks of a block any may have ended it
            found.append(self._deadly_slots.take(worker, reason, last, self._partitions.version))
            last = replace(last, holding=())
        found.append(self.deadly_tasks.take(worker, reason, last))
        failure = self.exports.on_death(worker, last.exporting)
        out: list[Instruction] = [] if failure is None else [*self._verdict.fail(failure)]
        for failed, attempts in found:
            if failed is not None:
                out.append(Announce("worker", death_text(self._plan, worker, failed), 30))
            out += self._take_attempts(attempts)
        return out

    @property
    def caution(self) -> tuple[int, int]:
        """The versions from which on, and up to which, members of a group are careful: see `DeadlySlots`."""
        return self._deadly_slots.caution

    @property
    def closing_in_groups(self) -> tuple[int, ...]:
        """The tasks that have ended members too often, and end where the members of the next group stand."""
        given_up = self._deadly_slots.given_up
        return tuple(task for task, _ in self.bad_tasks.closing if task in given_up)

    # -- checks

    def check_invariants(self) -> None:
        """Assert what must hold between events (PROTOCOL: section 9)."""
        self.queue.check_invariants()
        self.evaluation.check_invariants()
        self.barriers.check_invariants()
        if self.is_open and self._plan.is_sync:
            assert self._eras.newest is not None, "open without an era"
