"""A mistake in the model's file, told at the first worker's first try; and the check alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edlz.api.recordio import Writer
from tests.checked_models import BASE, line

BAD = "\ndef loss(labels, predictions):\n    return labels * predictions[:, 0]\n"
ROWS = """
def custom_model():
    x = keras.Input((2,), name="numbers")
    rows = layers.Flatten()(Embedding(3, name="rows")(keras.ops.cast(x * 10, "int64")))
    return keras.Model(x, layers.Dense(1, activation="sigmoid")(rows))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.py").write_text(BASE)
    (tmp_path / "bad.py").write_text(BASE + BAD)
    with Writer(tmp_path / "data") as writer:
        for number in range(60):
            writer.write(line(number))
    return tmp_path


def train(folder: Path, model: str, *flags: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "edlz.client", "train", f"--model_file={model}.py", "--job_name=job"),
            *("--training_data=data", "--validation_data=data", "--minibatch_size=10", *flags),
        ],
        cwd=folder,
        capture_output=True,
        env={**os.environ, "EDLZ_HOME": str(folder / "home"), "CUDA_VISIBLE_DEVICES": "-1"},
        text=True,
        timeout=240,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_job_with_a_mistake_ends_at_once_as_a_mistake(folder: Path) -> None:
    code, out, err = train(folder, "bad", "--num_workers=2")
    assert code == 2, out + err
    number = len((BASE + BAD).splitlines())
    assert f"bad.py:{number} in loss" in err
    assert f"{number} |     return labels * predictions[:, 0]" in err
    assert "help: convert one of them: tf.cast(x, tf.float32)" in err
    whole = out + err
    assert whole.count("error: ") == 1, whole
    assert whole.count("does not match type") == 1, whole
    assert "replacement" not in whole
    assert "training begins" not in whole


def test_the_check_alone_starts_nothing(folder: Path) -> None:
    code, out, err = train(folder, "good", "--check", "--output=out")
    assert code == 0, out + err
    assert "Checked  job: this model can be trained" in out
    assert "17 parameters in 4 variables" in out
    assert "features (10, 2) float32, labels (10,) int32" in out
    assert "signatures serving_default" in out
    left = {entry.name for entry in folder.iterdir()} - {"__pycache__"}
    assert left == {"bad.py", "data", "good.py"}


def test_the_check_alone_tells_of_a_mistake(folder: Path) -> None:
    code, out, err = train(folder, "bad", "--check")
    assert code == 2, out + err
    assert err.count("error: ") == 1, err
    assert "bad.py" in err
    assert "Traceback" not in out + err


@pytest.mark.slow
def test_the_check_alone_knows_what_workers_alone_cannot_train(folder: Path) -> None:
    (folder / "rows.py").write_text(BASE + ROWS)
    code, out, err = train(folder, "rows", "--check", "--distribution_strategy=AllreduceStrategy")
    assert code == 2, out + err
    assert "is an edlz.api.Embedding: rows of unbounded tables live on parameter servers" in err
    assert "help: --distribution_strategy=ParameterServerStrategy" in err


def test_the_check_of_a_job_for_a_cluster_runs_here(folder: Path) -> None:
    """What only the pods see is left alone: where they write, and what they begin from."""
    flags = ("--image_name=edlz:none", "--output=/data/out", "--checkpoint_dir_for_init=/data/ckpt")
    code, out, err = train(folder, "good", "--check", *flags)
    assert code == 0, out + err
    assert "Checked  job: this model can be trained" in out
    assert "where      on this machine" in out
    assert "possible as saved_model" in out
    left = {entry.name for entry in folder.iterdir()} - {"__pycache__"}
    assert left == {"bad.py", "data", "good.py"}
