"""Under `edlz train`: what is lost is replaced, by itself, and every minibatch is in the model once."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.processes import is_complete
from edlz.services.protocol.messages import Scaled, ScaleRequest
from tests.fault.tiny_job import FLAGS, MODES
from tests.processes import MODELS, TrainJob, check_exactly_once, wait_for
from tests.trapped_models import write_lethal_model

pytestmark = pytest.mark.fault

Start = Callable[..., TrainJob]


@pytest.fixture
def start(tmp_path: Path, small_mnist: Path) -> Iterator[Start]:
    jobs: list[TrainJob] = []

    def start(mode: str, *flags: str) -> TrainJob:
        data = f"--training_data={small_mnist}/train"
        jobs.append(TrainJob(tmp_path, *FLAGS, MODES[mode], data, "--recovery_snapshot_secs=0.5", *flags))
        return jobs[0]

    yield start
    for job in jobs:
        job.__exit__()


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("mode", MODES)
def test_a_worker_a_server_and_the_master(mode: str, start: Start, sync_digest: str) -> None:
    job = start(mode, "--num_workers=2", "--num_ps_pods=2")
    job.wait_for_output("Task:3 completed")
    job.kill("worker-0")
    job.wait_for_output("worker-2 starts in its place")
    job.kill("ps-1")
    job.wait_for_output("ps-1 is back")
    job.kill("master")
    job.wait_for_output("term=2")
    status = job.finish()
    check_exactly_once(job.folder)
    assert status.lost_workers == 1
    if mode == "sync":
        assert status.digest == sync_digest


@pytest.mark.parametrize("is_second", [False, True], ids=["first master", "second master"])
def test_the_master_of_a_complete_job(is_second: bool, start: Start, sync_digest: str) -> None:
    """It is killed when it has journalled `complete`, and before anybody has heard of that from it."""
    job = start("sync", "--num_workers=1", "--num_ps_pods=2")
    job.wait_for_output("Task:3 completed")
    if is_second:
        job.kill("master")
        job.wait_for_output("term=2")
    master = job.pid("master")
    job.process.send_signal(signal.SIGSTOP)  # a master does not leave before its supervisor has heard
    try:
        wait_for(lambda: is_complete(job.folder), "complete stands in the journal")
        os.kill(master, signal.SIGKILL)
    finally:
        job.process.send_signal(signal.SIGCONT)
    status = job.finish()
    assert job.output().count("master lost: killed by signal 9 (SIGKILL)") == 1 + is_second
    assert (status.state, status.digest) == ("Succeeded", sync_digest)
    assert [path.name for path in job.folder.glob("journal*.sqlite")] == ["journal.sqlite"]
    check_exactly_once(job.folder)


@pytest.mark.parametrize("mode", MODES)
def test_a_worker_that_is_stopped_is_replaced_and_ends_when_it_wakes_up(
    mode: str, start: Start, sync_digest: str
) -> None:
    job = start(mode, "--num_workers=1", "--worker_hang_secs=11")  # alone, or others might end the job first
    job.wait_for_output("Task:3 completed")
    pid = job.kill("worker-0", signal.SIGSTOP)
    job.wait_for_output("worker-1 starts in its place")
    os.kill(pid, signal.SIGCONT)
    wait_for(lambda: is_gone(pid), "the end of the worker that woke up")
    assert "most recent call first" in job.log("worker-0")
    status = job.finish()
    check_exactly_once(job.folder)
    if mode == "sync":
        assert status.digest == sync_digest


def test_a_worker_whose_code_hangs_is_told_from_a_slow_one(start: Start, tmp_path: Path) -> None:
    """Its heartbeats come, but one minibatch takes for ever; its log says in which line."""
    model = tmp_path / "hangs.py"
    source = (MODELS / "tiny_tables.py").read_text()
    trap = tmp_path / "trap"
    model.write_text(
        f"{source}\n\ndef _wait(labels):\n"
        f"    import os, time\n"
        f"    while os.path.exists({str(trap)!r}):\n        time.sleep(0.1)\n    return labels\n\n"
        "_plain = loss\n\ndef loss(labels, predictions):\n"
        "    labels = tf.ensure_shape(tf.numpy_function(_wait, [labels], tf.int64), [None])\n"
        "    return _plain(labels, predictions)\n"
    )
    job = start("async", f"--model_file={model}", "--num_workers=1", "--worker_hang_secs=3")
    job.wait_for_output("Task:3 completed")
    trap.touch()
    job.wait_for_output("worker-1 starts in its place")
    wait_for(lambda: "in _wait" in job.log("worker-0"), "the line in which worker-0 hangs")
    trap.unlink()
    status = job.finish()
    check_exactly_once(job.folder)
    assert status.lost_workers >= 1


def test_a_worker_that_fails_again_and_again_ends_the_job(start: Start, tmp_path: Path) -> None:
    model = tmp_path / "leaves.py"
    source = (MODELS / "tiny_tables.py").read_text()
    model.write_text(f"{source}\n\nimport os\nos._exit(9)\n")
    job = start("async", f"--model_file={model}", "--num_workers=1")
    job.finish(code=1)
    assert "no worker is left: worker-1 exit code 9" in job.output()


@pytest.mark.parametrize(
    ("end", "told", "code"),
    [
        (
            "import sys\nsys.exit(0)\n",
            'error: job "tiny-tables" failed: the model\'s code called sys.exit(0)',
            2,  # its check finds that, before anything is trained
        ),
        ("import os\nos._exit(0)\n", "no worker is left: worker-1 exit code 0, like 1 before it", 1),
    ],
)
def test_a_model_that_leaves_without_an_error_ends_the_job(
    end: str, told: str, code: int, start: Start, tmp_path: Path
) -> None:
    model = tmp_path / "leaves.py"
    model.write_text(f"{(MODELS / 'tiny_tables.py').read_text()}\n\n{end}")
    job = start("async", f"--model_file={model}", "--num_workers=1")
    job.finish(code=code)
    assert told.rpartition("failed: ")[2] in job.output()


@pytest.mark.parametrize("skips", [False, True])
def test_a_record_that_kills_its_readers(
    skips: bool, start: Start, tmp_path: Path, small_mnist: Path
) -> None:
    """As the kernel does when there is no memory left: by SIGKILL, with nothing in the log."""
    model = write_lethal_model(tmp_path / "poison.py", "tiny_tables", small_mnist / "train", 333)
    flags = ("--skip_bad_tasks",) if skips else ()
    job = start("async", f"--model_file={model}", "--num_workers=1", "--num_epochs=1", *flags)
    status = job.finish(code=0 if skips else 1)
    output = job.output()
    if skips:
        assert status.skipped_tasks == 1
        assert "is skipped from minibatch" in output
    else:
        assert "ended its worker 4 times (workers " in output
        assert "records " in output
        assert "its worker ended: killed by signal 9 (SIGKILL)" in output


def test_growing_and_shrinking(start: Start, sync_digest: str) -> None:
    job = start("sync", "--num_workers=1")
    job.wait_for_output("Task:1 completed")
    grown = job.request(ScaleRequest(workers=3))
    warning = "grads_to_wait=2, so 1 worker would wait; start with --grads_to_wait=3"
    assert grown == Scaled(before=1, after=3, warning=warning)
    job.wait_for_output("worker-2 joined")
    assert job.request(ScaleRequest(workers=1)) == Scaled(before=3, after=1)
    status = job.finish()
    check_exactly_once(job.folder)
    assert (status.digest, status.lost_workers) == (sync_digest, 0)


def test_a_spare_takes_over_at_once(start: Start) -> None:
    job = start("async", "--num_workers=1", "--warm_spares=1", "--num_epochs=1000")
    job.wait_for_output("Task:1 completed")
    wait_for(lambda: all("model built" in job.log(f"worker-{n}") for n in (0, 1)), "the spare is ready")
    trains = wait_for(lambda: [w.id for w in job.status().workers if w.state == "training"], "one trains")
    assert len(trains) == 1
    job.kill(f"worker-{trains[0]}")
    job.wait_for_output("a spare takes over; worker-2 starts as the next one")
    job.wait_for_output(f"worker-{1 - int(trains[0])} has taken over")
    job.process.send_signal(signal.SIGINT)  # a job of this length is not waited for
    job.finish(code=130)
