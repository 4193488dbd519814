"""A member alone: promises, transfers that go wrong, what it tells of links; all else is simulated."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
import pytest

from edlz.services.configuration.job_settings import JobSettings
from edlz.services.errors import LocalProtocolError, RemoteProtocolError
from edlz.services.protocol.groups import BASE, LINK_WAIT_S
from edlz.services.protocol.messages import (
    Decided,
    FetchState,
    GroupOrders,
    GroupRefused,
    Member,
    Reduce,
    Reduced,
    SlotHeader,
    StatePiece,
)
from edlz.services.worker.core.groups import transfer
from edlz.services.worker.core.groups.inputs import (
    Advanced,
    Answered,
    Assembled,
    BlockComputed,
    Built,
    Digested,
    Input,
    MemberOrdered,
    Request,
    SlotBegins,
    SlotComputed,
    SlotFailed,
    Tick,
)
from edlz.services.worker.core.groups.instructions import (
    Abandon,
    Advance,
    AskMember,
    AssembleState,
    Compute,
    DigestState,
    Instruction,
    Proceed,
    Reply,
    StageOwn,
    Tell,
    WritePart,
)
from edlz.services.worker.core.groups.milestones import Milestones
from edlz.services.worker.core.groups.node_sums import NodeSums
from edlz.services.worker.core.groups.reduction import OWN
from edlz.services.worker.core.groups.replica import Replica
from edlz.services.worker.core.groups.replica_phases import STEPS, Phase
from edlz.services.worker.core.groups.state_transfer import state_digest
from edlz.services.worker.core.groups.step import Chunks, Step
from edlz.services.worker.core.member import replica_of
from tests import builders
from tests.simulation.groups.reference import initial_store
from tests.simulation.groups.schedule import GroupSchedule

SCHEDULE = GroupSchedule(seed=1, slots=2, epochs=1, lengths=(2, 2), workers=2)
MEMBERS = tuple(Member(incarnation=(1, n), worker=str(n)) for n in (1, 2, 3))
Kind = TypeVar("Kind")


def replica(number: int) -> Replica:
    made = Replica((1, number), SCHEDULE.plan, Milestones(1000.0), bucket=32)
    made.feed(Built(initial_store(SCHEDULE)), 0.0)
    return made


def orders(n: int, **fields: Any) -> MemberOrdered:
    fields.setdefault("decided", Decided(fence=2, task_count=2))
    return MemberOrdered(GroupOrders(term=1, generation=(1, n), **fields))


def member(number: int, group: Sequence[Member], **fields: Any) -> Replica:
    """Return a member of generation (1, 1)."""
    made = replica(number)
    made.feed(orders(1), 0.0)
    made.feed(orders(1, members=tuple(group), holders=((1, 1),), **fields), 0.0)
    return made


def only(kind: type[Kind], found: list[Instruction]) -> list[Kind]:
    return [each for each in found if isinstance(each, kind)]


def compute(made: Replica, found: list[Instruction], now: float = 0.0) -> list[Instruction]:
    """Carry out what a member is to compute."""
    out: list[Instruction] = []
    for order in only(Compute, found):
        sums = NodeSums(order.block, order.count)
        for slot in order.slots:
            header = SlotHeader(
                slot=slot.slot, task=slot.task, index=slot.index, is_last=slot.index == 1, is_empty=False
            )
            sums.add(slot.slot, np.full(80, slot.slot + 1, np.float32), np.zeros(32, np.float32))
            event: Input = SlotComputed(order.attempt, header, np.zeros(16, np.int64))
            out += made.feed(event, now)
        computed = made.feed(BlockComputed(order.attempt, 0.1, sums.take()), now)
        out += [*computed, *aside(made, computed, now)]
    return out


def staged(made: Replica, found: list[Instruction], now: float = 0.0) -> list[Instruction]:
    """Give a member its own parts."""
    return [one for own in only(StageOwn, found) for one in made.feed(Request(OWN, own.part), now)]


def aside(made: Replica, found: list[Instruction], now: float = 0.0) -> list[Instruction]:
    """Carry out what a member asks of itself; what that asks is carried out, too."""
    out: list[Instruction] = staged(made, found, now)
    for one in [*found, *out]:
        match one:
            case DigestState(key, state):
                out += made.feed(Digested(key, state_digest(state)), now)
            case Advance(values):
                values.run()
                out += made.feed(Advanced(), now)
            case AssembleState(attempt, incoming):
                out += made.feed(Assembled(attempt, incoming.whole()), now)
    return out


def test_one_member_takes_all_steps_by_itself_and_seals() -> None:
    made = replica(1)
    made.feed(orders(1), 0.0)
    found = made.feed(orders(1, members=MEMBERS[:1], holders=((1, 1),)), 0.0)
    assert only(Compute, found)
    for _ in range(2):
        found = compute(made, found)
        assert not only(AskMember, found)
    assert made.name == ((1, 1), 2)
    [last] = only(WritePart, found)
    assert last.is_last
    assert last.state.ledger.finished == (0, 2)
    assert made.phase is Phase.SEALING


@pytest.mark.parametrize(("is_private", "sees_job_dir"), [(True, True), (False, False)])
def test_what_no_other_process_would_see_is_not_written(
    is_private: bool, sees_job_dir: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor has a member that does not see the master's folder a place for it: the job would end by that, when all is trained."""
    settings = JobSettings.of(builders.settings(private_job_dir=is_private).to_record())
    made = replica_of((1, 1), SCHEDULE.plan, settings, sees_job_dir=sees_job_dir)
    made.feed(Built(initial_store(SCHEDULE)), 0.0)
    made.feed(orders(1), 0.0)
    found = made.feed(orders(1, members=MEMBERS[:1], holders=((1, 1),)), 0.0)
    named = Milestones.named
    # Whoever has rank 0 may see the folder.
    monkeypatch.setattr(
        Milestones, "named", lambda self, version, now: (version + 1, named(self, version, now)[1])
    )
    for now in (1e3, 1e6):
        found = compute(made, found, now)
        assert not only(WritePart, found)
    assert made.phase is Phase.SEALED


