"""The zoo's models that read CSV train as a whole job, on what their converters have written."""

from pathlib import Path

import pytest

from edlz.model_zoo.datasets import convert
from tests.processes import HandJob

pytestmark = pytest.mark.slow

SPECIES = {"Iris-setosa": (5, 3, 1, 0), "Iris-versicolor": (6, 3, 4, 1), "Iris-virginica": (7, 3, 6, 2)}


def flowers(folder: Path) -> Path:
    folder.mkdir()
    rows = [
        ",".join([*(f"{base + n % 5 / 10:.1f}" for base in lengths), name])
        for name, lengths in SPECIES.items()
        for n in range(50)
    ]
    (folder / "iris.data").write_text("\n".join(rows) + "\n")
    return folder


@pytest.mark.parametrize(
    ("model", "data", "metric", "least"),
    [
        ("census.string_lookup.custom_model", "adult-csv", "auc", 0.8),
        ("iris.dnn.custom_model", "iris", "accuracy", 0.9),
    ],
)
def test_a_job_on_csv(model: str, data: str, metric: str, least: float, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    convert(data, flowers(tmp_path / "source") if data == "iris" else None, tmp_path / "data")
    folder = tmp_path / "job"
    folder.mkdir()
    flags = (
        f"--model_def={model}",
        f"--training_data={tmp_path}/data/train",
        f"--validation_data={tmp_path}/data/test",
        "--minibatch_size=16",
        f"--num_epochs={40 if data == 'iris' else 1}",
    )
    with HandJob(folder, *flags).start(2) as job:
        status = job.finish()
        job.check_exactly_once()
    assert status.state == "Succeeded"
    assert status.evaluations[-1].metrics[metric] > least
