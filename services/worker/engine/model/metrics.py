"""The user's metrics as sums that can be added up over tasks.

A metric's state is the list of its variables.  Tasks are evaluated apart, their states added by the
master, and the result computed from the sum by the Keras metric.  That is right only for metrics whose
variables are sums; the others are found out before training, on two halves of a minibatch.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from edlz.services.errors import LocalProtocolError, ModelError
from edlz.services.protocol.messages import MetricState
from edlz.services.worker.engine.contract.loss_function import LossFunction, takes_predictions_first
from edlz.services.worker.engine.contract.model_module import ModelContract
from edlz.services.worker.engine.feed.batch_structure import records_in
from edlz.services.worker.engine.tensorflow.autograph import call_users
from edlz.services.worker.engine.tensorflow.backend import keras, tf

__all__ = ["MetricSet"]

_RTOL, _ATOL = 1e-3, 1e-4  # float32 sums in two orders

Update = Callable[[Any, Any], None]  # labels, predictions


class MetricSet:
    """All metrics of a model.

    Parameters
    ----------
    contract : ModelContract
        `eval_metrics_fn() -> {name: metric}` or `-> {output: {name: metric}}`, where a metric is an object of
        Keras, or a function of (labels, predictions) that gives one value per row, or one for all rows; or
        the older `eval_metrics_fn(predictions, labels) -> {name: value}`.  Without one: the loss.

    with_loss : bool
        Measure the loss too, if no metric is called so.

    Raises
    ------
    ModelError
        If the code raises, or gives something else.
    """

    def __init__(self, contract: ModelContract, *, with_loss: bool = False) -> None:
        self._code = contract.code
        self._metrics: dict[str, Any] = {}
        self._updates: list[Update] = []
        self._of_functions: set[str] = set()  # means over minibatches, whatever their function is
        self._older: Any = None
        if contract.metrics is None:
            self._add("loss", contract.loss)
        elif callable(contract.metrics) and _required_count(contract.metrics) >= 2:
            self._older = contract.metrics
        else:
            self._add_all(contract.metrics)
        if with_loss and "loss" not in self._metrics:
            self._add("loss", contract.loss)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._metrics)

    def prepare(self, labels: Any, predictions: Any) -> None:
        """Make the metrics' variables, and check that their states can be added up.

        Parameters
        ----------
        labels, predictions : structures of eager tensors, of one minibatch

        Raises
        ------
        ModelError
            If the code raises, or a metric's state is not a sum over rows.
        """
        states = []
        count = _record_count(labels, predictions)
        parts = [slice(0, count // 2), slice(count // 2, count), slice(0, count)] if count > 1 else []
        for part in parts:
            self.reset()
            self.update(*tf.nest.map_structure(lambda tensor, part=part: tensor[part], (labels, predictions)))
            states.append(self.state())
        if not parts:
            self.update(labels, predictions)
        self.reset()
        for name, metric in self._metrics.items():
            if not metric.variables:
                raise self._not_additive(name, metric, "it has no variables")
            if name in self._of_functions or not states:
                continue
            for a, b, whole in zip(*(state[name] for state in states), strict=True):
                if not np.allclose(a + b, whole, rtol=_RTOL, atol=_ATOL, equal_nan=True):
                    raise self._not_additive(name, metric, "two halves do not add up to the whole")

    def reset(self) -> None:
        for metric in self._metrics.values():
            metric.reset_state()

    def update(self, labels: Any, predictions: Any) -> None:
        """Add one minibatch; eagerly, or in a graph that is being traced.

        Raises
        ------
        ModelError
            If the code raises.
        """
        with self._code.running("a metric of eval_metrics_fn()"):
            if self._older is not None:
                count = records_in(labels)
                for name, value in dict(call_users(self._older, predictions, labels)).items():
                    _update_mean(self._mean(name), value, count)
            for update in self._updates:
                update(labels, predictions)

    def state(self) -> MetricState:
        """Return the present state: per metric its variables, as float64."""
        return {
            name: [np.asarray(v.numpy(), np.float64) for v in metric.variables]
            for name, metric in self._metrics.items()
        }

    def conclude(self, states: MetricState) -> dict[str, float]:
        """Return the metrics of a summed state.  Results of several figures are numbered: `f1_0`, `f1_1`.

        Raises
        ------
        LocalProtocolError
            If the state is not one of these metrics.
        """
        if states.keys() != self._metrics.keys():
            raise LocalProtocolError(
                f"states of {sorted(states)} are not of the metrics {sorted(self._metrics)}"
            )
        results: dict[str, float] = {}
        for name, metric in self._metrics.items():
            if [part.shape for part in states[name]] != [tuple(v.shape) for v in metric.variables]:
                raise LocalProtocolError(f"the state of metric {name!r} has other shapes than the metric")
            for variable, part in zip(metric.variables, states[name], strict=True):
                variable.assign(part.astype(variable.dtype))
            with self._code.running(f"metric {name!r}"):
                results.update(_figures(name, metric.result()))
        self.reset()
        return results

    def _add_all(self, function: Any) -> None:
        metrics = function
        if callable(function):
            with self._code.running("eval_metrics_fn()", function):
                metrics = function()
        if not isinstance(metrics, Mapping):
            raise ModelError(
                f"eval_metrics_fn() returned {type(metrics).__name__}, not a dict",
                "return {name: metric}, or {output: {name: metric}}",
            )
        for name, metric in metrics.items():
            if isinstance(metric, Mapping):
                for inner, part in metric.items():
                    self._add(f"{name}_{inner}", part, output=name)
            else:
                self._add(str(name), metric)

    def _add(self, name: str, metric: Any, output: Any = None) -> None:
        if isinstance(metric, type) and issubclass(metric, keras.metrics.Metric):
            metric = metric()
        if name in self._metrics:
            raise ModelError(f'two metrics are called "{name}"', "rename one in eval_metrics_fn()")
        if isinstance(metric, keras.metrics.Metric):
            self._metrics[name] = metric
            is_of_keras = type(metric).__module__.startswith("keras.")
            update = (
                _of_rows(metric.update_state) if is_of_keras else partial(call_users, metric.update_state)
            )
        elif callable(metric):
            update = _mean_of(self._mean(name), metric)
        else:
            raise ModelError(
                f'metric "{name}" is {type(metric).__name__}',
                "use an object of keras.metrics, or a function of (labels, predictions)",
            )
        self._updates.append(update if output is None else _of_output(output, update))

    def _mean(self, name: str) -> Any:
        if name not in self._metrics:
            self._metrics[name] = keras.metrics.Mean(name=name)
            self._of_functions.add(name)
        return self._metrics[name]

    def _not_additive(self, name: str, metric: Any, why: str) -> ModelError:
        return ModelError(
            f'metric "{name}" ({type(metric).__name__}) cannot be added up over tasks: {why}',
            "keep sums and counts in its variables, or give a function that returns one value per row",
        )


def _mean_of(mean: Any, function: Any) -> Update:
    is_swapped = not isinstance(function, LossFunction) and takes_predictions_first(function)

    def update(labels: Any, predictions: Any) -> None:
        first, second = (predictions, labels) if is_swapped else (labels, predictions)
        # A loss is ours, around the user's.
        is_ours = isinstance(function, LossFunction)
        value = function(first, second) if is_ours else call_users(function, first, second)
        _update_mean(mean, value, records_in(labels))

    return update


def _update_mean(mean: Any, value: Any, count: Any) -> None:
    """A figure for the whole minibatch counts once per row, or the short last one would weigh too much."""
    value = tf.cast(tf.convert_to_tensor(value), tf.float32)
    if value.shape.rank == 0:
        mean.update_state(value, sample_weight=tf.cast(count, tf.float32))
    else:
        mean.update_state(value)


def _of_rows(update: Update) -> Update:
    """The update of a metric of Keras, which takes the last axis for values of one row: also if it is the rows'."""

    def update_rows(labels: Any, predictions: Any) -> None:
        if all(isinstance(part, tf.Tensor) and part.shape.rank == 1 for part in (labels, predictions)):
            labels, predictions = labels[:, tf.newaxis], predictions[:, tf.newaxis]
        update(labels, predictions)

    return update_rows


