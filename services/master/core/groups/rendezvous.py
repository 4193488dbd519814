"""Who are the members of an all-reduce job, and which state they go on from.

Theory of operation.  The master decides membership and nothing else: a group goes on without it.  A new generation is
*gathered*: all ready workers are told to promise it, and when all that still live have, it is *formed*: its members by
age, its source the greatest name among those that promised (what nobody who promised has was never committed by a whole
group that is still there), or a durable state if that is greater.  A loss, an eviction, a task that is to be tried by
somebody else or a join begins the next one.  A restarted master *settles*: it hears the statuses of its term, and goes on
with a group that is whole.  What is done is what the group's ledger says.  PROTOCOL: "AllReduce".
"""

from collections.abc import Collection
from enum import Enum

from edlz.services.master.core.groups.bad_minibatches import BadMinibatches
from edlz.services.master.core.groups.damage import damage_texts, doubt_text
from edlz.services.master.core.groups.deaths import Deaths
from edlz.services.master.core.groups.events import (
    Complete,
    Durable,
    Evaluate,
    Evaluated,
    Evict,
    Heard,
    Input,
    Instruction,
    Lost,
    Tell,
    Tick,
    Unsaved,
)
from edlz.services.master.core.groups.evictions import Eviction, Evictions
from edlz.services.master.core.groups.hangs import HANG_S
from edlz.services.master.core.groups.held_states import HeldStates
from edlz.services.master.core.groups.joins import Joins
from edlz.services.master.core.groups.sources import Sources
from edlz.services.master.core.groups.status_check import check_status
from edlz.services.master.core.groups.whole_group import whole_group
from edlz.services.master.core.groups.written_states import WrittenStates
from edlz.services.protocol.groups import BASE, DurableState
from edlz.services.protocol.ledger import TaskSet
from edlz.services.protocol.messages import (
    NO_IDENTITY,
    Decided,
    Ends,
    GroupOrders,
    Identity,
    Member,
    MemberStatus,
    SnapshotName,
)
from edlz.services.protocol.plan import Plan
from edlz.services.transitions import Transitions

__all__ = ["STEPS", "Rendezvous", "Stage"]

SILENT_S = 10.0
JOIN_WAIT_S = 5.0  # for the step in work, before those who join,
JOIN_STEPS = 2.0  # or for as long as so many steps take


class Stage(Enum):
    """Where the group stands."""

    SETTLING = "settling"  # a restarted master hears who there is
    GATHERING = "gathering"  # workers promise the generation
    FORMED = "formed"
    COMPLETE = "complete"


STEPS = Transitions(
    "a group",
    Stage.SETTLING,
    {
        Stage.SETTLING: {Stage.GATHERING, Stage.FORMED},
        Stage.GATHERING: {Stage.GATHERING, Stage.FORMED},
        Stage.FORMED: {Stage.GATHERING, Stage.COMPLETE},
        Stage.COMPLETE: {Stage.GATHERING},  # a member was lost, and somebody may still want the state of all
    },
)


