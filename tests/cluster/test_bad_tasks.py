"""Jobs whose data holds records that the user's code cannot take: real processes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edlz.api.recordio import Writer
from edlz.services.protocol.plan import Plan
from tests.processes import MODELS, HandJob

MINIBATCH, PER_TASK = 10, 40
BAD, BAD_IN_TEST = (137, 305), (55,)
FLAGS = (
    "--job_name=job",
    f"--model_file={MODELS}/lines_of_numbers.py",
    f"--minibatch_size={MINIBATCH}",
    f"--records_per_task={PER_TASK}",
    "--worker_threads=1",
    "--recovery_snapshot_secs=0.2",
)


def write_lines(path: Path, count: int, bad: tuple[int, ...]) -> Path:
    rows = np.random.default_rng(1).standard_normal((count, 3)).round(3)
    path.mkdir(parents=True)
    with Writer(path / "lines-0") as writer:
        for number, row in enumerate(rows):
            fields = [*map(str, row), "?" if number in bad else str(row.sum())]
            writer.write(",".join(fields).encode())
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("lines")
    train = write_lines(folder / "train", 400, BAD)
    test = write_lines(folder / "test", 80, BAD_IN_TEST)
    return f"--training_data={train}", f"--validation_data={test}"


def edlz(home: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "edlz.client", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "EDLZ_HOME": str(home), "CUDA_VISIBLE_DEVICES": "-1"},
        text=True,
        timeout=240,
        check=False,
    )
    return done.returncode, done.stdout


def kept_minibatches(plan: Plan) -> list[int]:
    """Of each task: those before the first one that holds a bad record."""
    kept = []
    for task in range(plan.task_count):
        numbers = plan.task_range(task).first + plan.record_order(task)
        bad = np.flatnonzero(np.isin(numbers, BAD))
        kept.append(int(bad[0]) // MINIBATCH if len(bad) else -(-len(numbers) // MINIBATCH))
    return kept


def check_end(home: Path, output: str) -> str:
    """Check what the job says of itself against its partition's own state; return its digest."""
    with HandJob(home / "jobs" / "job") as job:
        kept = kept_minibatches(job.job.plan)
        (state,) = job.sealed()
    assert list(state.counts) == kept
    assert state.ledger.finished == (0, 10)
    left = 40 - sum(kept)
    assert f"{sum(kept)} minibatches, each in the model exactly once" in output
    assert f"2 tasks skipped after errors: {left} minibatch" in output
    assert "1 evaluation task skipped after errors" in output
    assert "is skipped from minibatch" in output
    assert "records 120..159, epoch 1: it failed 3 times" in output
    found = re.search(r"digest   sha256 ([0-9a-f]{64})", output)
    assert found is not None, output
    return found[1]


def test_a_bad_record_fails_the_job_which_goes_on_without_it(tmp_path: Path, data: tuple[str, str]) -> None:
    """Synchronous: whether a task is skipped at once or after a failure, the bits are the same."""
    flags = (*FLAGS, *data, "--grads_to_wait=2")
    code, output = edlz(tmp_path / "failed", "train", *flags)
    assert code == 1, output
    assert 'error: job "job" failed: task' in output
    assert "lines-0, records " in output
    assert "lines_of_numbers.py:22 in parse" in output
    assert '22 |         numbers = tf.strings.to_number(tf.strings.split(record, ","))' in output
    assert re.search(r"^  kept    (v\d+ \(\d+ %\), snapshot of|nothing yet)", output, re.MULTILINE), output
    assert re.search(r"^  log     edlz logs job --task \d", output, re.MULTILINE), output
    assert " correct parse(), then: edlz resume job\n" in output
    assert "      or leave these records out: edlz resume job --skip_bad_tasks\n" in output

    code, output = edlz(tmp_path / "failed", "resume", "job", "--skip_bad_tasks", "--num_workers=1")
    assert code == 0, output
    digest = check_end(tmp_path / "failed", output)

    code, output = edlz(tmp_path / "whole", "train", *flags, "--skip_bad_tasks", "--num_workers=1")
    assert code == 0, output
    assert check_end(tmp_path / "whole", output) == digest


def test_an_asynchronous_job_skips_bad_tasks(tmp_path: Path, data: tuple[str, str]) -> None:
    code, output = edlz(tmp_path, "train", *FLAGS, *data, "--use_async", "--skip_bad_tasks")
    assert code == 0, output
    check_end(tmp_path, output)
