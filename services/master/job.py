"""The core of the master: who is who, what is done, what comes next, and when the job is over.

Theory of operation.  The master believes only what statuses of its own term say, and answers each with
what should be true.  It *gathers* a status from every partition, in synchronous mode *restores* them
all into one of the `Eras`, then is *running*: leases go out, reports come in.  When every task is done it
asks the partitions to seal; when all are sealed the `Completion` begins, and when that is journalled
everybody hears `finished`.  A partition's new life takes back what its ledger lacks (asynchronous) or
starts a new era (synchronous).  Task progress lives in the ledgers, never here.  PROTOCOL: sections 2 to
5, 7 and 8.
"""

from collections.abc import Collection, Hashable
from enum import Enum

from edlz.services.configuration.job_settings import JobSettings
from edlz.services.errors import RemoteProtocolError
from edlz.services.job_status import FailureView
from edlz.services.master.barriers import Barriers
from edlz.services.master.checkpoints import Checkpoints
from edlz.services.master.completion import Completion
from edlz.services.master.crew import HANG_S, Crew
from edlz.services.master.deaths import Deaths
from edlz.services.master.entries import Added, JournalState, WorkerEntry
from edlz.services.master.eras import Eras
from edlz.services.master.evaluation import EvaluationRounds
from edlz.services.master.exports import Exports
from edlz.services.master.failures import (
    Attempts,
    death_text,
    failure_of_loss,
    failure_of_nothing,
    failure_of_task,
    failure_of_worker,
)
from edlz.services.master.identities import Identities
from edlz.services.master.instructions import (
    Announce,
    Instruction,
    Journal,
    Reply,
)
from edlz.services.master.losses import NonFiniteLosses
from edlz.services.master.partitions import Partitions
from edlz.services.master.predictions import Predictions
from edlz.services.master.refusals import check_partition, check_worker
from edlz.services.master.silence import Silence
from edlz.services.master.skips import Skips
from edlz.services.master.standstill import Standstill
from edlz.services.master.stopping import Stopping
from edlz.services.master.task_queue import TaskQueue
from edlz.services.master.vain_terms import VainTerms
from edlz.services.messages import (
    DoneTask,
    ErrorReply,
    EvaluationLease,
    EvaluationResult,
    ExportLease,
    Failure,
    Granted,
    Identity,
    Job,
    Lease,
    PartitionOrders,
    PartitionStatus,
    WorkerOrders,
    WorkerStatus,
)
from edlz.services.records import Message

__all__ = ["MasterCore", "Phase"]


class Phase(Enum):
    """How far the job is; derived from the core's state, never stored."""

    GATHERING = "gathering"
    RESTORING = "restoring"
    RUNNING = "running"
    SEALING = "sealing"
    CONCLUDING = "concluding"
    EXPORTING = "exporting"
    COMPLETE = "complete"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"


