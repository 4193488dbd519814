"""Analyses by several workers, some of which are killed with their masters: the same bits as one that nobody disturbs."""

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.analyses import encoded
from tests.processes import TrainJob, services_of, wait_for

pytestmark = pytest.mark.fault

ROWS, PER_TASK, KILLS, SEED = 40_000, 100, 12, 16


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("analyzed") / "rows.csv"
    draw = np.random.default_rng(1)
    numbers, words = draw.normal(0, 1e5, ROWS), draw.integers(0, 900, ROWS)
    lines = [f"{number:.3f},word {word},{word or ''}\n" for number, word in zip(numbers, words, strict=True)]
    path.write_text("x,t,n\n" + "".join(lines))
    return path


@pytest.fixture(scope="module")
def wanted(data: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return encoded(tmp_path_factory.mktemp("parts"), data, records_per_task=PER_TASK)


def analyze(home: Path, data: Path, workers: int) -> TrainJob:
    flags = (f"--analysis_data={data}", f"--statistics_output={home}/out", f"--records_per_task={PER_TASK}")
    processes = (f"--num_workers={workers}", "--relaunch_on_worker_failure=9", "--progress=plain")
    home.mkdir(exist_ok=True)
    return TrainJob(home, *flags, *processes, command="analyze")


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers_gives_the_same_bits(
    workers: int, data: Path, wanted: bytes, tmp_path: Path
) -> None:
    with analyze(tmp_path, data, workers) as job:
        status = job.finish()
    assert (status.state, status.records) == ("Succeeded", ROWS)
    assert status.predictions == str(tmp_path / "out" / "statistics.json")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {
        "statistics.json": wanted
    }


def test_kills_change_no_byte(data: Path, wanted: bytes, tmp_path: Path) -> None:
    out, killed, chance = tmp_path / "out", [], random.Random(SEED)
    tasks = ROWS // PER_TASK
    with analyze(tmp_path, data, 2) as job:
        for number in range(KILLS):
            at = (number + chance.random()) * tasks / KILLS

            def has_come(at: float = at) -> bool:
                is_over = job.process.poll() is not None or (out / "statistics.json").exists()
                return is_over or sum(1 for _ in out.glob("part-*")) >= at

            wait_for(has_come, job.output, 300)
            time.sleep(chance.uniform(0, 0.05))  # anywhere between two files
            services = services_of(job.process.pid)
            name = ("master", "worker")[number % 2]
            found = [each for each in sorted(services) if each.startswith(name)]
            with suppress(IndexError, ProcessLookupError):  # it is being replaced
                os.kill(services[chance.choice(found)], signal.SIGKILL)
                killed.append(name)
        status = job.finish()
    assert {"master", "worker"} == set(killed), killed
    assert (status.state, status.records) == ("Succeeded", ROWS)
    assert (out / "statistics.json").read_bytes() == wanted
    assert [path.name for path in out.iterdir()] == ["statistics.json"]
