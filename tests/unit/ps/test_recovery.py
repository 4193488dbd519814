"""What a lost partition, and with it the job, goes back to: the newest of snapshots and complete checkpoints."""

import dataclasses

import pytest

from edlz.services.master.core.checkpoints import Checkpoints
from edlz.services.protocol.groups import BASE
from edlz.services.protocol.messages import PartitionOrders, SnapshotName
from edlz.services.ps.core.inputs import Answered, Request
from edlz.services.ps.core.instructions import Exit
from edlz.services.ps.core.partition import Partition
from tests import builders
from tests.bare_partition import bare_partition, become_based, initial_values
from tests.schedules import quiet_schedule
from tests.simulation.job import Fault, Schedule, SimulatedJob, Violation
from tests.simulation.processes import Process
from tests.statuses import partition_status


def schedule(mode: str, *faults: Fault, **changes: object) -> Schedule:
    """A job that saves checkpoints, and next to no snapshots."""
    return quiet_schedule(mode, *faults, **{"checkpoint_steps": 4, **changes})


class Watched(SimulatedJob):
    """Notes for each partition's life the version that it begins to serve from."""

    def __init__(self, about: Schedule) -> None:
        self.begun: list[tuple[str, float, int]] = []
        self.completed: list[tuple[float, int]] = []
        super().__init__(about)

    def feed(self, process, event):  # type: ignore[no-untyped-def]
        core = process.core
        before = self._stands(core)
        super().feed(process, event)
        after = self._stands(core)
        if after is not None and after != before:
            self.begun.append((process.role, self.now, core.store.version))
        known = {version for _, version in self.completed}
        self.completed += [(self.now, version) for version in self.checkpoints if version not in known]

    def _stands(self, core: object) -> object:
        """The life and the era that a partition serves in."""
        if not isinstance(core, Partition) or core.store is None or core.incarnation is None:
            return None
        return None if core.plan.is_sync and core.era is None else (core.incarnation, core.era)

    def begun_after(self, role: str, when: float) -> int:
        return next(version for name, at, version in self.begun if name == role and at > when)

    def completed_before(self, when: float) -> int:
        return max((version for at, version in self.completed if at < when), default=0)


@pytest.mark.parametrize("can_link", [True, False], ids=["one disk", "two disks"])
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("kind", ["kill", "wipe"])
@pytest.mark.parametrize("at", [40.0, 47.0, 54.0])
def test_a_lost_partition_goes_back_to_a_complete_checkpoint(
    mode: str, kind: str, can_link: bool, at: float
) -> None:
    job = Watched(schedule(mode, Fault(at, kind, "p0"), can_link=can_link)).run()  # type: ignore[assignment]
    newest = job.completed_before(at - 4)  # it takes a status or two until all have seen it
    assert newest, "the fault came before there was a checkpoint"
    # Its own version in asynchronous mode: the name of the checkpoint is the greatest of all.
    assert job.begun_after("p0", at) >= newest - (0 if mode == "sync" else 2)


@pytest.mark.parametrize("can_link", [True, False], ids=["one disk", "two disks"])
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("kind", ["kill", "wipe"])
@pytest.mark.parametrize("at", [40.0, 47.0, 54.0])
def test_a_job_that_is_lost_at_once_goes_back_to_a_complete_checkpoint(
    mode: str, kind: str, can_link: bool, at: float
) -> None:
    """Nobody is left who knows of it but what lies in the folder."""
    faults = (Fault(at, "kill", "m"), Fault(at, kind, "p0"), Fault(at, kind, "p1"))
    job = Watched(schedule(mode, *faults, can_link=can_link))
    job.run()
    newest = job.completed_before(at)
    assert newest, "the fault came before there was a checkpoint"
    for role in ("p0", "p1"):
        assert job.begun_after(role, at) >= newest - (0 if mode == "sync" else 2)


def test_checkpoints_are_kept_as_long_as_partitions_may_go_back_to_them() -> None:
    """One that was not linked is all there is until the snapshot that takes its place is written."""
    faults = [Fault(40.0 + 6 * i, "wipe", f"p{i % 2}") for i in range(6)]
    job = Watched(schedule("sync", *faults, can_link=False, keeps=1)).run()
    assert min(version for _, at, version in job.begun if at > 41) > 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("at", [3.0, 12.0, 40.0, 54.0])
def test_a_job_that_began_from_a_checkpoint_loses_a_disk(mode: str, at: float) -> None:
    job = Watched(schedule(mode, Fault(at, "wipe", "p0"), keeps=1, begins_from=300)).run()
    assert job.begun_after("p0", at) >= 300  # type: ignore[attr-defined]
    assert 300 in job.checkpoint_folder.versions


