"""The core of the master: who is who, what comes next, and when the job is over.

Theory of operation.  The master believes only what statuses of its own term say, and answers each with
what should be true.  It *gathers* a status from every partition, in synchronous mode *restores* them
all into one of the `Eras`, then is *running*: the `Work` is open, leases go out, reports come in.  When every task is
done it asks the partitions to seal; when all are sealed the `Completion` begins, and when that is journalled
everybody hears `finished`.  A partition's new life takes back what its ledger lacks (asynchronous) or
starts a new era (synchronous).  Task progress lives in the ledgers, never here; which processes run is the affair of
`JobProcesses`.  PROTOCOL: sections 2 to 5, 7 and 8.
"""

from collections.abc import Collection, Hashable

from edlz.services.configuration.job_settings import JobSettings
from edlz.services.errors import ConfigError, RemoteProtocolError
from edlz.services.master.core.checkpoints import Checkpoints
from edlz.services.master.core.course import Course
from edlz.services.master.core.group_course import GroupCourse
from edlz.services.master.core.growth import with_pieces
from edlz.services.master.core.held_asks import may_be_held
from edlz.services.master.core.job_processes import JobProcesses
from edlz.services.master.core.partition_answers import PartitionAnswers, Standstill
from edlz.services.master.core.processes.desired_processes import DesiredProcesses
from edlz.services.master.core.processes.eras import Eras
from edlz.services.master.core.processes.live_workers import HANG_S, LiveWorkers
from edlz.services.master.core.processes.partitions import Partitions
from edlz.services.master.core.tasks.refusals import (
    check_partition,
    check_run,
    check_supervisor,
    check_worker,
)
from edlz.services.master.core.terms import Farewell, VainTerms, look_up
from edlz.services.master.core.vocabulary.identities import Identities
from edlz.services.master.core.vocabulary.inputs import (
    DigestRead,
    Grown,
    Input,
    ManifestWritten,
    Published,
    Request,
    Start,
    StateWritten,
    StopWanted,
    Tick,
)
from edlz.services.master.core.vocabulary.instructions import (
    Announce,
    Instruction,
    Journal,
    Leave,
    Reply,
)
from edlz.services.master.core.vocabulary.phase import Phase
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.master.core.vocabulary.verdict import Verdict
from edlz.services.master.core.work import Work
from edlz.services.master.core.worker_answers import WorkerAnswers
from edlz.services.protocol.groups import DurableState
from edlz.services.protocol.messages import (
    Granted,
    Job,
    PartitionStatus,
    Scaled,
    ScaleRequest,
    SupervisorOrders,
    SupervisorStatus,
    WorkerStatus,
)

