"""A job whose callbacks decide: the same decisions and the same bits, whoever runs it and whoever is killed."""

import random
from pathlib import Path

import pytest

from edlz.services.master.journal.journal import Journal
from edlz.services.protocol import named_status
from tests.processes import END_S, MODELS, HandJob, TrainJob, wait_for

pytestmark = [pytest.mark.fault, pytest.mark.slow]

FLAGS = (
    f"--model_file={MODELS}/tiny_callbacks.py",
    "--minibatch_size=20",
    "--records_per_task=90",
    "--grads_to_wait=2",
    "--worker_threads=1",
    "--num_epochs=20",
    "--log_level=DEBUG",
)
# Of a worker or a partition it is killed at one of these, of the master at one that it has written itself.
MOMENTS = (
    "Task:20 completed",
    "Evaluation of v116 begins.",
    "checkpoint v116 is complete.",
    "Evaluation metrics[v=116]",
    "Evaluation of v352 begins.",
    "Evaluation metrics[v=390]",
    "a callback has stopped it",
)


def run(
    folder: Path, data: Path, workers: int, partitions: int, lost: str, *more_flags: str
) -> tuple[str, str]:
    """Return the digest, and what callbacks have decided."""
    flags = (*FLAGS, *more_flags, f"--training_data={data}/train", f"--validation_data={data}/test")
    with HandJob(folder, *flags, partitions=partitions).start(workers) as job:
        gone: tuple[str, ...] = ()
        if lost:
            moment = random.Random(f"{workers}{partitions}{lost}").choice(MOMENTS)
            wait_for(lambda: moment in job.log("master"), moment, 2 * END_S)  # four workers begin slowly
            name = lost if lost == "master" else f"{lost}-0"
            job.kill(name)
            gone = (name,) if lost == "worker" else ()
            if lost == "worker":
                job.start_worker(9)
            elif lost == "ps":
                job.start_ps(0)
            else:
                job.start_master()
        status = job.finish(without=gone)
    with Journal(folder / "journal.sqlite") as journal:
        rounds = journal.state().rounds
    assert status.state == "Succeeded"
    assert (folder / "checkpoints" / f"version-{rounds[-1].decision.result}").is_dir()
    return status.digest, repr(rounds)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, small_mnist: Path) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        found = run(folder, small_mnist, 1, 1, "")
    assert "stop=True" in found[1]
    assert found[1].count("learning_rate=None") < found[1].count("learning_rate=")
    return found


@pytest.mark.parametrize("lost", ["", "worker", "ps", "master"])
@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_same_decisions_and_bits(
    workers: int,
    partitions: int,
    lost: str,
    undisturbed: tuple[str, str],
    tmp_path: Path,
    small_mnist: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # where CSVLogger writes
    assert run(tmp_path, small_mnist, workers, partitions, lost) == undisturbed
    assert (tmp_path / "rounds.csv").read_text().count("\n") >= 2


@pytest.mark.parametrize("lost", ["", "worker", "master"])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_same_of_members_of_a_group(
    workers: int,
    lost: str,
    undisturbed: tuple[str, str],
    tmp_path: Path,
    small_mnist: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ("--distribution_strategy=AllreduceStrategy", "--recovery_snapshot_secs=1")
    assert run(tmp_path, small_mnist, workers, 0, lost, *flags) == undisturbed
    assert (tmp_path / "rounds.csv").read_text().count("\n") >= 2


HELD = """
import os, time

def hold(place):
    while not os.path.exists({gates!r} + place):
        open({held!r}, "a").close()
        time.sleep(0.02)

class HeldMetric(keras.metrics.SparseCategoricalAccuracy):
    def update_state(self, labels, predictions, sample_weight=None):
        with tf.control_dependencies([tf.numpy_function(lambda: hold("metric"), [], [])]):
            labels = tf.identity(labels)
        return super().update_state(labels, predictions, sample_weight)

class HeldCallback(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        hold("callback")

def eval_metrics_fn():
    return {{"accuracy": HeldMetric()}}

others = callbacks

def callbacks():
    return [HeldCallback(), *others()]
"""


def decided(job: TrainJob) -> tuple[str, str]:
    """Return the digest, and what callbacks have decided."""
    status = named_status.decode((job.folder / "status.json").read_bytes())
    with Journal(job.folder / "journal.sqlite") as journal:
        return status.digest, repr(journal.state().rounds)


@pytest.mark.parametrize(
    ("place", "is_first"),
    [("callback", True), ("callback", False), ("metric", False)],
    ids=["callback-first", "callback-later", "metric-later"],
)
def test_a_job_that_is_stopped_at_a_barrier(
    place: str,
    is_first: bool,
    tmp_path: Path,
    small_mnist: Path,
    undisturbed: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A round does not come to its end: its evaluation is held by a metric, or its conclusion by a callback."""
    monkeypatch.chdir(tmp_path)  # where CSVLogger writes
    gates, held = tmp_path / "gates", tmp_path / "held"
    gates.mkdir()
    for gate in ("metric", "callback"):
        (gates / gate).touch()
    source = Path(f"{MODELS}/tiny_callbacks.py").read_text() + HELD.format(gates=f"{gates}/", held=str(held))
    (tmp_path / "model.py").write_text(source)
    data = (f"--training_data={small_mnist}/train", f"--validation_data={small_mnist}/test")
    flags = (f"--model_file={tmp_path}/model.py", *FLAGS[1:], *data, "--num_workers=2", "--progress=plain")
    if is_first:
        (gates / place).unlink()
    with TrainJob(tmp_path, *flags) as job:
        if not is_first:
            second = "Task:15 completed"  # of the second epoch
            wait_for(lambda: second in job.log("master"), second)
            (gates / place).unlink()
        wait_for(held.exists, "a round is held")
        before = job.status().version
        job.run("stop", job.name)
        stopped = job.finish(code=143)
        assert (stopped.state, stopped.version, stopped.checkpoint) == ("Stopped", before, before)
        with Journal(job.folder / "journal.sqlite") as journal:
            assert bool(journal.state().rounds) is not is_first
        (gates / place).touch()
        assert f"Succeeded  {job.name}" in job.run("resume", job.name)
        assert decided(job) == undisturbed
