"""The master's part alone: who is told what, and when; all else is simulated."""

import itertools
from typing import Any

import pytest

from edlz.services.errors import LocalProtocolError, RemoteProtocolError
from edlz.services.master.core.groups.bad_minibatches import MAX_TRIES
from edlz.services.master.core.groups.events import (
    Complete,
    Durable,
    Evaluate,
    Evaluated,
    Evict,
    GiveUpTask,
    Heard,
    Instruction,
    Lost,
    Tick,
    Unsaved,
    WriteManifest,
)
from edlz.services.master.core.groups.evictions import Eviction, Evictions
from edlz.services.master.core.groups.hangs import START_HANG_S, Hangs
from edlz.services.master.core.groups.joins import Joins
from edlz.services.master.core.groups.links import Claims, cut_off
from edlz.services.master.core.groups.rendezvous import STEPS, Rendezvous, Stage
from edlz.services.master.core.groups.written_states import KNOWN
from edlz.services.protocol.groups import BASE, LINK_WAIT_S
from edlz.services.protocol.messages import Identity, Member, MemberStatus, SlotFailure, WrittenPart
from tests import builders

PLAN = builders.plan(records=4, slots=2)


def life(n: int) -> Identity:
    return (1, n)


def status(**fields: Any) -> MemberStatus:
    about = {"term": 1, "phase": "waiting", "generation": (0, 0), "members": (), "name": BASE, "finished": ()}
    return MemberStatus(**{**about, **fields})


class Group:
    """A master, and workers that say what they are asked to say."""

    def __init__(self, **fields: Any) -> None:
        self.core = Rendezvous(PLAN, fields.pop("term", 1), 0.0, **fields)
        self.now = 0.0

    def say(self, n: int, *, is_spare: bool = False, **fields: Any) -> list[Instruction]:
        fields.setdefault("term", self.core._term)
        said = status(**fields)
        self.core.check(said)
        member = Member(incarnation=life(n), worker=str(n))
        return self.core.feed(Heard(member, said, is_spare), self.now)

    def wait(self, seconds: float) -> list[Instruction]:
        self.now += seconds
        return self.core.feed(Tick(), self.now)

    def form(self, *workers: int, name: Any = BASE) -> None:
        """Gather and form a group of these."""
        for n in workers:
            self.say(n)
        if self.core.stage is not Stage.GATHERING or set(self.core._candidates) != set(map(life, workers)):
            self.core._open(tuple(map(life, workers)), self.now)
        for n in workers:
            self.say(n, phase="promised", generation=self.core.generation, name=name)
        assert self.core.stage is Stage.FORMED

    def computing(self, *workers: int, **fields: Any) -> list[Instruction]:
        about: dict[str, Any] = {
            "phase": "computing",
            "generation": self.core.generation,
            "members": self.core._group,
        }
        return [each for n in workers for each in self.say(n, **{**about, **fields})]


def test_a_group_is_formed_when_all_have_promised() -> None:
    group = Group()
    group.say(1)
    assert group.core.orders(life(1)).generation == (1, 1)
    group.wait(0.5)
    assert group.core.orders(life(1)).members == ()
    group.say(1, phase="promised", generation=(1, 1))
    orders = group.core.orders(life(1))
    assert [member.worker for member in orders.members] == ["1"]
    assert (orders.source, orders.holders) == (BASE, (life(1),))


def test_the_source_is_the_greatest_name_and_who_has_it_are_holders() -> None:
    group = Group()
    group.form(1, 2, 3)
    group.core.feed(Lost(life(3)), 0.0)
    generation = group.core.generation
    group.say(1, phase="promised", generation=generation, name=((1, 1), 4))
    group.say(2, phase="promised", generation=generation, name=((1, 1), 5))
    orders = group.core.orders(life(1))
    assert (orders.source, orders.holders) == (((1, 1), 5), (life(2),))