class Rendezvous:
    """The groups of one job, under one master's term.

    Parameters
    ----------
    plan : Plan
    term : int
        Of this master.
    now : float
        When it begins.
    durable : collection of (SnapshotName, bool)
        States that lie on the disk, whole, and whether as checkpoints.
    hang_s : float
        Seconds without progress until a member for whom others wait counts as hung.

    Attributes
    ----------
    stage : Stage
    generation : Identity
    ends : dict of int to int
        Where bad tasks end, as journalled: whoever carries out `GiveUpTask` enters it here behind the journal.
    checkpoint : int
        What is told of one that is wanted out of turn; see `GroupOrders`.
    decided : Decided or None
        What is told of barriers, and where the job ends.
    deaths : Deaths
        What is told of those that nobody explains.
    keeps_states : bool
        Whether what members write to go on from is found again: then the job ends when its last state is whole there.
    """

    def __init__(
        self,
        plan: Plan,
        term: int,
        now: float,
        durable: Collection[DurableState] = (),
        hang_s: float = HANG_S,
    ) -> None:
        self._plan, self._term = plan, term
        self._held = HeldStates()
        self._states = WrittenStates(durable)
        self._began_s = self._opened_s = now
        self.stage = Stage.SETTLING
        self.generation: Identity = NO_IDENTITY
        self.ends: dict[int, int] = {}
        self.checkpoint = 0
        self.decided: Decided | None = None
        self.keeps_states = True
        self.deaths = Deaths()
        self._count = 0  # of generations
        self._statuses: dict[Identity, MemberStatus] = {}  # of this term, by worker's life
        self._members: dict[Identity, Member] = {}
        self._heard_s: dict[Identity, float] = {}
        self._ready_s: dict[Identity, float] = {}
        self._spares: set[Identity] = set()
        self._lost: set[Identity] = set()
        self._evicted: set[Identity] = set()
        self._evictions = Evictions(hang_s)
        self._joins = Joins()
        self._candidates: tuple[Identity, ...] = ()  # who is told of the generation
        self._group: tuple[Identity, ...] = ()  # its members, when it is formed
        self._source: SnapshotName = BASE  # what the newest group has begun with
        self._begun: list[int] = []  # versions that groups have begun with since somebody asked
        self._formed: Identity = NO_IDENTITY  # its generation
        self._formed_of: tuple[Identity, ...] = ()  # its members
        self._holders: tuple[Identity, ...] = ()
        self._sources = Sources()
        self._is_join = False
        self._bad = BadMinibatches()

    # -- inputs

    def check(self, status: MemberStatus) -> None:
        """Raise RemoteProtocolError if no member of this job says such a thing; nothing has changed.

        Whoever hears a status has it looked at first.
        """
        check_status(status, self._plan, self.newest)

    def feed(self, event: Input, now: float) -> list[Instruction]:
        """Take an input; return what is to be done."""
        out: list[Instruction] = []
        match event:
            case Heard(member, status, is_spare):
                out = self._on_heard(member, status, now, is_spare=is_spare)
            case Lost(incarnation, active):
                self._spares.difference_update(active)
                self._lost.add(incarnation)
                self._states.forget(incarnation)
                self._evictions.forget(incarnation, self._lost)
            case Durable(name, is_checkpoint):
                self._states.add(name, is_checkpoint=is_checkpoint)
            case Unsaved(name):
                self._states.note_unsaved(name)
            case Evaluated(name):
                self._held.release(name)
            case Tick():
                pass
        return [*out, *self._decide(now)]

    def _on_heard(
        self, member: Member, status: MemberStatus, now: float, *, is_spare: bool
    ) -> list[Instruction]:
        """Believe what was said under this term; whoever speaks is there again."""
        who = member.incarnation
        self._members[who] = member
        if status.term != self._term:
            return []
        self._statuses[who], self._heard_s[who] = status, now
        (self._spares.add if is_spare and not status.members else self._spares.discard)(who)
        self._evictions.note(who, status, now)
        if status.phase != "starting":
            self._ready_s.setdefault(who, now)
        if status.unreadable is not None:
            self._sources.note_unreadable(who, status.unreadable)
        return self._take_parts(who)

    def _take_parts(self, who: Identity) -> list[Instruction]:
        """Take in what a worker tells of parts of states, as far as the states are of the group's own history."""
        written = self._statuses[who].written
        return [one for part in written if self._is_ours(part.name) for one in self._states.take(who, part)]

    def _is_ours(self, name: SnapshotName) -> bool:
        """Whether the newest group has come to a state, or has begun with it or behind it.

        A group that was cut off may have gone on, and be whole, while another one has begun with what was durable.
        """
        generation, version = self._source
        return name[0] == self._formed or (name[0] == generation and name[1] <= version)

    @property
    def statuses(self) -> tuple[MemberStatus, ...]:
        """The newest of all members, when all of them say that they take the group's steps; else nothing."""
        if self.stage not in (Stage.FORMED, Stage.COMPLETE):
            return ()
        found = tuple(self._statuses[who] for who in self._group if who in self._statuses)
        are_in = len(found) == len(self._group) and all(
            status.members and status.generation == self.generation for status in found
        )
        return found if are_in else ()

    @property
    def evaluating(self) -> SnapshotName | None:
        """The state that members hold until it is evaluated."""
        return self._held.evaluating

    @property
    def durable(self) -> tuple[SnapshotName, ...]:
        """The names of the newest states that lie on the disk, whole."""
        return self._states.durable

    def has_written(self, name: SnapshotName, *, is_checkpoint: bool) -> bool:
        """Whether a state lies there whole: as a checkpoint, or among those to go on from."""
        return self._states.has(name, is_checkpoint=is_checkpoint)

    def take_begun(self) -> list[int]:
        """Return, once, the versions that groups have begun with: one that has come to a version may have been behind it."""
        begun, self._begun = self._begun, []
        return begun

    def has_sealed(self, name: SnapshotName) -> bool:
        """Whether some member of the group has written its part of this state as the last one of the job."""
        return any((status.phase, status.name) == ("sealed", name) for status in self.told_members)

    @property
    def told_members(self) -> tuple[MemberStatus, ...]:
        """The newest of all that were told to be members, whatever they say."""
        return tuple(self._statuses[who] for who in self._group if who in self._statuses)

    @property
    def begun_at(self) -> int:
        """The version that the newest group has begun with."""
        return self._source[1]

    @property
    def newest(self) -> Identity:
        """The greatest generation that any master of the job has named."""
        return self._term, self._count

    @property
    def members(self) -> tuple[Member, ...]:
        """The group's, in the order of ranks."""
        return tuple(self._members[who] for who in self._group)

    # -- what is told

    def orders(self, who: Identity) -> GroupOrders:
        """Return what is to be true of a worker."""
        is_told = who in self._candidates
        is_formed = self.stage in (Stage.FORMED, Stage.COMPLETE) and who in self._group
        load = self._sources.load
        return GroupOrders(
            term=self._term,
            generation=self.generation if is_told else NO_IDENTITY,
            members=tuple(self._members[member] for member in self._group) if is_formed else (),
            source=self._source,
            holders=self._holders,
            load=load[1] if load is not None and load[0] == who else None,
            ends=self._told_ends(),
            is_join=self._is_join,
            released=self._held.released,
            checkpoint=self.checkpoint if is_formed else 0,
            checkpointed=self._source[1] if self._states.is_checkpointed(self._source) else 0,
            decided=self.decided,
            caution=self.deaths.caution,
            closing=self.deaths.closing,
            computing=self._statuses[who].computing if who in self._statuses else None,
        )

    def _told_ends(self) -> Ends:
        return tuple(sorted(self.ends.items()))

    # -- decisions

    def _enter(self, stage: Stage) -> None:
        STEPS.check(self.stage, stage)
        self.stage = stage

    def _live(self, now: float) -> tuple[Identity, ...]:
        """Workers that may be members, the oldest first."""
        gone = self._lost | self._evicted | (self._spares - set(self._candidates))
        return tuple(
            who for who in sorted(self._ready_s) if who not in gone and now - self._heard_s[who] <= SILENT_S
        )

    def _decide(self, now: float) -> list[Instruction]:
        live = self._live(now)
        if self.stage is Stage.SETTLING:
            return self._settle(live, now)
        if self.stage is Stage.GATHERING:
            return self._form(live, now)
        if self.stage is Stage.COMPLETE:
            return self._watch_members(live, now) or []
        return self._watch(live, now)

    def _settle(self, live: tuple[Identity, ...], now: float) -> list[Instruction]:
        """Go on with a group that is whole; begin anew when whoever is there has had the time to say so."""
        group = whole_group(self._statuses, live)
        if group is not None:
            self._enter(Stage.FORMED)
            self.generation, self._group = group
            self._candidates = self._group
            went_on = Tell(f"Training goes on with {_workers(len(self._group))}.")
            return [went_on, *self._begin_history(self._statuses[self._group[0]].source)]
        is_new = self._term == 1 and live
        if is_new or now - self._began_s > SILENT_S + 2:
            return self._open(live, now)
        return []

    def _open(
        self, live: tuple[Identity, ...], now: float, *, why: str = "", is_join: bool = False
    ) -> list[Instruction]:
        """Gather a new generation of all who live."""
        self._enter(Stage.GATHERING)
        self._count += 1
        self.generation, self._is_join, self._opened_s = (self._term, self._count), is_join, now
        self._candidates, self._group = live, ()
        self._sources.begin()
        self.deaths.on_generation()
        return [Tell(why)] if why else []

    def _form(self, live: tuple[Identity, ...], now: float) -> list[Instruction]:
        """Name members and source when all candidates that are still there have promised."""
        candidates = tuple(who for who in self._candidates if who in live)
        wait_s = max(JOIN_WAIT_S, JOIN_STEPS * self._evictions.step_s)
        if len(candidates) < len(self._candidates) or now - self._opened_s > wait_s:
            self._is_join = False  # the step that is in work may never end
        if not candidates:
            return self._open(live, now) if live else []
        if not self._have_promised(candidates):
            return []
        told, names = self._find_source(candidates)
        if names is None:
            return told
        best = max(names.values())
        self._sources.end()
        self._enter(Stage.FORMED)
        self._joins.form(set(candidates).difference(self._formed_of), best[1])
        self._formed_of = candidates
        turn = self._bad.turn % len(candidates)
        self._group = (*candidates[turn:], *candidates[:turn])
        self._holders = tuple(who for who in names if names[who] == best)
        return [*told, *self._begin_history(best)]

    def _find_source(
        self, candidates: tuple[Identity, ...]
    ) -> tuple[list[Instruction], dict[Identity, SnapshotName] | None]:
        """Return what is told of damage, and who has which state to go on from; None while one of them reads it."""
        sources, was_certain = self._sources, self._sources.certain
        names = sources.find(candidates, self._statuses, self._states.durable)
        statuses = {who: self._statuses[who] for who in candidates}
        texts: list[str] = []
        if sources.certain is not None:
            self._states.keep(sources.certain)
            if was_certain is None:
                texts = [doubt_text(statuses, self._members, sources.goal)]
        elif names is not None:
            texts = damage_texts(statuses, self._members, names, self._source, self._holders)
        return [Tell(text, is_warning=True) for text in texts], names

    def _have_promised(self, candidates: Collection[Identity]) -> bool:
        """Whether none of them takes a step of an earlier group any more: then what it says that it has stays so."""
        return all(self._statuses[who].generation == self.generation for who in candidates)

    def _begin_history(self, source: SnapshotName) -> list[Instruction]:
        """A group is formed that goes on from a state; what its members have told of its history before counts now."""
        self._source, self._formed = source, self.generation
        self._begun.append(source[1])
        if self.evaluating is not None and not self._is_ours(self.evaluating):
            self._held.evaluating = None
        return [one for who in self._group for one in self._take_parts(who)]

    def _watch(self, live: tuple[Identity, ...], now: float) -> list[Instruction]:
        """See whether the group can go on, and whether it is done."""
        lost = self._watch_members(live, now)
        if lost is not None:
            return lost
        statuses = {who: self._statuses[who] for who in self._group}
        if not any(status.members for status in statuses.values()) and not any(
            statuses[who].name == self._source for who in self._holders if who in statuses
        ):
            return self._open(live, now)  # nobody holds the source
        new = [who for who in live if who not in self._group]
        if new and all(now - self._ready_s[who] > self._joins.settle_s for who in new):
            return self._open(live, now, is_join=True)
        if any(status.phase == "staged" and _is_in_doubt(status) for status in statuses.values()):
            return self._open(live, now)  # it takes another state over
        if self.deaths.is_generation_due:
            return self._open(live, now)
        failures = self._on_failures(statuses, live, now)
        if failures is not None:
            return failures
        self._note_progress(statuses)
        members = {who: self._members[who] for who in self._group}
        found = self._evictions.due(statuses, members, self.generation, now)
        if found is not None:
            return self._evict(found, live, now)
        return [*self._evaluate(statuses), *self._conclude(statuses)]

    def _watch_members(self, live: tuple[Identity, ...], now: float) -> list[Instruction] | None:
        """Begin anew if a member is lost; None if none is."""
        gone = [who for who in self._group if who not in live]
        if not gone:
            return None
        self._joins.lose(gone)
        names = ", ".join(self._name(who) for who in gone)
        rest = (
            f"{_workers(len(live))} {'goes' if len(live) == 1 else 'go'} on."
            if live
            else "nobody is left of it."
        )
        return self._open(live, now, why=f"{names} left the group; {rest}")

    def _evaluate(self, statuses: dict[Identity, MemberStatus]) -> list[Instruction]:
        """Have a state evaluated that a member of the group holds; the others have it too, or are about to."""
        for status in statuses.values():
            is_held = status.phase == "held" and status.generation == self.generation
            if is_held and self._held.hold(status.name):
                return [Evaluate(status.name)]
        return []

    def _note_progress(self, statuses: dict[Identity, MemberStatus]) -> None:
        """See who has stayed, and who have taken a step together."""
        names = [status.name for status in statuses.values() if status.generation == self.generation]
        if len(names) == len(self._group):
            self._joins.advance({who: status.name[1] for who, status in statuses.items()})
            self._evictions.advance(self.members, self._source, min(names))

    def _evict(self, found: Eviction, live: tuple[Identity, ...], now: float) -> list[Instruction]:
        self._evicted.add(found.who)
        rest = tuple(member for member in live if member != found.who)
        what = "another worker" if found.is_replaced else "no other worker"
        why = f"{found.reason}; {what} takes its place."
        evict = Evict(found.who, found.reason, is_hung=found.is_hung, is_replaced=found.is_replaced)
        return [evict, *self._open(rest, now, why=why)]

    def _on_failures(
        self, statuses: dict[Identity, MemberStatus], live: tuple[Identity, ...], now: float
    ) -> list[Instruction] | None:
        """Have another member try what has failed, or give it up; None if nothing has."""
        for who, status in statuses.items():
            failed = status.failed
            if failed is None or status.generation != self.generation or self._bad.is_given_up(failed.task):
                continue
            given_up = self._bad.count(self._members[who].worker, failed)
            return self._open(live, now) if given_up is None else [given_up]
        return None

    def _conclude(self, statuses: dict[Identity, MemberStatus]) -> list[Instruction]:
        """The job is complete when every member of one generation has made the full ledger durable."""
        count = self._plan.task_count if self.decided is None else self.decided.task_count
        for status in statuses.values():
            is_full = len(TaskSet(status.finished)) >= count
            if not (is_full and status.phase == "sealed" and status.generation == self.generation):
                return []
        name = next(iter(statuses.values())).name
        if self.keeps_states and not self._states.has(name, is_checkpoint=False):
            self._states.reopen(name)
            return []
        self._enter(Stage.COMPLETE)
        return [Complete(name, len(statuses))]

    def _name(self, who: Identity) -> str:
        return f"worker-{self._members[who].worker}"


def _is_in_doubt(status: MemberStatus) -> bool:
    return status.is_doubtful or status.differs_from is not None


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"
