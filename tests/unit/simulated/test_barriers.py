"""Jobs whose callbacks decide: they decide the same, and train to the same bits, whoever runs them and dies."""

import dataclasses
import random
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any

import msgspec
import pytest

from edlz.services import strict_json
from edlz.services.master.core.barriers import Barriers
from edlz.services.master.core.vocabulary.inputs import ManifestWritten
from edlz.services.master.core.vocabulary.instructions import Journal
from edlz.services.protocol.concluded_rounds import CallbackNeeds, Decision
from edlz.services.protocol.messages import Ends, Job, NewestPull, SnapshotName
from edlz.services.ps.core.exchanges import Exchanges
from edlz.services.ps.core.instructions import Reply
from edlz.services.storage import complete_checkpoints
from edlz.services.storage.checkpoint_records import Manifest, Part
from edlz.services.worker.core.training import Training
from tests.schedules import (
    ending_schedule,
    exporting_schedule,
    random_schedule,
    with_callbacks,
    with_checkpoints,
    with_departures,
    with_supervision,
)
from tests.simulation import job as simulated_job
from tests.simulation import worker_shell
from tests.simulation.callbacks import callback_needs
from tests.simulation.job import Fault, Schedule, SimulatedJob, Violation
from tests.simulation.processes import Process
from tests.simulation.promises import seen_of
from tests.simulation.schedule import BARRIER_MOMENTS
from tests.simulation.shells import MasterShell

LENGTHS = (2, 3, 0, 2, 1, 3, 2, 2)


def schedule(seed: int, mode: str = "sync", **more: object) -> Schedule:
    about = {"epochs": 2, "has_callbacks": True, "decides": True, "evaluation_tasks": 2, **more}
    return Schedule(seed, mode, 2, lengths=LENGTHS, partitions=2, workers=2, **about)  # type: ignore[arg-type]


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("every", [0, 2])
def test_callbacks_decide_the_same_on_any_number_of_workers(
    partitions: int, workers: int, every: int
) -> None:
    about = dataclasses.replace(schedule(1), partitions=partitions, workers=workers, evaluation_steps=every)
    job = SimulatedJob(about).run()
    assert len(job.journal["rounds"]) == (4 if every else 2)
    assert all("shown" in round_.decision.logs for round_ in job.journal["rounds"])


def test_what_is_journalled_of_a_round_does_not_grow_with_those_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal, sizes = MasterShell._journal, []

    def weighed(shell: MasterShell, process: Process, entry: Journal) -> None:
        if "rounds" in entry.fields or "rounds" in entry.added:
            sizes.append(len(strict_json.encode((entry.fields, entry.added))))
        journal(shell, process, entry)

    monkeypatch.setattr(MasterShell, "_journal", weighed)
    job = SimulatedJob(dataclasses.replace(schedule(1, evaluation_steps=2), lengths=(2,) * 60)).run()
    assert len(sizes) == len(job.journal["rounds"]) == 30
    assert sizes[-1] < 1.5 * sizes[0]


def test_a_stop_cuts_the_plan() -> None:
    job = SimulatedJob(schedule(2, stops_behind=0)).run()
    assert (len(job.journal["rounds"]), job.journal["task_count"]) == (1, 4)


def test_a_job_without_validation_data_has_its_loss() -> None:
    job = SimulatedJob(schedule(3, evaluation_tasks=0)).run()
    assert all(round_.decision.logs["loss"] > 0 for round_ in job.journal["rounds"])