def test_several_join_together_behind_a_step() -> None:
    group = Group()
    group.form(1, 2)
    group.computing(1, 2)
    group.say(3)
    group.wait(0.8)
    group.say(4)
    group.wait(0.8)
    assert group.core.stage is Stage.FORMED
    group.wait(0.8)
    assert group.core.stage is Stage.GATHERING
    assert group.core.orders(life(1)).is_join
    assert set(group.core._candidates) == set(map(life, (1, 2, 3, 4)))


def test_a_spare_joins_at_once_when_it_is_called() -> None:
    group = Group()
    group.form(1, 2)
    group.computing(1, 2)
    group.say(3, is_spare=True)
    for _ in range(3):
        group.wait(1.0)
        group.say(3, is_spare=True)
        group.computing(1, 2)
    assert group.core.stage is Stage.FORMED
    group.core.feed(Lost(life(2)), group.now)
    assert group.core._candidates == (life(1),)
    group.say(1, phase="promised", generation=group.core.generation)
    assert group.core.stage is Stage.FORMED
    group.say(3)
    assert set(group.core._candidates) == {life(1), life(3)}


def test_a_spare_that_is_called_for_a_loss_is_in_the_generation_that_the_loss_opens() -> None:
    """One generation, not one without it and one more for its join."""
    group = Group()
    group.form(1, 2)
    group.computing(1, 2)
    group.say(3, is_spare=True)
    group.say(4, is_spare=True)
    group.core.feed(Lost(life(2), active=(life(1), life(3))), group.now)
    assert set(group.core._candidates) == {life(1), life(3)}


def test_who_takes_steps_stays_a_member_when_an_older_worker_is_back() -> None:
    group = Group()
    group.form(1, 2)
    group.computing(1, 2)
    group.computing(2, is_spare=True)
    assert [member.worker for member in group.core.members] == ["1", "2"]
    group.wait(0.1)
    assert group.core.stage is Stage.FORMED


@pytest.mark.parametrize("why", ["a loss", "time"])
def test_a_join_does_not_wait_for_ever(why: str) -> None:
    group = Group()
    group.form(1, 2)
    group.computing(1, 2)
    group.say(3)
    group.wait(1.2)
    assert group.core.orders(life(1)).is_join
    group.core.feed(Lost(life(2)), group.now) if why == "a loss" else group.wait(5.1)
    assert not group.core.orders(life(1)).is_join


def test_a_join_waits_longer_where_steps_take_long() -> None:
    """Else each join would cost the step in work there, and a new worker may come at any time of it."""
    group = Group()
    group.form(1, 2)
    for version in range(1, 4):
        for _ in range(4):
            group.now += 5.0
            group.computing(1, 2, name=(group.core.generation, version))
    group.say(3)
    waited_s = 0.0
    while waited_s < 38.0:
        group.wait(1.2)
        for n in (1, 2, 3):
            group.say(n, **({"phase": "promised", "generation": group.core.generation} if n == 3 else {}))
        waited_s += 1.2
        assert waited_s < 2.0 or group.core.orders(life(1)).is_join
    group.wait(4.0)
    assert not group.core.orders(life(1)).is_join


def test_silence_is_a_loss_and_a_late_status_does_not_bring_back_the_dead() -> None:
    group = Group()
    group.form(1, 2)
    group.wait(6)
    group.computing(1)
    group.wait(5)
    assert group.core.stage is Stage.GATHERING
    assert group.core._candidates == (life(1),)
    group.core.feed(Lost(life(2)), group.now)
    group.say(2)
    group.say(1, phase="promised", generation=group.core.generation)
    group.wait(3)
    assert group.core._group == (life(1),)


def test_a_durable_state_that_is_further_is_read_by_who_can() -> None:
    group = Group(durable={(((1, 3), 9), False)})
    group.say(1)
    group.core._open((life(1), life(2)), 0.0)
    group.say(2)
    generation = group.core.generation
    for n in (1, 2):
        group.say(n, phase="promised", generation=generation)
    assert [group.core.orders(life(n)).load for n in (1, 2)] == [((1, 3), 9), None]
    group.say(1, phase="promised", generation=generation, unreadable=((1, 3), 9))
    assert [group.core.orders(life(n)).load for n in (1, 2)] == [None, ((1, 3), 9)]
    group.core.feed(Durable(((1, 2), 4)), group.now)
    group.say(2, phase="promised", generation=generation, unreadable=((1, 3), 9))
    assert group.core.orders(life(1)).load == ((1, 2), 4)
    group.say(1, phase="promised", generation=generation, name=((1, 2), 4))
    assert group.core.orders(life(1)).source == ((1, 2), 4)


