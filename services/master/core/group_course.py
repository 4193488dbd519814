"""The core that joins an all-reduce job's group with the rest of its master: what the one means for the other."""

import logging
from collections.abc import Collection

import msgspec

from edlz.services.configuration.job_settings import JobSettings
from edlz.services.master.core.checkpoints import Checkpoints
from edlz.services.master.core.course import Course
from edlz.services.master.core.group import Group
from edlz.services.master.core.groups import events
from edlz.services.master.core.groups.shared_folder import private_text, unseen_text
from edlz.services.master.core.job_processes import JobProcesses
from edlz.services.master.core.processes.eras import Eras
from edlz.services.master.core.processes.partitions import Partitions
from edlz.services.master.core.vocabulary.inputs import ManifestWritten, StateWritten
from edlz.services.master.core.vocabulary.instructions import Announce, Instruction, WriteManifest
from edlz.services.master.core.vocabulary.verdict import Verdict
from edlz.services.master.core.work import Work
from edlz.services.protocol.groups import BASE, DurableState
from edlz.services.protocol.job_status import FailureView
from edlz.services.protocol.messages import (
    FailedTask,
    GroupOrders,
    Identity,
    Job,
    Member,
    PartitionStatus,
    SnapshotName,
    WorkerStatus,
)

__all__ = ["GroupCourse"]

UNSAVED_S = 300.0  # for so long the state that the job ends with may not be saved


