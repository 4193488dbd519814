"""The real cores together, under faults, against PROTOCOL's promises."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edlz.services.master.core.master import MasterCore
from tests.schedules import (
    contended_schedule,
    ending_schedule,
    random_schedule,
    schedules,
    wide_schedules,
    with_checkpoints,
    with_supervision,
    without_training,
)
from tests.simulation.job import Fault, Schedule, SimulatedJob
from tests.simulation.promises import seen_of

HOMES = ("hand", "machine", "pods")
QUICK = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@QUICK
@given(schedules("sync"))
def test_sync_keeps_every_minibatch_once_and_the_bits(schedule: Schedule) -> None:
    SimulatedJob(schedule).run()


@QUICK
@given(schedules("async"))
def test_async_keeps_every_minibatch_once(schedule: Schedule) -> None:
    SimulatedJob(schedule).run()


@pytest.mark.parametrize("mode", ["sync", "async"])
@QUICK
@given(data=st.data())
def test_a_job_without_training_evaluates_each_record_once(mode: str, data: st.DataObject) -> None:
    SimulatedJob(without_training(data.draw(schedules(mode)))).run()


@pytest.mark.parametrize("mode", ["sync", "async"])
@QUICK
@given(data=st.data())
def test_any_number_of_slots_goes_through_any_number_of_credits(mode: str, data: st.DataObject) -> None:
    SimulatedJob(data.draw(wide_schedules(mode))).run()


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("seed", range(10))
def test_full_disks_at_the_beginning_and_at_the_end(mode: str, seed: int) -> None:
    """The state before training and the sealed one do not fit at first; a lost partition comes on top of it."""
    full = [Fault(0, "full", role, 15) for role in ("p0", "p1", "m")]
    full += [Fault(25, "full", role, 60) for role in ("p0", "p1")]
    lengths = (2, 3, 0, 1, 4, 2)
    faults = (*full, Fault(30, "kill", "p1"), Fault(60, "full", "m", 20))
    SimulatedJob(Schedule(seed, mode, 2, 1, lengths, 2, 2, checkpoint_steps=4, faults=faults)).run()


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("slots", [1, 2, 5])
def test_undisturbed(mode: str, workers: int, slots: int) -> None:
    lengths = (2, 3, 0, 1, 4, 2, 2, 1)
    schedule = Schedule(5, mode, slots, 2, lengths, 2, workers, evaluation_tasks=2, evaluation_steps=3)
    SimulatedJob(schedule).run()


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("partitions", [1, 2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_a_stop_saves_where_the_job_is(mode: str, partitions: int, seed: int) -> None:
    schedule = Schedule(
        seed, mode, 2, 2, (4,) * 24, partitions, 2, has_tables=seed % 2 == 0, stop_at=20.0 + seed
    )
    job = SimulatedJob(schedule).run()
    assert not job.journal["is_complete"], "it ended before the stop"
    assert job.journal["saved"] in job.checkpoints
    assert 0 < job.checkpoints[job.journal["saved"]][0].ledger.minibatches < 96


class StoppedEarly(SimulatedJob):
    """Stops as soon as something has happened of which the partitions have not told the master yet."""

    def __init__(self, schedule: Schedule, moment: str) -> None:
        self._moment = moment
        self.applied_at_stop = -1  # minibatches that all partitions had
        super().__init__(schedule)

    def feed(self, process, event):  # type: ignore[no-untyped-def]
        super().feed(process, event)
        master = self.process("m")
        partitions = [self.process(f"p{p}") for p in range(self.schedule.partitions)]
        if self.applied_at_stop >= 0 or master is None or not all(p and p.core.store for p in partitions):
            return
        applied = min(p.core.store.ledger.minibatches for p in partitions)
        if self._has_come(master.core, applied):
            self.applied_at_stop = applied
            self._stop()

    def _has_come(self, master: MasterCore, applied: int) -> bool:
        if self._moment == "a task is done":
            return bool(master.work.queue.done)
        if self._moment == "a minibatch is applied":
            return applied > 0
        newest = master.checkpoints.newest
        return newest is not None and master.version <= newest < applied


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("moment", ["a task is done", "a minibatch is applied", "a checkpoint is complete"])
@pytest.mark.parametrize("seed", [0, 1, 2, 4, 5])  # of 3 two words of before the stop are under way at once
def test_a_stop_saves_what_the_partitions_have_not_told_yet(mode: str, moment: str, seed: int) -> None:
    every = 4 if moment == "a checkpoint is complete" else 0
    schedule = Schedule(seed, mode, 1, 1, (1,) * 200, 1 + seed % 2, 1, checkpoint_steps=every)
    job = StoppedEarly(schedule, moment).run()
    saved = job.checkpoints[job.journal["saved"]]
    assert saved[0].ledger.minibatches >= job.applied_at_stop > 0
    assert job.journal["saved"] > 0


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("has_tables", [False, True])
def test_bad_minibatches_end_their_tasks_where_they_raise(mode: str, has_tables: bool) -> None:
    schedule = Schedule(
        3,
        mode,
        2,
        1,
        (4, 3, 4, 2, 4),
        2,
        2,
        evaluation_tasks=3,
        evaluation_steps=4,
        has_tables=has_tables,
        skips=True,
        bad=((0, 2), (1, 0), (2, 1), (2, 3), (3, 1)),
        bad_evaluations=(1,),
        faults=(Fault(9.0, "kill", "p0"), Fault(14.0, "kill", "m"), Fault(18.0, "kill", "w0")),
    )
    job = SimulatedJob(schedule).run()
    assert job.journal["ends"] == ((0, 2), (1, 0), (2, 1), (3, 1))
    assert job.journal["skipped_evaluations"] == (1,)
    skips = [line for line in job.log if "is skipped" in line]
    assert sum("evaluation task 1 is skipped, test, records 4..7" in line for line in skips) == 1
    assert sum("task 2 is skipped from minibatch 1 on" in line for line in skips) == 1


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_without_the_flag_a_bad_minibatch_fails_the_job(mode: str) -> None:
    schedule = Schedule(3, mode, 2, 1, (4, 3, 4, 2), 2, 2, bad=((2, 1),))
    job = SimulatedJob(schedule).run()
    assert any("task 2 raised the same error 3 times" in line for line in job.log)
    assert job.journal["ends"] == ()


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("seed", range(20))
def test_partitions_agree_on_the_end_of_a_task_that_others_are_still_at(mode: str, seed: int) -> None:
    SimulatedJob(contended_schedule(seed, mode)).run()


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("seeds", [range(first, first + 30) for first in range(0, 120, 30)], ids=str)
def test_whoever_is_lost_at_the_end_the_job_completes_once(mode: str, seeds: range) -> None:
    for seed in seeds:
        SimulatedJob(ending_schedule(seed, mode)).run()


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("make", [random_schedule, contended_schedule])
def test_checkpoints_are_gone_back_to_like_snapshots(make: Callable[[int, str], Schedule], mode: str) -> None:
    for seed in range(12):
        SimulatedJob(with_checkpoints(make(seed, mode))).run()


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("moment", ["concluding", "digest"])
def test_the_final_evaluation_is_of_the_final_model(mode: str, moment: str) -> None:
    """A partition's disk is lost then, so the model is trained again: what was evaluated before, or meanwhile, counts no more."""
    wipe = Fault(0.1, "wipe", "p1", during=moment)
    for seed in range(4):
        job = SimulatedJob(Schedule(seed, mode, 2, 1, (2, 2), 2, 1, evaluation_tasks=4, faults=(wipe,))).run()
        finals = [job.sealed[p, life] for p, life in enumerate(job.journal["sealed"])]
        assert job.journal["evaluations"][-1][1]["seen"] == seen_of(finals)