def is_lost(mode: str, at: float, *, is_pruned: bool) -> bool:
    """Whether a job that began from a checkpoint, and ends a task, does not survive the loss of a disk.

    What it saved before the task was ended is of another history: of a disk that is lost then nothing may be left.
    """
    about = schedule(mode, Fault(at, "wipe", "p0"), checkpoint_steps=10, keeps=1, begins_from=300)
    about = dataclasses.replace(about, lengths=(4,) * 10, skips=True, bad=((6, 1),))
    job = SimulatedJob(about)
    if is_pruned:
        job.begun_from = ()
    try:
        job.run()
    except Violation:
        return True
    return False


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_checkpoint_that_it_began_from_may_be_all_that_is_left(mode: str) -> None:
    times = [32.0, 36.0, 48.0, 52.0]
    assert not any(is_lost(mode, at, is_pruned=False) for at in times)
    assert any(is_lost(mode, at, is_pruned=True) for at in times)


def test_a_partition_that_is_left_with_nothing_begins_another_life() -> None:
    """It is given the state before training then, which all have; as it stands it has nothing in common with them."""
    plan = builders.plan(9, records_per_task=2)
    partition = bare_partition("r", (1, 1), plan)
    become_based(partition, partition.feed(Request("a worker", initial_values("r", plan=plan)), 0.0), (1, 1))
    asked = partition_status(incarnation=(1, 1), snapshots=(BASE,))
    orders = PartitionOrders(term=1, number=1, incarnation=(1, 1), stop=False, era=None)
    assert not any(isinstance(each, Exit) for each in partition.feed(Answered(asked, orders), 1.0))
    partition._snapshots.wipe()
    [gone] = partition.feed(Answered(asked, orders), 2.0)
    assert isinstance(gone, Exit)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_another_runs_checkpoint_is_not_gone_back_to(mode: str) -> None:
    job = SimulatedJob(schedule(mode, Fault(12.0, "wipe", "p0"), Fault(30.0, "kill", "p1"), has_foreign=True))
    job.run()
    assert job.journal["is_complete"]


def test_a_master_that_died_told_nobody_of_its_last_checkpoint() -> None:
    """The partition that lost its disk has nothing else, the other one has to look what there is."""
    for at in range(20, 40):
        faults = (Fault(at, "kill", "m"), Fault(at + 0.1, "wipe", "p1"))
        SimulatedJob(schedule("sync", *faults, keeps=1)).run()


def test_a_checkpoint_is_not_waited_for_beyond_the_end_of_a_history_that_was_cut_short() -> None:
    """The job had come to v6; it went back, a task was ended, and v4 is its last version now."""
    checkpoints = Checkpoints(is_sync=True, steps=4, first_number=1)
    checkpoints.ask(6)
    checkpoints.rewind(0)
    checkpoints.ask(4)
    checkpoints.on_manifest(4, is_written=True)
    assert checkpoints.is_idle


def test_the_base_is_what_is_left_without_either() -> None:
    job = Watched(schedule("sync", Fault(25.0, "kill", "p0"), checkpoint_steps=0)).run()
    assert job.begun_after("p0", 25.0) == BASE[1]  # type: ignore[attr-defined]


class Vanishing(Watched):
    """Takes what a partition is to go back to off its disk, each time just before it looks there."""

    def __init__(self, about: Schedule, times: int, *, is_damaged: bool) -> None:
        self.left, self._is_damaged = times, is_damaged
        self.lives: list[str] = []
        super().__init__(about)

    def launch(self, role: str) -> Process:
        self.lives.append(role)
        return super().launch(role)

    def feed(self, process, event):  # type: ignore[no-untyped-def]
        if process.role == "p1" and isinstance(event, Answered) and self.left:
            target = getattr(event.answer, "restore", None)
            if target is not None and target != BASE and event.answer.era != process.core.era:
                self.left -= 1
                self._take_away(target)
        super().feed(process, event)

    def _take_away(self, target: SnapshotName) -> None:
        disk = self.disks[1]
        if self._is_damaged:
            disk.damaged.add(target)
            return
        disk.states.pop(target, None)
        for version, (manifest, _) in list(self.checkpoint_folder.versions.items()):
            if manifest.version == target[1]:
                del self.checkpoint_folder.versions[version]


@pytest.mark.parametrize("is_damaged", [False, True], ids=["gone", "damaged"])
@pytest.mark.parametrize("seed", range(8))
def test_a_target_that_is_gone_costs_no_life(seed: int, is_damaged: bool) -> None:
    every = seed % 3  # without checkpoints there is one snapshot, then the state before training
    about = schedule(
        "sync", Fault(60.0, "kill", "p0"), seed=seed, snapshot_every_s=4.0, checkpoint_steps=every
    )
    job = Vanishing(about, times=2 if every else 1, is_damaged=is_damaged)
    job.run()
    assert job.left == 0, "nothing was taken away"
    assert job.lives.count("p1") == 1
    assert job.lives.count("p0") == 2
