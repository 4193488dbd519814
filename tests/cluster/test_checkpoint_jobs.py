"""Jobs that save checkpoints, are stopped, go on, and begin from checkpoints: real processes."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edlz.services.storage.checkpoint_reading import read_partition
from edlz.services.storage.versions import list_versions, newest_good, verify
from tests.processes import MODELS, HandJob, wait_for

FLAGS = (
    f"--model_file={MODELS}/tiny_tables.py",
    "--embedding_threshold_bytes=0",
    "--minibatch_size=20",
    "--records_per_task=90",
    "--grads_to_wait=2",
    "--worker_threads=1",
    "--log_level=DEBUG",
)
EPOCHS = 30  # with 450 tasks of some 10 ms the job cannot be over before it is stopped
MINIBATCHES = 67  # of an epoch of small_mnist: files of 500, 500 and 200 records, in tasks of 90


def edlz(home: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "EDLZ_HOME": str(home), "CUDA_VISIBLE_DEVICES": "-1"}
    return subprocess.Popen(
        [sys.executable, "-m", "edlz.client", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        text=True,
    )


def digest_of(output: str) -> str:
    found = re.search(r"digest   sha256 ([0-9a-f]{64})", output)
    assert found is not None, output
    return found[1]


def test_a_job_is_stopped_in_an_epoch_and_goes_on_under_other_numbers(
    tmp_path: Path, small_mnist: Path
) -> None:
    data, epochs = f"--training_data={small_mnist}/train", f"--num_epochs={EPOCHS}"
    process = edlz(tmp_path, "train", "--job_name=job", *FLAGS, data, epochs, "--num_ps_pods=1")
    master = tmp_path / "jobs" / "job" / "logs" / "master.log"
    wait_for(lambda: master.exists() and "Task:20 completed" in master.read_text(), "task 20 is done")
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 143, output
    assert "edlz resume job" in output
    (saved,) = list_versions(tmp_path / "jobs" / "job" / "checkpoints")
    assert saved.is_good
    begun = read_partition(saved.folder, 0, 1).ledger
    assert 0 < begun.minibatches < MINIBATCHES * EPOCHS  # in a task, as a rule; which one nobody can say

    refused = edlz(tmp_path, "resume", "job", "--minibatch_size=3")
    output, _ = refused.communicate(timeout=60)
    assert refused.returncode == 2
    assert "--minibatch_size cannot be changed by resume" in output

    resumed = edlz(tmp_path, "resume", "job", "--num_ps_pods=3", "--num_workers=1")
    output, _ = resumed.communicate(timeout=240)
    assert resumed.returncode == 0, output
    assert "each in the model exactly once" in output

    whole = edlz(tmp_path, "train", "--job_name=whole", *FLAGS, data, epochs, "--num_ps_pods=2")
    undisturbed, _ = whole.communicate(timeout=240)
    assert whole.returncode == 0, undisturbed
    assert digest_of(output) == digest_of(undisturbed)

    again = edlz(tmp_path, "resume", "job")
    output, _ = again.communicate(timeout=60)
    assert again.returncode == 0, output
    assert "has succeeded already" in output


@pytest.mark.parametrize("mode", [("--grads_to_wait=2",), ("--use_async", "--grads_to_wait=1")])
def test_checkpoints_are_cuts_and_the_newest_are_kept(
    mode: tuple[str, ...], tmp_path: Path, small_mnist: Path
) -> None:
    flags = (*FLAGS, *mode, f"--training_data={small_mnist}/train", "--num_epochs=4")
    saving = ("--checkpoint_steps=10", "--keep_checkpoint_max=2")
    with HandJob(tmp_path, *flags, *saving, partitions=2).start(2) as job:
        job.finish()
        job.check_exactly_once()
    versions = list_versions(tmp_path / "checkpoints")
    assert [info.state for info in versions] == ["good", "good"], versions
    for info in versions:
        assert verify(info.folder) == ()
        parts = [read_partition(info.folder, index, 3) for index in range(3)]
        assert len({part.ledger for part in parts}) == 1
    newest = read_partition(newest_good(tmp_path / "checkpoints"), 0, 1)
    assert newest.ledger.finished == (0, job.job.plan.task_count)


def test_another_job_begins_from_a_checkpoint(tmp_path: Path, small_mnist: Path) -> None:
    flags = (*FLAGS, f"--training_data={small_mnist}/train")
    first, second, other = (tmp_path / name for name in ("first", "second", "other"))
    for folder in (first, second, other):
        folder.mkdir()
    with HandJob(first, *flags, "--checkpoint_steps=10", partitions=1).start(1) as job:
        version = job.finish().version
    begin = f"--checkpoint_dir_for_init={first}/checkpoints"
    with HandJob(second, *flags, begin, "--num_epochs=2", partitions=2).start(1) as job:
        # Two epochs are another plan: the parameters are taken, the ledger is not.
        status = job.finish()
        job.check_exactly_once()
    assert status.version == version + 2 * version
    model = tmp_path / "model.py"
    model.write_text((MODELS / "tiny_tables.py").read_text().replace("Dense(16", "Dense(17"))
    changed = (f"--model_file={model}", *flags[1:])
    with HandJob(other, *changed, begin, "--num_epochs=2", partitions=1).start(1) as job:
        assert job.wait("master") != 0
    assert "the checkpoint's variables are not the model's: dense/kernel (343, 16)" in job.log("master")
