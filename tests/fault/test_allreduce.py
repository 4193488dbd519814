"""An all-reduce job under `edlz train`: whatever is lost, it ends with the bits of parameter servers."""

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edlz.services.storage.versions import list_versions
from tests.processes import MODELS, HandJob, TrainJob, check_exactly_once
from tests.trapped_models import write_lethal_model

pytestmark = pytest.mark.fault

FLAGS = (
    f"--model_file={MODELS}/tiny_mlp.py",
    "--minibatch_size=5",
    "--records_per_task=50",
    "--grads_to_wait=3",
    "--worker_threads=1",
    "--log_level=DEBUG",
)
EPOCHS = "--num_epochs=12"
LONG = "--num_epochs=60"  # longer than new workers take to begin, also on a machine that has much else to do
ALLREDUCE = ("--distribution_strategy=AllreduceStrategy", "--recovery_snapshot_secs=0.5", "--progress=plain")

LETHAL = """
import os, pathlib, signal
from edlz.services.storage.replica_files import ReplicaFiles

write = ReplicaFiles.write


def write_or_die(self, state, tag, *, is_checkpoint):
    died = pathlib.Path(__file__).with_name("died")
    if is_checkpoint and state.partition == 1 and not died.exists():
        died.write_text(str(state.version))
        os.kill(os.getpid(), signal.SIGKILL)
    return write(self, state, tag, is_checkpoint=is_checkpoint)


ReplicaFiles.write = write_or_die
"""
"""Behind a model's code: its worker is killed between its commit of a checkpoint's version and its part of it, once in a job."""

Start = Callable[..., TrainJob]


@pytest.fixture(scope="module")
def digest(tmp_path_factory: pytest.TempPathFactory, small_mnist: Path) -> str:
    """Of the same job with one parameter server."""
    return with_servers(tmp_path_factory.mktemp("servers"), small_mnist, EPOCHS)


@pytest.fixture(scope="module")
def long_digest(tmp_path_factory: pytest.TempPathFactory, small_mnist: Path) -> str:
    """Of the same with more epochs."""
    return with_servers(tmp_path_factory.mktemp("long"), small_mnist, LONG)


def with_servers(folder: Path, mnist: Path, epochs: str) -> str:
    flags = (*FLAGS, epochs, f"--training_data={mnist}/train")
    with HandJob(folder, *flags, partitions=0).start(1) as job:
        return job.finish().digest


@pytest.fixture
def start(tmp_path: Path, small_mnist: Path) -> Iterator[Start]:
    jobs: list[TrainJob] = []

    def start(*flags: str, epochs: str = EPOCHS) -> TrainJob:
        data = f"--training_data={small_mnist}/train"
        jobs.append(TrainJob(tmp_path, *FLAGS, epochs, *ALLREDUCE, data, *flags))
        return jobs[0]

    yield start
    for job in jobs:
        job.__exit__()


def test_a_member_then_the_master(start: Start, long_digest: str) -> None:
    job = start("--num_workers=3", epochs=LONG)
    job.wait_for_output("the model is on worker-0, worker-1, worker-2")
    job.kill("worker-1")
    job.wait_for_output("worker-1 left the group")
    job.wait_for_output("worker-3 joined")
    job.kill("master")
    job.wait_for_output("term=2")
    status = job.finish()
    assert status.digest == long_digest
    check_exactly_once(job.folder)


def test_all_members_at_once(start: Start, digest: str) -> None:
    job = start("--num_workers=2")
    job.wait_for_output("the model is on worker-0, worker-1")
    job.wait_for_output("Task:20 completed")
    for name in ("worker-0", "worker-1"):
        job.kill(name)
    status = job.finish()
    assert status.digest == digest
    [begun] = re.findall(r"training goes back to v(\d+)", job.output())
    assert int(begun) > 0
    check_exactly_once(job.folder)


def test_a_member_between_its_commit_of_a_checkpoint_and_its_part_of_it(
    start: Start, digest: str, tmp_path: Path
) -> None:
    model = tmp_path / "lethal.py"
    model.write_text((MODELS / "tiny_mlp.py").read_text() + LETHAL)
    job = start(
        "--num_workers=3",
        f"--model_file={model}",
        "--checkpoint_steps=50",
        f"--checkpoint_dir={tmp_path / 'checkpoints'}",
        "--keep_checkpoint_max=0",
    )
    status = job.finish()
    assert status.digest == digest
    died = int((tmp_path / "died").read_text())
    assert re.search(r"worker-\d+ left the group", job.output())
    assert any(info.version > died for info in list_versions(tmp_path / "checkpoints") if info.is_good)
    check_exactly_once(job.folder)


def test_it_is_stopped_and_resumed_with_parameter_servers(start: Start, digest: str) -> None:
    job = start("--num_workers=2")
    job.wait_for_output("Task:5 completed")
    job.process.send_signal(signal.SIGTERM)  # a command takes half as long to begin as the job to end
    job.finish(code=143)
    servers = ("--distribution_strategy=ParameterServerStrategy", "--num_ps_pods=2")
    assert f"sha256 {digest}" in job.run("resume", job.name, *servers)


