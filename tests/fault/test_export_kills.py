"""An export is killed at any moment: what was there before is there, and what is new is whole."""

import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.exported import Call, TrainedModel, run_in_python
from tests.processes import wait_for
from tests.table_jobs import job, write_job

pytestmark = [pytest.mark.fault, pytest.mark.filterwarnings("ignore:Seed .* from outer graph:UserWarning")]

KILLS = 20
ROWS = 300_000  # so that writing takes as long as tracing
MODEL = """
def custom_model():
    ids = keras.Input((6,), dtype="int64", name="ids")
    x = L.Flatten()(Embedding(16, embeddings_initializer="normal", name="table")(ids))
    return keras.Model(ids, L.Dense(1)(x))
"""


def start(version: Path, out: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "edlz.client", "export", str(version), str(out)]
    command += ["--output_format=saved_model,safetensors"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def run(version: Path, out: Path) -> None:
    child = start(version, out)
    child.communicate(timeout=300)
    assert child.returncode == 0


def content(folder: Path) -> dict[str, bytes]:
    """Return what must be the same in every export: all files but the graph, whose tables have random names."""
    names = ("saved_model.pb", "fingerprint.pb")
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in names)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def staged_bytes(out: Path) -> int:
    """Return how much the export that is under way has written."""
    try:
        return sum(path.stat().st_size for left in out.glob(".tmp-*") for path in left.rglob("*"))
    except FileNotFoundError:
        return 0


def test_an_export_is_whole_or_is_not_there(tmp_path: Path) -> None:
    write_job(tmp_path / "job", MODEL, {})
    config, plan = job(tmp_path / "job")
    config = replace(config, training_data=str(tmp_path / "job" / "data"), seed=plan.seed)
    model = TrainedModel(config, plan, range(-ROWS, ROWS, 2))
    features, expected = model.evaluate()
    version, out = model.save(tmp_path / "checkpoints", 2), tmp_path / "out"
    model.close()

    run(version, out)
    first = content(out / "1")
    whole = sum(len(data) for data in first.values())

    chance, interrupted = random.Random(7), 0
    for number in range(KILLS):
        before = numbered(out)
        child = start(version, out)
        at = (
            chance.uniform(0, 1.9) * whole
        )  # bytes of the staged folder, scratch files not counted; or after that
        moved = lambda at=at, child=child: staged_bytes(out) >= at or child.poll() is not None  # noqa: E731
        if at < whole:
            wait_for(moved, "the export gets on", 300)
        else:
            wait_for(lambda before=before: numbered(out) != before, "the export appears", 300)  # type: ignore[misc]
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
        interrupted += child.returncode == -signal.SIGKILL
        after = numbered(out)
        assert after in (before, [*before, len(before) + 1]), number
        for name in after:
            assert content(out / str(name)) == first, (number, name)
    assert interrupted > KILLS // 2

    run(version, out)
    assert [entry.name for entry in out.iterdir() if entry.name.startswith(".")] == []
    newest = numbered(out)[-1]
    (found,) = run_in_python([Call(out / str(newest), {"ids": features[0].numpy()})], tmp_path)
    np.testing.assert_array_equal(found["output_0"], expected[0])


def numbered(out: Path) -> list[int]:
    return sorted(int(entry.name) for entry in out.iterdir() if entry.name.isdigit())
