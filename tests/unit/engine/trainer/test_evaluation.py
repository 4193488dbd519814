"""The trainer evaluates: results that add up, metrics that cannot."""

import textwrap

import pytest

from edlz.services.errors import ConfigError, ModelError
from edlz.services.master.core.tasks.evaluation_rounds import merge_states
from edlz.services.protocol.plan import TaskRange
from tests.rounding import near
from tests.unit.engine.trainer_jobs import MODEL, as_bits

pytestmark = pytest.mark.filterwarnings("ignore:Seed .* from outer graph:UserWarning")


def test_evaluation_tasks_add_up_to_the_whole(shared):
    trainer, _ = shared
    plan = trainer._plan
    ranges = plan.evaluation_ranges
    results = [trainer.evaluate(task, records) for task, records in enumerate(ranges)]
    assert [rows for rows, _ in results] == [10, 10, 5]
    metrics = trainer.conclude(merge_states([states for _, states in results]))
    first = [trainer.evaluate(9, TaskRange(name=ranges[0].name, first=0, count=20)), results[2]]
    whole = merge_states([states for _, states in first])
    assert metrics == {key: near(value, 50) for key, value in trainer.conclude(whole).items()}
    assert metrics["rows"] == 1.0


def test_an_evaluation_is_the_same_again_and_leaves_no_trace(shared):
    trainer, _ = shared
    records = trainer._plan.evaluation_ranges[1]
    first, gradient = trainer.evaluate(1, records), as_bits(trainer.compute(0, 0))
    again = trainer.evaluate(1, records)
    assert str(first) == str(again)
    assert as_bits(trainer.compute(0, 0)) == gradient


def test_without_validation_data_there_is_nothing_to_evaluate(make):
    trainer, _ = make()
    with pytest.raises(ConfigError, match="no validation data"):
        trainer.evaluate(0, TaskRange(name="", first=0, count=1))


def test_a_metric_that_cannot_be_added_up_is_found_when_building(make):
    source = MODEL.replace('"mae": keras.metrics.MeanAbsoluteError()', '"mae": Top()') + textwrap.dedent(
        """
        class Top(keras.metrics.Metric):
            def __init__(self):
                super().__init__()
                self.top = self.add_variable((), "zeros", name="top")
            def update_state(self, labels, predictions, sample_weight=None):
                self.top.assign(tf.maximum(self.top.value, tf.reduce_max(labels)))
            def result(self):
                return self.top
        """
    )
    with pytest.raises(ModelError, match=r'metric "mae" \(Top\) cannot be added up'):
        make(source, evaluation=True)