__all__ = ["MasterCore"]


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
    desired : DesiredProcesses, optional
        The processes that the job wants, for whoever runs them.
    durable : collection of (SnapshotName, bool)
        Of an all-reduce job: the states that lie on its disk, and whether as checkpoints.

    Attributes
    ----------
    work, processes, verdict : Work, JobProcesses, Verdict
        What is to be done, who does it, and how it has ended.
    partitions, eras, checkpoints : Partitions, Eras, Checkpoints
        Where the parameters are, and what they can go back to.
    """

    def __init__(
        self,
        job: Job,
        journal: JournalState,
        evaluation_steps: int = 0,
        checkpoint_steps: int = 0,
        hang_s: float = HANG_S,
        desired: DesiredProcesses | None = None,
        durable: Collection[DurableState] = (),
    ) -> None:
        self.job = job
        job = with_pieces(job, journal.pieces)  # others are told the plan as it began
        self.plan = job.plan
        self.settings = settings = JobSettings.of(job.config)
        self.term = journal.term + 1
        self.verdict = Verdict(journal)
        self._identities = Identities(self.term)
        self.partitions = Partitions(job.partitions, self._identities.new)
        self.eras = Eras(self.partitions, self._identities.new)  # synchronous mode
        self.checkpoints = Checkpoints(
            is_sync=job.plan.is_sync, steps=checkpoint_steps, first_number=(self.term << 20) + 1
        )
        live = LiveWorkers(hang_s)
        cores = (self.partitions, self.eras, self.checkpoints, live, self.verdict)
        self.work = Work(job, settings, journal, cores, evaluation_steps, checkpoint_steps)
        others = (self.partitions, self._identities, self.work, self.verdict)
        desired = desired or DesiredProcesses(0, job.partitions)
        self.processes = JobProcesses(job.plan, desired, live, journal, hang_s, others)
        self._vain_terms = VainTerms(journal.vain_terms)
        self._refusal = journal.refusal
        about = (self.partitions, self.eras, self.checkpoints, self.work, self.verdict)
        self._course = Course(job, settings, checkpoint_steps, about)
        of_group = (job, self.term, durable, hang_s, (*about, self.processes), self._course)
        self._group = GroupCourse(*of_group) if settings.is_allreduce else None
        self._standstill = Standstill()
        self._told: set[str] = set()  # who has heard how the job ended
        self._farewell = Farewell()
        self._partition_answers, self._worker_answers = self._made_answers()

    def _made_answers(self) -> tuple[PartitionAnswers, WorkerAnswers]:
        answered = (self.partitions, self.eras, self.checkpoints, self._standstill, self.work, self.verdict)
        to_partitions = PartitionAnswers(self.plan, self.term, self._identities, answered, self._told)
        heard = (self.partitions, self.eras, self.work, self.processes, self.verdict, self._course)
        about = (self.job, self.term, heard, self._group, self._told)
        return to_partitions, WorkerAnswers(*about, achieved=lambda: self.achieved)

    def feed(self, event: Input, now: float) -> list[Instruction]:
        """Take an input; return what is to be done, in this order.

        Raises
        ------
        RemoteProtocolError, ConfigError
            If a request does not fit this job, or comes from a process of another run; nothing has changed.
        """
        out = self._on(event, now)
        if self._group is not None:
            out = self._group.lead(out, now)
        if not may_be_held(event):  # else there is no more to be had than before
            out += [*self._worker_answers.answer_held(now), *self._partition_answers.answer_held(now)]
        self._course.settle()
        return out

    def _on(self, event: Input, now: float) -> list[Instruction]:
        match event:
            case Start():
                return self._start()
            case Tick():
                return self._on_tick(now)
            case Request(to, PartitionStatus() as status):
                return self._on_partition(to, status, now)
            case Request(to, WorkerStatus() as status):
                return self._on_worker(to, status, now)
            case Request(to, SupervisorStatus() as status):
                return self._on_supervisor(to, status, now)
            case Request(to, ScaleRequest() as request):
                return self._on_scale(to, request, now)
            case Request(_, body):
                raise RemoteProtocolError(f"a master takes no {type(body).__name__}")
            case StopWanted():
                return self._course.stop(now)
            case DigestRead():
                return self._course.on_digest(event)
            case ManifestWritten():
                out = [] if self._group is None else self._group.on_manifest(event, now)
                return [*out, *self._course.on_manifest(event)]
            case StateWritten():
                return [] if self._group is None else self._group.on_state(event, now)
            case Published():
                return self._course.on_published(event)
            case Grown():
                return self._course.on_grown(event)

    # -- what is told

    @property
    def phase(self) -> Phase:
        """How far the job is."""
        return self._course.phase

    @property
    def version(self) -> int:
        """The job's version: the smallest of the partitions'."""
        return self.partitions.version

    @property
    def members(self) -> tuple[str, ...]:
        """The workers of an all-reduce job that train together now, in the order of ranks."""
        return () if self._group is None else tuple(member.worker for member in self._group.members)

    @property
    def achieved(self) -> int:
        """A number that rises from 0 with whatever the job achieves; nothing if it stands still."""
        return self.partitions.applied + self.work.achieved

    @property
    def furthest(self) -> int:
        """Like `achieved`, but minibatches that are done again do not count."""
        return self.partitions.furthest + self.work.achieved

    @property
    def is_everyone_told(self) -> bool:
        """Whether all live workers and all partitions have heard how the job ended."""
        peers = {f"worker-{worker}" for worker in self.processes.live.workers}
        if self._group is None:  # else its one partition is on the workers
            peers.update(f"ps-{index}" for index in self.partitions.entries)
        if self.verdict.was_complete:  # who begins with a job that is complete knows nobody
            peers.update(self.processes.running)
        return self.verdict.is_over and peers <= self._told

    # -- time

    def _start(self) -> list[Instruction]:
        """The first instructions: the term is durable before anything is said under it."""
        out: list[Instruction] = [Journal({"term": self.term, "saved": -1, **self._vain_terms.fields})]
        if not self.verdict.is_complete:
            out += [*self.work.barriers.begin(), *([] if self._group is None else self._group.begin())]
        failure = self._refusal or self._vain_terms.failure
        return out if failure is None else [*out, *self.verdict.fail(failure)]

    def _on_tick(self, now: float) -> list[Instruction]:
        out = self.processes.on_tick(now) + self._course.on_tick(now)
        if self._group is not None:
            out += self._group.on_tick(now)
        if self.achieved or self.verdict.is_over:
            out += self._vain_terms.take_back()
        if self.verdict.is_over and self._farewell.is_over(
            now,
            is_told=self.is_everyone_told,
            is_supervised=self.processes.is_supervised,
            was_complete=self.verdict.was_complete,
        ):
            out.append(Leave())
        return out

    # -- the supervisor

    def _on_supervisor(self, to: Hashable, status: SupervisorStatus, now: float) -> list[Instruction]:
        """What runs and what has ended; the answer says what should run."""
        check_run(self.job, "a supervisor", status.run)
        check_supervisor(status, self.job.partitions)
        out = self._course.stop(now) if status.stop else []
        self.processes.running = status.running
        is_told = self.is_everyone_told
        self._farewell.has_supervisor_heard = self.verdict.is_over
        out += self.processes.on_status(status, self.achieved, self.furthest, now)
        orders = SupervisorOrders(
            term=self.term,
            run=self.job.run,
            desired=self.processes.names(now, is_told=is_told),
            stop=is_told,
            hung=tuple(sorted(self.processes.desired.hung)),
            waiting=self.processes.desired.waiting(now),
        )
        return [*out, Reply(to, orders)]

    def _on_scale(self, to: Hashable, request: ScaleRequest, now: float) -> list[Instruction]:
        workers = request.workers
        if self._group is not None and workers == 0:
            raise ConfigError(
                "workers=0: without any worker nobody holds the model any more",
                "edlz stop, which saves it; edlz resume goes on from there",
            )
        before, out = self.processes.scale(workers, now)
        warning = self.processes.warning_of(workers)
        return [*out, Reply(to, Scaled(before=before, after=workers, warning=warning))]

    # -- partitions

    def _on_partition(self, to: Hashable, status: PartitionStatus, now: float) -> list[Instruction]:
        if self._group is not None:
            raise ConfigError(
                f"ps-{status.partition} is not wanted: job {self.job.name} has no parameter servers",
                "start workers alone, or the master without --distribution_strategy=AllreduceStrategy",
            )
        check_run(self.job, f"ps-{status.partition}", status.run, has_joined=status.incarnation is not None)
        if status.term > self.term:  # this master may have been replaced while it was stopped
            return look_up(to, f"ps-{status.partition}", status.term, self.term)
        if status.term != self.term:  # first contact, or a late copy: believe nothing in it
            return [Reply(to, Granted(term=self.term, incarnation=None))]
        if not 0 <= status.partition < self.job.partitions:
            return [Reply(to, self._partition_answers.stop((0, 0)))]
        check_partition(status, self.plan, self.term)
        if status.incarnation is None:
            incarnation, journal = self._identities.grant(f"ps-{status.partition}", status.boot)
            ends = self.work.bad_tasks.journalled
            granted = Granted(term=self.term, incarnation=incarnation, job=self.job, ends=ends)
            return [*journal, Reply(to, granted)]
        if self.partitions.is_outdated(status):
            return [Reply(to, self._partition_answers.stop(status.incarnation))]
        is_first = status.partition not in self.partitions.entries
        out: list[Instruction] = [
            *self.processes.silent_servers.on_heard(status.partition, now),
            *self._on_leaving(status),
        ]
        out += self._admit(status, is_first=is_first) if self.partitions.take(status) else []
        self.processes.on_server(status, now)
        if self.plan.is_sync:
            self._standstill.on_status(status.partition, self.partitions.statuses, now)
        out += self._course.advance()
        return [*out, *self._partition_answers.answer(to, status, now)]

    def _admit(self, status: PartitionStatus, *, is_first: bool) -> list[Instruction]:
        """A partition has begun a life."""
        if self.verdict.is_over:
            return []
        self._course.on_new_life()
        self.work.on_new_life(self.partitions.entries[status.partition])
        if is_first:
            # An ipc path says nothing to anybody; an address that somebody chose by hand does.
            where = f" at {status.endpoint}" if status.endpoint.startswith("tcp:") else ""
            return [Announce("ps", f"ps-{status.partition} joined{where}.")]
        text = f"ps-{status.partition} is back at v{status.version}; what it lacks is computed again."
        return [Announce("ps", text)]

    def _on_leaving(self, status: PartitionStatus) -> list[Announce]:
        """Tell, once, that a partition was told to end."""
        entry = self.partitions.entries.get(status.partition)
        if self.verdict.is_over or not status.is_leaving or (entry is not None and entry.status.is_leaving):
            return []
        return [Announce("ps", f"ps-{status.partition} was told to end; what it has is saved first.")]

    # -- workers

    def _on_worker(self, to: Hashable, status: WorkerStatus, now: float) -> list[Instruction]:
        """What a worker does and has done; the answer says what it should do."""
        name, life = f"worker-{status.worker}", status.incarnation
        check_run(self.job, name, status.run, has_joined=life is not None)
        heard = 0 if status.member is None else status.member.term
        if life is not None and max(life[0], heard) > self.term:
            return look_up(to, name, max(life[0], heard), self.term)
        check_worker(status, self.plan, self.term)
        self.work.evaluation.check(status.evaluated)
        if self._group is not None:
            self._group.check(status)
        begins = self.processes.on_worker(status, now)
        if life is None:
            incarnation, journal = self._identities.grant(name, status.boot)
            return [*begins, *journal, Reply(to, self._worker_answers.welcome(status, incarnation))]
        return [*begins, *self._worker_answers.answer(to, status, life, now)]

    # -- checks

    def check_invariants(self) -> None:
        """Assert what must hold between events (PROTOCOL: section 9)."""
        self.work.check_invariants()
        self.processes.check_invariants()
        self.partitions.check_invariants()
