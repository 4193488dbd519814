"""Metric states: additive over any cut of the data, and told when they are not."""

import itertools
import textwrap

import numpy as np
import pytest

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import LocalProtocolError, ModelError
from edlz.services.master.core.tasks.evaluation_rounds import merge_states
from edlz.services.worker.engine.contract.model_module import load_contract
from edlz.services.worker.engine.model.metrics import MetricSet
from edlz.services.worker.engine.tensorflow.backend import tf
from edlz.services.worker.engine.user_code.user_code import UserCodeError
from tests.rounding import near

HEAD = """
import keras
import tensorflow as tf

def custom_model():
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])

def loss(labels, predictions):
    return tf.reduce_mean(tf.square(predictions - labels))

def optimizer():
    return keras.optimizers.SGD(0.1)

def feed(dataset, mode, metadata):
    return dataset

"""


@pytest.fixture
def make(tmp_path):
    """make(source) -> the metrics of a module with this `eval_metrics_fn`."""

    def build(source=""):
        path = tmp_path / "model.py"
        path.write_text(HEAD + textwrap.dedent(source))
        return MetricSet(load_contract(JobConfig(model_file=str(path))))

    return build


def returning(metrics):
    return f"def eval_metrics_fn():\n    return {metrics}\n"


def rows_of(kind, count=60, seed=0):
    """Labels and predictions of one kind of problem."""
    rng = np.random.default_rng(seed)
    if kind == "classes":
        return rng.integers(0, 4, count), rng.random((count, 4)).astype(np.float32)
    if kind == "one-hot":
        scores = rng.random((count, 4)).astype(np.float32)
        return np.eye(4, dtype=np.float32)[rng.integers(0, 4, count)], scores / scores.sum(1, keepdims=True)
    if kind == "binary":
        return rng.integers(0, 2, (count, 1)).astype(np.float32), rng.random((count, 1)).astype(np.float32)
    if kind == "one-dimensional":
        return rng.integers(0, 2, count).astype(np.float32), rng.random(count).astype(np.float32)
    return rng.random((count, 1)).astype(np.float32), rng.random((count, 1)).astype(np.float32)


def states_of(metrics, labels, predictions, cuts):
    """States of the parts between the cuts, each fed in minibatches of seven."""
    metrics.prepare(tf.constant(labels[:8]), tf.constant(predictions[:8]))
    states = []
    for lo, hi in itertools.pairwise(cuts):
        metrics.reset()
        for first in range(lo, hi, 7):
            last = min(first + 7, hi)
            metrics.update(tf.constant(labels[first:last]), tf.constant(predictions[first:last]))
        states.append(metrics.state())
    return states


MEAN = 70  # operations of a mean of 60 float32 numbers that take a few themselves

KERAS_METRICS = [
    ("classes", "keras.metrics.SparseCategoricalAccuracy()"),
    ("classes", "keras.metrics.SparseTopKCategoricalAccuracy(2)"),
    ("classes", "keras.metrics.SparseCategoricalCrossentropy(from_logits=True)"),
    ("one-hot", "keras.metrics.CategoricalAccuracy()"),
    ("one-hot", "keras.metrics.F1Score(average='macro')"),
    ("one-hot", "keras.metrics.MeanIoU(4, sparse_y_true=False, sparse_y_pred=False)"),
    ("binary", "keras.metrics.AUC()"),
    ("binary", "keras.metrics.AUC"),
    ("binary", "keras.metrics.Precision()"),
    ("binary", "keras.metrics.RecallAtPrecision(0.5)"),
    ("binary", "keras.metrics.BinaryAccuracy()"),
    ("values", "keras.metrics.RootMeanSquaredError()"),
    ("values", "keras.metrics.MeanAbsoluteError()"),
    ("values", "keras.metrics.R2Score()"),
]


@pytest.mark.parametrize(("kind", "metric"), KERAS_METRICS)
def test_parts_add_up_to_what_keras_says_of_the_whole(make, kind, metric):
    labels, predictions = rows_of(kind)
    metrics = make(returning(f'{{"m": {metric}}}'))
    merged = merge_states(states_of(metrics, labels, predictions, [0, 13, 14, 47, 60]))
    assert all(part.dtype == np.float64 for part in merged["m"])
    whole = make(returning(f'{{"m": {metric}}}'))._metrics["m"]  # a new object of Keras
    whole.update_state(labels, predictions)
    expected = float(whole.result())
    # The longest: R2Score has two sums of 60 squares of differences, one of them from a mean; AUC sums over 200
    # thresholds, with three quotients each.
    assert metrics.conclude(merged) == {"m": near(expected, 1000, size=1.0)}


