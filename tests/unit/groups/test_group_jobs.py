"""The real cores of an all-reduce job together, under faults, against what ALLREDUCE promises."""

import random
from dataclasses import replace
from typing import Any

import pytest

from edlz.services.worker.core.groups.member_exchange import MemberExchange
from tests.simulation.groups.job import GroupJob
from tests.simulation.groups.reference import group_reference
from tests.simulation.groups.schedule import (
    MOMENTS,
    GroupFault,
    GroupSchedule,
    random_group_schedule,
    with_damage,
    with_hosts,
    with_spares,
)
from tests.simulation.model import final_bytes
from tests.simulation.processes import Violation

LENGTHS = (2, 3, 0, 1, 4, 2, 2, 1)


def schedule(seed: int = 1, **fields: object) -> GroupSchedule:
    about = {"slots": 4, "epochs": 2, "lengths": LENGTHS, "workers": 3, **fields}
    return GroupSchedule(seed=seed, **about)  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", [1, 3, 7])
@pytest.mark.parametrize("slots", [1, 4, 6])
def test_undisturbed_the_bits_are_those_of_a_parameter_server(slots: int, workers: int) -> None:
    job = GroupJob(schedule(slots=slots, workers=workers)).run()
    assert job.figures["generations"] >= 1


@pytest.mark.parametrize("seed", range(24))
def test_each_minibatch_once_and_the_same_bits(seed: int) -> None:
    GroupJob(random_group_schedule(seed)).run()


@pytest.mark.parametrize("seed", range(8))
def test_members_are_equal_where_gradients_differ_each_time(seed: int) -> None:
    GroupJob(random_group_schedule(seed, is_function=False)).run()


@pytest.mark.parametrize("seed", range(100, 112))
def test_the_same_where_members_share_no_folder(seed: int) -> None:
    job = GroupJob(replace(random_group_schedule(seed), snapshot_s=None)).run()
    assert job.figures["loaded"] == 0 or job.schedule.checkpoint_steps


@pytest.mark.parametrize("seed", range(200, 208))
def test_hosts_that_are_cut_from_each_other_and_members_that_hang(seed: int) -> None:
    GroupJob(with_hosts(random_group_schedule(seed))).run()


@pytest.mark.slow
@pytest.mark.parametrize("first", range(4000, 6000, 100))
def test_many_schedules_with_hosts(first: int) -> None:
    for seed in range(first, first + 100):
        GroupJob(with_hosts(random_group_schedule(seed))).run()


def test_the_third_worker_of_a_host_that_is_cut_off_is_not_started() -> None:
    """The youngest leaves, another one comes to its host, and leaves too; the others end the job."""
    cut = GroupFault(at=4.0, kind="hosts", who=0, seconds=1e9)
    job = GroupJob(schedule(1, workers=2, hosts=2, lengths=(6,) * 8, faults=(cut,))).run()
    assert (job.figures["evicted"], max(job.processes)) == (2, 3)


@pytest.mark.parametrize("moment", ["computing", "sealed", "complete"])
def test_without_a_folder_all_are_lost_and_it_begins_anew(moment: str) -> None:
    fault = GroupFault(at=0.1, kind="all", during=moment, nth=4 if moment == "computing" else 1)
    job = GroupJob(schedule(faults=(fault,), snapshot_s=None)).run()
    assert (job.figures["faults"], job.figures["loaded"]) == (1, 0)


@pytest.mark.parametrize("seed", [*range(200, 212), 1221])
def test_spares_come_in_the_place_of_others(seed: int) -> None:
    GroupJob(with_spares(random_group_schedule(seed))).run()


def test_a_spare_is_no_member_until_it_is_called() -> None:
    fault = GroupFault(at=0.1, kind="kill", during="computing", nth=8)
    about = {"workers": 2, "spares": 1}
    job, other = (GroupJob(schedule(faults=faults, **about)).run() for faults in ((fault,), ()))
    assert (job.figures["faults"], job.figures["loaded"]) == (1, 0)
    assert not any("(1, 3)" in line for line in other.log if "of (" in line)
    assert any("(1, 3)" in line for line in job.log if "of (" in line)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 2000, 100))
