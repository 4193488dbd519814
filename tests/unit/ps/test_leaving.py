"""A parameter server that is told to end: what it had is not computed again."""

from collections.abc import Callable

import pytest

from edlz.k8s.objects.pods import WORKER_PATIENCE_S, grace_s
from edlz.services.configuration.job_config import JobConfig
from edlz.services.master.core.processes.partitions import Partitions
from edlz.services.protocol.messages import PartitionOrders
from edlz.services.ps.core.leaving import ENDED, SILENT_S, Leaving
from edlz.services.ps.core.partition import Partition
from edlz.services.ps.core.synchronous import Synchronous
from tests.schedules import (
    contended_schedule,
    ending_schedule,
    quiet_schedule,
    random_schedule,
    with_departures,
)
from tests.simulation.job import Fault, Schedule, SimulatedJob
from tests.simulation.processes import Process
from tests.statuses import partition_status

ERA = (1, 7)


class Watched(SimulatedJob):
    """Notes how far the partitions had come when those that were told to end left by themselves."""

    def __init__(self, about: Schedule) -> None:
        self.left: dict[str, float] = {}
        self.furthest: dict[str, int] = {}
        self.saved: dict[str, bool] = {}  # whether what they had was on their disks
        super().__init__(about)

    def exit(self, process: Process) -> None:
        core = process.core
        if isinstance(core, Partition) and core._leaving.is_under_way:
            assert core.store is not None
            self.left[process.role] = self.now
            names = self.disks[core.index].states
            self.saved[process.role] = any(name[1] == core.store.version for name in names)
            others = [self.process(f"p{p}") for p in range(self.schedule.partitions)]
            stores = [core.store, *(other.core.store for other in others if other is not None)]
            versions = [store.version for store in stores if store is not None]
            self.furthest[process.role] = max(versions) if core.plan.is_sync else core.store.version
        super().exit(process)

    @property
    def begun(self) -> list[int]:
        """The versions that the job, or a partition of an asynchronous one, went back to."""
        text = "all partitions go back to v" if self.plan.is_sync else " is back at v"
        return [int(line.split(text)[1].split(",")[0].split(";")[0]) for line in self.log if text in line]


def again(about: Schedule) -> int:
    """Return how many of the steps that were taken when p0 left are not there any more afterwards."""
    job = Watched(about)
    job.run()
    return job.furthest["p0"] - min(job.begun)


@pytest.mark.parametrize("partitions", [1, 2, 3])
@pytest.mark.parametrize("at", [19.5, 27.0, 34.0])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_nothing_is_computed_again(mode: str, partitions: int, at: float) -> None:
    assert again(quiet_schedule(mode, Fault(at, "term", "p0", 20.0), partitions=partitions)) == 0


def test_all_leave_at_once() -> None:
    job = Watched(
        quiet_schedule("sync", *(Fault(30.0, "term", f"p{p}", 20.0) for p in range(3)), partitions=3)
    )
    job.run()
    assert min(job.begun) == max(job.furthest.values()) > 0


class AllTold(SimulatedJob):
    """Every process is told to end at once: by a drained node, a deleted namespace, a machine's shutdown."""

    def __init__(self, about: Schedule) -> None:
        self.versions: list[int] = []  # that the partitions had
        super().__init__(about)
        self.at(30.0, self._look)

    def _look(self) -> None:
        cores = [self.process(f"p{p}").core for p in range(self.schedule.partitions)]  # type: ignore[union-attr]
        self.versions = [core.store.version for core in cores]

    def saved(self) -> list[int]:
        """What the job can go on from: a checkpoint, or snapshots; in synchronous mode those that all have."""
        names = [{name[1] for name in disk.states} for disk in self.disks]
        common = set.intersection(*names)
        return [max((*(common if self.plan.is_sync else own), self.journal["saved"])) for own in names]


@pytest.mark.parametrize("partitions", [1, 2, 3])
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("seed", range(6))
def test_all_processes_are_told_at_once(mode: str, partitions: int, seed: int) -> None:
    faults = [Fault(30.0 + WORKER_PATIENCE_S, "kill", f"w{w}", is_replaced=False) for w in range(2)]
    faults += [Fault(30.0, "term", f"p{p}", 20.0) for p in range(partitions)]
    about = quiet_schedule(mode, *faults, partitions=partitions, seed=seed, stop_at=30.0)
    job = AllTold(about)
    job.run()
    assert min(job.versions) > 0
    assert all(saved >= had for saved, had in zip(job.saved(), job.versions, strict=True))