def test_a_manifest_is_due_when_all_parts_are_durable() -> None:
    group = Group()
    group.form(1, 2)
    name = (group.core.generation, 3)
    parts = [WrittenPart(name=name, rank=rank, count=2) for rank in range(2)]
    assert group.computing(1, written=(parts[0],)) == []
    assert group.computing(2, written=(parts[1],)) == [WriteManifest(name, 2, parts=tuple(parts))]
    assert group.computing(2, written=(parts[1],)) == []
    group.core.feed(Durable(name), 0.0)
    again = [WrittenPart(name=name, rank=rank, count=3) for rank in range(3)]
    assert group.computing(2, written=tuple(again)) == []


def test_a_restarted_master_completes_nothing_that_is_complete() -> None:
    name, members = ((1, 4), 6), (life(1), life(2))
    group = Group(term=2, durable={(name, True)})
    about = {"phase": "computing", "generation": (1, 4), "members": members, "name": ((1, 4), 9)}
    parts = [WrittenPart(name=((1, 4), v), rank=0, count=1, is_checkpoint=True) for v in (6, 9)]
    group.say(1, written=tuple(parts), **about)
    [_, found] = group.say(2, **about)
    assert found == WriteManifest(((1, 4), 9), 1, is_checkpoint=True, parts=(parts[1],))


def test_a_complete_checkpoint_that_a_group_begins_with_is_not_written_again() -> None:
    name = ((1, 3), 6)
    group = Group(term=2, durable={(name, True), (((1, 2), 4), False)})
    group.say(1)
    group.wait(12.1)
    group.say(1)
    group.say(1, phase="promised", generation=group.core.generation)
    assert group.core.orders(life(1)).load == name
    group.say(1, phase="promised", generation=group.core.generation, name=name)
    orders = group.core.orders(life(1))
    assert (orders.source, orders.checkpointed) == (name, 6)


def test_of_a_checkpoint_that_lacks_a_part_the_next_group_hears_that_it_is_not_there() -> None:
    group = Group()
    group.form(1, 2)
    name = (group.core.generation, 3)
    part = WrittenPart(name=name, rank=0, count=2, is_checkpoint=True)
    group.computing(1, written=(part,), name=name)
    group.core.feed(Lost(life(2)), 0.0)
    group.say(1, phase="promised", generation=group.core.generation, name=name)
    orders = group.core.orders(life(1))
    assert (orders.source, orders.checkpointed) == (name, 0)


def test_what_a_group_that_was_cut_off_has_written_counts_no_more() -> None:
    """It is whole, goes on without its master, and comes back when another group has begun behind it."""
    group = Group(durable={(((0, 1), 2), False)})
    group.form(1, 2, name=((0, 1), 2))
    old = group.core.generation
    for n in (1, 2):
        group.core.feed(Lost(life(n)), 0.0)
    group.form(3, name=((0, 1), 2))
    parts = [WrittenPart(name=(old, 9), rank=rank, count=2, is_checkpoint=True) for rank in range(2)]
    failed = WrittenPart(name=(old, 9), rank=0, count=2, is_checkpoint=True, error="no room", attempt=1)
    about = {"generation": old, "members": (life(1), life(2)), "name": (old, 9)}
    found = [*group.say(1, written=(parts[0], failed), **about), *group.say(2, written=(parts[1],), **about)]
    assert found == []
    of_the_source = WrittenPart(name=((0, 1), 2), rank=0, count=1, is_checkpoint=True)
    assert len(group.computing(3, written=(of_the_source,))) == 1