def _of_output(output: Any, update: Update) -> Update:
    """The update with one of several outputs; labels may be shared by all."""

    def update_one(labels: Any, predictions: Any) -> None:
        own = labels[output] if isinstance(labels, Mapping) and output in labels else labels
        if not isinstance(predictions, Mapping) or output not in predictions:
            has = sorted(predictions) if isinstance(predictions, Mapping) else type(predictions).__name__
            raise ModelError(
                f'eval_metrics_fn() has metrics for output "{output}", but the model returns {has}',
                "name outputs as custom_model() does: keras.Model(inputs, {name: output})",
            )
        update(own, predictions[output])

    return update_one


def _record_count(labels: Any, predictions: Any) -> int:
    """Rows that can be cut in halves; 0 if something in there cannot."""
    leaves = tf.nest.flatten((labels, predictions))
    if not all(isinstance(leaf, tf.Tensor) and leaf.shape.rank for leaf in leaves):
        return 0
    return int(leaves[0].shape[0]) if len({leaf.shape[0] for leaf in leaves}) == 1 else 0


def _required_count(function: Callable[..., Any]) -> int:
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is inspect.Parameter.empty for p in parameters)


def _figures(name: str, result: Any) -> dict[str, float]:
    if isinstance(result, Mapping):
        return {f"{name}_{key}": _shortest(value) for key, value in result.items()}
    values = np.asarray(keras.ops.convert_to_tensor(result).numpy())
    if values.ndim == 0:
        return {name: _shortest(values)}
    return {f"{name}_{place}": _shortest(value) for place, value in enumerate(values.ravel())}


def _shortest(value: Any) -> float:
    """The float with the fewest digits that is the same float32: 0.77, not 0.7699999809265137."""
    return float(str(np.float32(value)))