def test_many_schedules_with_spares(first: int) -> None:
    for seed in range(first, first + 100):
        GroupJob(with_spares(random_group_schedule(seed))).run()


@pytest.mark.parametrize("seed", [*range(100, 112), 3167, 20067])
def test_members_whose_state_is_damaged(seed: int) -> None:
    """Each minibatch is in the model once; what a damaged member has computed before it was noticed is in it too."""
    GroupJob(with_damage(random_group_schedule(seed))).run()


DAMAGE = GroupFault(at=0.1, kind="damage", during="computing", nth=18)


def checked(seed: int = 1, *faults: GroupFault, workers: int = 4) -> GroupSchedule:
    """Return a job whose members compare their states before each step, and one of which is damaged."""
    about = {"lengths": (8,) * 4, "epochs": 1, "slots": 4, "check_steps": 1}
    return schedule(seed, workers=workers, faults=faults, **about)


@pytest.mark.parametrize("who", range(4))
def test_a_damaged_state_is_replaced_before_anything_follows_from_it(who: int) -> None:
    job = GroupJob(checked(1, replace(DAMAGE, who=who)), has_majority=True).run()
    assert (job.figures["damaged"], job.figures["warned"], job.figures["loaded"]) == (1, 1, 0)
    assert any("has another state of v" in line for line in job.log)


@pytest.mark.parametrize("moment", ["staged", "gathering", "promised", "fetching", "formed"])
@pytest.mark.parametrize("kind", ["kill", "master", "join", "stall"])
def test_what_happens_while_a_damaged_state_is_replaced(moment: str, kind: str) -> None:
    first, fired = {"staged": 14, "gathering": 3, "promised": 5, "fetching": 1, "formed": 3}[moment], 0
    for nth, at, who in ((0, 0.0, 0), (1, 0.1, 1), (2, 0.3, 2)):
        again = nth if moment in ("staged", "promised") else 0
        about = GroupFault(at=at, kind=kind, during=moment, nth=first + again, who=who, seconds=4.0)
        job = GroupJob(checked(nth, DAMAGE, about), has_majority=True).run()
        fired += (job.figures["damaged"], job.figures["faults"]) == (1, 2)
    assert fired, "the fault never struck"


@pytest.mark.parametrize("who", range(3))
@pytest.mark.parametrize(("kind", "workers"), [("join", 3), ("kill", 4)])
def test_who_joins_behind_a_damage_takes_none_of_it(kind: str, workers: int, who: int) -> None:
    """Else two would be damaged when all compare their states the next time, and perhaps give theirs to the others.

    Not so where the damaged one and at most one other have taken the newest step: then no majority says which is right.
    """
    assert warnings_of_a_join(kind, workers, who)


def warnings_of_a_join(kind: str, workers: int, who: int) -> int:
    """Have workers come right behind a member's damage; return how many warnings there were."""
    warned = 0
    for seed in (2, 5, 7, 13):
        change = GroupFault(at=0.2, kind=kind, during="computing", nth=13, who=1 + (who + 1) % 3)
        about = checked(seed, replace(DAMAGE, who=who, nth=12), change, workers=workers)
        job = GroupJob(replace(about, check_steps=1000), has_majority=True).run()
        warned += job.figures["warned"]
    return warned


def test_who_is_not_compared_when_it_joins_trains_on_what_a_damaged_one_gave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = MemberExchange.begin_step

    def begin_any(self: MemberExchange, *about: Any, is_first: bool) -> Any:
        return begin(self, *about, is_first=False)

    monkeypatch.setattr(MemberExchange, "begin_step", begin_any)
    with pytest.raises(Violation, match="damaged"):
        warnings_of_a_join("kill", 4, 0)