def test_who_has_promised_gives_nothing_to_a_lower_generation() -> None:
    made = member(1, MEMBERS[:2])
    found = made.feed(orders(2), 0.0)
    assert only(Abandon, found)
    part = Reduce(generation=(1, 1), version=0, rank=1, bucket=0, headers=())
    [reply] = only(Reply, made.feed(Request("b", part), 0.0))
    assert reply.body == GroupRefused(reason="generation", generation=(1, 2))


def test_a_join_waits_for_the_commit_unless_somebody_has_promised() -> None:
    made = member(1, MEMBERS[:2])
    assert not only(Abandon, made.feed(orders(2, is_join=True), 0.0))
    assert made.generation == (1, 1)
    refused = GroupRefused(reason="generation", generation=(1, 2))
    made.feed(Answered((1, 2), ("reduce", 0, 1, 0), refused), 0.0)
    assert made.generation == (1, 2)


def test_orders_of_a_lower_term_or_generation_have_no_effect() -> None:
    made = replica(1)
    made.feed(MemberOrdered(GroupOrders(term=2, generation=(2, 1))), 0.0)
    for old in (GroupOrders(term=1, generation=(9, 9)), GroupOrders(term=2, generation=(1, 5))):
        made.feed(MemberOrdered(old), 0.0)
    assert (made.term, made.generation) == (2, (2, 1))