def test_no_older_version_is_evaluated_behind_the_final_model() -> None:
    """A master dies with a round in work; the next one evaluates the final model, which has to be trained again."""
    faults = (
        Fault(0.0, "kill", "m", 1.0, during="sealing"),
        Fault(0.1, "wipe", "p0", during="digest"),
    )
    rounds = {"evaluation_steps": 2, "evaluation_tasks": 2}
    for seed in range(8):
        SimulatedJob(Schedule(seed, "sync", 2, 1, (0, 0, 3, 1), 1, 1, **rounds, faults=faults)).run()


def test_the_final_model_is_evaluated_again_when_a_task_is_left_out_behind_it() -> None:
    """It is trained again, by a worker that cannot compute one of the tasks."""
    faults = (
        Fault(0.1, "kill", "w0", is_replaced=False, during="digest"),
        Fault(0.1, "join", "w1", during="digest"),
        Fault(0.1, "wipe", "p1", during="digest"),
    )
    lame = (("w1", 1),)
    for seed in range(4):
        schedule = Schedule(
            seed, "sync", 2, 1, (3, 2, 3, 4), 2, 1, evaluation_tasks=4, skips=True, lame=lame, faults=faults
        )
        job = SimulatedJob(schedule).run()
        assert job.journal["ends"] == ((1, 0),)
        assert len(job.journal["evaluations"]) == 2


def test_a_schedule_repeats() -> None:
    schedule = random_schedule(7, "sync")
    assert SimulatedJob(schedule).run().log == SimulatedJob(schedule).run().log


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", "async"])
@settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_many_hard_schedules(mode: str, data: st.DataObject) -> None:
    schedule, home = data.draw(schedules(mode, is_hard=True)), data.draw(st.sampled_from(HOMES))
    SimulatedJob(schedule if home == "hand" else with_supervision(schedule, home)).run()
