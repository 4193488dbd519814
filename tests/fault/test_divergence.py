"""Whole jobs whose loss becomes NaN: what they have counted and measured outlives their masters."""

import json
import math
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.processes import MODELS, TrainJob, check_exactly_once, wait_for

pytestmark = pytest.mark.fault

FLAGS = (
    "--minibatch_size=5",
    "--records_per_task=50",
    "--worker_threads=1",
    "--grads_to_wait=1",
    "--num_workers=1",
)
MEMBERS = ("--distribution_strategy=AllreduceStrategy", "--num_workers=2")  # the last value of a flag counts
ENOUGH = 10  # minibatches with a NaN


@pytest.fixture
def flags(tmp_path: Path, small_mnist: Path) -> tuple[str, ...]:
    """Of a job that diverges within a few steps: losses, the loss as a metric and the model are NaN."""
    model = tmp_path / "diverges.py"
    model.write_text(
        f"{(MODELS / 'tiny_mlp.py').read_text()}\n\n"
        "def optimizer():\n    return keras.optimizers.SGD(learning_rate=1e30)\n\n"
        "def eval_metrics_fn():\n"
        "    return {'cross entropy': keras.metrics.SparseCategoricalCrossentropy(from_logits=True)}\n"
    )
    data = (f"--training_data={small_mnist}/train", f"--validation_data={small_mnist}/test")
    return (*FLAGS, *data, f"--model_file={model}")


def shown(job: TrainJob) -> dict[str, Any]:
    """What `edlz status -o json` prints, which has to be JSON as its standard has it."""

    def refuse(name: str) -> float:
        raise AssertionError(f"{name} is no JSON")

    found: dict[str, Any] = json.loads(job.run("status", job.name, "-o", "json"), parse_constant=refuse)
    return found


def check_end(job: TrainJob, output: str, at_least: int) -> None:
    """It has succeeded and says what that is worth."""
    check_exactly_once(job.folder)
    found = shown(job)
    assert found["job"]["state"] == "Succeeded"
    assert at_least <= found["nonfinite_losses"] <= found["progress"]["minibatches"]
    assert math.isnan(float(found["evaluations"][-1]["metrics"]["cross entropy"]))
    assert f"{found['nonfinite_losses']:,} minibatches had a loss that is NaN or infinite" in output
    assert "--stop_on_nan ends a job there" in output


@pytest.mark.parametrize("more", [(), MEMBERS], ids=["servers", "members"])
def test_its_master_is_killed_after_the_first_evaluation(
    more: tuple[str, ...], tmp_path: Path, flags: tuple[str, ...]
) -> None:
    with TrainJob(tmp_path, *flags, *more, "--num_epochs=3", "--evaluation_steps=40") as job:
        job.wait_for_output("Evaluation metrics[v=40]")
        counted = wait_for(lambda: job.status().nonfinite_losses, "a loss is NaN")
        job.kill("master")
        job.wait_for_output("term=2")
        job.finish()
        assert "is nan" in job.output()
        check_end(job, job.output(), counted)


def test_it_is_stopped_and_resumed(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with TrainJob(tmp_path, *flags, "--num_epochs=3", "--evaluation_steps=40") as job:
        job.wait_for_output("Evaluation metrics[v=40]")
        wait_for(lambda: job.status().nonfinite_losses > ENOUGH, "losses are NaN")
        job.process.send_signal(signal.SIGINT)
        stopped = job.finish(code=130)
        found = shown(job)
        assert found["job"]["state"] == "Stopped"
        assert found["nonfinite_losses"] == stopped.nonfinite_losses > ENOUGH
        check_end(job, job.run("resume", job.name), ENOUGH)


@pytest.mark.slow
def test_a_group_ends_where_a_loss_is_nan_if_that_is_wanted(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with TrainJob(tmp_path, *flags, *MEMBERS, "--stop_on_nan") as job:
        job.finish(code=1)
        output = job.output()
        assert "--stop_on_nan: the loss is " in output
        assert "minibatch " in output
        assert f"or go on whatever the loss is: edlz resume {job.name} --stop_on_nan=no" in output
        resumed = job.run("resume", job.name, "--stop_on_nan=no")
        check_end(job, resumed, ENOUGH)
