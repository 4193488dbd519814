"""Files that come while everybody is killed: each line is trained on once, and the bits follow from the journal alone."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from edlz.services.master.core.vocabulary.records import Added
from edlz.services.master.journal.journal import Journal
from edlz.services.protocol.growing_plan import GrowingPlan, Piece
from tests.processes import END_S, MODELS, TrainJob, sealed_state, wait_for

pytestmark = [pytest.mark.fault, pytest.mark.slow]

LINES = 120  # of a file: twelve minibatches
MINIBATCHES = LINES // 10
FLAGS = (
    f"--model_file={MODELS}/lines_of_numbers.py",
    "--data_reader_params=reader_type=Text",
    "--watch_data",
    "--watch_secs=0.2",
    "--minibatch_size=10",
    "--records_per_task=30",
    "--grads_to_wait=2",
    "--num_workers=2",
    "--worker_threads=1",
    "--recovery_snapshot_secs=0.3",
    "--log_level=DEBUG",
    "--progress=plain",
)


def drop(inbox: Path, *numbers: int) -> None:
    """Put files into a folder as one should: whole, under their names."""
    for number in numbers:
        lines = [f"{i % 7},{i % 3},{number % 5},{(i + number) % 11}\n" for i in range(LINES)]
        (inbox / f".{number:02}").write_text("".join(lines))
        (inbox / f".{number:02}").rename(inbox / f"{number:02}.txt")


def has_trained(job: TrainJob, files: int) -> bool:
    """Whether so many files are in the model, and there is nothing more to do."""
    try:
        status = job.status()
    except AssertionError:  # there is no master now
        return False
    return status.waits_for_data_s is not None and status.records == files * LINES


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_what_comes_while_anybody_is_killed_is_trained_on_once(mode: str, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()
    drop(inbox, 0, 1)
    flags = FLAGS if mode == "sync" else (*(f for f in FLAGS if "grads" not in f), "--use_async")
    with TrainJob(tmp_path, f"--training_data={inbox}", *flags) as job:
        wait_for(lambda: has_trained(job, 2), job.output, END_S)
        drop(inbox, 2, 3, 4)
        job.wait_for_output("new data: ")
        job.kill("worker-0")
        drop(inbox, 5)
        job.wait_for_output("new data: ", times=2)
        job.kill("master")
        drop(inbox, 6, 7)
        job.wait_for_output("new data: ", times=3)
        job.kill("ps-0")
        wait_for(lambda: has_trained(job, 8), job.output, END_S)
        job.run("stop", job.name)
        stopped = job.finish(code=143)
        assert (stopped.state, stopped.version) == ("Stopped", stopped.checkpoint)
        drop(inbox, 8)
        (inbox / "bad.txt").symlink_to(inbox / "nothing")  # it does not keep the job from going on
        for taken in (3, 5):
            (inbox / f"{taken:02}.txt").unlink()
        steps = 9 * MINIBATCHES
        assert f"Succeeded  {job.name}" in job.run("resume", job.name, f"--max_step={steps}")
        pieces = check(job, steps)
    if mode == "sync":
        drop(inbox, 3, 5)
        assert replayed(tmp_path / "again", job, pieces) == digest_of(job.folder)


def check(job: TrainJob, steps: int) -> tuple[Piece, ...]:
    """Recount from the partition's own state; return what has come since the job began."""
    with Journal(job.folder / "journal.sqlite") as journal:
        planned, state = journal.job(), journal.state()
    assert planned is not None
    names = [shard.name for piece in state.pieces for shard in piece.shards]
    names += [shard.name for shard in planned.plan.shards]
    assert sorted(Path(name).name for name in names) == [f"{number:02}.txt" for number in range(9)]
    sealed = sealed_state(job.folder, planned, 0)
    assert (sealed.folded, len(sealed.counts), sealed.ledger.minibatches) == (steps, 0, steps)
    known = GrowingPlan.of(planned.plan, state.pieces).known
    assert sealed.ledger.finished[0] == 0
    assert known - 2 < sealed.ledger.finished[1] <= known  # perhaps without the last empty task
    assert sealed.losses.count == steps
    return state.pieces


def digest_of(folder: Path) -> str:
    with Journal(folder / "journal.sqlite") as journal:
        return journal.state().digest


def replayed(home: Path, job: TrainJob, pieces: tuple[Piece, ...]) -> str:
    """Train on the same journal from the beginning, on one worker that nothing befalls; return the digest."""
    folder = home / "jobs" / job.name
    folder.mkdir(parents=True)
    with Journal(job.folder / "journal.sqlite") as journal:
        planned = journal.job()
    assert planned is not None
    with Journal(folder / "journal.sqlite") as journal:
        journal.begin(msgspec.structs.replace(planned, begins_from="", run="replayed", run_number=1))
        journal.write(1, {"term": 1}, {"pieces": Added(0, pieces)})
    (folder / "master.lock").touch()
    (folder / "job.yaml").write_text((job.folder / "job.yaml").read_text())
    arguments = [sys.executable, "-m", "edlz.client", "resume", job.name, "--num_workers=1"]
    environment = {**os.environ, "EDLZ_HOME": str(home), "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(
        arguments, env=environment, capture_output=True, text=True, timeout=END_S, check=False
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return digest_of(folder)