@pytest.mark.parametrize("is_damaged_itself", [False, True])
def test_a_state_is_taken_from_all_holders_and_from_one_alone_if_it_is_damaged(
    *, is_damaged_itself: bool
) -> None:
    holders = [member(n, MEMBERS[:2]) for n in (1, 2)]
    for holder in holders:  # both take the same step in generation (1, 1)
        holder._whole.ledger.note(0, 0, is_last=False, is_empty=True)
        holder._whole.version, holder.name = 7, ((1, 1), 7)
    new = replica(3)
    for made in (*holders, new):
        made.feed(orders(2), 0.0)
    group = {"members": MEMBERS, "source": ((1, 1), 7), "holders": ((1, 1), (1, 2))}
    asked = only(AskMember, new.feed(orders(2, **group), 0.0))
    assert [each.member for each in asked] == list(MEMBERS[:2])

    def answers(requests: list[AskMember], *, is_damaged: bool) -> list[Instruction]:
        out: list[Instruction] = []
        for each in requests:
            holder = holders[each.member.incarnation[1] - 1]
            assert isinstance(each.body, FetchState)
            given = holder.feed(Request("new", each.body), 0.0)
            [reply] = only(Reply, [*given, *aside(holder, given)])
            piece = reply.body
            assert isinstance(piece, StatePiece)
            if is_damaged and piece.piece == 1:
                piece = msgspec.structs.replace(piece, dense=piece.dense + np.float32(1))
            out += aside(new, new.feed(Answered(each.member.incarnation, each.key, piece), 0.0))
        return out

    again = only(AskMember, answers(asked, is_damaged=True))
    assert [each.member for each in again] == [MEMBERS[0]] * 2
    assert new.phase is Phase.FETCHING
    if is_damaged_itself:
        again = only(AskMember, answers(again, is_damaged=True))
        assert [each.member for each in again] == [MEMBERS[1]] * 2
        with pytest.raises(RemoteProtocolError, match="v7 is not whole"):
            answers(again, is_damaged=True)
        return
    answers(again, is_damaged=False)
    assert new.name == ((1, 1), 7)
    assert new._whole.ledger == holders[0]._whole.ledger
    assert new.phase is Phase.COMPUTING