@pytest.mark.parametrize(
    "metric",
    [
        "MeanSquaredError()",
        "MeanAbsoluteError()",
        "BinaryCrossentropy()",
        "Hinge()",
        "R2Score()",
        "RootMeanSquaredError()",
        "BinaryAccuracy()",
        "AUC()",
    ],
)
def test_one_number_for_each_row_is_a_row_to_metrics_of_keras(make, metric):
    """Of labels and predictions without a second axis, Keras' metrics take all rows for the values of one."""
    labels, predictions = rows_of("one-dimensional")
    metrics = make(returning(f"{{'m': keras.metrics.{metric}}}"))
    merged = merge_states(states_of(metrics, labels, predictions, [0, 13, 14, 47, 60]))
    whole = make(returning(f"{{'m': keras.metrics.{metric}}}"))._metrics["m"]  # a new object of Keras
    whole.update_state(labels[:, np.newaxis], predictions[:, np.newaxis])
    assert metrics.conclude(merged) == {"m": near(float(whole.result()), 1000, size=1.0)}


def test_another_worker_concludes(make):
    """A worker that has never evaluated a task gets the same result from the sum."""
    labels, predictions = rows_of("one-hot")
    source = returning("{'f1': keras.metrics.F1Score(average=None)}")
    one = make(source)
    merged = merge_states(states_of(one, labels, predictions, [0, 30, 60]))
    other = make(source)
    other.prepare(tf.constant(labels[:5]), tf.constant(predictions[:5]))
    result = other.conclude(merged)
    assert list(result) == ["f1_0", "f1_1", "f1_2", "f1_3"]
    assert result == one.conclude(merged)


def test_functions_of_one_value_per_row_are_means_over_rows(make):
    metrics = make(
        """
        def eval_metrics_fn():
            return {"error": lambda labels, predictions: tf.abs(labels - predictions)[:, 0]}
        """
    )
    labels, predictions = rows_of("values")
    merged = merge_states(states_of(metrics, labels, predictions, [0, 10, 60]))
    assert metrics.conclude(merged) == {"error": near(np.abs(labels - predictions).mean(), MEAN)}


@pytest.mark.parametrize(
    "source",
    [
        """
        def eval_metrics_fn():
            return {"error": lambda labels, predictions: tf.reduce_mean(labels - 2 * predictions)}
        """,
        """
        def eval_metrics_fn():
            return {"error": lambda predictions, labels: tf.reduce_mean(labels - 2 * predictions)}
        """,
        """
        def eval_metrics_fn(predictions, labels):
            return {"error": tf.reduce_mean(labels - 2 * predictions)}
        """,
    ],
)
def test_functions_of_one_value_for_all_rows_are_weighed_by_rows(make, source):
    """60 rows in minibatches of 7 leave short last ones, which must not weigh as much as the others."""
    metrics = make(source)
    labels, predictions = rows_of("values")
    merged = merge_states(states_of(metrics, labels, predictions, [0, 10, 60]))
    expected = (labels - 2 * predictions).mean()
    assert metrics.conclude(merged) == {
        "error": near(expected, MEAN, size=np.abs(labels - 2 * predictions).mean())
    }


def test_a_function_that_is_no_sum_is_still_a_mean_over_minibatches(make):
    metrics = make(
        """
        def eval_metrics_fn():
            return {"top": lambda labels, predictions: tf.reduce_max(predictions)}
        """
    )
    labels, predictions = rows_of("values")
    merged = merge_states(states_of(metrics, labels, predictions, [0, 10, 60]))
    minibatches = [predictions[0:7], predictions[7:10], *np.split(predictions[10:], range(7, 50, 7))]
    expected = np.average([part.max() for part in minibatches], weights=[len(part) for part in minibatches])
    assert metrics.conclude(merged) == {"top": near(expected, MEAN)}


def test_without_metrics_there_is_the_loss(make):
    metrics = make()
    labels, predictions = rows_of("values")
    merged = merge_states(states_of(metrics, labels, predictions, [0, 60]))
    expected = np.square(labels - predictions).mean()
    assert metrics.conclude(merged) == {"loss": near(expected, MEAN)}


def test_metrics_of_several_outputs(make):
    metrics = make(
        """
        def eval_metrics_fn():
            return {
                "click": {"auc": keras.metrics.AUC(), "mean": lambda labels, predictions: predictions[:, 0]},
                "price": {"mae": keras.metrics.MeanAbsoluteError()},
            }
        """
    )
    (clicks, p_click), (prices, p_price) = rows_of("binary"), rows_of("values")
    labels = {"click": tf.constant(clicks), "price": tf.constant(prices)}
    predictions = {"click": tf.constant(p_click), "price": tf.constant(p_price)}
    metrics.prepare(labels, predictions)
    metrics.update(labels, predictions)
    result = metrics.conclude(metrics.state())
    assert list(result) == ["click_auc", "click_mean", "price_mae"]
    assert result["click_mean"] == near(p_click.mean(), MEAN)
    assert result["price_mae"] == near(np.abs(prices - p_price).mean(), MEAN)