def test_the_best_version_is_kept_and_put_back() -> None:
    job = SimulatedJob(schedule(4, keeps_best=True, evaluation_steps=2)).run()
    best = job.journal["rounds"][-1].decision.result
    assert set(job.checkpoint_folder.versions) == {best}
    assert job.journal["evaluations"][-1][0] == best


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 10, 11, 14, 30, 31, 32, 50])
def test_a_job_of_so_many_minibatches_ends_inside_its_last_task(steps: int, mode: str) -> None:
    decides = steps % 2 == 0
    about = {
        "max_step": steps,
        "decides": decides,
        "has_callbacks": decides,
        "workers_tell_max_step": steps % 3 > 0,
    }
    job = SimulatedJob(schedule(5, mode, **about)).run()
    assert (job.journal["task_count"] or len(LENGTHS)) == min(len(LENGTHS), -(-steps // 4))


def disturbed(rng: random.Random, moment: str, role: str) -> Schedule:
    more = {"evaluation_steps": rng.choice((0, 2)), "stops_behind": rng.choice((-1, 1)), "keeps_best": True}
    at, kind = (
        rng.choice((0.0, 0.1, rng.uniform(0, 3))),
        rng.choice(("kill", "kill", "stall", "wipe", "term")),
    )
    fault = Fault(at, kind, role, rng.uniform(1, 20), during=moment)
    return schedule(rng.randrange(1000), **more, noise=rng.choice((0.0, 0.05)), faults=(fault,))


@pytest.mark.parametrize("role", ["m", "p0", "p1", "w0"])
@pytest.mark.parametrize("moment", BARRIER_MOMENTS)
def test_whoever_is_lost_at_a_barrier(moment: str, role: str) -> None:
    SimulatedJob(disturbed(random.Random(f"{moment}{role}"), moment, role)).run()


def test_the_way_back_comes_before_an_evaluation_that_workers_have_died_of() -> None:
    """Two died with one of a barrier's tasks in hand; then a partition lost its disk, and the version was gone."""
    SimulatedJob(with_supervision(with_callbacks(random_schedule(13, "sync")), "pods")).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_anything_may_happen_at_a_barrier(seed: int) -> None:
    for mode in ("sync", "async"):
        for make in (random_schedule, ending_schedule):
            SimulatedJob(with_callbacks(make(seed, mode))).run()
        rng = random.Random(seed)
        about = disturbed(rng, rng.choice(BARRIER_MOMENTS), rng.choice(("m", "p0", "p1", "w0", "w1")))
        SimulatedJob(about).run()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("seed", range(60))
def test_anything_may_happen_at_once(mode: str, seed: int) -> None:
    """Callbacks, lost disks, checkpoints that are pruned or cannot be linked, and partitions that leave."""
    SimulatedJob(with_departures(with_callbacks(with_checkpoints(random_schedule(seed, mode))))).run()
    SimulatedJob(with_departures(with_callbacks(exporting_schedule(seed, mode)))).run()
    home = random.Random(seed).choice(("machine", "pods"))
    SimulatedJob(with_supervision(with_callbacks(random_schedule(seed, mode)), home)).run()


@pytest.mark.parametrize("role", ["p0", "m"])
def test_a_version_that_finds_no_room_is_saved_again(role: str) -> None:
    about = {"keeps_best": True, "faults": (Fault(0.0, "full", role, 20.0, during="barrier"),)}
    SimulatedJob(schedule(6, **about)).run()


def test_a_version_that_never_finds_room_fails_the_job() -> None:
    about = {"keeps_best": True, "faults": (Fault(0.0, "full", "p0", 2000.0, during="barrier"),)}
    job = SimulatedJob(schedule(1, **about))
    with pytest.raises(Violation, match="which callbacks refer to, could not be saved"):
        job.run()
    assert job.now < 500


def test_a_version_whose_manifest_cannot_be_written_is_saved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    complete, tried = MasterShell._complete, []

    def fail_once(self: MasterShell, process: Process, manifest: Manifest, *about: Any) -> None:
        if tried:
            complete(self, process, manifest, *about)
            return
        tried.append(manifest.version)
        self._job.give(process, ManifestWritten(manifest.version, "no room"))

    monkeypatch.setattr(MasterShell, "_complete", fail_once)
    job = SimulatedJob(schedule(4, keeps_best=True)).run()
    assert tried == [job.journal["rounds"][0].version]


def test_nothing_is_kept_where_training_does_not_wait() -> None:
    """Its version is over when a worker says so: whoever waited for its checkpoint would wait for ever."""
    job = SimulatedJob(schedule(1, "async", keeps_best=True)).run()
    assert [round_.decision.kept for round_ in job.journal["rounds"]] == [(), ()]


def test_a_version_that_was_never_kept_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callbacks that are new in a resumed job are shown the rounds before, and may like one of them best."""

    def like_the_first(*about: Any, is_end: bool) -> Decision:
        return Decision(logs={}, kept=(1,), result=1 if is_end else -1)

    monkeypatch.setattr(worker_shell, "decide", like_the_first)
    monkeypatch.setattr(simulated_job, "check_end", lambda of: None)
    rounds = SimulatedJob(schedule(1, exports=True)).run().journal["rounds"]
    assert [(round_.decision.kept, round_.decision.result) for round_ in rounds] == [((), -1), ((), -1)]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("is_killed", [True, False])
def test_callbacks_that_come_later_see_what_comes_from_then_on(
    mode: str, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job is resumed with callbacks, or begins in the middle: else they would be shown one version many times."""
    about = dataclasses.replace(schedule(1, mode), epochs=4)
    job, known = SimulatedJob(about), []
    monkeypatch.setattr(worker_shell, "callback_needs", lambda of: callback_needs(of) if known else None)
    monkeypatch.setattr(simulated_job, "check_end", lambda of: None)

    def change() -> None:
        master = job.process("m")
        if master is None or master.core.work.queue.done.first_missing() < 4:
            job.at(job.now + 0.5, change)
            return
        known.append(master.core.partitions.statuses[0].losses)
        for role in ("w0", "w1", "m"):
            job._kill_by(Fault(0.0, "kill", role), job.process(role))
        if is_killed:
            kill_the_first_who_knows()

    def kill_the_first_who_knows() -> None:
        master = job.process("m")
        if master is not None and "callbacks" in job.journal:
            job._kill_by(Fault(0.0, "kill", "m"), master)
        else:
            job.at(job.now + 0.05, kill_the_first_who_knows)

    job.at(1.0, change)
    rounds = job.run().journal["rounds"]
    assert [round_.task for round_ in rounds] == [5, 7]
    assert rounds[0].version > 6
    assert rounds[0].decision.logs["loss"] == pytest.approx(rounds[0].losses.mean_since(known[0]), abs=0.4)


def test_callbacks_may_be_others_when_a_job_is_resumed() -> None:
    """Once for each master: its workers run the same code."""
    job = SimulatedJob(schedule(1))
    core = job.process("m").core
    onlooking, deciding = CallbackNeeds(runs=True), CallbackNeeds(runs=True, decides=True)
    job.carry_out(job.process("m"), core.work.barriers.learn(onlooking))
    assert not core.work.barriers.learn(deciding)
    job._kill(job.process("m"))
    job.launch("m")
    core = job.process("m").core
    job.carry_out(job.process("m"), core.work.barriers.learn(deciding))
    assert job.journal["callbacks"] == core.work.barriers.needs == deciding
    core.check_invariants()


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(
    ("before", "then", "at", "count"),
    [
        (0, 3, 9, 0),  # inside a task that is done
        (0, 9, 12, 0),  # before the mark of a task in work, or done
        (0, 26, 9, 7),
        (22, 18, 4, 5),
        (10, 20, 4, 3),
    ],
)
def test_the_end_of_a_job_is_not_put_behind_it(
    before: int, then: int, at: int, count: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--max_step may be another one when a job is resumed."""
    lengths = (4,) * 8
    job = SimulatedJob(Schedule(2, mode, 2, 2, lengths, 2, 2, max_step=before))
    monkeypatch.setattr(simulated_job, "check_end", lambda of: None)

    def change() -> None:
        master = job.process("m")
        statuses = master.core.partitions.statuses if master is not None else []
        if len(statuses) < 2 or min(status.minibatches for status in statuses) < at:
            job.at(job.now + 0.1, change)
            return
        job.job = msgspec.structs.replace(job.job, config={**job.job.config, "max_step": then})
        for role in ("w0", "w1", "m"):
            job._kill_by(Fault(0.0, "kill", role), job.process(role))

    job.at(1.0, change)
    job.run()
    ends = dict(job.journal["ends"])
    applied = [ends.get(t, 4) if t < (count or 8) else 0 for t in range(8)]
    assert job.journal["task_count"] == count
    assert all(list(state.counts) == applied for state in job.sealed.values())


@pytest.mark.parametrize("role", ["m", "p0", "w0"])
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("index", [0, 1, 2])
def test_the_task_that_a_job_ends_in_may_be_bad(
    index: int, mode: str, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job ends inside task 2, before minibatch 2."""
    faults = (Fault(index * 5.0 + 8, "kill", role), Fault(100.0, "join", "w0"))
    about = {"max_step": 10, "skips": True, "bad": ((2, index),), "faults": faults}
    job = SimulatedJob(Schedule(index, mode, 2, 2, (4,) * 8, 2, 2, **about))
    monkeypatch.setattr(simulated_job, "check_end", lambda of: None)
    job.run()
    assert job.journal["is_complete"]
    assert job.journal["ends"] == ((2, index),)
    assert all(list(state.counts) == [4, 4, index, 0, 0, 0, 0, 0] for state in job.sealed.values())


def test_a_job_that_ends_before_what_a_partition_has_staged() -> None:
    """No master says so, but whoever takes himself for one must not spoil what a partition holds."""
    job = SimulatedJob(schedule(1))
    core = _core_with_a_staged_slot(job)
    core._synchronous.end_behind(min(core._synchronous.staged))
    core.check_invariants()


@pytest.mark.parametrize("seed", range(4))
def test_a_stop_while_a_barrier_holds_has_its_checkpoint(seed: int) -> None:
    class StoppedAtBarrier(SimulatedJob):
        def reach(self, moment: str) -> None:
            if moment == "barrier" and "barrier" not in self._reached:
                self.within(0, 0.5, self._stop)
            super().reach(moment)

    job = StoppedAtBarrier(schedule(seed, evaluation_steps=2)).run()
    assert job.journal["saved"] in job.checkpoint_folder.versions


def test_the_parameters_of_a_barrier_are_those_that_are_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were leases given beyond it, what callbacks see would depend on who was quicker."""
    monkeypatch.setattr(Barriers, "_holds", property(lambda self: False))
    with pytest.raises(Violation):
        run_all(schedule(seed) for seed in range(20))


def test_what_is_computed_ahead_of_a_barrier_is_kept_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were it pushed at once, partitions would stand at no version that could be evaluated."""
    monkeypatch.setattr(Training, "holds_back", lambda *about: False)
    with pytest.raises(Violation):
        run_all(schedule(seed) for seed in range(20))


def test_what_is_computed_ahead_of_a_barrier_is_of_the_rate_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = Training.release

    def at_the_rate_before(self: Training, task: int, learning_rate: float | None) -> Any:
        held = self._held.get(task)
        return release(self, task, learning_rate if held is None else held.learning_rate)

    monkeypatch.setattr(Training, "release", at_the_rate_before)
    with pytest.raises(Violation):
        run_all(schedule(seed) for seed in range(20))


@pytest.mark.parametrize("has_tables", [False, True])
def test_a_minibatch_behind_a_barrier_is_computed_once(
    has_tables: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless its learning rate is another one then, and the model's tables may have their own."""
    counts: Counter[tuple[int, int]] = Counter()
    compute = worker_shell.WorkerShell._compute

    def counted(self: Any, process: Process, compute_: Any) -> None:
        counts[compute_.task, compute_.index] += 1
        compute(self, process, compute_)

    monkeypatch.setattr(worker_shell.WorkerShell, "_compute", counted)
    about = schedule(1, evaluation_steps=2, has_tables=has_tables)
    job = SimulatedJob(dataclasses.replace(about, lengths=(2,) * 40, workers=1)).run()
    changed = {r.task + 1 for r in job.journal["rounds"] if r.decision.learning_rate is not None}
    again = {task for (task, _), count in counts.items() if count > 1}
    assert bool(again) == has_tables
    assert all(task in changed or task - 1 in changed for task in again), "those of its round"


def test_an_evaluation_asks_for_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the newest values taken, those of a partition that has lost some would be evaluated."""
    monkeypatch.setattr(Exchanges, "newest", newest_whatever_it_is)
    faults = (Fault(0.5, "wipe", "p0", during="held back"),)
    with pytest.raises(Violation, match="evaluated"):
        run_all(schedule(seed, evaluation_tasks=4, faults=faults) for seed in range(60))


@pytest.mark.parametrize("role", ["p1", "m", "w0"])
def test_the_final_metrics_are_those_of_the_final_model_also_of_callbacks_that_do_not_decide(
    role: str,
) -> None:
    """What a loss takes back of the model that is evaluated is trained again meanwhile."""
    faults = (Fault(0.3, "kill", role, during="evaluating"),)
    run_all(schedule(seed, decides=False, epochs=1, faults=faults) for seed in range(5))


def test_callbacks_that_look_on_see_no_model_of_before_their_barrier() -> None:
    """All partitions go back while the finished model is evaluated, and nothing holds them at its version."""
    faults = (
        Fault(6.816226355938189, "stall", "p0", 47.09766208581674),
        Fault(31.403342433236404, "kill", "p2", 52.75988381278353, is_replaced=False),
        Fault(38.47596475570645, "cut", "m", 11.416595464601112, is_replaced=False),
        Fault(44.59429104958275, "kill", "w0", 53.87471858010912),
        Fault(57.707470195188165, "kill", "p0", 45.958533045313985),
    )
    about = with_callbacks(random_schedule(40, "sync"))
    _check_final_metrics(SimulatedJob(dataclasses.replace(about, faults=faults)).run())


@pytest.mark.parametrize("seed", [1, 20, 27])
def test_callbacks_that_look_on_see_all_that_is_before_their_barrier(seed: int) -> None:
    """Workers have reported the tasks when no partition has told its version and its losses yet."""
    about = with_callbacks(random_schedule(seed, "sync"))
    SimulatedJob(dataclasses.replace(about, decides=False, evaluation_steps=2)).run()


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("with_master", [False, True])
def test_the_final_metrics_are_of_the_finished_model(with_master: bool, mode: str) -> None:
    """A partition loses all while callbacks look on, and perhaps the master restarts before it is trained again."""
    for seed in range(9):
        moment = ("evaluating", "shown", "passed")[seed % 3]
        faults = [Fault(0.3 * (seed // 3), "kill", "p0", 3.0, during=moment)]
        faults += [Fault(1.0, "kill", "m", 3.0, during=moment)] if with_master else []
        about = {"decides": False, "snapshot_every_s": 500.0, "has_tables": True, "faults": tuple(faults)}
        about |= {"lengths": (2, 1, 2), "epochs": 1}
        _check_final_metrics(SimulatedJob(dataclasses.replace(schedule(seed, mode), **about)).run())


def test_parts_of_several_eras_are_what_all_can_go_back_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """p0 leaves when p1 has its part of the version that is to be kept; then p0's disk is lost: of some job at least."""
    faults = (Fault(0.5, "term", "p0", 20.0, during="shown"), Fault(1.0, "wipe", "p0", during="decided"))
    more = {"keeps_best": True, "evaluation_steps": 2, "snapshot_every_s": 500.0, "faults": faults}
    of_several = (about for seed in range(60) if has_parts_of_several_eras(about := schedule(seed, **more)))
    about = next(of_several)
    monkeypatch.setattr(complete_checkpoints, "named_part", named_by_its_own_era)
    with pytest.raises(Violation, match="nothing in common"):
        SimulatedJob(about).run()


def has_parts_of_several_eras(about: Schedule) -> bool:
    job = SimulatedJob(about).run()
    return any(len({state.era for state in states}) > 1 for states in job.checkpoints.values())


def named_by_its_own_era(
    manifest: Manifest, job: Job, partition: int, ends: Ends
) -> tuple[SnapshotName, Part] | None:
    part = complete_checkpoints.part_of_run(manifest, job, partition, ends)
    return None if part is None else ((part.era, part.version), part)


def _check_final_metrics(job: SimulatedJob) -> None:
    finals = [job.sealed[p, life] for p, life in enumerate(job.journal["sealed"])]
    version, metrics = job.journal["evaluations"][-1]
    assert (version, metrics["seen"]) == (finals[0].version, seen_of(finals))


def run_all(jobs: Iterable[Schedule]) -> None:
    for job in jobs:
        SimulatedJob(job).run()


def newest_whatever_it_is(self: Exchanges, to: Hashable, pull: NewestPull) -> list[Reply]:
    return [Reply(to, self._exchanged(None, pull, pull.have_version))]


def _core_with_a_staged_slot(job: SimulatedJob) -> Any:
    for hundredth in range(100_000):
        job.run_until(hundredth / 100)
        process = job.process("p0")
        if process is not None and process.core._synchronous is not None and process.core._synchronous.staged:
            return process.core
    raise AssertionError("nothing was ever staged")


def test_a_worker_is_told_each_round_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many barriers there have been: else each of them would send them all."""
    reply, told = MasterShell._reply, []

    def counted(shell: MasterShell, process: Process, answer: Any) -> None:
        conclude = getattr(answer.body, "conclude", None)
        if conclude is not None:
            told.append((conclude.round, conclude.shown.first, len(conclude.shown.before)))
        reply(shell, process, answer)

    monkeypatch.setattr(MasterShell, "_reply", counted)
    about = dataclasses.replace(schedule(1, evaluation_steps=2), lengths=(2,) * 60, workers=1)
    job = SimulatedJob(about).run()
    rounds = len(job.journal["rounds"])
    by_round = {number: (first, count) for number, first, count in reversed(told)}
    assert sorted(by_round.values()) == [(0, 0), *((max(0, n - 1), 1) for n in range(1, rounds))]
