"""All-reduce jobs whose callbacks decide: whole masters and workers, held to what one parameter server would do."""

import dataclasses
import random
from collections.abc import Sequence

import pytest

from edlz.services.master.core.tasks.bad_tasks import BadTasks
from edlz.services.master.core.vocabulary.instructions import Instruction, Journal
from edlz.services.protocol.messages import Decided, PartitionStatus
from edlz.services.worker.core.groups.fence import Caution, Fence
from edlz.services.worker.core.groups.inputs import SlotBegins
from edlz.services.worker.core.groups.instructions import Proceed, Tell
from tests.schedules import with_callbacks
from tests.simulation import job as simulated
from tests.simulation.job import Fault, Schedule, SimulatedJob, Violation
from tests.simulation.schedule import GROUP_MOMENTS

LENGTHS = (2, 3, 0, 2, 1, 3, 2, 2)


def schedule(seed: int, **more: object) -> Schedule:
    about = {
        "slots": 2,
        "epochs": 2,
        "workers": 2,
        "has_callbacks": True,
        "decides": True,
        "evaluation_tasks": 2,
        "home": "machine",
        "snapshot_every_s": 5.0,
        **more,
    }
    return Schedule(seed, "sync", lengths=LENGTHS, partitions=1, is_allreduce=True, **about)  # type: ignore[arg-type]


def any_schedule(seed: int) -> Schedule:
    """Draw a job and up to three losses at its moments."""
    rng = random.Random(seed)
    faults = [
        Fault(
            rng.choice((0.0, 0.1, rng.uniform(0, 3))),
            rng.choice(("kill", "kill", "stall", "term", "cut")),
            rng.choice(("m", "w0", "w1", "w2")),
            rng.uniform(1, 20),
            during=rng.choice(GROUP_MOMENTS),
        )
        for _ in range(rng.randint(1, 3))
    ]
    about = with_callbacks(schedule(seed))
    return dataclasses.replace(
        about,
        slots=rng.randint(1, 6),
        workers=rng.randint(1, 3),
        evaluation_steps=rng.choice((0, 2)),
        checkpoint_steps=rng.choice((0, 3)),
        noise=rng.choice((0.0, 0.05)),
        home=rng.choice(("machine", "hand")),
        exports=rng.random() < 0.3,
        faults=tuple(faults),
    )


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.parametrize("every", [0, 2])
def test_callbacks_decide_the_same_on_any_number_of_members(workers: int, every: int) -> None:
    job = SimulatedJob(schedule(1, workers=workers, evaluation_steps=every)).run()
    assert len(job.journal["rounds"]) == (4 if every else 2)
    assert all("shown" in round_.decision.logs for round_ in job.journal["rounds"])


def test_a_stop_cuts_the_plan() -> None:
    job = SimulatedJob(schedule(2, stops_behind=0)).run()
    assert (len(job.journal["rounds"]), job.journal["task_count"]) == (1, 4)


