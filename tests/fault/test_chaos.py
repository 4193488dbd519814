"""Faults drawn from fixed seeds, and each kind by itself: every minibatch is in the model once, every record evaluated once."""

import pytest

from benchmarks.chaos import Chaos
from benchmarks.chaos_data import MODES, VERSIONS
from benchmarks.chaos_disk import can_mount
from benchmarks.chaos_report import line_of
from benchmarks.chaos_schedule import FULL_S, Fault, Mode, Schedule, draw

pytestmark = pytest.mark.fault

SEEDS = range(3, 8)
KINDS = {
    "a parameter server is asked to end": (Fault("end", "ps-1", 200, 0.5),),
    "nobody reads the master's output": (Fault("mute", "master", 100, 0.0),),
    "nobody reads a parameter server's output": (Fault("mute", "ps-0", 100, 0.0),),
    "the disk is full": (Fault("full", "disk", 100, FULL_S),),
    "a parameter server is killed during the digest": (Fault("digest", "ps-1", 425, 0.5),),
    "the master is killed after complete": (Fault("complete", "master", 425, 0.5),),
    "two at once": (Fault("kill", "master", 150, 0.5), Fault("kill", "ps-0", 150, 0.5)),
}


@pytest.fixture(scope="module")
def chaos(tmp_path_factory: pytest.TempPathFactory) -> Chaos:
    return Chaos(tmp_path_factory.mktemp("chaos"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed(mode: Mode, seed: int, chaos: Chaos) -> None:
    run = chaos.run(draw(seed, mode, VERSIONS[mode]))
    assert not run.problems, line_of(run)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind(kind: str, chaos: Chaos) -> None:
    faults = KINDS[kind]
    if faults[0].kind == "full" and not can_mount():
        pytest.skip("only root can mount a small disk")
    run = chaos.run(Schedule(len(kind), "sync", 1, 2, faults))
    assert not run.problems, line_of(run)
