"""Jobs that predict: real processes, on what another job has trained."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edlz.services.predictions.output import MANIFEST, read_manifest
from tests.processes import MODELS, HandJob, wait_for
from tests.trapped_models import write_holding_model

MODEL = (
    f"--model_file={MODELS}/tiny_tables.py",
    "--embedding_threshold_bytes=0",
    "--minibatch_size=20",
    "--worker_threads=1",
)
TASK = "--records_per_task=30"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, small_mnist: Path) -> Path:
    """The checkpoints of a job that saved its model at the end."""
    folder = tmp_path_factory.mktemp("trained")
    flags = (*MODEL, f"--training_data={small_mnist}/test", "--checkpoint_steps=1000", "--grads_to_wait=2")
    with HandJob(folder, *flags).start(1) as job:
        job.finish()
    return folder / "checkpoints"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, trained: Path, small_mnist: Path) -> Path:
    """The predictions of a job that nothing befell."""
    folder = tmp_path_factory.mktemp("undisturbed")
    done = run(folder, "predict", *predict(trained, small_mnist, folder / "out"), "--num_ps_pods=2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "200 records predicted with v" in done.stdout
    assert f"output   {folder / 'out'}" in done.stdout
    return folder / "out"


def run(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "edlz.client", *arguments],
        capture_output=True,
        text=True,
        env=environment(home),
        check=False,
        timeout=240,
    )


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "EDLZ_HOME": str(home), "CUDA_VISIBLE_DEVICES": "-1"}


def predict(trained: Path, small_mnist: Path, out: Path) -> tuple[str, ...]:
    data = (f"--prediction_data={small_mnist}/test", f"--checkpoint_dir_for_init={trained}")
    return (*MODEL, TASK, *data, f"--prediction_output={out}", "--progress=plain", "--num_workers=2")


def content(out: Path) -> dict[str, bytes]:
    """Return all that a folder holds, but for the names of job and checkpoint, which are the test's own."""
    files = {path.name: path.read_bytes() for path in out.iterdir()}
    manifest = json.loads(files.pop(MANIFEST))
    del manifest["job"], manifest["checkpoint"]
    return {**files, MANIFEST: json.dumps(manifest).encode()}


def rows(out: Path) -> list[dict[str, Any]]:
    manifest = read_manifest(out)
    assert manifest is not None
    return [
        json.loads(line) for part in manifest.parts for line in (out / part.file).read_text().splitlines()
    ]


def test_each_record_has_its_row_and_the_manifest_each_file(undisturbed: Path, small_mnist: Path) -> None:
    manifest = read_manifest(undisturbed)
    assert manifest is not None
    assert (manifest.records, manifest.tasks, len(manifest.parts)) == (200, 7, 7)
    assert sorted(path.name for path in undisturbed.iterdir()) == sorted(
        [MANIFEST, *(part.file for part in manifest.parts)]
    )
    for part in manifest.parts:
        data = (undisturbed / part.file).read_bytes()
        assert (len(data), f"sha256:{hashlib.sha256(data).hexdigest()}") == (part.bytes, part.checksum)
    found = rows(undisturbed)
    (shard,) = sorted(path.name for path in (small_mnist / "test").iterdir())
    assert [row["record"] for row in found] == [f"{shard}:{number}" for number in range(200)]
    assert {len(row["output_0"]) for row in found} == {10}
    assert len({tuple(row["output_0"]) for row in found}) > 190


def test_what_is_whole_is_left_alone(
    undisturbed: Path, trained: Path, small_mnist: Path, tmp_path: Path
) -> None:
    before = content(undisturbed)
    again = run(tmp_path, "predict", *predict(trained, small_mnist, undisturbed))
    assert again.returncode == 2
    assert 'holds the predictions of job "tiny-tables-predict", 200 records' in again.stderr
    assert content(undisturbed) == before


@pytest.mark.slow
def test_losses_change_no_byte(undisturbed: Path, trained: Path, small_mnist: Path, tmp_path: Path) -> None:
    flags = predict(trained, small_mnist, tmp_path / "out")[:-2]
    gate = tmp_path / "gate"
    model = write_holding_model(tmp_path / "holds.py", "tiny_tables", small_mnist / "test", 135, gate)
    with HandJob(tmp_path, *flags, f"--model_file={model}", partitions=2) as job:
        job.start(1)
        wait_for(lambda: list((tmp_path / "out").glob("part-*")), job.logs)
        job.kill("ps-1")
        job.kill("master")
        job.start_master()
        job.start_ps(1)
        job.start_worker(1)
        job.kill("worker-0")
        gate.touch()
        status = job.finish(without=("worker-0",))
    assert content(tmp_path / "out") == content(undisturbed)
    assert (status.records, status.records_total, status.ratio, status.state) == (200, 200, 1.0, "Succeeded")


@pytest.mark.slow
def test_a_prediction_is_stopped_and_resumed(
    undisturbed: Path, trained: Path, small_mnist: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    flags = (*predict(trained, small_mnist, out), "--job_name=job")
    process = subprocess.Popen(
        [sys.executable, "-m", "edlz.client", "predict", *flags],
        env=environment(tmp_path),
        stdout=subprocess.DEVNULL,
    )
    master = tmp_path / "jobs" / "job" / "logs" / "master.log"
    wait_for(lambda: master.exists() and "prediction begins" in master.read_text(), "it predicts")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    other = run(tmp_path, "predict", *flags, "--job_name=other")
    assert other.returncode == 2
    assert 'holds unfinished predictions of job "job"' in other.stderr
    done = run(tmp_path, "resume", "job", "--num_ps_pods=2", "--progress=plain")
    assert done.returncode == 0, done.stdout + done.stderr
    assert content(out) == content(undisturbed)
