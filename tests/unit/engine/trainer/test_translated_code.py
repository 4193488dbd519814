"""AutoGraph translates what is the user's, so that it may branch on tensors, and nothing of edlz."""

import math

import pytest
from tensorflow.python.autograph.impl import api

from tests.unit.engine.trainer_jobs import MODEL

BRANCHES = (
    MODEL.replace(
        "    return tf.reduce_mean(tf.square(predictions[:, 0] - labels))",
        """    total = tf.reduce_mean(tf.square(predictions[:, 0] - labels))
    if total > 1e9:
        total = total * 0.0
    return total""",
    )
    .replace(
        '        return {"x": values[:3]}, values[3]',
        """        if values[3] > 1e9:
            values = values * 0.0
        return {"x": values[:3]}, values[3]""",
    )
    .replace(
        "    dataset = dataset.map(parse)\n",
        """    dataset = dataset.map(parse)
    if dataset.cardinality() < 0:
        dataset = dataset.take(0)
""",
    )
    .replace(
        '"rows": lambda labels, predictions: tf.ones_like(labels)}',
        '"rows": counted}',
    )
    + """

def counted(labels, predictions):
    if tf.size(labels) > 1000:
        labels = labels * 0.0
    return tf.ones_like(labels)
"""
)


@pytest.fixture
def translated(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The modules of the functions that AutoGraph has translated."""
    modules: set[str] = set()
    translate = api._TRANSPILER.transform_function

    def noting(function, *args):  # type: ignore[no-untyped-def]
        modules.add(function.__module__)
        return translate(function, *args)

    monkeypatch.setattr(api._TRANSPILER, "transform_function", noting)
    return modules


def test_feeds_losses_and_metrics_may_branch_on_tensors(make, translated: set[str]) -> None:
    """And what is translated for that is theirs alone: the rest would take a second of each worker's start."""
    trainer, _ = make(BRANCHES, evaluation=True)
    trainer.begin(0)
    records = trainer._plan.evaluation_ranges[0]
    count, states = trainer.evaluate(0, records)
    assert math.isfinite(trainer.compute(0, 0).loss)
    assert trainer.conclude(states)["rows"] == 1.0
    assert count == records.count
    assert translated
    assert not {module for module in translated if module.startswith("edlz.")}