def has_bits(job: GroupJob) -> bool:
    """Whether a job that is complete has ended with what no damage has touched."""
    final = job._final(job.journal["complete"])
    return final_bytes([final]) == group_reference(job.schedule)


def saved_before(seed: int, *faults: GroupFault, workers: int, **fields: object) -> GroupSchedule:
    """Return a job of eight steps that saves its state often, and compares its members' seldom."""
    about = {"snapshot_s": 2.0, "check_steps": 1000, **fields}
    return replace(checked(seed, *faults, workers=workers), **about)  # type: ignore[arg-type]


@pytest.mark.parametrize("when", ["staged v5", "computing v6", "staged v7"])
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_a_damage_behind_what_is_saved_is_in_no_part_of_the_model(workers: int, when: str) -> None:
    """Whoever is damaged: all go back, and the steps since then are taken again.  Of two no majority is needed."""
    for nth in range(1, workers + 1):
        fault = GroupFault(at=0.001, kind="damage", during=when, nth=nth)
        job = GroupJob(saved_before(nth, fault, workers=workers)).run()
        assert (job.figures["damaged"], job.figures["warned"]) == (1, 1)
        assert job.figures["loaded"] == 1 or workers > 2, "most may have the state of before the step"
        assert has_bits(job)


def test_a_machine_that_is_damaged_again_and_again_keeps_no_job_where_it_is() -> None:
    """Nobody goes back to a state twice: then the state of the lower rank is taken."""
    again = [GroupFault(at=0.001, kind="damage", during="staged v7", nth=nth) for nth in (1, 4)]
    job = GroupJob(saved_before(1, *again, workers=2)).run()
    assert (job.figures["damaged"], job.figures["warned"], job.figures["loaded"]) == (2, 2, 1)


@pytest.mark.parametrize("about", [{"snapshot_s": None}, {"snapshot_s": 1000.0}, {"unreadable": 99}])
def test_of_two_members_the_first_one_is_right_where_there_is_nothing_to_go_back_to(
    about: dict[str, object],
) -> None:
    """Its gradients are what both take, so the bits are not those of an undamaged job; nothing is lost."""
    for nth in (1, 2):
        fault = GroupFault(at=0.001, kind="damage", during="staged v6", nth=nth)
        job = GroupJob(saved_before(1, fault, workers=2, **about)).run()
        assert (job.figures["warned"], job.figures["loaded"]) == (1 + ("unreadable" in about), 0)


@pytest.mark.parametrize("moment", ["loading", "gathering", "promised", "fetching", "formed"])
@pytest.mark.parametrize("kind", ["kill", "master", "join", "stall", "all"])
def test_what_happens_while_members_go_back(moment: str, kind: str) -> None:
    fired = 0
    for nth in (1, 2):
        first = {"loading": 1, "gathering": 3, "promised": 4, "fetching": 1, "formed": 2}[moment]
        damage = GroupFault(at=0.001, kind="damage", during="staged v6", nth=nth)
        about = GroupFault(at=0.1 * nth, kind=kind, during=moment, nth=first, who=nth, seconds=4.0)
        job = GroupJob(saved_before(nth, damage, about, workers=2)).run()
        fired += (job.figures["damaged"], job.figures["faults"]) == (1, 2)
    assert fired, "the fault never struck"


def lates(seed: int) -> GroupSchedule:
    """Draw a job whose members are damaged at some time when something is saved."""
    r = random.Random(f"late {seed}")
    workers = r.randint(2, 5)
    damage = GroupFault(
        at=0.001, kind="damage", during=f"staged v{r.randint(5, 7)}", nth=r.randint(1, workers)
    )
    about = {"check_steps": r.choice((3, 1000)), "evaluation_steps": r.choice((0, 0, 2))}
    return replace(
        saved_before(seed, damage, workers=workers, **about),
        slots=r.randint(2, 6),
        noise=r.choice((0.0, 0.05)),
    )


