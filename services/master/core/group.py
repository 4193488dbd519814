"""The core that leads the group of an all-reduce job: its members stand where parameter servers would.

Theory of operation.  All members of a group have one state, so to the rest of the master they are the one partition of the job:
what `Rendezvous` knows of them is told as that partition's status, whose life is the group's generation.  What the
partition would be ordered, the members' orders say: where bad tasks end, which checkpoint is wanted, which version is
evaluated.  Members hold a version that is to be evaluated until its round is over.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

from edlz.services.master.core.groups import events
from edlz.services.master.core.groups.rendezvous import Rendezvous, Stage
from edlz.services.master.core.groups.status_check import check_status, check_written
from edlz.services.master.core.vocabulary.instructions import Announce, Instruction, WriteManifest, WriteState
from edlz.services.protocol.groups import BASE, DurableState, number_of
from edlz.services.protocol.ledger import LedgerRecord, TaskSet
from edlz.services.protocol.messages import (
    NO_IDENTITY,
    CheckpointPart,
    ClosedTask,
    Decided,
    GroupOrders,
    Identity,
    Member,
    MemberStatus,
    PartInfo,
    PartitionStatus,
    SnapshotName,
    WorkerStatus,
    WrittenPart,
)
from edlz.services.protocol.plan import Plan

__all__ = ["Given", "Group"]

Given = events.Evict | events.GiveUpTask | events.Evaluate
"""What the master decides with others."""


class Group:
    """The group of one job, under one master's term.

    Parameters
    ----------
    plan : Plan
    term : int
    durable : collection of (SnapshotName, bool)
        States that lie on the disk, whole, and whether as checkpoints.
    hang_s : float
        Seconds without progress until a member counts as hung.
    keeps_states : bool
        Whether what members write to go on from is found again.

    Attributes
    ----------
    behind : int or None
        The version that members have gone back to, if they were further when their status before was told.
    """

    def __init__(
        self, plan: Plan, term: int, durable: Collection[DurableState], hang_s: float, *, keeps_states: bool
    ) -> None:
        self._keeps_states = keeps_states
        self._plan, self._term, self._before, self._hang_s = plan, term, tuple(durable), hang_s
        self._core: Rendezvous | None = None  # from the first input on
        self._lives: dict[str, set[Identity]] = {}  # of workers, by id
        self._workers: dict[Identity, str] = {}  # the same the other way round, of all that were ever heard
        self._parts: dict[int, tuple[SnapshotName, tuple[PartInfo, ...]]] = {}  # of checkpoints, by version
        self._reports: tuple[CheckpointPart, ...] = ()
        self._failures = 0  # of checkpoints' parts
        # Of the newest status; the lowest one that members have had since.
        self._version = self._lowest = 0
        self._seq = 0
        self._said: tuple[object, ...] = ()  # what the newest status was made of
        self._heard: set[Identity] = set()  # workers that have spoken since
        self._told: Identity | None = None  # the generation of which a screen has heard
        self.behind: int | None = None
        self._given: list[Given] = []

    @property
    def _rendezvous(self) -> Rendezvous:
        assert self._core is not None, "nothing has been heard"
        return self._core

    # -- inputs

    def on_tick(self, now: float) -> list[Instruction]:
        """Time has passed."""
        return self._feed(events.Tick(), now)

    def check(self, status: MemberStatus) -> None:
        """Raise RemoteProtocolError if no member of this job says such a thing; nothing has changed."""
        if self._core is None:
            check_status(status, self._plan, (self._term, 0))
        else:
            self._core.check(status)
        check_written(status)

    def hear(self, status: WorkerStatus, now: float, *, is_spare: bool = False) -> list[Instruction]:
        """Take in what a worker says of its replica."""
        assert status.incarnation is not None
        assert status.member is not None
        life, out = status.incarnation, list[Instruction]()
        known = self._lives.setdefault(status.worker, set())
        for before in sorted(known - {life}):
            if before < life:  # a new life of the same id
                known.discard(before)
                out += self._feed(events.Lost(before), now)
        known.add(life)
        self._heard.add(life)
        self._workers[life] = status.worker
        member = Member(incarnation=life, worker=status.worker, endpoint=status.member_endpoint)
        return [*out, *self._feed(events.Heard(member, status.member, is_spare), now)]

    def on_end(self, worker: str, active: Collection[str], now: float) -> list[Instruction]:
        """A worker has ended, or is not wanted any more; these are no spares, perhaps from now on."""
        lives = sorted(self._lives.pop(worker, ()))
        called = {life for name in active for life in self._lives.get(name, ())}
        return [one for life in lives for one in self._feed(events.Lost(life, called), now)]

    def on_durable(self, name: SnapshotName, now: float, *, is_checkpoint: bool = False) -> list[Instruction]:
        """A state is whole on the disk."""
        return self._feed(events.Durable(name, is_checkpoint), now)

    def is_saved(self, name: SnapshotName) -> bool:
        """Whether a state is whole among those to go on from, or a later one is, so that nobody needs it."""
        core = self._rendezvous
        return core.has_written(name, is_checkpoint=False) or any(other > name for other in core.durable)

    def on_unsaved(self, name: SnapshotName, now: float) -> tuple[bool, list[Instruction]]:
        """A state could not be completed; whether the job cannot end without it, so that it is tried again."""
        out = self._feed(events.Unsaved(name), now)
        return self._keeps_states and self._rendezvous.has_sealed(name), out

    def keep_nothing(self) -> None:
        """What members write to go on from is not found: nobody waits for it."""
        self._keeps_states = False
        if self._core is not None:
            self._core.keeps_states = False

    def on_manifest(self, version: int, now: float, *, is_written: bool) -> list[Instruction]:
        """The same of a checkpoint, or it could not be completed."""
        name, _ = self._parts.pop(version, (None, ()))
        return self.on_durable(name, now, is_checkpoint=True) if name is not None and is_written else []

    def release(self, now: float) -> list[Instruction]:
        """The state that was to be evaluated is: members go on."""
        return [] if self.evaluating is None else self._feed(events.Evaluated(self.evaluating), now)

    def tell(
        self,
        ends: Sequence[tuple[int, int]],
        checkpoint: int,
        decided: Decided | None,
        caution: tuple[int, int],
        closing: tuple[int, ...],
    ) -> None:
        """What members are told from now on."""
        if (core := self._core) is not None:
            core.ends, core.checkpoint, core.decided = dict(ends), checkpoint, decided
            core.deaths.caution, core.deaths.closing = caution, closing

    def orders(self, life: Identity) -> GroupOrders | None:
        """Return what is to be true of a worker as a member."""
        return None if self._core is None else self._core.orders(life)

    def take_given(self) -> list[Given]:
        """Return what is to be decided with others, once."""
        given, self._given = self._given, []
        return given

    # -- what is told

    @property
    def members(self) -> tuple[Member, ...]:
        """Those that train together now, in the order of ranks."""
        return () if self._core is None else self._core.members

    @property
    def evaluating(self) -> SnapshotName | None:
        """The state that members hold until it is evaluated."""
        return None if self._core is None else self._core.evaluating

    @property
    def saved_version(self) -> int | None:
        """The version that all members have, if it is whole as a checkpoint, by whomever it was completed."""
        statuses = () if self._core is None else self._core.statuses
        name = min((status.name for status in statuses), default=BASE)
        is_saved = statuses and self._rendezvous.has_written(name, is_checkpoint=True)
        return name[1] if is_saved else None

    @property
    def first_open(self) -> int:
        """The first task that some member has not finished, as far as members have told."""
        members = () if self._core is None else self._core.told_members
        return min((TaskSet(status.finished).first_missing() for status in members), default=0)

    @property
    def begun_at(self) -> int:
        """The version that the newest group has begun with."""
        return self._rendezvous.begun_at

    @property
    def generation(self) -> Identity:
        """The newest that this master has named, or goes on with."""
        return NO_IDENTITY if self._core is None else self._core.generation

    def worker(self, life: Identity) -> str:
        """Return the id of a worker that has been heard."""
        return self._workers[life]

    def status(self, closing: Sequence[tuple[int, int]]) -> PartitionStatus | None:
        """Return what a partition with the members' state would say; None while they do not take steps together, or if it
        has said so before and not all of them have spoken since.

        Parameters
        ----------
        closing : sequence of (int, int)
            As in the orders of partitions.
        """
        statuses = () if self._core is None else self._core.statuses
        if not statuses:
            return None
        least, core = min(statuses, key=lambda status: status.name), self._rendezvous
        self._lowest = min(self._lowest, least.name[1])
        self.behind = self._lowest if self._lowest < self._version else None
        self._version = self._lowest = least.name[1]
        said = (core.generation, core.stage, least.name, tuple(closing), self._reports, core.durable)
        if said == self._said and not self._heard.issuperset(member.incarnation for member in core.members):
            return None
        self._said, self._heard = said, set()
        return self._as_partition(least, closing)

    def _as_partition(self, member: MemberStatus, closing: Sequence[tuple[int, int]]) -> PartitionStatus:
        self._seq += 1
        core, finished, marks = self._rendezvous, TaskSet(member.finished), dict(member.marks)
        stand = {(status.phase, status.name) for status in core.statuses} == {("barred", member.name)}
        closed = tuple(
            ClosedTask(task=task, number=number, mark=marks.get(task, 0), finished=task in finished)
            for task, number in closing
            if stand or task not in core.deaths.closing  # else a step may be under way
        )
        return PartitionStatus(
            partition=0,
            boot=0,
            incarnation=core.generation,
            seq=self._seq,
            term=self._term,
            endpoint=core.members[0].endpoint,
            era=core.generation,
            version=member.name[1],
            has_base=True,
            ledger=LedgerRecord(finished=member.finished, marks=member.marks, minibatches=member.minibatches),
            finished_tasks=len(finished),
            minibatches=member.minibatches,
            open_minibatches=sum(marks.values()),
            snapshots=core.durable,
            is_sealed=core.stage is Stage.COMPLETE,
            parts=self._reports,
            recount=member.recount,
            closed=closed,
            losses=member.losses,
        )

    def news(self) -> list[Announce]:
        """Say, once, who trains together."""
        core = self._rendezvous
        if not core.statuses or core.generation == self._told:
            return []
        self._told = core.generation
        workers = sorted((member.worker for member in core.members), key=lambda name: (len(name), name))
        names = ", ".join(f"worker-{worker}" for worker in workers)
        return [Announce("group", f"the model is on {names}.")]

    def with_parts(self, order: WriteManifest) -> WriteManifest:
        """Return the order to complete a checkpoint with all members' parts."""
        name, parts = self._parts[order.version]
        return replace(order, parts=parts, number=number_of(name[0]))

    # -- what the core of the group asks for

    def _feed(self, event: events.Input, now: float) -> list[Instruction]:
        if self._core is None:
            self._core = Rendezvous(self._plan, self._term, now, self._before, self._hang_s)
            self._core.keeps_states = self._keeps_states
        out: list[Instruction] = []
        found = self._core.feed(event, now)
        for version in self._core.take_begun():
            self._on_history(version)
        for one in found:
            match one:
                case events.Tell(text, is_warning):
                    out.append(Announce("group", text, logging.WARNING if is_warning else logging.INFO))
                case events.WriteManifest(name, _, is_checkpoint, parts):
                    out += self._on_whole(name, parts, is_checkpoint=is_checkpoint)
                case events.PartFailed():
                    self._on_part_failed(one)
                case events.Complete() | events.Evaluate():
                    pass
                case _:
                    self._given.append(one)
        return [*out, *self.news()]

    def _on_history(self, version: int) -> None:
        """A group has begun with a state of this version: what was written behind it is of another history."""
        self._lowest = min(self._lowest, version)
        self._reports = tuple(part for part in self._reports if part.version <= version)

    def _on_whole(
        self, name: SnapshotName, parts: Sequence[WrittenPart], *, is_checkpoint: bool
    ) -> list[Instruction]:
        """All parts of a state are on the disk."""
        infos = tuple(part.info for part in parts if part.info is not None)
        if not is_checkpoint:
            return [WriteState(name, infos, number_of(name[0]))]
        version = name[1]
        self._parts[version] = name, infos
        self._report(CheckpointPart(number=version, version=version, info=infos[0]))
        return []

    def _on_part_failed(self, failed: events.PartFailed) -> None:
        part, version = failed.part, failed.part.name[1]
        if part.is_checkpoint:
            self._failures += 1
            where = f"worker-{self._workers[failed.incarnation]}"
            self._report(
                CheckpointPart(
                    number=version, version=version, error=part.error, attempt=self._failures, where=where
                )
            )

    def _report(self, part: CheckpointPart) -> None:
        self._reports = (*self._reports[-3:], part)