def test_the_best_version_is_kept_and_put_back() -> None:
    job = SimulatedJob(schedule(4, keeps_best=True, evaluation_steps=2, exports=True)).run()
    best = job.journal["rounds"][-1].decision.result
    assert set(job.checkpoint_folder.versions) == {best}
    assert job.journal["evaluations"][-1][0] == best


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 10, 11, 14, 31, 32, 50])
def test_a_job_of_so_many_minibatches_ends_inside_its_last_task(steps: int) -> None:
    decides = steps % 2 == 0
    about = {"decides": decides, "has_callbacks": decides, "workers_tell_max_step": steps % 3 > 0}
    job = SimulatedJob(schedule(5, max_step=steps, slots=1 + steps % 4, **about)).run()
    assert (job.journal["task_count"] or len(LENGTHS)) == min(len(LENGTHS), -(-steps // 4))


@pytest.mark.parametrize("is_named", [False, True])
def test_a_loss_that_is_not_finite_ends_the_job_or_does_not(*, is_named: bool) -> None:
    job = SimulatedJob(schedule(6, nonfinite=((1, 1),), stops_on_nan=is_named))
    job.run()
    failure = job.process("m").core.verdict.failure  # type: ignore[union-attr]
    assert (failure is not None) is is_named
    if failure is not None:
        assert "(1, 1)" in failure.text or "task 1" in failure.text, failure


def test_of_many_losses_that_are_not_finite_the_first_is_named() -> None:
    later = tuple((task, index) for task in range(2, 8) for index in range(4))
    job = SimulatedJob(schedule(6, nonfinite=((1, 1), *later))).run()
    assert job.process("m").core.work.losses.first == (1, 1)  # type: ignore[union-attr]


@pytest.mark.parametrize("lost", ["m", "w0", "all"])
@pytest.mark.parametrize("moment", GROUP_MOMENTS)
def test_whoever_is_lost_at_a_barrier(moment: str, lost: str) -> None:
    rng = random.Random(f"{moment}{lost}")
    roles = ("w0", "w1") if lost == "all" else (lost,)
    at = rng.choice((0.0, 0.1, rng.uniform(0, 3)))
    about = {
        "evaluation_steps": rng.choice((0, 2)),
        "stops_behind": rng.choice((-1, 1)),
        "noise": rng.choice((0.0, 0.05)),
        "faults": (
            *(Fault(at, "kill", role, during=moment) for role in roles),
            Fault(0.1, "kill", "w1", during="member barred"),  # another one joins
        ),
    }
    job = SimulatedJob(schedule(rng.randrange(1000), keeps_best=True, **about)).run()
    assert moment in job._reached, "the fault never struck"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1200, 40))
def test_anything_may_happen_at_a_barrier(first: int) -> None:
    for seed in range(first, first + 40):
        SimulatedJob(any_schedule(seed)).run()


def poisoned(seed: int) -> tuple[Schedule, int]:
    """Draw a job with a minibatch that ends whoever computes it; return it, and the task."""
    rng = random.Random(f"poison {seed}")
    task = rng.choice([task for task, length in enumerate(LENGTHS) if length])
    about = {
        "slots": rng.choice((2, 4, 6)),
        "poison": ((task, rng.randrange(LENGTHS[task])),),
        "skips": rng.random() < 0.7,
        "stops_behind": -1,
        "nonfinite": (),
        "stops_on_nan": False,
        "max_step": 0,
        "home": "machine",
    }
    return dataclasses.replace(any_schedule(seed), **about), task  # type: ignore[arg-type]


def run_poisoned(seed: int) -> bool:
    """Run such a job; return whether its task was left out, and no other one, or has failed the job."""
    schedule, task = poisoned(seed)
    try:
        job = SimulatedJob(schedule).run()
    except Violation:
        return False
    failure = job.process("m").core.verdict.failure if not schedule.skips else None  # type: ignore[union-attr]
    return list(dict(job.journal["ends"])) == [task] if failure is None else failure.task == task


@pytest.mark.parametrize("seed", range(16))
def test_a_record_that_ends_whoever_computes_it_ends_its_task_and_no_other(seed: int) -> None:
    assert run_poisoned(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(16, 416, 40))
def test_such_a_record_is_found_whatever_else_befalls_the_job(first: int) -> None:
    assert [seed for seed in range(first, first + 40) if not run_poisoned(seed)] == []