def test_parts_and_states_are_forgotten_in_their_time() -> None:
    group = Group()
    group.form(1, 2)
    for version in range(1, 100):
        name = (group.core.generation, version)
        half = WrittenPart(name=name, rank=0, count=2)
        whole = WrittenPart(name=name, rank=0, count=1, is_checkpoint=True)
        failed = WrittenPart(name=name, rank=0, count=2, error="no room", attempt=version)
        assert len(group.computing(1, written=(half, whole, failed))) == 2
        group.core.feed(Durable(name, is_checkpoint=True), 0.0)
    states = group.core._states
    assert max(len(known) for known in (states._parts, states._durable, states._failures)) <= 2 * KNOWN
    assert group.core.durable[-1] == (group.core.generation, 99)


def test_a_restarted_master_goes_on_with_a_group_that_is_whole() -> None:
    group, members = Group(term=2), (life(1), life(2))
    about = {"phase": "staged", "generation": (1, 4), "members": members}
    group.say(1, term=1, **about)
    assert group.core.stage is Stage.SETTLING
    group.say(1, **about)
    group.say(2, **about)
    assert (group.core.stage, group.core.generation) == (Stage.FORMED, (1, 4))


def test_a_restarted_master_begins_anew_without_who_stays_away() -> None:
    group = Group(term=2)
    group.say(1, phase="staged", generation=(1, 4), members=(life(1), life(2)))
    group.wait(9)
    group.say(1, phase="staged", generation=(1, 4), members=(life(1), life(2)))
    assert group.core.stage is Stage.SETTLING
    group.wait(4)
    assert (group.core.stage, group.core.generation) == (Stage.GATHERING, (2, 1))


def test_a_bad_task_is_tried_by_different_members_then_given_up_once() -> None:
    group, firsts = Group(), []
    failed = SlotFailure(task=1, index=0, error="boom")
    for _ in range(MAX_TRIES):
        group.form(1, 2)
        firsts.append(group.core._group[0])
        found = group.computing(1, phase="failed", failed=failed)
    assert firsts == [life(1), life(2), life(1)]
    assert found == [GiveUpTask(1, 0, "boom")]
    assert group.computing(1, phase="failed", failed=failed) == []
    assert group.core.orders(life(1)).ends == ()
    group.core.ends[1] = 0
    assert group.core.orders(life(1)).ends == ((1, 0),)


def test_a_task_that_is_about_to_be_ended_begins_one_generation() -> None:
    """In it all members stand before the step: none of them has the task in work."""
    group = Group()
    group.form(1, 2)
    group.core.deaths.closing = (1,)
    group.computing(1)
    assert group.core.stage is Stage.GATHERING
    group.form(1, 2)
    before = group.core.generation
    group.computing(1, 2, phase="barred")
    assert group.core.generation == before


def test_a_member_hears_that_what_it_has_named_is_heard() -> None:
    group = Group()
    group.form(1, 2)
    group.core.deaths.caution = 3, 9
    group.computing(1, computing=(1, 0))
    group.computing(2)
    said = [group.core.orders(life(n)) for n in (1, 2, 3)]
    assert [(one.caution, one.computing) for one in said] == [
        ((3, 9), (1, 0)),
        ((3, 9), None),
        ((3, 9), None),
    ]


def test_a_state_that_a_group_holds_again_after_another_history_is_evaluated() -> None:
    """Nobody evaluates what the group before was asked for, since another one has begun."""
    group, name = Group(), ((1, 1), 2)
    group.form(1)
    assert group.computing(1, phase="held", name=name) == [Evaluate(name)]
    group.core.feed(Lost(life(1)), 0.0)
    group.form(2)
    assert group.core.evaluating is None
    group.core.feed(Durable(name), 0.0)
    group.core.feed(Lost(life(2)), 0.0)
    group.say(3)
    group.say(3, phase="promised", generation=group.core.generation)
    assert group.core.orders(life(3)).load == name
    group.say(3, phase="promised", generation=group.core.generation, name=name)
    assert group.computing(3, phase="held", name=name) == [Evaluate(name)]
    group.core.feed(Evaluated(name), 0.0)
    assert group.computing(3, phase="held", name=name) == []
    assert group.core.orders(life(3)).released == name