def test_a_large_state_comes_in_pieces_that_show_who_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of each holder are under way; only the first of all waits for the digest."""
    monkeypatch.setattr(transfer, "PIECE_BYTES", 100)
    monkeypatch.setattr(transfer, "AHEAD", 2)
    holders, new = [member(n, MEMBERS[:2]) for n in (1, 2)], replica(3)
    for made in (*holders, new):
        if made is not new:
            made._whole.ledger.note(0, 0, is_last=False, is_empty=True)
            made._whole.version, made.name = 7, ((1, 1), 7)
        made.feed(orders(2), 0.0)
    group = {"members": MEMBERS, "source": ((1, 1), 7), "holders": ((1, 1), (1, 2))}
    found = new.feed(orders(2, **group), 0.0)
    asked, digests = only(AskMember, found), 0
    assert [each.key for each in asked] == [("fetch", None, piece) for piece in range(4)]
    while new.phase is Phase.FETCHING:
        asked = only(AskMember, found)
        assert len(asked) <= 4
        found = []
        for each in asked:
            holder = holders[each.member.incarnation[1] - 1]
            given = holder.feed(Request(each.key, each.body), 0.0)
            digests += len(only(DigestState, given))
            for reply in only(Reply, [*given, *aside(holder, given)]):
                found += new.feed(Answered(each.member.incarnation, reply.to, reply.body), 0.0)
        found += aside(new, found)
    assert (digests, new.name) == (1, ((1, 1), 7))
    assert new._whole.ledger == holders[0]._whole.ledger


def test_members_compare_their_states_without_waiting_for_the_digest() -> None:
    made = replica(1)
    made.feed(orders(1), 0.0)
    found = made.feed(orders(1, members=MEMBERS[:2], holders=((1, 1), (1, 2))), 0.0)
    out: list[Instruction] = []
    [computing] = only(Compute, found)
    for slot in computing.slots:
        header = SlotHeader(slot=slot.slot, task=slot.task, index=slot.index, is_last=False, is_empty=True)
        out += made.feed(SlotComputed(computing.attempt, header), 0.0)
    [order] = only(DigestState, [*out, *made.feed(BlockComputed(computing.attempt, 0.1), 0.0)])
    assert made.phase is Phase.COMPUTING
    assert made.feed(Digested(("step", 0), "of another attempt"), 0.0) == []
    [part, *_] = only(AskMember, made.feed(Digested(order.key, "right"), 0.0))
    assert isinstance(part.body, Reduce)
    assert (part.body.checksum, made.phase) == ("right", Phase.STAGED)


def test_members_compare_their_states_before_the_first_step_of_a_generation() -> None:
    """Not only every so many steps: who gave the state may be damaged, and only who held it says whether it is."""
    name = ((1, 1), 1)
    for holders, voters in ((((1, 1),), (0,)), (((1, 1), (1, 2)), ())):
        made = replica(1)
        made.feed(orders(1), 0.0)
        compute(made, made.feed(orders(1, members=MEMBERS[:1], holders=((1, 1),)), 0.0))
        assert made.name == name
        made.feed(orders(2), 0.0)
        found = made.feed(orders(2, members=MEMBERS[:2], source=name, holders=holders), 0.0)
        assert only(DigestState, compute(made, found))
        assert made._exchange.in_work.voters == voters


def test_a_digest_that_a_step_has_overtaken_is_given_to_nobody() -> None:
    holder = member(1, MEMBERS[:2])
    asked = FetchState(generation=(1, 1), name=BASE, piece=0, pieces=1)
    [order] = only(DigestState, holder.feed(Request("new", asked), 0.0))
    assert holder.feed(Request("another", asked), 0.0) == []
    holder._whole.version, holder.name = 1, ((1, 1), 1)
    found = only(Reply, holder.feed(Digested(order.key, "torn"), 0.0))
    assert [(each.to, type(each.body)) for each in found] == [
        ("new", GroupRefused),
        ("another", GroupRefused),
    ]
    again = msgspec.structs.replace(asked, name=holder.name)
    [order] = only(DigestState, holder.feed(Request("new", again), 0.0))
    holder._take_over(holder._whole.view((1, 1)))
    [newer] = only(DigestState, holder.feed(Request("new", again), 0.0))
    assert holder.feed(Digested(order.key, "of before"), 0.0) == []
    [reply] = only(Reply, holder.feed(Digested(newer.key, "right"), 0.0))
    assert isinstance(reply.body, StatePiece)
    assert reply.body.head is not None
    assert reply.body.head.digest == "right"


def test_what_is_refused_is_asked_again_a_little_later() -> None:
    new = member(3, MEMBERS, source=((1, 1), 7))
    refused = GroupRefused(reason="not ready", generation=(1, 0))
    assert new.feed(Answered((1, 1), ("fetch", None, 0), refused), 0.0) == []
    assert new.feed(Tick(), 0.1) == []
    assert [each.key for each in only(AskMember, new.feed(Tick(), 0.3))] == [("fetch", None, 0)]
    assert new.feed(Tick(), 0.9) == []


def test_links_are_told_of_when_nothing_has_come_for_long() -> None:
    made = replica(1)
    made.feed(orders(1), 0.0)
    found = made.feed(orders(1, members=MEMBERS[:2], holders=((1, 1), (1, 2))), 0.0)
    compute(made, found, now=1.0)
    assert made.phase is Phase.STAGED
    early, late = made.status(1.0 + LINK_WAIT_S), made.status(1.1 + LINK_WAIT_S)
    assert (early.lacks, early.unanswered) == ((), ())
    assert (late.lacks, late.unanswered, late.has_mean) == (((1, 2),), ((1, 2),), False)


def test_a_failure_waits_for_another_generation_or_the_tasks_end() -> None:
    made = replica(1)
    made.feed(orders(1), 0.0)
    [order] = only(Compute, made.feed(orders(1, members=MEMBERS[:1], holders=((1, 1),)), 0.0))
    assert made.feed(SlotFailed(order.attempt, 0, 0, "boom"), 0.0) == [Tell()]
    failed = made.status(0.0).failed
    assert failed is not None
    assert (failed.task, failed.error) == (0, "boom")
    assert not only(Compute, made.feed(orders(1, members=MEMBERS[:1]), 0.0))
    [again] = only(Compute, made.feed(orders(1, members=MEMBERS[:1], ends=((0, 0),)), 0.0))
    assert [slot.task for slot in again.slots] == [1]


def begins(made: Replica, order: Compute, place: int) -> list[Instruction]:
    """A slot of a block comes next."""
    slot = order.slots[place]
    return made.feed(SlotBegins(order.attempt, slot.task, slot.index), 0.0)


def test_a_careful_member_names_each_slot_and_waits_until_that_is_heard() -> None:
    made, about = replica(1), {"members": MEMBERS[:1], "caution": (0, 1)}
    made.feed(orders(1), 0.0)
    [order] = only(Compute, made.feed(orders(1, holders=((1, 1),), **about), 0.0))
    assert order.is_slow
    for place, slot in enumerate(order.slots):
        assert begins(made, order, place) == [Tell()]
        minibatch = slot.task, slot.index
        assert made.status(0.0).computing == minibatch
        assert not only(Proceed, made.feed(orders(1, **about), 0.0)), "an answer to the word before"
        heard = made.feed(orders(1, computing=minibatch, **about), 0.0)
        assert only(Proceed, heard) == [Proceed(order.attempt, slot.task)]


def test_what_a_member_has_named_it_takes_back_before_it_goes_on_without_a_word() -> None:
    """Else a death would count against what it computed long ago."""
    made, about = replica(1), {"members": MEMBERS[:1], "caution": (0, 1)}
    made.feed(orders(1), 0.0)
    [order] = only(Compute, made.feed(orders(1, holders=((1, 1),), **about), 0.0))
    begins(made, order, 0)
    named = (order.slots[0].task, order.slots[0].index)
    made.feed(orders(1, computing=named, **about), 0.0)
    found = compute(made, [order])
    assert only(Tell, found) == [Tell()]
    [behind] = only(Compute, found)
    assert behind.is_slow, "it is not heard yet"
    assert begins(made, behind, 0) == [Tell()]
    assert made.status(0.0).computing is None
    assert not only(Proceed, made.feed(orders(1, members=MEMBERS[:1], computing=named), 0.0))
    assert only(Proceed, made.feed(orders(1, members=MEMBERS[:1]), 0.0)) == [Proceed(behind.attempt, 0)]
    assert begins(made, behind, 1) == [Proceed(behind.attempt, 1)]
    assert not made._caution.begin(2)


def test_a_member_waits_before_a_step_with_a_task_that_is_about_to_be_ended() -> None:
    made, about = replica(1), {"members": MEMBERS[:1], "closing": (1,)}
    made.feed(orders(1), 0.0)
    assert made.feed(orders(1, holders=((1, 1),), **about), 0.0) == [Tell()]
    assert made.status(0.0).phase == "barred"
    [order] = only(Compute, made.feed(orders(1, members=MEMBERS[:1], ends=((1, 0),)), 0.0))
    assert [slot.task for slot in order.slots] == [0]


def test_what_was_abandoned_counts_for_nothing() -> None:
    made = replica(1)
    made.feed(orders(1), 0.0)
    [order] = only(Compute, made.feed(orders(1, members=MEMBERS[:1], holders=((1, 1),)), 0.0))
    made.feed(orders(2), 0.0)
    assert made.feed(SlotFailed(order.attempt, 0, 0, "boom"), 0.0) == []
    assert made.feed(BlockComputed(order.attempt, 0.1), 0.0) == []
    assert made.phase is Phase.PROMISED


def test_what_does_not_fit() -> None:
    made = member(1, MEMBERS[:2])
    with pytest.raises(RemoteProtocolError, match="takes no Member"):
        made.feed(Request("b", MEMBERS[0]), 0.0)  # type: ignore[arg-type]
    with pytest.raises(RemoteProtocolError, match="piece 3 of 2"):
        made.feed(Request("b", FetchState(generation=(1, 1), name=made.name, piece=3, pieces=2)), 0.0)
    other = replica(3)
    other.feed(orders(1), 0.0)
    with pytest.raises(RemoteProtocolError, match="formed without this member"):
        other.feed(orders(1, members=MEMBERS[:2]), 0.0)


def advancing(**fields: Any) -> tuple[Replica, Advance]:
    """Return a member of one that has all means of its first step, and how its values are worked out."""
    made = replica(1)
    made.feed(orders(1), 0.0)
    [order] = only(Compute, made.feed(orders(1, members=MEMBERS[:1], holders=((1, 1),), **fields), 0.0))
    sums = NodeSums(order.block, order.count)
    for slot in order.slots:
        header = SlotHeader(slot=slot.slot, task=slot.task, index=slot.index, is_last=False, is_empty=False)
        sums.add(slot.slot, np.ones(80, np.float32), np.zeros(32, np.float32))
        made.feed(SlotComputed(order.attempt, header, np.zeros(16, np.int64)), 0.0)
    found = made.feed(BlockComputed(order.attempt, 0.1, sums.take()), 0.0)
    [advance] = only(Advance, [*found, *staged(made, found)])
    assert made.phase is Phase.ADVANCING
    return made, advance


def test_a_member_hears_and_speaks_while_its_next_values_are_worked_out() -> None:
    made, advance = advancing()
    before = made._whole.ledger.record()
    advance.values.run()
    status = made.status(0.0)
    assert (status.phase, status.name, status.members) == ("advancing", BASE, ((1, 1),))
    assert made._whole.ledger.record() == before, "what is told is the state that is not changed yet"
    found = made.feed(Advanced(), 0.0)
    assert (made.name, made.phase) == (((1, 1), 1), Phase.COMPUTING)
    assert only(Compute, found)
    assert not only(Tell, found), "a status in each step"


@pytest.mark.parametrize("is_join", [False, True])
def test_a_promise_waits_until_the_step_is_taken(*, is_join: bool) -> None:
    made, advance = advancing()
    assert not only(Abandon, made.feed(orders(2, is_join=is_join), 0.0))
    advance.values.run()
    found = made.feed(Advanced(), 0.0)
    assert only(Abandon, found)
    assert (made.generation, made.name, made.phase) == ((1, 2), ((1, 1), 1), Phase.PROMISED)


def test_who_refuses_late_does_not_end_a_step_whose_means_are_there() -> None:
    made, advance = advancing()
    made.feed(orders(2, is_join=True), 0.0)
    refused = GroupRefused(reason="generation", generation=(1, 2))
    assert made.feed(Answered((1, 2), ("reduce", 0, 1, 0), refused), 0.0) == []
    assert made.phase is Phase.ADVANCING
    advance.values.run()
    assert only(Abandon, made.feed(Advanced(), 0.0))
    assert made.name == ((1, 1), 1)


def test_a_state_that_is_being_changed_is_given_to_nobody() -> None:
    made, advance = advancing()
    asked = FetchState(generation=(1, 1), name=BASE, piece=0, pieces=1)
    refused = GroupRefused(reason="not ready", generation=(1, 1))
    assert made.feed(Request("new", asked), 0.0) == [Reply("new", refused)]
    advance.values.run()
    made.feed(Advanced(), 0.0)
    again = msgspec.structs.replace(asked, name=made.name)
    assert only(DigestState, made.feed(Request("new", again), 0.0))


def test_others_have_their_turn_between_the_parts_that_a_member_owes_itself() -> None:
    made = replica(1)
    made.feed(orders(1), 0.0)
    [order] = only(Compute, made.feed(orders(1, members=MEMBERS[:1], holders=((1, 1),)), 0.0))
    for slot in order.slots:
        header = SlotHeader(slot=slot.slot, task=slot.task, index=0, is_last=False, is_empty=False)
        made.feed(SlotComputed(order.attempt, header), 0.0)
    found = made.feed(BlockComputed(order.attempt, 0.1), 0.0)
    own = only(StageOwn, found)
    assert len(own) == len(made._exchange.chunks.buckets(0)) - 1 > 0
    assert made.phase is Phase.STAGED
    made.feed(orders(2), 0.0)
    assert staged(made, found) == [], "of a step that was dropped"
    assert made.phase is Phase.PROMISED


def test_a_part_that_the_owner_has_not_is_sent_whole() -> None:
    """Who was refused for something else asks without it: the owner has it, or says that it is not there."""
    made = replica(1)
    made.feed(orders(1), 0.0)
    found = compute(made, made.feed(orders(1, members=MEMBERS[:2], holders=((1, 1), (1, 2))), 0.0))
    [first, *_] = only(AskMember, found)
    assert isinstance(first.body, Reduce)
    assert isinstance(first.again, Reduce)
    assert (len(first.body.dense), first.again.dense) == (1, ())
    for reason, body in (("moved on", first.again), ("not here", first.body)):
        refused = GroupRefused(reason=reason, generation=(1, 1))  # type: ignore[arg-type]
        made.feed(Answered((1, 2), first.key, refused), 0.0)
        assert [each.body for each in only(AskMember, made.feed(Tick(), 1.0))] == [body]


def test_a_step_that_is_not_in_the_table() -> None:
    with pytest.raises(LocalProtocolError, match="a replica that was waiting cannot be staged"):
        STEPS.check(Phase.WAITING, Phase.STAGED)


def test_orders_that_no_master_gives() -> None:
    made = replica(1)
    made.feed(orders(1), 0.0)
    for odd in ({"holders": ((1, 3),)}, {"holders": ((1, 1),), "members": (*MEMBERS[:2], MEMBERS[0])}):
        with pytest.raises(RemoteProtocolError, match=r"holders|twice"):
            made.feed(orders(1, **{"members": MEMBERS[:2], **odd}), 0.0)
    assert made.phase is Phase.PROMISED


def staged_pair() -> tuple[Replica, Reduce, Reduce]:
    """Return a member of two that has sent its parts, one of them, and what the other one sends to it."""
    sent = []
    for n in (2, 1):
        made = replica(n)
        made.feed(orders(1), 0.0)
        found = compute(made, made.feed(orders(1, members=MEMBERS[:2], holders=((1, 1), (1, 2))), 0.0))
        sent.append(only(AskMember, found)[0].body)
    theirs, own = sent
    assert isinstance(own, Reduce)
    assert isinstance(theirs, Reduce)
    return made, own, theirs


@pytest.mark.parametrize(
    "odd",
    [
        {"bucket": 9},
        {"rank": 2},
        {"places": (1, 1)},
        {"places": (5,)},
        {"dense": (np.zeros(3, np.float32),)},
        {"dense": (np.zeros((), np.float32),)},
        {"state": (np.zeros((2, 2), np.float32),)},
        {"headers": (SlotHeader(slot=7, task=1, index=0, is_last=False, is_empty=False),)},
    ],
)
def test_a_part_that_fits_no_step_is_not_staged(odd: dict[str, Any]) -> None:
    made, _, theirs = staged_pair()
    with pytest.raises(RemoteProtocolError, match=r"do not fit|in a group of"):
        made.feed(Request("b", msgspec.structs.replace(theirs, **odd)), 0.0)
    [reply] = only(Reply, made.feed(Request("b", theirs), 0.0))
    assert isinstance(reply.body, Reduced)


@pytest.mark.parametrize(
    "odd",
    [
        {"bucket": 9},
        {"dense": np.zeros((2, 20), np.float32)},
        {"state": np.zeros(5, np.float32)},
        {"headers": (SlotHeader(slot=0, task=0, index=1, is_last=False, is_empty=False),)},
        {"headers": (SlotHeader(slot=0, task=9, index=0, is_last=False, is_empty=False),)},
    ],
)
def test_a_mean_that_fits_no_step_changes_nothing(odd: dict[str, Any]) -> None:
    made = replica(1)
    made.feed(orders(1), 0.0)
    [order] = only(Compute, made.feed(orders(1, members=MEMBERS[:1], holders=((1, 1),)), 0.0))
    before = made._whole.ledger.record()
    with pytest.raises(RemoteProtocolError, match=r"do not fit|not the next one"):
        _commit(made, order, odd)
    assert (made._whole.version, made._whole.ledger.record()) == (0, before)


def _commit(made: Replica, order: Compute, odd: dict[str, Any]) -> None:
    """Give a lone member means of its step that somebody else would have made."""
    [_, second] = order.slots
    for slot in order.slots:
        header = SlotHeader(slot=slot.slot, task=slot.task, index=0, is_last=False, is_empty=False)
        made._exchange.in_work.note(SlotComputed(order.attempt, header))
    made._enter(Phase.STAGED)
    headers = (
        SlotHeader(slot=0, task=0, index=0, is_last=False, is_empty=False),
        SlotHeader(slot=1, task=second.task, index=0, is_last=False, is_empty=False),
    )
    for bucket, where in enumerate(made._exchange.in_work.chunks.buckets(0)):
        mean = Reduced(
            generation=(1, 1),
            version=0,
            bucket=bucket,
            headers=odd.get("headers", headers),
            dense=np.zeros(where.stop - where.start, np.float32),
        )
        made._on_mean(0, msgspec.structs.replace(mean, **odd))


def test_a_member_stays_at_a_barrier_writes_its_state_there_and_goes_on_with_what_was_decided() -> None:
    made = replica(1)
    made.feed(orders(1, decided=None), 0.0)
    group = {"members": MEMBERS[:1], "holders": ((1, 1),)}
    assert not only(Compute, made.feed(orders(1, decided=None, **group), 0.0))
    assert (made.phase, made.is_member) == (Phase.BARRED, True)

    barred = Decided(fence=0, task_count=2)
    [part] = only(WritePart, made.feed(orders(1, decided=barred, checkpoint=7, **group), 0.0))
    assert part.is_checkpoint
    assert not only(WritePart, made.feed(orders(1, decided=barred, checkpoint=7, **group), 0.0))

    decided = Decided(fence=2, task_count=2, rates=((0, 0.25),))
    [order] = only(Compute, made.feed(orders(1, decided=decided, **group), 0.0))
    assert order.learning_rate == 0.25
    assert made.phase is Phase.COMPUTING


def test_a_job_that_ends_inside_a_round_has_no_slots_behind_its_end() -> None:
    made = replica(1)
    cut = Decided(fence=1, task_count=1)
    made.feed(orders(1, decided=cut), 0.0)
    found = made.feed(orders(1, decided=cut, members=MEMBERS[:1], holders=((1, 1),)), 0.0)
    for _ in range(2):
        [order] = only(Compute, found)
        assert [slot.task for slot in order.slots] == [0]
        found = compute(made, found)
    assert only(WritePart, found)[-1].is_last
    assert made.phase is Phase.SEALING


def test_a_fence_behind_the_end_of_the_job_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="a fence at task 3 of 2"):
        replica(1).feed(orders(1, decided=Decided(fence=3, task_count=2)), 0.0)


def test_slots_whose_loss_is_nan_are_the_same_in_all_answers() -> None:
    """Each has come over the wire by itself."""
    step = Step(version=0, block=range(2), slots=2, chunks=Chunks(2, 80, 32, 64))
    for owner in range(2):
        header = SlotHeader(slot=0, task=0, index=0, is_last=True, is_empty=False, loss=float("nan"))
        for bucket in range(len(step.chunks.buckets(owner))):
            mean = Reduced(
                generation=(1, 1),
                version=0,
                bucket=bucket,
                headers=(header,),
                dense=np.zeros(40, np.float32),
            )
            step.means[owner, bucket] = mean
    assert len(step.mean().minibatches) == 1


def test_what_is_taken_back_in_time_costs_no_wait() -> None:
    about = {"members": MEMBERS[:2], "caution": (0, 1)}
    made = replica(1)
    made.feed(orders(1), 0.0)
    [order] = only(Compute, made.feed(orders(1, holders=((1, 1), (1, 2)), **about), 0.0))
    begins(made, order, 0)
    made.feed(orders(1, computing=(order.slots[0].task, 0), **about), 0.0)
    compute(made, [order])
    assert made.status(0.0).computing is None
    made.feed(orders(1, **about), 0.0)
    assert not made._caution.begin(1)
