"""A prediction whose processes are killed at any moment: the same files, and a manifest that comes last."""

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from edlz.services.predictions.output import MANIFEST, read_manifest
from tests.processes import MODELS, HandJob, TrainJob, services_of, wait_for
from tests.small_disk import fill, small_disk

pytestmark = pytest.mark.fault

KILLS, SEED = 20, 12
MODEL = (
    f"--model_file={MODELS}/tiny_tables.py",
    "--embedding_threshold_bytes=0",
    "--minibatch_size=2",
    "--worker_threads=1",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, small_mnist: Path) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    flags = (*MODEL, f"--training_data={small_mnist}/test", "--checkpoint_steps=1000", "--grads_to_wait=2")
    with HandJob(folder, *flags).start(1) as job:
        job.finish()
    return folder / "checkpoints"


def predict(home: Path, trained: Path, small_mnist: Path) -> TrainJob:
    """Begin a job of 401 tasks."""
    home.mkdir(exist_ok=True)
    data = (f"--prediction_data={small_mnist}/train", f"--checkpoint_dir_for_init={trained}")
    output = (f"--prediction_output={home}/out", "--progress=plain", "--relaunch_on_worker_failure=9")
    flags = (*MODEL, "--records_per_task=3", *data, *output, "--num_workers=2", "--num_ps_pods=2")
    return TrainJob(home, *flags, command="predict")


def parts(out: Path) -> int:
    return sum(1 for _ in out.glob("part-*"))


def test_twenty_kills_change_no_byte(tmp_path: Path, trained: Path, small_mnist: Path) -> None:
    with predict(tmp_path / "quiet", trained, small_mnist) as job:
        job.finish()
    wanted = {path.name: path.read_bytes() for path in (tmp_path / "quiet" / "out").iterdir()}
    tasks, chance = len(wanted) - 1, random.Random(SEED)
    assert tasks == 401

    out, killed = tmp_path / "disturbed" / "out", []
    with predict(tmp_path / "disturbed", trained, small_mnist) as job:
        for number in range(KILLS):
            at = (number + chance.random()) * 0.9 * tasks / KILLS  # so that the last one has time
            wait_for(lambda at=at: parts(out) >= at or job.process.poll() is not None, job.output, 300)
            time.sleep(chance.uniform(0, 0.05))  # anywhere between two files
            assert not (out / MANIFEST).exists()
            services = services_of(job.process.pid)
            name = chance.choice(sorted(services) or ["master"])
            with suppress(KeyError, ProcessLookupError):  # it is being replaced
                os.kill(services[name], signal.SIGKILL)
                killed.append(name)
        status = job.finish()
    assert len(killed) >= KILLS - 3, killed
    assert {name.partition("-")[0] for name in killed} == {"master", "ps", "worker"}, killed
    found = {path.name: path.read_bytes() for path in out.iterdir()}
    assert found == wanted, killed
    manifest = read_manifest(out)
    assert manifest is not None
    assert (manifest.records, status.records, status.state) == (1200, 1200, "Succeeded")


def test_a_full_disk_is_named_while_it_is_waited_for(
    tmp_path: Path, trained: Path, small_mnist: Path
) -> None:
    home = tmp_path / "home"
    with small_disk(home / "out", 8 * 1024) as out, predict(home, trained, small_mnist) as job:
        wait_for(lambda: parts(out) > 20, job.output, 300)
        text = f"no room on the disk for {out}: it is waited for"
        with fill(out):
            job.wait_for_output(text)

            def is_shown() -> bool:
                return any(worker.note == text for worker in job.status().workers)

            wait_for(is_shown, "the note of a worker", 60.0)
            assert text in job.run("status", "test")
        job.wait_for_output("goes on: it waits no longer")
        status = job.finish()
        assert (status.records, [worker.note for worker in status.workers if worker.note]) == (1200, [])
