"""`--worker_pod_priority`: its forms, what counts on one machine, and errors that say which part is wrong."""

import pytest

from edlz.services.configuration.arguments import read_config
from edlz.services.configuration.problems import Problem
from edlz.services.configuration.worker_priority import local_rank, parse_worker_priority
from edlz.services.errors import ConfigError

NEEDED = ("--model_def=m.n.custom_model", "--training_data=data")


@pytest.mark.parametrize(
    ("text", "workers", "classes"),
    [
        ("", 2, ("", "")),
        ("high", 2, ("high", "high")),
        ("low-priority", 1, ("low-priority",)),
        ("high=0.5", 3, ("high", "low", "low")),
        ("0.5", 3, ("high", "high", "low")),
        (".5", 2, ("high", "low")),
        ("0.7", 10, ("high",) * 7 + ("low",) * 3),  # not 8, as with 0.7 * 10 > 7
        ("high=0.29", 100, ("high",) * 29 + ("low",) * 71),
        ("1", 2, ("high", "high")),
        ("high=0", 2, ("low", "low")),
    ],
)
def test_the_class_of_each_worker(text: str, workers: int, classes: tuple[str, ...]) -> None:
    assert parse_worker_priority(text).classes(workers) == classes


@pytest.mark.parametrize(
    ("text", "message", "help_line"),
    [
        ("high=1.5", '"1.5" is not a share from 0 to 1', "e.g. --worker_pod_priority=high=0.5"),
        ("high=", '"" is not a share from 0 to 1', "e.g. --worker_pod_priority=high=0.5"),
        ("high=half", '"half" is not a share from 0 to 1', "e.g. --worker_pod_priority=high=0.5"),
        ("-0.5", '"-0.5" is not a share from 0 to 1', "e.g. --worker_pod_priority=high=0.5"),
        ("2", '"2" is not a share from 0 to 1', "e.g. --worker_pod_priority=high=0.5"),
        ("low=0.5", '"low" cannot have a share, only high can', "e.g. --worker_pod_priority=high=0.5"),
        (
            "High_Prio",
            '"High_Prio" is no class name: a-z, 0-9, - and .',
            "--worker_pod_priority=high-prio",
        ),
    ],
)
def test_an_error_names_the_part_that_is_wrong(text: str, message: str, help_line: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_worker_priority(text)
    assert raised.value.message == f'--worker_pod_priority="{text}": {message}'
    assert raised.value.help == help_line


def test_what_counts_on_one_machine() -> None:
    names = ["high", "batch-20", "batch-3", "research", "low"]
    assert sorted(names, key=local_rank, reverse=True) == names
    assert local_rank("high-priority") == local_rank("high")
    assert local_rank("very.low") == local_rank("low")
    assert local_rank("research") == local_rank("") == local_rank("gpu2") == 0
    assert local_rank("highway") == 0


def read(*argv: str) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    reading = read_config([*NEEDED, *argv], "train", {})
    return reading.errors, reading.warnings


def test_flags_that_do_not_fit() -> None:
    (error,), _ = read("--min_workers=3", "--num_workers=3", "--local_slots=2")
    assert error.message == "min_workers=3 exceeds local_slots=2"
    (error,), _ = read("--worker_pod_priority=high=2", "--local_slots=2")
    assert error.message == '--worker_pod_priority="high=2": "2" is not a share from 0 to 1'
    errors, (warning,) = read("--worker_pod_priority=high")
    assert errors == ()
    assert warning.message == "worker_pod_priority=high without local_slots: nobody has to wait"
    assert read("--worker_pod_priority=high", "--local_slots=1") == ((), ())


def test_slots_for_all_jobs_of_a_shell() -> None:
    assert read_config(NEEDED, "train", {"EDLZ_LOCAL_SLOTS": "2"}).checked().local_slots == 2