def test_nobody_works_while_it_leaves() -> None:
    """No push would spread a word, and none is needed."""
    faults = [Fault(30.0, "kill", f"w{w}", is_replaced=False) for w in range(2)]
    faults += [Fault(35.0, "term", "p1", 20.0), Fault(60.0, "join", "w0")]
    job = Watched(quiet_schedule("sync", *faults))
    job.run()
    assert min(job.begun) == job.furthest["p1"] > 0


def test_without_a_master_it_is_not_waited_for() -> None:
    faults = (Fault(30.0, "stall", "m", 30.0), Fault(30.0, "term", "p0", 20.0))
    job = Watched(quiet_schedule("sync", *faults, seed=3))  # the master's last answer comes soon
    job.run()
    assert SILENT_S <= job.left["p0"] - 30.0 < SILENT_S + 7.0
    assert job.saved["p0"], "what it had is not on its disk"


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_on_a_full_disk_it_goes_without(mode: str) -> None:
    job = Watched(quiet_schedule(mode, Fault(29.0, "full", "p0", 40.0), Fault(30.0, "term", "p0", 20.0)))
    job.run()
    assert job.left["p0"] < 48.0


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("make", [random_schedule, contended_schedule, ending_schedule])
def test_whoever_is_lost_meanwhile_the_promises_hold(make: Callable[[int, str], Schedule], mode: str) -> None:
    for seed in range(15):
        SimulatedJob(with_departures(make(seed, mode))).run()


def test_without_the_rules_steps_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """If nobody is kept from going on, the partitions never stand at one version to be saved."""
    faults = [Fault(at, "term", "p0", 20.0) for at in (27.0, 29.0, 31.0)]
    monkeypatch.setattr(Synchronous, "last_version", property(lambda _: None, lambda *_: None), raising=False)
    assert max(again(quiet_schedule("sync", fault)) for fault in faults) > 1
    monkeypatch.setattr(Partition, "_save_own", lambda *_: [])
    assert max(again(quiet_schedule("async", fault)) for fault in faults) > 1


# -- the core


def orders(**fields: object) -> PartitionOrders:
    about = {"term": 1, "number": 1, "incarnation": (1, 1), "era": ERA, **fields}
    return PartitionOrders(**about)  # type: ignore[arg-type]


def begun(*, is_sync: bool = True) -> Leaving:
    leaving = Leaving()
    leaving.begin(18.0, 100.0, is_sync=is_sync)
    return leaving


def test_who_was_not_told_to_end_stays() -> None:
    assert Leaving().on_tick(1e6) == []
    assert Leaving().on_orders(orders(discard_below=9), ERA, 9, 1e6) == []


def test_it_goes_when_all_have_what_it_has() -> None:
    leaving = begun()
    assert leaving.on_orders(orders(discard_below=8), ERA, 9, 101.0) == []
    [gone] = leaving.on_orders(orders(discard_below=9), ERA, 9, 101.0)
    assert gone.code == ENDED
    assert gone.reason == "told to end; v9 is saved everywhere"


@pytest.mark.parametrize("fields", [{"era": (1, 8)}, {"restore": (ERA, 4)}])
def test_it_goes_when_the_job_goes_back_for_another_loss(fields: dict[str, object]) -> None:
    assert begun().on_orders(orders(**fields), ERA, 9, 101.0)


def test_it_stays_while_a_new_master_looks_who_is_there() -> None:
    assert begun().on_orders(orders(era=None), ERA, 9, 101.0) == []


def test_it_goes_when_its_time_is_over() -> None:
    leaving = begun()
    for now in range(101, 118):
        leaving.on_orders(orders(), ERA, 9, now)
        assert leaving.on_tick(now) == []
    assert leaving.on_tick(118.0)


def test_it_needs_the_master_in_synchronous_mode_only() -> None:
    assert not begun().is_forsaken(100.0 + SILENT_S - 0.1)
    assert begun().is_forsaken(100.0 + SILENT_S)
    assert not begun(is_sync=False).is_forsaken(100.0 + SILENT_S)
    assert not Leaving().is_forsaken(1e6)


def test_it_is_over_before_a_cluster_kills_it() -> None:
    assert JobConfig(job_name="j", model_def="m.f").leave_secs < grace_s("ps-0")
    assert grace_s("worker-0") > WORKER_PATIENCE_S


def test_the_master_knows_that_one_leaves_until_it_is_gone() -> None:
    partitions = Partitions(2, lambda: (1, 1))
    partitions.take(partition_status(0, version=3))
    partitions.take(partition_status(1, version=4, is_leaving=True))
    assert partitions.is_one_leaving
    partitions.on_gone(1)
    assert not partitions.is_one_leaving, "nobody hurries for who is dead"
    assert partitions.statuses[1].version == 4
    partitions.on_gone(5)
