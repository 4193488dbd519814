"""Faults drawn from fixed seeds: every minibatch is in the model once, every record evaluated once."""

import pytest

from benchmarks.chaos import Chaos
from benchmarks.chaos_data import VERSIONS
from benchmarks.chaos_report import line_of
from benchmarks.chaos_schedule import draw

pytestmark = pytest.mark.fault


@pytest.fixture(scope="module")
def chaos(tmp_path_factory: pytest.TempPathFactory) -> Chaos:
    return Chaos(tmp_path_factory.mktemp("chaos"))


@pytest.mark.parametrize("mode", VERSIONS)
@pytest.mark.parametrize("seed", range(5))
def test_a_seed(mode: str, seed: int, chaos: Chaos) -> None:
    run = chaos.run(draw(seed, mode, VERSIONS[mode]))  # type: ignore[arg-type]
    assert not run.problems, line_of(run)
