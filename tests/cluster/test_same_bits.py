"""Elastic determinism: the same bits for any number of workers and partitions, with one of them killed or not."""

from pathlib import Path

import pytest

from tests.processes import MODELS, HandJob

FLAGS = (
    f"--model_file={MODELS}/tiny_mlp.py",
    "--minibatch_size=20",
    "--records_per_task=90",
    "--grads_to_wait=2",
    "--worker_threads=1",
)


TABLES = (f"--model_file={MODELS}/tiny_tables.py", "--embedding_threshold_bytes=0", *FLAGS[1:])


def run(folder: Path, data: Path, workers: int, partitions: int, flags: tuple[str, ...] = FLAGS) -> str:
    with HandJob(folder, *flags, f"--training_data={data}/train", partitions=partitions) as job:
        status = job.start(workers).finish()
        job.check_exactly_once()
    return status.digest


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, small_mnist: Path) -> str:
    """The digest of one worker and a partition inside the master."""
    return run(tmp_path_factory.mktemp("hosted"), small_mnist, 1, 0)


@pytest.mark.parametrize(
    ("workers", "partitions"),
    [*(pytest.param(workers, 1, marks=pytest.mark.slow) for workers in (1, 2)), (2, 2)],
)
def test_any_number_of_workers_and_partitions(
    workers: int, partitions: int, undisturbed: str, tmp_path: Path, small_mnist: Path
) -> None:
    assert run(tmp_path, small_mnist, workers, partitions) == undisturbed


def test_members_of_a_group(undisturbed: str, tmp_path: Path, small_mnist: Path) -> None:
    flags = (*FLAGS, "--distribution_strategy=AllreduceStrategy")
    assert run(tmp_path, small_mnist, 2, 0, flags) == undisturbed


@pytest.mark.slow
def test_four_slots_on_up_to_four_members_or_three_partitions(
    tmp_path_factory: pytest.TempPathFactory, small_mnist: Path
) -> None:
    flags = tuple(flag.replace("wait=2", "wait=4") for flag in FLAGS)
    members = (*flags, "--distribution_strategy=AllreduceStrategy")
    cells = [(workers, 0, members) for workers in (1, 2, 3, 4)]
    cells += [(2, partitions, flags) for partitions in (1, 2, 3)]
    digests = {
        (workers, partitions): run(tmp_path_factory.mktemp("slots"), small_mnist, workers, partitions, cell)
        for workers, partitions, cell in cells
    }
    assert len(digests) == 7
    assert len(set(digests.values())) == 1, digests


def test_embedding_tables(tmp_path_factory: pytest.TempPathFactory, small_mnist: Path) -> None:
    digests = {
        (workers, partitions): run(
            tmp_path_factory.mktemp("tables"), small_mnist, workers, partitions, TABLES
        )
        for workers, partitions in ((1, 1), (2, 3))
    }
    assert len(set(digests.values())) == 1, digests


def test_a_worker_is_killed_in_the_middle(undisturbed: str, tmp_path: Path, small_mnist: Path) -> None:
    flags = (*FLAGS, f"--training_data={small_mnist}/train", "--log_level=DEBUG")
    with HandJob(tmp_path, *flags, partitions=2).start(2) as job:
        job.wait_for_training(0)
        job.kill("worker-0")
        status = job.finish(without=("worker-0",))
        job.check_exactly_once()
    assert "worker-0 lost" in job.log("master")
    assert status.digest == undisturbed