def test_the_job_is_complete_when_all_have_sealed() -> None:
    group = Group()
    group.form(1, 2)
    about = {"finished": (0, 4), "name": ((1, 1), 2)}
    assert group.computing(1, phase="sealed", **about) == []
    assert group.computing(2, phase="sealing", **about) == []
    assert group.computing(2, phase="sealed", **about) == []
    name = about["name"]
    assert group.core.feed(Durable(name, is_checkpoint=True), 0.0) == [], "that is another place"
    assert group.core.feed(Durable(name), 0.0) == [Complete(name, 2)]


def test_where_nothing_is_found_again_nothing_is_waited_for() -> None:
    group = Group()
    group.form(1, 2)
    group.core.keeps_states = False
    about = {"finished": (0, 4), "name": ((1, 1), 2), "phase": "sealed"}
    assert [*group.computing(1, **about), *group.computing(2, **about)] == [Complete(((1, 1), 2), 2)]


def test_the_last_state_is_completed_until_that_succeeds() -> None:
    group = Group()
    group.form(1)
    name = ((1, 1), 2)
    about = {"name": name, "written": (WrittenPart(name=name, rank=0, count=1),)}
    assert len(group.computing(1, **about)) == 1
    group.core.feed(Unsaved(name), 0.0)
    assert group.computing(1, **about) == [], "the next one is due soon"
    about |= {"phase": "sealed", "finished": (0, 4)}
    assert group.computing(1, **about) == [], "only now it is known to be the last one"
    for _ in range(2):
        [again] = group.computing(1, **about)
        assert isinstance(again, WriteManifest)
        assert group.computing(1, **about) == []
        group.core.feed(Unsaved(name), 0.0)
    assert group.core.feed(Durable(name), 0.0) == [Complete(name, 1)]


def test_a_sealed_group_that_loses_a_member_seals_again() -> None:
    group = Group()
    group.form(1, 2)
    about = {"finished": (0, 4), "name": ((1, 1), 2), "phase": "sealed"}
    group.computing(1, **about)
    group.computing(2, **about)
    group.core.feed(Durable(((1, 1), 2)), 0.0)
    assert group.core.stage is Stage.COMPLETE
    formed = group.core.generation
    group.core.feed(Lost(life(2)), 0.0)
    assert group.core.stage is Stage.GATHERING
    assert group.core.generation > formed


def test_who_is_cut_off_is_told_to_stop() -> None:
    group = Group()
    group.form(1, 2)
    found: list[Instruction] = []
    while not found:
        assert group.now < 2 * LINK_WAIT_S
        found = group.wait(1.0)
        if not found:
            group.computing(1, phase="staged")
            group.computing(2, phase="staged", lacks=(life(1),))
    assert group.now > LINK_WAIT_S
    assert found[0] == Evict(life(2), "worker-2 cannot reach worker-1")
    assert group.core._candidates == (life(1),)


def test_who_hangs_while_another_one_waits_is_replaced() -> None:
    group = Group()
    group.form(1, 2)
    name = (group.core.generation, 1)
    group.now = 2.0  # the first step took 2 s
    group.computing(1, 2, name=name)
    found: list[Instruction] = []
    while not found:
        assert group.now < 70
        group.now += 9.0
        found = [*group.computing(1, name=name, phase="staged"), *group.computing(2, name=name)]
    assert found[0] == Evict(
        life(2), "worker-2 hangs: no progress for 63s while others wait for it", is_hung=True
    )
    assert group.core._candidates == (life(1),)


@pytest.mark.parametrize("phases", [("computing", "computing"), ("held", "computing"), ("staged", "failed")])
def test_a_group_that_stands_still_as_a_whole_has_nobody_who_hangs(phases: tuple[str, str]) -> None:
    group = Group()
    group.form(1, 2)
    for _ in range(200):
        group.now += 9.0
        for n, phase in enumerate(phases, 1):
            group.computing(n, phase=phase)
    assert group.core.stage is Stage.FORMED


