"""Numbers that a user gives are refused where nothing could be done with them."""

import dataclasses
from pathlib import Path

import pytest

from edlz.client.arguments.flag_values import seconds_of, whole_number
from edlz.k8s.cluster.names import WORKERS
from edlz.k8s.pods.commands import Commands
from edlz.services.configuration.job_config import JobConfig, flags
from edlz.services.configuration.job_size import MOST_SERVERS, MOST_WORKERS, check_workers, scale_warning
from edlz.services.configuration.problems import Problem
from edlz.services.configuration.settings import Setting, value_of
from edlz.services.errors import ConfigError
from edlz.services.master.planning import make_plan

NUMBERS = [about for about in flags() if about.kind in ("whole number", "number")]


@pytest.mark.parametrize("text", ["9" * 30, "9" * 5000, "-" + "9" * 30, "1" + "0" * 20])
@pytest.mark.parametrize("about", NUMBERS, ids=lambda about: about.name)
def test_no_flag_takes_a_number_that_no_message_can_carry(about: object, text: str) -> None:
    found = value_of(about, Setting("flag", text))  # type: ignore[arg-type]
    assert isinstance(found, Problem)
    assert len(found.message) < 120 or about.kind == "number"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "most"),
    [
        *((name, MOST_WORKERS) for name in ("num_workers", "min_workers", "max_workers", "warm_spares")),
        *((name, MOST_WORKERS) for name in ("grads_to_wait", "local_slots")),
        ("num_ps_pods", MOST_SERVERS),
        ("worker_threads", 1024),
    ],
)
def test_no_job_has_millions_of_processes(name: str, most: int) -> None:
    about = next(about for about in flags() if about.name == name)
    assert value_of(about, Setting(name, str(most))) == most
    found = value_of(about, Setting(name, str(most + 1)))
    assert isinstance(found, Problem)
    assert found.message == f"--{name}={most + 1} is above {most}"


@pytest.mark.parametrize("workers", [MOST_WORKERS + 1, 10**17])
def test_scaling_is_refused_by_the_same_bound_everywhere(workers: int) -> None:
    with pytest.raises(ConfigError, match=f"workers={workers} is not within 0..10000, what a job may have"):
        check_workers(workers, 0, None)


@pytest.mark.parametrize("text", ["9" * 19, "9" * 5000, "-1", "٣"])
def test_an_annotation_that_is_no_number_is_told_and_shortened(text: str) -> None:
    asked = Commands().on_annotations({WORKERS: text})
    assert asked.workers is None
    (complaint,) = asked.complaints
    assert len(complaint) < 150


def test_durations_and_counts_of_small_commands() -> None:
    assert seconds_of("timeout", "2d") == 172_800
    for text in ("9" * 400, "99999999d"):
        with pytest.raises(ConfigError, match="is longer than ten years"):
            seconds_of("timeout", text)
    with pytest.raises(ConfigError, match="is not a whole number"):
        whole_number("workers", "9" * 30)


def test_a_plan_has_no_more_tasks_than_a_partition_can_count(small_mnist: Path) -> None:
    config = JobConfig(training_data=str(small_mnist / "train"), num_epochs=10**9, records_per_task=100)
    with pytest.raises(ConfigError, match="are 12,000,000,000 tasks, more than the 50,000,000"):
        make_plan(config)


def test_every_whole_number_fits_a_message() -> None:
    for about in NUMBERS:
        most = dataclasses.asdict(about)["maximum"]
        assert most is None or most < 2**63


def test_whoever_scales_beyond_a_step_hears_how_many_would_wait() -> None:
    assert scale_warning(2, 2) == ""
    assert scale_warning(3, 2) == "grads_to_wait=2, so 1 worker would wait; start with --grads_to_wait=3"
    assert scale_warning(5, 2) == "grads_to_wait=2, so 3 workers would wait; start with --grads_to_wait=5"
