"""What a member exchanges with the others of its generation: parts and means of the step in work, pieces of a state.

Theory of operation.  A generation begins without members (`begin`): parts that come are staged, and nothing is sent.
When it is formed, each member knows its rank, so which chunk of the sum is its own.  What it has asked of others is kept
until they answer; of whom something is long due, the master is told.  Nothing here decides what comes next: that is
the `Replica`'s.
"""

from collections.abc import Collection, Hashable, Mapping
from typing import Required, TypedDict

from edlz.services.parameters.store import Store
from edlz.services.protocol.messages import NO_IDENTITY, Identity, Member, Reduce, Reduced
from edlz.services.protocol.plan import Plan
from edlz.services.worker.core.groups.correspondence import Correspondence
from edlz.services.worker.core.groups.instructions import AskMember, Reply, Slot
from edlz.services.worker.core.groups.message_check import check_mean, check_part
from edlz.services.worker.core.groups.reduction import Reduction, asked_again
from edlz.services.worker.core.groups.step import Chunks, Step, next_step
from edlz.services.worker.core.groups.transfer import Asked, Transfer

__all__ = ["MemberExchange"]


class Links(TypedDict, total=False):
    """Fields of a `MemberStatus`."""

    members: Required[tuple[Identity, ...]]
    lacks: tuple[Identity, ...]
    unanswered: tuple[Identity, ...]
    has_mean: bool


class MemberExchange:
    """One member's exchange, in one generation after another.

    Parameters
    ----------
    me : Identity
        The member's incarnation.
    slots : int
        Most slots of a step.
    bucket : int
        Most elements of one exchange.

    Attributes
    ----------
    generation : Identity
    members : tuple of Member
        Of the generation, in the order of ranks, as soon as it is formed.
    holders : tuple of int
        The ranks of those that have begun with the state that others took over; () if nobody did.
    letters : Correspondence
        What was asked in this generation.
    step : Step or None
        In work.
    """

    def __init__(self, me: Identity, slots: int, bucket: int) -> None:
        self._me, self._slots, self._bucket = me, slots, bucket
        self.generation: Identity = NO_IDENTITY
        self.members: tuple[Member, ...] = ()
        self.holders: tuple[int, ...] = ()
        self.letters = Correspondence()
        self.step: Step | None = None
        self._reduction = Reduction()
        self._chunks: Chunks | None = None

    # -- the group

    def begin(self, generation: Identity) -> list[Reply]:
        """Belong to a generation; who waits for a mean of the one before hears of it."""
        self.generation, self.members, self._chunks = generation, (), None
        self.letters, self.step = Correspondence(), None
        return self._reduction.begin(generation)

    def form(
        self, members: tuple[Member, ...], holders: Collection[Identity], dense: int, state: int
    ) -> list[Reply]:
        """Know the members, which of them hold the state, and the lengths of the model's vectors."""
        self.members = members
        held = tuple(rank for rank, member in enumerate(members) if member.incarnation in holders)
        self.holders = held if len(held) < len(members) else ()
        self._chunks = Chunks(len(members), dense, state, self._bucket)
        own = self.rank
        mine = self._chunks.state_slice(own)
        return self._reduction.form(len(members), self._chunks.buckets(own), mine.stop - mine.start)

    @property
    def chunks(self) -> Chunks:
        assert self._chunks is not None, "the generation is not formed"
        return self._chunks

    @property
    def rank(self) -> int:
        return next(rank for rank, member in enumerate(self.members) if member.incarnation == self._me)

    def member(self, incarnation: Identity) -> Member:
        """Return the member with this incarnation."""
        return next(member for member in self.members if member.incarnation == incarnation)

    def note_heard(self, rank: int, now: float) -> None:
        """Something has come from the member with a rank."""
        if 0 <= rank < len(self.members):
            self.letters.note_heard(self.members[rank].incarnation, now)

    def note_answer(self, who: Identity, key: Hashable, now: float) -> None:
        """A member has answered what was asked with this key."""
        self.letters.on_answer(key)
        self.letters.note_heard(who, now)

    # -- a step

    def begin_step(
        self, plan: Plan, store: Store, ends: Mapping[int, int], task_count: int, *, is_first: bool
    ) -> tuple[Step, tuple[Slot, ...]]:
        """Begin the step that follows a state; see `next_step`.  Before the first one of a group members compare theirs."""
        step, slots = next_step(plan, store, self.rank, self.chunks, ends, task_count)
        step.is_first = is_first
        if is_first:
            step.voters = self.holders
        self.step = step
        return step, slots

    @property
    def in_work(self) -> Step:
        assert self.step is not None, "no step is in work"
        return self.step

    def send(self, snapshot_at: int, checkpoint_at: int, now: float) -> tuple[list[AskMember], list[Reduce]]:
        """Send the owners their parts of the step in work; return what is sent, and the parts that are this member's own."""
        step, rank = self.in_work, self.rank
        step.sent_s = now
        asked: list[AskMember] = []
        own: list[Reduce] = []
        for owner, part in step.parts(self.generation, rank, step.learning_rate, snapshot_at, checkpoint_at):
            if owner == rank:
                own.append(part)
            else:
                key = ("reduce", part.version, owner, part.bucket)
                asked.append(self.letters.ask(self.members[owner], key, part, asked_again(part)))
        return asked, own

    def check(self, part: Reduce) -> None:
        """Raise RemoteProtocolError if what a member sends is no part of this group's steps; nothing has changed."""
        if self.members and part.generation == self.generation:
            check_part(part, self.chunks, self.rank, self._slots)

    def stage(self, to: Hashable, part: Reduce, version: int | None) -> list[Reply]:
        """Stage a part; see `Reduction.take`."""
        return self._reduction.take(to, part, version)

    def take(self, owner: int, mean: Reduced) -> Step | None:
        """Take an owner's mean of the step in work; return the step when all means are there.

        Raises
        ------
        RemoteProtocolError
            If it is no mean of a chunk of that owner.
        """
        step = self.in_work
        check_mean(mean, step.chunks, owner)
        step.means[owner, mean.bucket] = mean
        return step if step.is_complete else None

    def end_step(self) -> None:
        """The step in work is taken: nobody owes an answer any more."""
        self.step = None
        self.letters.forget()

    # -- a transfer

    def fetch(self, requests: list[Asked]) -> list[AskMember]:
        """Ask holders for pieces of a state."""
        return [self.letters.ask(self.member(holder), key, body) for holder, key, body in requests]

    # -- what is told

    def told(self, transfer: Transfer | None, now: float, *, is_member: bool) -> Links:
        """Return of whom parts or the state are long due, of whom means are, and whether this member's own means are done."""
        members = tuple(member.incarnation for member in self.members) if is_member else ()
        if transfer is not None:
            return {"members": members, "lacks": self.letters.overdue(transfer.due, transfer.since_s, now)}
        step = self.step
        if step is None or step.sent_s is None:
            return {"members": members}
        mine = self.rank
        buckets = len(step.chunks.buckets(mine))
        lacks, unanswered = (
            {self.members[rank].incarnation for rank in ranks if rank != mine}
            for ranks in (self._reduction.lacks(step.version, buckets), step.missing)
        )
        return {
            "members": members,
            "lacks": self.letters.overdue(lacks, step.sent_s, now),
            "unanswered": self.letters.overdue(unanswered, step.sent_s, now),
            "has_mean": self._reduction.has_means(step.version, buckets),
        }