@pytest.mark.parametrize(("how", "is_slow"), [("_TAKEN", False), ("_KILLED", True)])
def test_only_a_loss_that_nobody_explains_makes_members_careful(
    how: str, is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And these for a step or two."""
    for name in ("_TAKEN", "_KILLED"):
        monkeypatch.setattr(simulated, name, getattr(simulated, how))
    named: list[SlotBegins] = []
    on_slot = Caution.on_slot

    def seen(self: Caution, slot: SlotBegins) -> list[Instruction]:
        named.append(slot)
        return on_slot(self, slot)  # type: ignore[return-value]

    monkeypatch.setattr(Caution, "on_slot", seen)
    loss = Fault(0.1, "kill", "w0", during="member computing")
    SimulatedJob(schedule(1, workers=3, slots=3, has_callbacks=False, decides=False, faults=(loss,))).run()
    assert bool(named) is is_slow
    assert len(named) <= 9


def waits_for_no_word(self: Caution, slot: SlotBegins) -> list[Instruction]:
    self.minibatch = (slot.task, slot.index) if self._is_due else None
    return [Tell(), Proceed(slot.attempt, slot.task)]  # type: ignore[list-item]


BROKEN = {
    "a word is heard before its slot is computed": (Caution, "on_slot", waits_for_no_word),
    "a task ends where all members stand": (Fence, "closes", lambda *_: False),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_without_the_rule_such_a_record_is_not_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setattr(*BROKEN[rule])
        lost = next((seed for seed in range(16) if not run_poisoned(seed)), None)
    assert lost is not None, "it is found without the rule, too"


def test_who_does_not_wait_at_its_barrier_trains_to_other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    SimulatedJob(schedule(1)).run()
    monkeypatch.setattr(Fence, "bars", lambda self, task: False)
    with pytest.raises(Violation):
        SimulatedJob(schedule(1)).run()


def test_who_does_not_hear_of_a_rate_trains_to_other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    SimulatedJob(schedule(1)).run()
    monkeypatch.setattr(Fence, "learning_rate", lambda self, task: None)
    with pytest.raises(Violation, match=r"bits|decided"):
        SimulatedJob(schedule(1)).run()


@pytest.mark.parametrize("is_lost", [False, True])
def test_an_end_that_members_hear_before_it_is_journalled_is_lost_with_its_master(
    is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go on behind the task, so nobody fails at it again, and the job says that nothing was left out."""
    about = {"has_callbacks": False, "decides": False, "evaluation_tasks": 0, "bad": ((1, 1),), "skips": True}
    lost = Fault(1.0, "kill", "m", during="told")
    job = SimulatedJob(schedule(1, faults=(lost,) * is_lost, **about))
    advance = BadTasks.advance

    def journals_later(self: BadTasks, statuses: Sequence[PartitionStatus]) -> list[Instruction]:
        """Journal the end when members have gone on, if this master still lives."""
        out = advance(self, statuses)
        waits = self.__dict__.setdefault("waits", list[Instruction]())
        if any(isinstance(one, Journal) for one in out):
            waits += [one for one in out if isinstance(one, Journal)]
            self.__dict__["left"] = 40
            job.reach("told")
        self.__dict__["left"] = left = self.__dict__.get("left", 0) - 1
        due = waits if left == 0 else []
        return [*due, *(one for one in out if not isinstance(one, Journal))]

    monkeypatch.setattr(BadTasks, "advance", journals_later)
    if not is_lost:
        job.run()
        return
    with pytest.raises(Violation, match="was ended at None"):
        job.run()
    monkeypatch.undo()
    SimulatedJob(schedule(1, faults=(Fault(3.0, "kill", "m", during="member failed"),), **about)).run()


def test_a_fence_keeps_what_was_said_until_something_else_is() -> None:
    fence = Fence(8)
    assert fence.bars(0), "nothing is known yet"
    fence.hear(Decided(fence=4, task_count=6, rates=((2, 0.1), (4, 0.05))))
    fence.hear(None)
    assert (fence.task_count, fence.bars(3), fence.bars(4)) == (6, False, True)
    assert [fence.learning_rate(task) for task in (1, 2, 3, 4, 5)] == [None, 0.1, 0.1, 0.05, 0.05]


@pytest.mark.parametrize("seed", range(6))
def test_members_of_which_one_is_damaged_go_back_and_evaluate_again(seed: int) -> None:
    """A state is saved every two seconds, and the damage is noticed at the latest when the next one is."""
    damage = Fault(12.0, "damage", f"w{seed % 3}", during="member staged")
    about = {"workers": 3, "has_callbacks": False, "decides": False, "evaluation_steps": 2}
    about |= {"checkpoint_steps": 3, "snapshot_every_s": 2.0, "faults": (damage,)}
    job = SimulatedJob(dataclasses.replace(schedule(seed, **about), lengths=2 * LENGTHS)).run()
    assert sum("was the same on all, and is gone on from" in line for line in job.log) == 1
    assert sum("training goes back to v" in line for line in job.log) == 1