class MasterCore:
    """The job's decisions.

    Parameters
    ----------
    job : Job
        Journalled before; its plan never changes.
    journal : JournalState
        What earlier masters left.
    evaluation_steps : int
        Model versions between evaluation rounds; 0 for none but the last.
    checkpoint_steps : int
        Model versions between checkpoints; 0 for none.
    hang_s : float
        Seconds without progress until a worker is replaced.

    Attributes
    ----------
    was_complete : bool
        Whether an earlier master has completed the job: then nobody is needed, who comes hears that it is over.
    """

    def __init__(
        self,
        job: Job,
        journal: JournalState,
        evaluation_steps: int = 0,
        checkpoint_steps: int = 0,
        hang_s: float = HANG_S,
    ) -> None:
        self.job, self.plan = job, job.plan
        self.settings = settings = JobSettings.of(job.config)
        self.term = journal.term + 1
        self.failure: FailureView | None = None
        self.queue = TaskQueue(job.plan)
        self.evaluation = EvaluationRounds(job.plan, evaluation_steps, first_number=(self.term << 20) + 1)
        self.checkpoints = Checkpoints(
            is_sync=job.plan.is_sync, steps=checkpoint_steps, first_number=(self.term << 20) + 1
        )
        self.skips = Skips(
            job.plan,
            journal,
            self.queue,
            self.evaluation,
            first_number=(self.term << 20) + 1,
            is_allowed=settings.skip_bad_tasks,
        )
        self._skipped_before = self._skipped  # by earlier masters
        self.losses = NonFiniteLosses.of(journal.losses)
        self.deaths = Deaths(self.queue, self.evaluation)
        self._vain_terms = VainTerms(journal.vain_terms)
        self._refusal = journal.refusal
        self._stopping = Stopping(self.checkpoints)
        self.results = list(journal.evaluations)
        for version, _ in journal.evaluations:
            self.evaluation.skip_to(version)
        self.barriers = Barriers(
            job.plan,
            evaluation_steps,
            checkpoint_steps,
            journal,
            (self.queue, self.evaluation, self.checkpoints, self.skips),
            self.results,
            max_steps=settings.max_step,
        )
        self.crew = Crew(hang_s)
        self.silence = Silence(hang_s)  # of parameter servers
        self._identities = Identities(self.term)
        self.partitions = Partitions(job.partitions, self._identities.new)
        self._standstill = Standstill()
        self.eras = Eras(self.partitions, self._identities.new)  # synchronous mode
        self._is_running = False
        self.was_complete = journal.is_complete
        self.predictions = Predictions(
            job.plan, journal, self.evaluation, has_files=bool(settings.prediction_output)
        )
        self.exports = Exports(job, settings, journal)
        about = (self.partitions, self.evaluation, self.checkpoints, self.exports, journal, self.predictions)
        saves = checkpoint_steps > 0 or settings.export_from_checkpoint
        self._completion = Completion(*about, saves=saves)
        self._told: set[str] = set()  # who has heard how the job ended

    def start(self) -> list[Instruction]:
        """The first instructions: the term is durable before anything is said under it."""
        out: list[Instruction] = [Journal({"term": self.term, "saved": -1, **self._vain_terms.fields})]
        out += [] if self.is_complete else self.barriers.begin()
        failure = self._refusal or self._vain_terms.failure
        return out if failure is None else [*out, *self.fail(failure)]

    @property
    def phase(self) -> Phase:
        if self.failure:
            return Phase.FAILED
        if self.is_complete:
            return Phase.COMPLETE
        if self.is_stopped:
            return Phase.STOPPED
        if self._stopping.has_begun:
            return Phase.STOPPING
        if self._completion.is_under_way:
            return Phase.EXPORTING if self.exports.is_open else Phase.CONCLUDING
        if self._is_running:
            return Phase.SEALING if self._is_all_done else Phase.RUNNING
        return Phase.RESTORING if self.partitions.are_known else Phase.GATHERING

    @property
    def is_complete(self) -> bool:
        """Whether everything is done, and the journal says so."""
        return self._completion.is_over

    @property
    def digest(self) -> str:
        """Of the parameters of a complete job."""
        return self._completion.digest

    @property
    def is_stopped(self) -> bool:
        """Whether the job has ended before it was done, since somebody wanted that."""
        return self._stopping.is_over

    @property
    def stopped_at(self) -> int:
        """The version that a job which was stopped goes on from; 0 if it has taken no checkpoint for that."""
        return self._stopping.saved

    @property
    def is_over(self) -> bool:
        return self.is_complete or self.is_stopped or self.failure is not None

    @property
    def version(self) -> int:
        """The job's version: the smallest of the partitions'."""
        return self.partitions.version

    @property
    def achieved(self) -> int:
        """A number that rises from 0 with whatever the job achieves; nothing if it stands still."""
        return self.partitions.applied + self._achieved_once

    @property
    def furthest(self) -> int:
        """Like `achieved`, but minibatches that are done again do not count."""
        return self.partitions.furthest + self._achieved_once

    @property
    def _achieved_once(self) -> int:
        return self.evaluation.reported + self.exports.reported + self._skipped - self._skipped_before

    @property
    def _skipped(self) -> int:
        return self.skips.training_tasks + self.skips.evaluation_tasks

    def is_everyone_told(self, running: Collection[str] = ()) -> bool:
        """Whether all live workers and all partitions have heard how the job ended.

        Parameters
        ----------
        running : collection of str
            Processes that run, by name: who begins with a job that is complete knows nobody.
        """
        peers = {f"worker-{worker}" for worker in self.crew.workers} | {
            f"ps-{index}" for index in self.partitions.entries
        }
        if self.was_complete:
            peers.update(running)
        return self.is_over and peers <= self._told

    # -- time

    def on_tick(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for worker, last in self.crew.silent(now):
            out += self.lose_worker(worker, f"nothing heard for {now - last.seen_s:.0f}s")
            self.crew.note_silence(worker, last)
        out += self.crew.retire(now)
        out += [] if self.is_over else self.silence.on_tick(now)
        out += self.checkpoints.on_tick(self.partitions.entries, now)
        out += [] if self.is_over else self.barriers.on_tick(now)
        out += self._advance()
        if not self.is_over:
            out += self._stopping.on_tick(self.version, self.partitions.heard, now)
            out += self.predictions.on_tick(now)
        return [*out, *self._vain_terms.take_back()] if self.achieved or self.is_over else out

    def stop(self, now: float) -> list[Instruction]:
        """End the job before it is done, with a checkpoint to go on from if one can be had soon."""
        if self.is_over or self._stopping.has_begun:
            return []
        is_training = self._is_running and not self._is_all_done
        version = self.version if is_training else None
        return [*self.predictions.save(), *self._stopping.begin(version, self.partitions.heard, now)]

    def dismiss(self, worker: str, *, is_told: bool = False) -> list[Instruction]:
        """A worker is not wanted any more: its leases are free at once, and it hears that it should go.

        Parameters
        ----------
        is_told : whether it has been announced already why it leaves
        """
        self.crew.dismiss(worker)
        if self._remove_worker(worker) is None or is_told:
            return []
        return [Announce("worker", f"worker-{worker} leaves; it is not wanted any more.")]

    def lose_worker(self, worker: str, reason: str, *, is_death: bool = False) -> list[Instruction]:
        """A worker is gone (its launcher says so, or it is silent): its leases are free at once.

        Parameters
        ----------
        is_death : bool
            It has ended, nobody took it away, and its launcher says so.
        """
        last, text = self.crew.last_word(worker), f"worker-{worker} lost: {reason}."
        back = self._remove_worker(worker)
        if not self.is_over and not self.crew.has_heard(worker):  # it never joined
            return [Announce("worker", text)]
        death = self._take_death(worker, reason, last) if is_death and last and not self.is_over else []
        if back is None:
            return death
        if back:
            tasks = ", ".join(str(task) for task in back)
            how = "goes on elsewhere" if self.crew.workers else "waits for the next worker"
            text += f" Task {tasks} {how}: no minibatch is lost, none counts twice."
        return [Announce("worker", text), *death]

    def _take_death(self, worker: str, reason: str, last: WorkerEntry) -> list[Instruction]:
        failed, attempts = self.deaths.take(worker, reason, last)
        failure = self.exports.on_death(worker, last.exporting)
        out: list[Instruction] = [] if failure is None else self.fail(failure)
        if failed is not None:
            out.append(Announce("worker", death_text(self.plan, worker, failed), 30))
        if attempts and not self.skips.take(attempts):
            out += self._fail_for(attempts)
        return out

    def _fail_for(self, attempts: Attempts) -> list[Instruction]:
        """A task that always fails ends the job."""
        return self.fail(failure_of_task(self.job, attempts, skips=self.settings.skip_bad_tasks))

    def _remove_worker(self, worker: str) -> list[int] | None:
        """Free a worker's leases and return its tasks; None if it was not there, or that matters no more."""
        entry = self.crew.forget(worker)
        self._identities.forget(f"worker-{worker}")
        if entry is None or self.is_over:
            return None
        back = [task for task in entry.holding if self.queue.holder(task) == entry.incarnation]
        self.queue.release(entry.incarnation)
        self.evaluation.release(entry.incarnation)
        self.exports.release(entry.incarnation)
        return back

    def fail(self, failure: FailureView) -> list[Instruction]:
        """End the job without success; the first cause stays."""
        if self.is_over:
            return []
        self.failure = failure
        return [Announce("failed", failure.text, 40)]

    def _fail_for_good(self, failure: Failure) -> list[Instruction]:
        """A worker met what no other attempt can mend.

        A mistake is journalled, so that no later master tries again; not one that others did not meet, who have trained.
        """
        if self.is_over:
            return []
        is_mistake = failure.is_mistake and not self.achieved
        view = failure_of_worker(failure, is_mistake=is_mistake)
        journal = [Journal({"refusal": view})] if is_mistake else []
        return [*journal, *self.fail(view)]

    # -- requests

    def on_request(self, to: Hashable, body: Message, now: float) -> list[Instruction]:
        """A status of a partition or a worker; answered by a Reply instruction, or not at all.

        Raises
        ------
        RemoteProtocolError
            If it does not fit this job, or comes from a process of another run; nothing has changed.
        """
        if isinstance(body, PartitionStatus):
            self.refuse_foreign(f"ps-{body.partition}", body.run, has_joined=body.incarnation is not None)
            return self._on_partition(to, body, now)
        assert isinstance(body, WorkerStatus)
        self.refuse_foreign(f"worker-{body.worker}", body.run, has_joined=body.incarnation is not None)
        if body.incarnation is not None and body.incarnation[0] > self.term:
            return self._look_up(to, f"worker-{body.worker}", body.incarnation[0])
        check_worker(body, self.plan, self.term)
        self.evaluation.check(body.evaluated)
        return self._on_worker(to, body, now)

    def refuse_foreign(self, name: str, run: str, *, has_joined: bool = False) -> None:
        """Raise RemoteProtocolError if a process belongs to another run, whose numbers may be the same.

        Who has joined knows its run; who has not need not.
        """
        if run != self.job.run and (run or has_joined):
            ours, job = self.job.run, self.job.name
            raise RemoteProtocolError(
                f'{name} belongs to run {run or "?"} of its job; this master leads run {ours} of job "{job}"',
                "end it; if this is its job's address, start it again",
            )

    def _look_up(self, to: Hashable, name: str, term: int) -> list[Instruction]:
        """Somebody has heard a master of a later term, or is wrong: the journal knows, and ends this one if need be."""
        text = f"{name} speaks of a master of term {term}; this one, of term {self.term}, is the newest"
        error = RemoteProtocolError(text)
        return [Journal({}), Reply(to, ErrorReply(code=error.code, message=error.message))]

    # -- partitions

    def _on_partition(self, to: Hashable, status: PartitionStatus, now: float) -> list[Instruction]:
        if status.term > self.term:
            return self._look_up(to, f"ps-{status.partition}", status.term)
        if status.term != self.term:  # first contact, or a late copy: believe nothing in it
            return [Reply(to, Granted(term=self.term, incarnation=None))]
        if not 0 <= status.partition < self.job.partitions:
            return [Reply(to, self._stop_order((0, 0)))]
        check_partition(status, self.plan, self.term)
        if status.incarnation is None:
            incarnation, journal = self._identities.grant(f"ps-{status.partition}", status.boot)
            ends = self.skips.journalled
            granted = Granted(term=self.term, incarnation=incarnation, job=self.job, ends=ends)
            return [*journal, Reply(to, granted)]
        if self.partitions.is_outdated(status):
            return [Reply(to, self._stop_order(status.incarnation))]
        is_first = status.partition not in self.partitions.entries
        out: list[Instruction] = [*self.silence.on_heard(status.partition, now), *self._on_leaving(status)]
        out += self._admit(status, is_first=is_first) if self.partitions.take(status) else []
        if self.plan.is_sync:
            self._standstill.on_status(status.partition, self.partitions.statuses, now)
        out += self._advance()
        return [*out, Reply(to, self._partition_orders(status, status.incarnation))]

    def lose_server(self, index: int) -> None:
        """A parameter server has ended, and that was told; its next life tells the rest."""
        self.silence.on_gone(index)
        self.partitions.on_gone(index)

    def _stop_order(self, incarnation: Identity) -> PartitionOrders:
        return PartitionOrders(
            term=self.term, number=self._identities.number(), incarnation=incarnation, stop=True
        )

    def _admit(self, status: PartitionStatus, *, is_first: bool) -> list[Instruction]:
        """A partition has begun a life."""
        if self.is_over:
            return []
        self._completion.on_new_life()
        done = len(self.queue.done)
        if self.plan.is_sync:
            self.eras.on_new_life()
        else:
            self.queue.keep(self.partitions.entries[status.partition].finished)
            self.queue.see(self.partitions.entries[status.partition].ledger)
        self.evaluation.begin_again(is_another=len(self.queue.done) < done)
        if is_first:
            # An ipc path says nothing to anybody; an address that somebody chose by hand does.
            where = f" at {status.endpoint}" if status.endpoint.startswith("tcp:") else ""
            return [Announce("ps", f"ps-{status.partition} joined{where}.")]
        text = f"ps-{status.partition} is back at v{status.version}; what it lacks is computed again."
        return [Announce("ps", text)]

    def _on_leaving(self, status: PartitionStatus) -> list[Announce]:
        """Tell, once, that a partition was told to end."""
        entry = self.partitions.entries.get(status.partition)
        if self.is_over or not status.is_leaving or (entry is not None and entry.status.is_leaving):
            return []
        return [Announce("ps", f"ps-{status.partition} was told to end; what it has is saved first.")]

    def _partition_orders(self, status: PartitionStatus, incarnation: Identity) -> PartitionOrders:
        if self.is_over:
            self._told.add(f"ps-{status.partition}")
        discard_below, snapshot_at = 0, None
        hurries = self.plan.is_sync and self.partitions.is_one_leaving
        if self._is_running and self.plan.is_sync:
            discard_below = max((name[1] for name in self.partitions.common_snapshots()), default=0)
            snapshot_at = self._standstill.version if hurries else None
        return PartitionOrders(
            term=self.term,
            number=self._identities.number(),
            incarnation=incarnation,
            stop=self.is_over,
            era=self.eras.newest,
            restore=None if self._is_running else self.eras.restore,
            discard_below=discard_below,
            seal=self._is_running and self._is_all_done,
            checkpoint=self.checkpoints.orders(
                status.partition,
                is_sealed=status.is_sealed,
                stands_at=self.barriers.stands_at if self._is_running else 0,
            ),
            checkpointed=self.checkpoints.completed,
            ends=self.skips.journalled,
            closing=self.skips.closing,
            newest_checkpoint=-1 if self.checkpoints.newest is None else self.checkpoints.newest,
            snapshot_at=-1 if snapshot_at is None else snapshot_at,
            hurries=hurries,
            fence=self.barriers.fence,
            task_count=self.barriers.task_count,
        )

    # -- the job's way

    @property
    def _is_all_done(self) -> bool:
        """Whether every task is done, and every barrier passed."""
        return self.queue.is_done and self.barriers.are_passed

    def _advance(self) -> list[Instruction]:
        """Bring the job as far as what is known allows."""
        if self.is_over or not self.partitions.are_based:
            return []
        out: list[Instruction] = []
        if self.plan.is_sync:
            is_reached, announced = self.eras.advance(was_reached=self._is_running)
            out += announced
            if not is_reached:
                self._is_running = False
                self.evaluation.begin_again()
                return out
        if not self._is_running:
            self._is_running = True
            done = self.partitions.finished()
            self.queue.restart(done)
            if self.job.begins_from and not self.results:  # it was trained, and evaluated, elsewhere
                self.evaluation.skip_to(self.version)
            what, count = "training", len(done)
            if not self.plan.is_training:
                what, count = self.plan.other_work, self.evaluation.final_tasks
            out.append(Announce("job", f"{what} begins at v{self.version}, {count} tasks done."))
            out += self.barriers.on_running(self.partitions.sorted)
        statuses = self.partitions.statuses
        ended = self.skips.advance(statuses)
        out += ended
        if ended:
            self.checkpoints.rewind(max(status.version for status in statuses))
            self.barriers.on_other_history()
            if not self.barriers.are_used:  # else what was decided by the metrics stays
                self.evaluation.on_other_history()
        if self.skips.hopeless is not None:
            return out + self._fail_for(self.skips.hopeless)
        about = (self.version, self.skips.journalled, (*self.eras.needed, *self.barriers.kept))
        out += self.checkpoints.advance(self.partitions.entries, *about)
        out += self.barriers.advance(statuses, self.version)
        if self.barriers.failure is not None:
            return out + self.fail(self.barriers.failure)
        if not self._is_all_done:
            self._completion.put_off()
            opened = None if self.barriers.are_used else self.evaluation.on_version(self.version)
            if opened is not None:
                out.append(Announce("evaluation", f"Evaluation of v{opened} begins.", 10))
            return out
        if not all(status.is_sealed for status in statuses):
            return out
        if self.plan.is_training and not any(status.minibatches for status in statuses):
            return out + self.fail(failure_of_nothing(self.job, self.skips.training_tasks))
        self.exports.result, self.exports.task_count = self.barriers.result, self.barriers.task_count
        return [*out, *self._completion.advance()]

    def on_digest(self, lives: tuple[Identity, ...], digest: str | None) -> list[Instruction]:
        """The digest of the sealed parameters of these lives; None when it could not be read."""
        return [] if self.is_over else [*self._completion.on_digest(lives, digest)]

    def on_manifest(self, version: int, error: str = "") -> list[Instruction]:
        """A checkpoint's manifest is durable, or why it is not."""
        self.checkpoints.on_manifest(version, is_written=not error)
        if error:
            return [Announce("checkpoint", f"checkpoint v{version} could not be completed: {error}", 30)]
        return [Announce("checkpoint", f"checkpoint v{version} is complete."), *self._advance()]

    def on_published(
        self, missing: Collection[int] = (), failure: FailureView | None = None
    ) -> list[Instruction]:
        """The predictions are published, but for those tasks whose files are not there; or why they cannot be."""
        if self.is_over:
            return []
        if failure is not None:
            self.predictions.on_failed()
            return self.fail(failure)
        return [*self.predictions.on_published(missing), *self._advance()]

    # -- workers

    def _on_worker(self, to: Hashable, status: WorkerStatus, now: float) -> list[Instruction]:
        if status.incarnation is None:
            incarnation, journal = self._identities.grant(f"worker-{status.worker}", status.boot)
            return [*journal, Reply(to, self._welcome(status, incarnation))]
        entry = self.crew.workers.get(status.worker)
        is_retired = self.crew.is_retired(status.worker)
        if is_retired or (entry and status.incarnation < entry.incarnation):
            orders = WorkerOrders(
                term=self.term,
                seq=status.seq,
                incarnation=None,
                stop=True,
                dump=self.crew.has_hung(status.worker),
            )
            return [Reply(to, orders)]
        if entry and status.incarnation == entry.incarnation and status.seq <= entry.seq:
            return [Reply(to, entry.answer)] if status.seq == entry.seq else []
        out: list[Instruction] = []
        if entry is None or status.incarnation != entry.incarnation:
            if entry:  # a new life of the same id: what the old one held is free
                self.queue.release(entry.incarnation)
                self.evaluation.release(entry.incarnation)
                self.exports.release(entry.incarnation)
            if not self.is_over:
                out.append(Announce("worker", f"worker-{status.worker} joined."))
            entry = None
        if status.failure is not None:
            out += self._fail_for_good(status.failure)
        out += self.losses.take(status, now)
        answer = self._answer(status, entry, out, now)
        if self.is_over:
            self._told.add(f"worker-{status.worker}")
        holding = status.holding + ((answer.lease.task,) if answer.lease else ())
        steps_before = entry.steps_before if entry else {}
        entry = WorkerEntry(
            incarnation=status.incarnation,
            seq=status.seq,
            seen_s=now,
            answer=answer,
            holding=holding,
            steps=status.steps,
            has_asked=status.wants_task or (entry is not None and entry.has_asked),
            busy_s=status.busy_s,
            longest_s=status.longest_s,
            is_starting=status.is_starting,
            evaluating=_with_lease(status.evaluating, answer.evaluation),
            exporting=answer.export.digest if answer.export else status.exporting,
            steps_before={task: steps_before.get(task, status.steps) for task in holding},
        )
        self.crew.note(status.worker, entry)
        self.deaths.note(entry)
        return [*out, Reply(to, answer)]

    def _welcome(self, status: WorkerStatus, incarnation: Identity) -> WorkerOrders:
        return WorkerOrders(
            term=self.term,
            seq=status.seq,
            incarnation=incarnation,
            stop=self.failure is not None or self.is_stopped,
            finished=self.is_complete,
            job=self.job,
            check=not self.achieved,
        )

    def _answer(
        self, status: WorkerStatus, entry: WorkerEntry | None, out: list[Instruction], now: float
    ) -> WorkerOrders:
        """Take in what a worker reports, and say what it should do."""
        assert status.incarnation is not None
        partitions = self.partitions
        if status.callbacks is not None and not self.is_over:
            out += self.barriers.learn(status.callbacks, partitions.sorted if self._is_running else None)
        noted, again = self._take_reports(status, out, now)
        for done in status.evaluated:
            if self.evaluation.report(done):
                self.predictions.take(done)
        for result in status.results:
            out += self._take_result(result)
        noted_export = self._take_export(status, out, now)
        noted_failures = self._take_failures(status, out)
        has_progress = entry is not None and status.steps > entry.steps
        self.queue.reconcile(status, has_progress=has_progress, now=now)
        self.evaluation.reconcile(status.incarnation, status.evaluating)
        lease = self._lease(status, now)
        export = self._lease_export(status, now)
        has_predicted = self.plan.predicts and status.evaluated and self.evaluation.is_idle
        has_news = status.done or status.results or has_predicted
        is_held = not self.barriers.are_passed  # then callbacks may be waited for
        if (self.queue.is_done or is_held) and has_news:
            out += self._advance()  # else only what partitions say takes the job further
        evaluation = conclude = None
        if self._is_running and not self.is_over:
            if status.wants_evaluation and self.crew.is_active(status.worker):
                is_alone = self.queue.is_free_for_suspects(status) and lease is None
                evaluation = self.evaluation.next_lease(
                    status.incarnation, status.evaluating, now, is_alone=is_alone
                )
            conclude = self.evaluation.conclusion(status.incarnation, now)
        return WorkerOrders(
            term=self.term,
            seq=status.seq,
            incarnation=status.incarnation,
            stop=self.failure is not None or self.is_stopped,
            finished=self.is_complete,
            era=(self.eras.newest if self._is_running else None) or status.era,
            partitions=() if status.address_list == partitions.address_list else partitions.addresses,
            address_list=partitions.address_list,
            lease=None
            if lease is None
            else Lease(task=lease, learning_rate=self.barriers.learning_rate(lease)),
            evaluation=evaluation,
            conclude=conclude,
            noted=noted,
            noted_evaluations=tuple((done.round, done.task) for done in status.evaluated),
            noted_results=tuple(result.round for result in status.results),
            noted_failures=noted_failures,
            again=again,
            ends=self.skips.of((*status.holding, *(() if lease is None else (lease,)))),
            export=export,
            noted_export=noted_export,
        )

    def _lease(self, status: WorkerStatus, now: float) -> int | None:
        is_asked = self._is_running and not self.is_over and status.wants_task
        if not is_asked or not self.crew.is_active(status.worker):
            return None
        if not self.evaluation.suspects.isdisjoint(status.evaluating) or (
            status.wants_evaluation and self.evaluation.has_free_suspect
        ):
            return None  # suspects are worked on alone
        return self.queue.next_task(status, self.crew.asking, now, self.checkpoints.urgent)

    def _lease_export(self, status: WorkerStatus, now: float) -> ExportLease | None:
        """Let a worker export the finished model that could be evaluating now, and is not."""
        is_free = self._is_running and not self.is_over and status.wants_evaluation
        if not is_free or not self.crew.is_active(status.worker):
            return None
        return self.exports.lease(status, self.checkpoints.newest, now)

    def _take_export(self, status: WorkerStatus, out: list[Instruction], now: float) -> str:
        """Take what a worker says of the export; return the digest of what is noted."""
        assert status.incarnation is not None
        out += self.exports.on_wish(status.export_wish)
        if status.exported is not None:
            out += [] if self.is_over else [*self.exports.take(status.exported), *self._completion.conclude()]
            return status.exported.digest
        if status.failed_export is not None:
            failure = self.exports.fail(status.incarnation, status.failed_export, now)
            out += [] if failure is None else self.fail(failure)
            return status.failed_export.digest
        self.exports.note(status.incarnation, status.exporting)
        return ""

    def _take_reports(
        self, status: WorkerStatus, out: list[Instruction], now: float
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        noted, again = [], []
        for done in status.done if self._is_running else ():
            if not self._is_true(done):
                again.append(done.task)
                continue
            if done.task not in self.queue.done:
                self.queue.finish(done.task, now)
                remaining = self.queue.task_count - len(self.queue.done)
                out.append(Announce("task", f"Task:{done.task} completed, {remaining} remaining tasks", 10))
            noted.append(done.task)
        return tuple(noted), tuple(again)

    def _is_true(self, done: DoneTask) -> bool:
        """Whether the report speaks of the partitions' present lives; otherwise what it says may be lost."""
        if not 0 <= done.task < self.plan.task_count:
            return False
        if self.plan.is_sync:
            return done.era == self.eras.newest
        return done.incarnations == self.partitions.incarnations

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

    def _take_failures(self, status: WorkerStatus, out: list[Instruction]) -> tuple[tuple[int, int], ...]:
        noted = []
        for failed in status.failed:
            noted.append(failed.key)
            if self.skips.is_known(failed):
                continue
            if failed.ends_job:
                out += self.fail(failure_of_loss(self.job, failed, is_flag=self.settings.stop_on_nan))
                continue
            book = self.queue if failed.kind == "training" else self.evaluation
            attempts = book.fail(status.worker, status.boot, failed)
            if attempts and not self.skips.take(attempts):
                out += self._fail_for(attempts)
        return tuple(noted)

    # -- checks

    def check_invariants(self) -> None:
        """Assert what must hold between events (PROTOCOL: section 9)."""
        self.queue.check_invariants()
        self.evaluation.check_invariants()
        self.barriers.check_invariants()
        self.crew.check_invariants()
        self.partitions.check_invariants()
        if self._is_running and self.plan.is_sync:
            assert self.eras.newest is not None, "running without an era"


def _with_lease(
    held: tuple[tuple[int, int], ...], lease: EvaluationLease | None
) -> tuple[tuple[int, int], ...]:
    return held if lease is None else (*held, (lease.round, lease.task))