def test_before_any_step_is_known_of_everything_may_take_long() -> None:
    group = Group()
    group.form(1, 2)
    while group.core.stage is Stage.FORMED:
        group.now += 9.0
        group.computing(1, phase="staged")
        group.computing(2)
    assert START_HANG_S < group.now < START_HANG_S + 20
    slow = Hangs()
    for version in range(4):
        slow.note(life(1), status(name=((1, 1), version)), version * 50.0)
    assert slow.limit_s == 250


def test_those_who_die_as_soon_as_they_have_joined_join_later_each_time() -> None:
    joins = Joins()
    joins.form({life(1)}, 0)
    joins.advance({life(1): 12})
    for n, settle_s in enumerate((1, 1, 2, 4, 8, 16, 32, 60, 60)):
        assert joins.settle_s == settle_s
        joins.form({life(n + 2)}, 12)
        joins.lose([life(n + 2)])
    joins.form({life(99)}, 12)
    joins.advance({life(1): 22, life(99): 22})
    assert joins.settle_s == 1
    joins.lose([life(99)])
    assert joins.settle_s == 1


def test_a_group_lets_the_next_one_wait_behind_two_who_died_at_once() -> None:
    group = Group()
    group.form(1)
    group.computing(1)
    for n in (2, 3):
        group.form(1, n)
        group.core.feed(Lost(life(n)), group.now)
    group.say(1, phase="promised", generation=group.core.generation)
    group.say(4)
    group.wait(1.5)
    assert group.core.stage is Stage.FORMED
    group.wait(1.0)
    assert group.core.stage is Stage.GATHERING


def test_the_second_time_in_a_row_two_hosts_cannot_reach_each_other_nobody_comes_there() -> None:
    evictions, found = Evictions(60.0), []
    hosts = {1: "a", 2: "b", 3: "b", 4: "c"}
    members = {
        life(n): Member(incarnation=life(n), worker=str(n), endpoint=f"tcp://{at}:7")
        for n, at in hosts.items()
    }

    seconds = itertools.count()

    def cut(one: int, other: int) -> Eviction:
        both = {life(one): staged(lacks=(life(other),)), life(other): staged()}
        evicted = None
        while evicted is None:
            now = float(next(seconds))
            for who, said in both.items():
                evictions.note(who, said, now)
            evicted = evictions.due(both, members, GENERATION, now)
        return evicted

    found = [cut(1, 2), cut(1, 4), cut(1, 3)]
    assert [each.is_replaced for each in found] == [True, True, False]
    assert found[2].reason == "worker-1 cannot reach worker-3, like one before it (a and b)"
    evictions.advance([members[life(2)], members[life(3)]], BASE, (GENERATION, 1))
    assert not cut(1, 2).is_replaced
    evictions.advance([members[life(1)], members[life(2)]], BASE, (GENERATION, 1))
    assert cut(1, 2).is_replaced


GENERATION = (1, 1)


def long_ago(*_: Any) -> bool:
    return True


def staged(**fields: Any) -> MemberStatus:
    about = {"phase": "staged", "generation": GENERATION, "members": (life(1), life(2), life(3))}
    return status(**{**about, **fields})


def test_who_waits_for_a_slow_one_accuses_nobody() -> None:
    slow = staged(phase="computing")
    statuses = {life(1): staged(unanswered=(life(2),)), life(2): staged(lacks=(life(3),)), life(3): slow}
    assert cut_off(statuses, GENERATION, long_ago) is None


def test_what_was_sent_only_now_is_on_its_way() -> None:
    claims, late = Claims(), 20
    for now in range(30):
        claims.note(life(1), staged(lacks=(life(2),)), now)
        claims.note(life(2), staged(phase="computing" if now < late else "staged"), now)
        is_old = claims.is_old(life(1), life(2), "part", now + 0.1)
        assert now < late or is_old == (now >= late + LINK_WAIT_S)