def test_it_is_stopped_and_resumed_without_parameter_servers(
    tmp_path: Path, small_mnist: Path, digest: str
) -> None:
    flags = (*FLAGS, EPOCHS, f"--training_data={small_mnist}/train", "--num_workers=2", "--progress=plain")
    with TrainJob(tmp_path, *flags, "--num_ps_pods=2") as job:
        job.wait_for_output("Task:5 completed")
        job.run("stop", job.name)
        job.finish(code=143)
        printed = job.run("resume", job.name, "--distribution_strategy=AllreduceStrategy")
    assert f"sha256 {digest}" in printed
    assert "the model is on worker-" in printed


def test_it_is_scaled_up_beyond_its_slots_and_down_to_one(start: Start, long_digest: str) -> None:
    job = start("--num_workers=2", epochs=LONG)
    job.wait_for_output("the model is on worker-0, worker-1")
    assert "grads_to_wait=3, so 1 worker would wait" in job.run("scale", job.name, "--workers=4")
    job.wait_for_output("the model is on worker-0, worker-1, worker-2, worker-3")
    job.run("scale", job.name, "--workers=1")
    job.wait_for_output("left the group")
    status = job.finish()
    assert status.digest == long_digest
    check_exactly_once(job.folder)


def test_more_workers_than_tasks_of_uneven_length(tmp_path: Path, small_mnist: Path) -> None:
    """One file has 40 minibatches and the others 100, and each is one task: a step has one to three gradients."""
    flags = (
        *(f"--model_file={MODELS}/tiny_mlp.py", f"--training_data={small_mnist}/train", "--minibatch_size=5"),
        *("--records_per_task=1000", "--grads_to_wait=4", "--num_epochs=2", "--worker_threads=1"),
    )
    with HandJob(tmp_path, *flags, partitions=0).start(1) as by_hand:
        wanted = by_hand.finish().digest
    with TrainJob(tmp_path, *flags, *ALLREDUCE, "--num_workers=4") as job:
        job.wait_for_output("num_workers=4, but an epoch has 3 tasks: 1 worker would wait")
        assert job.finish().digest == wanted
        check_exactly_once(job.folder)


def test_where_no_folder_is_shared_nothing_is_written_but_what_is_exported(
    tmp_path: Path, small_mnist: Path, digest: str
) -> None:
    """As pods do it whose job's folder lies on no volume: they see that of the export."""
    out = tmp_path / "out"
    flags = (
        *FLAGS,
        EPOCHS,
        f"--training_data={small_mnist}/train",
        "--distribution_strategy=AllreduceStrategy",
        "--recovery_snapshot_secs=0.1",
        "--private_job_dir",
        "--export_from_checkpoint",
        f"--checkpoint_dir={out}/checkpoints",
        f"--output={out}/model",
    )
    folder = tmp_path / "job"
    folder.mkdir()
    with HandJob(folder, *flags, partitions=0).start(2) as job:
        status = job.finish()
    assert status.digest == digest
    assert (out / "model" / "1" / "saved_model.pb").is_file()
    assert [info.version for info in list_versions(out / "checkpoints")] == [status.version]
    assert not (folder / "replicas").exists()
    assert [
        line for line in job.log("master").splitlines() if "WARNING" in line and "share no folder" not in line
    ] == []
    assert job.log("master").count("the workers share no folder, so nothing is kept to go on from") == 1


def test_members_that_do_not_see_the_masters_folder_are_told_of_when_they_begin(
    tmp_path: Path, small_mnist: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on two machines: the same path is another folder there."""
    flags = (*FLAGS, f"--training_data={small_mnist}/train", ALLREDUCE[0], "--recovery_snapshot_secs=0.1")
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        (folder / "job").mkdir(parents=True)
    monkeypatch.chdir(here)
    with HandJob(Path("job"), *flags, partitions=0) as job:
        job.start_master()
        monkeypatch.chdir(there)
        for index in range(2):
            job.start_worker(index)
        monkeypatch.chdir(here)
        job.wait_for_log("master", "the model is on")
        told = job.log("master")
        assert told.count("does not see the master's folder of the job") == 1
        assert told.index("does not see") < told.index("the model is on")
        assert job.finish().digest
    assert not list(there.rglob("replicas"))


@pytest.mark.parametrize(("workers", "skips"), [(1, True), (2, True), (2, False)])
def test_a_record_that_kills_members(
    workers: int, skips: bool, start: Start, tmp_path: Path, small_mnist: Path
) -> None:
    """The members that are left, or come, find which task it is in; it alone is left out, or named."""
    model = write_lethal_model(tmp_path / "poison.py", "tiny_mlp", small_mnist / "train", 333)
    file = sorted((small_mnist / "train").iterdir())[0]
    flags = ("--skip_bad_tasks",) if skips else ()
    job = start(f"--model_file={model}", f"--num_workers={workers}", *flags, epochs="--num_epochs=1")
    status = job.finish(code=0 if skips else 1)
    output = job.output()
    assert f"{file.name}, records 300..349, epoch 1" in output
    if skips:
        assert status.skipped_tasks == 1
        assert output.count("is skipped from minibatch") == 1
    else:
        assert "ended its worker 3 times (workers " in output
        assert "its worker ended: killed by signal 9 (SIGKILL)" in output
