"""Faults drawn from fixed seeds: every minibatch is in the model once, every record evaluated once."""

import pytest

from benchmarks.chaos import Chaos
from benchmarks.chaos_data import MODES, VERSIONS
from benchmarks.chaos_report import line_of
from benchmarks.chaos_schedule import Mode, draw

pytestmark = pytest.mark.fault

SEEDS = range(3, 8)


@pytest.fixture(scope="module")
def chaos(tmp_path_factory: pytest.TempPathFactory) -> Chaos:
    return Chaos(tmp_path_factory.mktemp("chaos"))


def test_the_seeds_do_everything_to_everybody() -> None:
    faults = [fault for mode in MODES for seed in SEEDS for fault in draw(seed, mode, VERSIONS[mode]).faults]
    assert len({(fault.kind, fault.target.partition("-")[0]) for fault in faults}) == 4 * 3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed(mode: Mode, seed: int, chaos: Chaos) -> None:
    run = chaos.run(draw(seed, mode, VERSIONS[mode]))
    assert not run.problems, line_of(run)
