"""Durations, metrics and counts in words."""

import math

import pytest

from edlz.client.screen.wording import best_evaluation, count_of, duration, metric, percent
from edlz.services.protocol.job_status import (
    EvaluationView,
)
from tests.shown_jobs import changed


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (45.4, "45s"),
        (60, "1m"),
        (250, "4m 10s"),
        (4800, "1h 20m"),
        (183_600, "2d 3h"),
        (3599.6, "1h"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.083, "0.083"),
        (0, "0.000"),
        (1234.5, "1,234"),
        (0.00012, "1.20e-04"),
        (3e9, "3.00e+09"),
        (float("nan"), "nan"),
    ],
)
def test_metrics(value: float, text: str) -> None:
    assert metric(value) == text


def test_other_words() -> None:
    assert [percent(ratio) for ratio in (0, 0.599, 0.9999, 1)] == ["0 %", "59 %", "99 %", "100 %"]
    assert [count_of(1, "batch"), count_of(1200, "batch"), count_of(2, "worker")] == [
        "1 batch",
        "1,200 batches",
        "2 workers",
    ]


def test_the_best_of_a_loss_is_the_smallest() -> None:
    views = tuple(
        EvaluationView(version=v, metrics={"val_loss": x, "auc": x})
        for v, x in ((1, 3.0), (2, 1.0), (3, 1.0))
    )
    status = changed(evaluations=views)
    loss, auc = best_evaluation(status, "val_loss"), best_evaluation(status, "auc")
    assert loss is not None
    assert auc is not None
    assert (loss.version, auc.version) == (2, 1)
    assert best_evaluation(status, "other") is None
    odd = [
        EvaluationView(version=v, metrics={"loss": m}) for v, m in ((1, math.nan), (2, 0.5), (3, math.nan))
    ]
    assert best_evaluation(changed(evaluations=tuple(odd)), "loss") == odd[1]
    assert best_evaluation(changed(evaluations=(odd[0],)), "loss") == odd[0]
