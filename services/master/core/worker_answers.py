"""The core that hears workers, and says what they should do: a worker with nothing in hand is answered when there is work.

A status is a question and a report at once.  Each counts once: of one that comes again the answer is given again, since
leases given twice would be two; one that was overtaken gets none.
"""

from collections.abc import Callable, Hashable

from edlz.services.master.core.course import Course
from edlz.services.master.core.group_course import GroupCourse
from edlz.services.master.core.held_asks import HeldAsks, says_anything
from edlz.services.master.core.job_processes import JobProcesses
from edlz.services.master.core.processes.eras import Eras
from edlz.services.master.core.processes.partitions import Partitions
from edlz.services.master.core.tasks.task_failures import failure_of_worker
from edlz.services.master.core.vocabulary.instructions import Announce, Instruction, Journal, Reply
from edlz.services.master.core.vocabulary.records import WorkerEntry
from edlz.services.master.core.vocabulary.verdict import Verdict
from edlz.services.master.core.work import Work
from edlz.services.protocol.messages import Failure, Identity, Job, WorkerOrders, WorkerStatus

__all__ = ["WorkerAnswers"]

IDLE_S = 1.0  # a worker with nothing in hand hears that there is nothing so often


class WorkerAnswers:
    """What the workers of one job say, and are told.

    Parameters
    ----------
    job : Job
    term : int
    cores : Partitions, Eras, Work, JobProcesses, Verdict, Course
        Told what workers report; the orders follow from them.
    group : GroupCourse or None
        Of an all-reduce job.
    told : set of str
        Gets the names of those that hear how the job has ended.
    achieved : callable () -> int
        How much the job has achieved; 0 if it has got nowhere.
    """

    def __init__(
        self,
        job: Job,
        term: int,
        cores: tuple[Partitions, Eras, Work, JobProcesses, Verdict, Course],
        group: GroupCourse | None,
        told: set[str],
        achieved: Callable[[], int],
    ) -> None:
        self._job, self._term, self._group, self._told, self._achieved = job, term, group, told, achieved
        self._partitions, self._eras, self._work, self._processes, self._verdict, self._course = cores
        self._idle: HeldAsks[WorkerStatus] = HeldAsks(IDLE_S)

    def welcome(self, status: WorkerStatus, incarnation: Identity) -> WorkerOrders:
        """Return the first orders of a worker that has joined."""
        return WorkerOrders(
            term=self._term,
            seq=status.seq,
            incarnation=incarnation,
            stop=self._verdict.is_cut_short,
            finished=self._verdict.is_complete,
            job=self._job,
            check=not self._achieved(),
        )

    def answer(self, to: Hashable, status: WorkerStatus, life: Identity, now: float) -> list[Instruction]:
        """A worker that has joined says something."""
        live = self._processes.live
        entry = live.workers.get(status.worker)
        if live.is_retired(status.worker) or (entry and life < entry.incarnation):
            return self._stop(to, status)
        # A repeated question gets the answer that it had, or will have.
        if entry and life == entry.incarnation and status.seq <= entry.seq:
            if status.seq < entry.seq or self._idle.repeat(status.worker, to):
                return []
            return [Reply(to, entry.answer)]
        out: list[Instruction] = []
        if entry is None or life != entry.incarnation:
            if entry:  # a new life of the same id: what the old one held is free
                self._work.release(entry.incarnation)
            if not self._verdict.is_over:
                out.append(Announce("worker", f"worker-{status.worker} joined."))
            entry = None
        if status.failure is not None:
            out += self._fail_for_good(status.failure)
        out += self._work.losses.take(status, now)
        if self._group is not None:
            out += self._group.hear(status, now, is_spare=not live.is_active(status.worker))
            status = self._group.admitted(status)
        answer = self._orders(status, entry, out, now)
        self._note(status, entry, answer, now)
        if status.can_wait and not _is_news(answer, entry):
            self._idle.hold(status.worker, to, status, now)
            return out
        return [*out, *self._tell(to, status, answer)]

    def answer_held(self, now: float) -> list[Instruction]:
        """Answer the workers that wait for work as far as there is any, or it is time.

        Of those with nothing in hand one is as good as another: what the first does not get, the next one need not ask for.
        """
        out: list[Instruction] = []
        live = self._processes.live
        for ask in self._idle:
            status, entry = ask.status, live.workers.get(ask.status.worker)
            if entry is None or entry.incarnation != status.incarnation:  # lost, or not wanted any more
                self._idle.drop(status.worker)
                out += self._stop(ask.to, status) if live.is_retired(status.worker) else []
                continue
            is_due = now >= ask.until_s
            if not (is_due or self._verdict.is_over or live.is_active(status.worker)):
                continue
            answer = self._orders(status, entry, out, now)
            if not (is_due or _is_news(answer, entry)):
                # Others may have a task in hand that waits for its barrier, or be told other things of a group.
                if self._work.barriers.are_used or self._group is not None:
                    continue
                break
            self._note(status, entry, answer, entry.seen_s)
            out += self._tell(ask.to, status, answer)
        return out

    def _note(
        self, status: WorkerStatus, before: WorkerEntry | None, answer: WorkerOrders, seen_s: float
    ) -> None:
        self._processes.note(status.worker, WorkerEntry.of(status, before, answer, seen_s))

    def _tell(self, to: Hashable, status: WorkerStatus, answer: WorkerOrders) -> list[Instruction]:
        self._idle.drop(status.worker)
        if self._verdict.is_over:
            self._told.add(f"worker-{status.worker}")
        return [Reply(to, answer)]

    def _stop(self, to: Hashable, status: WorkerStatus) -> list[Instruction]:
        """Tell a worker to go: it was given up, is not wanted any more, or another life has taken its place."""
        dump = self._processes.live.has_hung(status.worker)
        orders = WorkerOrders(term=self._term, seq=status.seq, incarnation=None, stop=True, dump=dump)
        return [Reply(to, orders)]

    def _fail_for_good(self, failure: Failure) -> list[Instruction]:
        """A worker met what no other attempt can mend.

        A mistake is journalled, so that no later master tries again; not one that others did not meet, who have trained.
        """
        if self._verdict.is_over:
            return []
        is_mistake = failure.is_mistake and not self._achieved()
        view = failure_of_worker(failure, is_mistake=is_mistake)
        journal = [Journal({"refusal": view})] if is_mistake else []
        return [*journal, *self._verdict.fail(view)]

    def _orders(
        self, status: WorkerStatus, entry: WorkerEntry | None, out: list[Instruction], now: float
    ) -> WorkerOrders:
        """Take in what a worker reports, and say what it should do."""
        work, partitions, life = self._work, self._partitions, status.incarnation
        assert life is not None
        noted, again = work.take_reports(status, out, now)
        noted_export, told = work.take_export(status, now)
        out += told
        out += self._course.on_export() if status.exported is not None else []
        noted_failures = work.take_failures(status, out)
        work.reconcile(status, entry, now)  # first: it may free what is leased below
        task, export = work.lease_task(status, now), work.lease_export(status, now)
        out += self._course.advance() if work.has_news(status) else []
        is_known = status.address_list == partitions.address_list
        evaluation, conclude = work.lease_evaluation(status, now, has_task=task is not None)
        return WorkerOrders(
            term=self._term,
            seq=status.seq,
            incarnation=status.incarnation,
            stop=self._verdict.is_cut_short,
            finished=self._verdict.is_complete,
            # While partitions go back nobody trains: workers keep their era until the next one is reached.
            era=(self._eras.newest if work.is_open else None) or status.era,
            partitions=() if is_known or self._group is not None else partitions.addresses,
            address_list=partitions.address_list,
            lease=None if task is None else work.lease_of(task),
            evaluation=evaluation,
            conclude=conclude,
            noted=(*noted, *work.cut_off(status)),
            noted_evaluations=tuple((done.round, done.task) for done in status.evaluated),
            noted_results=tuple(result.round for result in status.results),
            noted_failures=noted_failures,
            again=again,
            ends=work.bad_tasks.of((*status.holding, *(() if task is None else (task,)))),
            export=export,
            noted_export=noted_export,
            released=work.released(status) if work.is_open else (),
            group=None if self._group is None else self._group.orders(life),
        )


def _is_news(answer: WorkerOrders, before: WorkerEntry | None) -> bool:
    """Whether an answer says anything to who has nothing in hand, or other things of its group than it has been told."""
    told = None if before is None else before.answer.group
    return says_anything(answer) or answer.group != told