def test_updates_work_in_a_traced_function(make):
    metrics = make(returning("{'f1': keras.metrics.F1Score(average='micro'), 'auc': keras.metrics.AUC()}"))
    labels, predictions = map(tf.constant, rows_of("one-hot"))
    metrics.prepare(labels, predictions)
    metrics.update(labels, predictions)
    eager = metrics.state()
    metrics.reset()
    tf.function(metrics.update)(labels, predictions)
    for name, parts in metrics.state().items():
        for part, expected in zip(parts, eager[name], strict=True):
            assert np.asarray(part) == near(expected, MEAN)


# ---------------------------------------------------------------- what cannot be added up


MAXIMUM = """
class Top(keras.metrics.Metric):
    def __init__(self):
        super().__init__()
        self.top = self.add_variable((), "zeros", name="top")
    def update_state(self, labels, predictions, sample_weight=None):
        self.top.assign(tf.maximum(self.top.value, tf.reduce_max(predictions)))
    def result(self):
        return self.top

def eval_metrics_fn():
    return {"good": keras.metrics.MeanSquaredError(), "top": Top()}
"""


def test_a_maximum_is_named_before_training(make):
    with pytest.raises(ModelError, match=r'metric "top" \(Top\) cannot be added up over tasks: two halves'):
        make(MAXIMUM).prepare(*map(tf.constant, rows_of("values")))


def test_a_metric_without_variables_is_named(make):
    source = MAXIMUM.replace('self.add_variable((), "zeros", name="top")', "None").replace(
        "self.top.assign(tf.maximum(self.top.value, tf.reduce_max(predictions)))", "pass"
    )
    with pytest.raises(ModelError, match=r'metric "top" .*: it has no variables'):
        make(source).prepare(*map(tf.constant, rows_of("values")))


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def eval_metrics_fn():\n    return [1]\n", r"eval_metrics_fn\(\) returned list, not a dict"),
        ("def eval_metrics_fn():\n    return {'m': 'accuracy'}\n", r'metric "m" is str'),
        (
            "def eval_metrics_fn():\n    f = lambda labels, predictions: 1.0\n"
            "    return {'a': {'b_c': f}, 'a_b': {'c': f}}\n",
            r'two metrics are called "a_b_c"',
        ),
        ("def eval_metrics_fn():\n    raise KeyError('x')\n", r"eval_metrics_fn\(\) raised KeyError: x"),
    ],
)
def test_what_eval_metrics_fn_may_not_return(make, source, message):
    with pytest.raises(ModelError, match=message):
        make(source)


def test_an_output_that_the_model_does_not_have(make):
    metrics = make(returning("{'price': {'mae': keras.metrics.MeanAbsoluteError()}}"))
    with pytest.raises(ModelError, match=r'for output "price", but the model returns \[.click.\]'):
        metrics.prepare({"click": tf.zeros([2, 1])}, {"click": tf.zeros([2, 1])})


def test_a_metric_that_raises_has_its_frame(make):
    metrics = make(
        """
        def wrong(labels, predictions):
            return labels.nothing

        def eval_metrics_fn():
            return {"wrong": wrong}
        """
    )
    with pytest.raises(
        UserCodeError, match=r"a metric of eval_metrics_fn\(\) raised AttributeError"
    ) as error:
        metrics.prepare(*map(tf.constant, rows_of("values")))
    assert error.value.where.endswith("in wrong")


def test_the_state_of_other_metrics_is_refused(make):
    metrics = make(returning("{'auc': keras.metrics.AUC()}"))
    metrics.prepare(*map(tf.constant, rows_of("binary")))
    with pytest.raises(LocalProtocolError, match="are not of the metrics"):
        metrics.conclude({"other": []})
    with pytest.raises(LocalProtocolError, match="other shapes"):
        metrics.conclude({"auc": [np.zeros(3)]})


# ---------------------------------------------------------------- adding, without TensorFlow


def test_states_are_added_in_order_in_float64():
    parts = [{"m": [np.array([x]), np.array(2.0)]} for x in (1e16, 1.0, -1e16, 1.0)]
    merged = merge_states(parts)
    assert merged["m"][0].tolist() == [((1e16 + 1.0) - 1e16) + 1.0]
    assert merged["m"][1] == 8.0
    assert parts[0]["m"][0].tolist() == [1e16]  # not added to in place
    assert merge_states([]) == {}


def test_states_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="cannot be added"):
        merge_states([{"a": []}, {"b": []}])
    with pytest.raises(ValueError, match="differ in shape"):
        merge_states([{"a": [np.zeros(2)]}, {"a": [np.zeros(3)]}])