@pytest.mark.parametrize("seed", range(20))
def test_damage_that_is_drawn_is_in_no_part_of_the_model(seed: int) -> None:
    job = GroupJob(lates(seed)).run()
    assert job.figures["damaged"] == 1
    assert has_bits(job)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(20, 1020, 100))
def test_much_damage_is_in_no_part_of_the_model(first: int) -> None:
    assert [seed for seed in range(first, first + 100) if not has_bits(GroupJob(lates(seed)).run())] == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 2000, 100))
def test_many_schedules_with_damage(first: int) -> None:
    for seed in range(first, first + 100):
        GroupJob(with_damage(random_group_schedule(seed))).run()


@pytest.mark.slow
@pytest.mark.parametrize("is_function", [True, False])
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_many_schedules(first: int, *, is_function: bool) -> None:
    for seed in range(first, first + 100):
        GroupJob(random_group_schedule(seed, is_function=is_function)).run()


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("kind", ["kill", "master", "all", "join"])
def test_what_happens_at_each_of_its_moments(moment: str, kind: str) -> None:
    """At the first, second and fourth time, at once and a little later; of some exits nobody tells."""
    fired = 0
    for nth, at in ((1, 0.0), (2, 0.4), (4, 0.2)):
        faults = (
            GroupFault(at=0.3, kind="kill", during="computing", nth=3),
            GroupFault(at=at, kind=kind, during=moment, nth=nth),
        )
        about = {"flaky": ((4, 1, 2),), "snapshot_s": 2.0, "workers": 2 + nth % 2, "evaluation_steps": 2}
        if moment == "loading":
            about["checkpoint_steps"] = 1
            faults = (GroupFault(at=0.5, kind="all", during="computing", nth=12), *faults)
        fired += GroupJob(schedule(nth, faults=faults, **about)).run().figures["faults"] > 1
    assert fired, "the fault never struck"


def test_one_worker_sends_nothing() -> None:
    job = GroupJob(schedule(workers=1, slots=4)).run()
    assert job.figures["sent to members"] == 0


def test_a_loss_drops_one_step_at_most_and_nothing_is_loaded() -> None:
    fault = GroupFault(at=0.1, kind="leave", during="staged", nth=8)
    job = GroupJob(schedule(faults=(fault,))).run()
    undisturbed = GroupJob(schedule()).run()
    assert job.figures["loaded"] == 0
    computed = job.figures["slots computed"] - undisturbed.figures["slots computed"]
    assert 0 <= computed <= 4


def test_all_are_lost_and_the_newest_snapshot_is_gone_on_from() -> None:
    fault = GroupFault(at=0.1, kind="all", during="computing", nth=20)
    job = GroupJob(schedule(lengths=(12,) * 4, epochs=1, faults=(fault,), checkpoint_steps=2)).run()
    assert (job.figures["faults"], job.figures["loaded"]) == (1, 1)


def test_a_state_that_cannot_be_read_is_done_without() -> None:
    fault = GroupFault(at=0.1, kind="all", during="computing", nth=20)
    about = {"lengths": (12,) * 4, "epochs": 1, "checkpoint_steps": 2, "unreadable": 20}
    job = GroupJob(schedule(faults=(fault,), **about)).run()
    assert (job.figures["faults"], job.figures["loaded"]) == (1, 0)


@pytest.mark.parametrize("kind", ["", "kill", "master", "all"])
def test_a_state_that_is_damaged_in_the_last_step_is_not_what_the_job_ends_with(kind: str) -> None:
    """Behind the last step members compare their states once more, by one without slots.

    What is written between the damage and the comparison has it: nothing is, here.
    """
    warned = 0
    for nth in range(1, 5):
        faults = [GroupFault(at=0.001, kind="damage", during="staged v7", nth=nth)]
        faults += [GroupFault(at=0.1, kind=kind, during="sealing", nth=2)] if kind else []
        about = replace(checked(1, *faults), snapshot_s=1000.0)
        job = GroupJob(about, has_majority=kind != "all").run()
        warned += job.figures["warned"]
    assert warned