class GroupCourse:
    """The group of one job, and what follows from it.

    Parameters
    ----------
    job : Job
    term : int
        Of this master.
    durable : collection of (SnapshotName, bool)
        States that lie on the disk, whole, and whether as checkpoints.
    hang_s : float
        Seconds without progress until a member counts as hung.
    cores : Partitions, Eras, Checkpoints, Work, Verdict, JobProcesses
        Told what the group has come to, and asked for what its members are to hear.
    course : Course
        Told of a life of the one partition.
    """

    def __init__(
        self,
        job: Job,
        term: int,
        durable: Collection[DurableState],
        hang_s: float,
        cores: tuple[Partitions, Eras, Checkpoints, Work, Verdict, JobProcesses],
        course: Course,
    ) -> None:
        self._plan, self._course, self._term = job.plan, course, term
        self._settings, self._is_unseen = JobSettings.of(job.config), False
        self._partitions, self._eras, self._checkpoints, self._work, self._verdict, self._processes = cores
        self._group = Group(job.plan, term, durable, hang_s, keeps_states=not self._settings.private_job_dir)
        # The last state cannot be saved: its name, why, and since when.
        self._unsaved: tuple[SnapshotName, str, float] | None = None
        self._version = 0  # of the newest status

    # -- what is told

    @property
    def members(self) -> tuple[Member, ...]:
        """Those that train together now, in the order of ranks."""
        return self._group.members

    def orders(self, life: Identity) -> GroupOrders | None:
        """Return what is to be true of a worker as a member."""
        bad_tasks, stands_at = self._work.bad_tasks, self._work.barriers.stands_at
        status = next(iter(self._partitions.statuses), None)
        is_sealed = status is not None and status.is_sealed
        wanted = self._checkpoints.orders(0, is_sealed=is_sealed, stands_at=stands_at)
        number = 0 if wanted is None else wanted.number
        decided = self._work.barriers.decided(self._group.first_open) if self._work.is_open else None
        of_deaths = self._work.caution, self._work.closing_in_groups
        self._group.tell(bad_tasks.journalled, number, decided, *of_deaths)
        return self._group.orders(life)

    # -- inputs

    def begin(self) -> list[Announce]:
        """The master begins: say, once in a job, that it will have nothing to go on from."""
        is_told = self._term == 1 and self._settings.private_job_dir
        return [Announce("group", private_text(self._settings), logging.WARNING)] if is_told else []

    def check(self, status: WorkerStatus) -> None:
        """Raise RemoteProtocolError if no worker of this job says such a thing of its replica; nothing has changed."""
        if status.member is not None:
            self._group.check(status.member)

    def hear(self, status: WorkerStatus, now: float, *, is_spare: bool) -> list[Instruction]:
        """Take in what a worker says of its replica, if it is built; a spare is a member when it is called."""
        if status.member is None:
            return []
        return [*self._see(status), *self._group.hear(status, now, is_spare=is_spare)]

    def _see(self, status: WorkerStatus) -> list[Announce]:
        """Say, once, that a member does not see the master's folder of the job."""
        if status.sees_job_dir or self._is_unseen or self._settings.private_job_dir:
            return []
        self._is_unseen = True
        self._group.keep_nothing()
        self._course.on_no_snapshots()
        assert status.incarnation is not None
        member = Member(incarnation=status.incarnation, worker=status.worker, endpoint=status.member_endpoint)
        return [Announce("group", unseen_text(member, self._settings), logging.WARNING)]

    def admitted(self, status: WorkerStatus) -> WorkerStatus:
        """Return what a worker says, without the wish to evaluate if its group is none any more.

        It would ask for one task after the other, and never have the version.
        """
        member = status.member
        is_in = member is not None and member.generation == self._group.generation
        return status if is_in else msgspec.structs.replace(status, wants_evaluation=False)

    def on_tick(self, now: float) -> list[Instruction]:
        """Time has passed."""
        return self._group.on_tick(now)

    def on_manifest(self, written: ManifestWritten, now: float) -> list[Instruction]:
        """A checkpoint is complete, or could not be completed."""
        return self._group.on_manifest(written.version, now, is_written=not written.error)

    def on_state(self, written: StateWritten, now: float) -> list[Instruction]:
        """A state to go on from is whole, or could not be completed."""
        if not written.error:
            return self._group.on_durable(written.name, now)
        # Meanwhile it is, in others' parts, or a later one has taken its place.
        if self._group.is_saved(written.name):
            return []
        text = f"v{written.name[1]} could not be saved to go on from: {written.error}"
        is_last, out = self._group.on_unsaved(written.name, now)
        if not is_last:
            return [Announce("group", text, logging.WARNING), *out]
        name, known, since_s = self._unsaved or (BASE, "", now)
        if name != written.name:
            known, since_s = "", now
        self._unsaved = written.name, text, since_s
        if now - since_s > UNSAVED_S:
            helps = "make room on the disk of the job's folder, then: edlz resume"
            return [*out, *self._verdict.fail(FailureView(text=text, help=helps))]
        told = [] if text == known else [Announce("group", f"{text}; it is tried again", logging.WARNING)]
        return [*told, *out]

    def lead(self, out: list[Instruction], now: float) -> list[Instruction]:
        """Return what the master is about to do, with what follows for the group and from it; checkpoints have all members' parts."""
        if not self._verdict.is_over:
            out = [*out, *self._advance(now)]
        return [self._group.with_parts(one) if isinstance(one, WriteManifest) else one for one in out]

    def _advance(self, now: float) -> list[Instruction]:
        """Do what follows for the group from what is known now, and from the group for the job."""
        out: list[Instruction] = []
        for worker in self._processes.take_ended():
            out += self._group.on_end(worker, self._processes.live.active or (), now)
        for given in self._group.take_given():
            out += self._on_given(given, now)
        out += self._release(now)
        saved = self._group.saved_version
        is_found = saved is not None and self._checkpoints.find(saved)
        status = self._group.status(self._work.bad_tasks.closing)
        if status is not None:
            return [*out, *self._take(status, now)]
        return [*out, *self._course.advance()] if is_found else out

    # -- what the group's core has decided

    def _on_given(self, given: events.Instruction, now: float) -> list[Instruction]:
        match given:
            case events.Evict():
                worker = self._group.worker(given.incarnation)
                about = {"has_hung": given.is_hung, "is_replaced": given.is_replaced}
                return self._processes.evict(worker, given.reason, now, **about)
            case events.GiveUpTask():
                return self._work.give_up(_attempts(given))
            case _:
                return []

    def _release(self, now: float) -> list[Instruction]:
        """Let members go on behind the version that they hold, when its metrics are known."""
        held = self._group.evaluating
        if held is None or not self._work.is_open:
            return []
        evaluation, version = self._work.evaluation, held[1]
        if not self._work.barriers.are_used and evaluation.open_at(version):
            return []
        return self._group.release(now)

    def _take(self, status: PartitionStatus, now: float) -> list[Instruction]:
        """Take in what the one partition would say."""
        partitions, work = self._partitions, self._work
        finished = partitions.entries[0].finished if partitions.entries else None
        self._eras.newest = status.era
        behind, out = self._group.behind, list[Instruction]()
        if behind is not None:
            self._checkpoints.rewind(behind)
            text = f"training goes back to v{behind}: v{self._version} cannot be gone on from."
            out.append(Announce("group", text))
        if partitions.take(status):
            self._course.on_new_life()
        work.get_on(status, self._group.begun_at)
        self._version = status.version
        entry = partitions.entries[0]
        if finished is None or behind is not None or entry.finished.bounds != finished.bounds:
            out += work.follow(entry.finished, is_back=behind is not None, now=now)
        return [*out, *self._course.advance()]


def _attempts(given: events.GiveUpTask) -> list[tuple[str, FailedTask]]:
    """Return the attempts at a task, also if members have told no more than that it raised."""
    if given.attempts:
        return list(given.attempts)
    task, index = given.task, given.index
    failed = FailedTask(kind="training", task=task, index=index, error=given.error, where="", traceback="")
    return [("", failed)]
