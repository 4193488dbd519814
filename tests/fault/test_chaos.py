"""Faults drawn from fixed seeds, and each kind by itself: every minibatch is in the model once, every record evaluated once."""

from collections.abc import Sequence

import pytest

from benchmarks.chaos import Chaos, drawn
from benchmarks.chaos_data import MODES
from benchmarks.chaos_disk import can_mount
from benchmarks.chaos_report import line_of
from benchmarks.chaos_schedule import ALL, FULL_S, Fault, Mode, Schedule

pytestmark = pytest.mark.fault

SEEDS: dict[Mode, Sequence[int]] = {"sync": range(3, 8), "async": range(3, 8), "allreduce": (5, 9, 10)}
KINDS = {
    "a parameter server is asked to end": (Fault("end", "ps-1", 200, 0.5),),
    "nobody reads the master's output": (Fault("mute", "master", 100, 0.0),),
    "nobody reads a parameter server's output": (Fault("mute", "ps-0", 100, 0.0),),
    "the disk is full": (Fault("full", "disk", 100, FULL_S),),
    "a parameter server is killed during the digest": (Fault("digest", "ps-1", 425, 0.5),),
    "the master is killed after complete": (Fault("complete", "master", 425, 0.5),),
    "two at once": (Fault("kill", "master", 150, 0.5), Fault("kill", "ps-0", 150, 0.5)),
}

KINDS_OF_GROUPS = {
    "all members are killed": (Fault("kill", ALL, 150, 0.5),),
    "two at once": (Fault("kill", "worker-0", 150, 0.5), Fault("kill", "worker-2", 150, 0.5)),
    "a newcomer is killed too": (Fault("again", "worker-1", 100, 0.5),),
    "two do not reach each other": (Fault("link", "worker-0", 100, 12.0, other="worker-1"),),
    "a member sleeps for longer than it is waited for": (Fault("stall", "worker-0", 100, 11.5),),
    "a member is killed during the digest": (Fault("digest", ALL, 318, 0.5),),
    "the disk is full": (Fault("full", "disk", 100, FULL_S),),
}


@pytest.fixture(scope="module")
def chaos(tmp_path_factory: pytest.TempPathFactory) -> Chaos:
    return Chaos(tmp_path_factory.mktemp("chaos"))


@pytest.mark.parametrize(("mode", "seed"), [(mode, seed) for mode in MODES for seed in SEEDS[mode]])
def test_a_seed(mode: Mode, seed: int, chaos: Chaos) -> None:
    run = chaos.run(drawn(seed, mode))
    assert not run.problems, line_of(run)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind(kind: str, chaos: Chaos) -> None:
    faults = KINDS[kind]
    if faults[0].kind == "full" and not can_mount():
        pytest.skip("only root can mount a small disk")
    run = chaos.run(Schedule(len(kind), "sync", 1, 2, faults))
    assert not run.problems, line_of(run)


@pytest.mark.parametrize("kind", KINDS_OF_GROUPS)
def test_a_kind_of_an_all_reduce_job(kind: str, chaos: Chaos) -> None:
    faults = KINDS_OF_GROUPS[kind]
    if faults[0].kind == "full" and not can_mount():
        pytest.skip("only root can mount a small disk")
    run = chaos.run(Schedule(len(kind), "allreduce", 3, 0, faults))
    assert not run.problems, line_of(run)
