"""The same rows in any format give the same model, whoever trains it and whoever is killed."""

from pathlib import Path

import pytest

from tests.processes import END_S, HandJob, wait_for
from tests.same_rows import FORMATS, MODEL, write_rows

pytestmark = [pytest.mark.fault, pytest.mark.slow]

ROWS = 200_000
FLAGS = (
    "--minibatch_size=500",
    "--records_per_task=5000",
    "--grads_to_wait=2",
    "--worker_threads=1",
    "--embedding_threshold_bytes=0",
    "--log_level=DEBUG",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    write_rows(folder, ROWS)
    (folder / "model.py").write_text(MODEL)
    return folder


@pytest.fixture(scope="module")
def wanted(data: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return digest(tmp_path_factory.mktemp("wanted"), data, FORMATS[0], workers=1)


def digest(folder: Path, data: Path, name: str, workers: int, *, kills: bool = False) -> str:
    flags = (*FLAGS, f"--model_file={data}/model.py", f"--training_data={data / name}")
    with HandJob(folder, *flags, partitions=2).start(workers) as job:
        gone: tuple[str, ...] = ()
        if kills:
            wait_for(lambda: "Task:4 completed" in job.log("master"), "Task:4 completed", END_S)
            job.kill("worker-0")
            gone = ("worker-0",)
            job.start_worker(9)
            wait_for(lambda: "Task:8 completed" in job.log("master"), "Task:8 completed", END_S)
            job.kill("ps-1")
            job.start_ps(1)
        status = job.finish(without=gone)
    assert status.state == "Succeeded"
    return status.digest


@pytest.mark.parametrize(("place", "name"), [*enumerate(FORMATS[1:], 1)])
def test_any_format_gives_the_same_digest(
    place: int, name: str, data: Path, wanted: str, tmp_path: Path
) -> None:
    assert digest(tmp_path, data, name, workers=1 + place % 3) == wanted


@pytest.mark.parametrize(("place", "name"), [*enumerate(FORMATS[:5])])
def test_and_so_it_does_if_processes_are_killed(
    place: int, name: str, data: Path, wanted: str, tmp_path: Path
) -> None:
    assert digest(tmp_path, data, name, workers=1 + place % 3, kills=True) == wanted