@pytest.mark.parametrize("silent", [1, 2])
def test_who_was_not_heard_of_may_have_stood_still(silent: int) -> None:
    claims = Claims()
    for now in range(29):
        for n in (1, 2):
            if n != silent or now not in range(11, 20):
                claims.note(life(n), staged(), now)
        if now == 19:
            assert not claims.is_old(life(1), life(2), "part", now)
    assert not claims.is_old(life(1), life(2), "part", 20 + LINK_WAIT_S)
    assert claims.is_old(life(1), life(2), "part", 20.1 + LINK_WAIT_S)


def test_a_mean_that_is_done_and_does_not_come() -> None:
    statuses = {life(1): staged(unanswered=(life(2),)), life(2): staged(has_mean=True)}
    assert cut_off(statuses, GENERATION, long_ago) == (life(2), life(1))
    statuses[life(2)] = staged(name=((1, 1), 1), phase="computing")
    assert cut_off(statuses, GENERATION, long_ago) == (life(2), life(1))


def test_the_last_comparison_which_makes_no_new_version() -> None:
    """Who has sealed has taken it, and would not be missed; the one that waits for its answer would wait for ever."""
    statuses = {life(n): staged(phase="sealed") for n in (1, 2)}
    statuses[life(3)] = staged(unanswered=(life(1), life(2)), has_mean=True)
    assert cut_off(statuses, GENERATION, long_ago) == (life(3), life(1))
    claims = Claims()
    for now, phase in enumerate(["staged"] * 20 + ["sealed"]):
        claims.note(life(1), staged(phase=phase), now)
        claims.note(life(3), statuses[life(3)], now)
    assert not claims.is_old(life(3), life(1), "step", 20), "its answer is on its way"


def test_who_is_in_most_broken_links_leaves_those_of_before_included() -> None:
    statuses = {life(n): staged() for n in (1, 2, 3)}
    statuses[life(1)] = staged(lacks=(life(2), life(3)))
    assert cut_off(statuses, GENERATION, long_ago) == (life(1), life(2))
    statuses[life(1)] = staged(lacks=(life(3),))
    assert cut_off(statuses, GENERATION, long_ago) == (life(3), life(1))
    assert cut_off(statuses, GENERATION, long_ago, {frozenset((life(1), life(2)))}) == (life(1), life(3))


def test_who_cannot_fetch_the_state_leaves() -> None:
    statuses = {life(1): staged(phase="fetching", members=(), lacks=(life(2),)), life(2): staged()}
    assert cut_off(statuses, GENERATION, long_ago) == (life(1), life(2))


def test_statuses_of_other_generations_say_nothing() -> None:
    statuses = {life(1): staged(generation=(1, 0), lacks=(life(2),)), life(2): staged()}
    assert cut_off(statuses, GENERATION, long_ago) is None


def test_a_stage_that_is_not_in_the_table() -> None:
    with pytest.raises(LocalProtocolError, match="a group that was complete cannot be formed"):
        STEPS.check(Stage.COMPLETE, Stage.FORMED)


@pytest.mark.parametrize(
    "odd",
    [
        {"finished": (3, 1)},
        {"finished": (0, 9999)},
        {"finished": (2,)},
        {"generation": (1, 99)},
        {"name": ((2, 0), 5)},
        {"name": ((1, 1), -1)},
        {"failed": SlotFailure(task=99, index=0, error="")},
        {"failed": SlotFailure(task=0, index=-1, error="")},
        {"computing": (99, 0)},
        {"written": (WrittenPart(name=BASE, rank=2, count=2),)},
    ],
)
def test_a_status_that_no_member_sends_is_refused(odd: dict[str, Any]) -> None:
    group = Group()
    group.form(1, 2)
    with pytest.raises(RemoteProtocolError, match="a member"):
        group.computing(2, **odd)
    assert group.computing(1, 2) == []
    assert group.core.stage is Stage.FORMED


def test_nobody_lacks_itself() -> None:
    statuses = {life(1): staged(lacks=(life(1),), unanswered=(life(1),), has_mean=True), life(2): staged()}
    assert cut_off(statuses, GENERATION, long_ago) is None
