"""Jobs that only evaluate: real processes, on what another job has trained."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edlz.services.storage.versions import newest_good
from tests.processes import MODELS, HandJob, wait_for

MODEL = (
    f"--model_file={MODELS}/tiny_tables.py",
    "--embedding_threshold_bytes=0",
    "--minibatch_size=20",
    "--records_per_task=90",
    "--worker_threads=1",
)


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory, small_mnist: Path
) -> tuple[Path, dict[str, float], int]:
    """A job that saved its model at the end: its checkpoints, its last metrics, and their version."""
    folder = tmp_path_factory.mktemp("trained")
    data = (f"--training_data={small_mnist}/train", f"--validation_data={small_mnist}/test")
    with HandJob(folder, *MODEL, *data, "--checkpoint_steps=1000", "--grads_to_wait=2").start(1) as job:
        status = job.finish()
    newest = status.evaluations[-1]
    assert newest_good(folder / "checkpoints").name == f"version-{newest.version}"
    return folder / "checkpoints", newest.metrics, newest.version


def evaluate(trained: Path, small_mnist: Path) -> tuple[str, ...]:
    return (*MODEL, f"--validation_data={small_mnist}/test", f"--checkpoint_dir_for_init={trained}")


def test_a_checkpoint_has_the_metrics_that_its_training_ended_with(
    tmp_path: Path, small_mnist: Path, trained: tuple[Path, dict[str, float], int]
) -> None:
    checkpoints, metrics, version = trained
    environment = {**os.environ, "EDLZ_HOME": str(tmp_path), "CUDA_VISIBLE_DEVICES": "-1"}
    flags = (*evaluate(checkpoints, small_mnist), "--num_workers=2", "--num_ps_pods=3", "--progress=plain")
    done = subprocess.run(
        [sys.executable, "-m", "edlz.client", "evaluate", *flags],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Evaluation metrics[v={version}]: {metrics}" in done.stdout + done.stderr
    assert re.search(
        rf"Succeeded  tiny-tables-evaluate in .*: 200 records evaluated with v{version}\n", done.stdout
    )


@pytest.mark.slow
def test_losses_change_nothing_of_an_evaluation(
    tmp_path: Path, small_mnist: Path, trained: tuple[Path, dict[str, float], int]
) -> None:
    checkpoints, metrics, version = trained
    with HandJob(tmp_path, *evaluate(checkpoints, small_mnist), partitions=2) as job:
        job.start_master()
        for index in range(2):
            job.start_ps(index)
        job.wait_for_log("master", f"evaluation begins at v{version}")
        job.kill("ps-1")
        job.kill("master")
        job.start_master()
        job.start_ps(1)
        job.start_worker(0)
        status = job.finish()
    (view,) = status.evaluations
    assert (view.metrics, view.version) == (metrics, version)
    assert (status.records, status.records_total, status.ratio, status.epochs) == (200, 200, 1.0, 0)


@pytest.mark.slow
def test_an_evaluation_is_stopped_and_resumed(
    tmp_path: Path, small_mnist: Path, trained: tuple[Path, dict[str, float], int]
) -> None:
    checkpoints, metrics, version = trained
    environment = {**os.environ, "EDLZ_HOME": str(tmp_path), "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, "-m", "edlz.client"]
    flags = (*evaluate(checkpoints, small_mnist), "--job_name=job", "--num_workers=1", "--progress=plain")
    process = subprocess.Popen([*command, "evaluate", *flags], env=environment, stdout=subprocess.DEVNULL)
    master = tmp_path / "jobs" / "job" / "logs" / "master.log"
    wait_for(lambda: master.exists() and "evaluation begins" in master.read_text(), "it evaluates")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    done = subprocess.run(
        [*command, "resume", "job", "--num_ps_pods=2", "--progress=plain"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Evaluation metrics[v={version}]: {metrics}" in done.stdout + done.stderr
