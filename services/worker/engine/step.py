"""The training step and the forward pass, each traced once.

A step is a function of (vectors, rows, seed, minibatch) and of nothing else: it assigns the vectors and the
seeds before it reads a variable, so what this process computed before leaves no trace in the gradient.

For layers that compute in float16 the loss is scaled, so that small gradients do not become 0, and the gradient is scaled
back.  Keras keeps a scale that falls when a gradient overflows, and leaves that step out.  Here the step is computed again with
a smaller scale, from the same first one each time: the gradient remains a function of the above, and no step is left out.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from keras.src.random.seed_generator import global_seed_generator

from edlz.services.worker.engine.contract.model_module import ModelContract
from edlz.services.worker.engine.feed.batch_structure import record_count, shown, split_element
from edlz.services.worker.engine.model.keras_model import BuiltModel
from edlz.services.worker.engine.model.lookups import inlined_functions, serving
from edlz.services.worker.engine.model.vectors import assign, flatten, shared_array, shared_tensor
from edlz.services.worker.engine.rows.ids_function import IdsFunction
from edlz.services.worker.engine.rows.row_inputs import RowInputs
from edlz.services.worker.engine.tensorflow.backend import keras, tf
from edlz.services.worker.engine.tensorflow.random_ops import stateful_random_ops, stateless
from edlz.services.worker.engine.tensorflow.traced_function import TracedFunction, flat_tensors, packed
from edlz.services.worker.engine.user_code.advice import advice_for
from edlz.services.worker.engine.user_code.user_code import TaskError, message_of, told

__all__ = ["Forward", "Gradient", "LoadedVectors", "TrainingStep", "named_ranges"]

logger = logging.getLogger(__name__)

_OWN_DRAWS = 2**32  # away from the seeds of Keras' generators, which follow the minibatch's
_SCALE_STEP = 8.0  # between one loss scale and the next; powers of 2 change no bit of a gradient that fits
_NO_STATE = np.empty(0, np.float32)
_NO_COUNTERS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Gradient:
    """What a training step gives; arrays are read-only and keep TensorFlow's memory alive.

    Attributes
    ----------
    dense : ndarray, shape (layout.dense.size,), float32, padding 0
    state : ndarray, shape (layout.state.size,), float32: the state after the step
    counters : ndarray, shape (layout.counters.size,), int64: likewise
    loss : float, regularisation included
    records : int
    row_gradients : list of float32 tensors, shape (n, dim)
        For each block of tables, one for each id that is looked up.
    """

    dense: npt.NDArray[np.float32]
    state: npt.NDArray[np.float32]
    counters: npt.NDArray[np.int64]
    loss: float
    records: int
    row_gradients: list[Any]


class LoadedVectors:
    """The vectors of a model version as tensors that share the caller's memory, those of no length left out.

    Parameters
    ----------
    dense, state : ndarray, float32; counters : ndarray, int64
        Padded as the layout says and 64-byte aligned.
    """

    def __init__(
        self,
        dense: npt.NDArray[np.float32],
        state: npt.NDArray[np.float32],
        counters: npt.NDArray[np.int64],
    ) -> None:
        self.tensors = tuple(shared_tensor(vector) for vector in (dense, state, counters) if vector.size)


class TrainingStep:
    """Gradients of one model.

    Parameters
    ----------
    ids : IdsFunction or None
        The lookups that it makes; None for a model without tables.
    loss_scale : float, optional
        What the loss is multiplied by at first; None for no scaling.

    Raises
    ------
    ModelError
        If the code raises while it is traced.
    """

    def __init__(
        self,
        contract: ModelContract,
        built: BuiltModel,
        spec: Any,
        ids: IdsFunction | None = None,
        loss_scale: float | None = None,
    ) -> None:
        self._contract, self._built = contract, built
        self._scales = _falling_scales(loss_scale) if loss_scale else ()
        self._rows = RowInputs(built.tables, ids)
        layout = built.layout
        self._has_state, self._has_counters = layout.state.size > 0, layout.counters.size > 0
        self._dense = [v.value for v in built.dense]
        # Draws without a seed of their own use this one; it is a thread's, but the trace keeps it.
        self._global_seed = global_seed_generator().state
        self._vector_count = len(_vector_specs(built))
        self._spec, self._element_count = spec, len(flat_tensors(spec))
        specs = [*flat_tensors(spec), tf.TensorSpec([], tf.int64), *_vector_specs(built), *self._rows.specs]
        if self._scales:
            specs.append(tf.TensorSpec([], tf.float32))
        self._function = TracedFunction.trace(self._run, specs)
        for op in stateful_random_ops(self._function.graph):
            logger.warning(
                "op=%s draws by counting its calls: gradients depend on what this worker ran before; "
                "use keras.random or keras.layers in the model",
                op,
            )

    def __call__(self, element: Any, seed: int, vectors: LoadedVectors, rows: Sequence[Any] = ()) -> Gradient:
        """Return the gradient of one minibatch.

        Parameters
        ----------
        element : object
            What the feed yields, as tensors.
        seed : int, in [0, 2**62)
            What random layers draw from.
        rows : sequence of tensors
            Those of the tables, and where in them the minibatch's ids are: as `RowInputs.specs`.

        Raises
        ------
        tf.errors.OpError
            If a kernel refuses the values.
        """
        loss, dense, state, counters, *row_gradients = self._outputs(
            [*flat_tensors(element), tf.constant(seed, tf.int64), *vectors.tensors, *rows]
        )
        return Gradient(
            dense=shared_array(dense),
            state=shared_array(state) if self._has_state else _NO_STATE,
            counters=shared_array(counters) if self._has_counters else _NO_COUNTERS,
            loss=float(loss),
            records=record_count(element),
            row_gradients=row_gradients,
        )

    def _outputs(self, inputs: list[Any]) -> Sequence[Any]:
        """Run the step, with ever smaller scales of the loss until the gradient does not overflow."""
        if not self._scales:
            return self._function.flat(inputs)
        for scale in self._scales:
            loss, is_finite, *others = self._function.flat([*inputs, tf.constant(scale, tf.float32)])
            if is_finite or not np.isfinite(loss):
                break
        return [loss, *others]

    def explain(
        self, task: int, index: int, cause: Exception, element: Any, rows: Sequence[Any] = ()
    ) -> TaskError:
        """Return the error of a minibatch that made the step raise, with the function that is at fault.

        Runs the model and the loss once more, op by op: then Python's own traceback has the frame.
        """
        code, (features, labels, weights) = self._contract.code, split_element(element)
        try:
            with _served(self._built, self._rows, rows), named_ranges():
                predictions = self._built.model(features, training=True)
        except Exception as e:
            return code.task_error(task, index, e)
        try:
            self._contract.loss(labels, predictions, weights)
        except Exception as e:
            error = code.task_error(task, index, e, self._contract.loss.function)
            shapes = f"labels {shown(labels)}, predictions {shown(predictions)}"
            return TaskError(
                task, index, f"{error.error} (loss(): {shapes})", where=error.where, traceback=error.traceback
            )
        return code.task_error(task, index, cause)

    def _run(self, *tensors: Any) -> Any:
        code, built = self._contract.code, self._built
        features, labels, weights = split_element(packed(self._spec, tensors[: self._element_count]))
        seed, *inputs = tensors[self._element_count :]
        scale = inputs.pop() if self._scales else None
        vectors, rows = inputs[: self._vector_count], inputs[self._vector_count :]
        _assign_all(built, vectors)
        self._assign_seeds(seed)
        with stateless(seed + _OWN_DRAWS), tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self._dense)
            with (
                code.running("the model's call()"),
                _served(built, self._rows, rows, tape.watch) as served,
            ):
                predictions = built.model(features, training=True)
            with code.running("loss()", self._contract.loss.function):
                loss = self._contract.loss(labels, predictions, weights)
            total = tf.add_n([loss, *[tf.cast(extra, tf.float32) for extra in built.model.losses]])
            scaled = total if scale is None else total * scale
        gradients = tape.gradient(scaled, [*self._dense, *served], unconnected_gradients="zero")
        of_rows = [tf.convert_to_tensor(part) for part in gradients[len(self._dense) :]]
        dense = flatten(gradients[: len(self._dense)], built.layout.dense, tf.float32)
        if scale is None:
            return total, dense, *self._assigned(), *of_rows
        dense, *of_rows = (part / scale for part in (dense, *of_rows))
        is_finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(part)) for part in (dense, *of_rows)])
        return total, is_finite, dense, *self._assigned(), *of_rows

    def _assign_seeds(self, seed: Any) -> None:
        zero = tf.zeros_like(seed)
        for place, state in enumerate(self._built.seeds):
            state.assign(tf.cast(tf.stack([seed + place, zero]), state.dtype))
        # Keras multiplies this one's state, so it is kept small.
        self._global_seed.assign(tf.cast(tf.stack([seed // 2**31, zero]), self._global_seed.dtype))

    def _assigned(self) -> tuple[Any, Any]:
        """State and counters; read after the call in the same trace, they are what the call assigned."""
        built, layout = self._built, self._built.layout
        state = [tf.identity(v.value) for v in built.state]
        counters = [tf.identity(v.value) for v in built.counters]
        return (
            flatten(state, layout.state, tf.float32) if state else tf.constant(0.0),
            flatten(counters, layout.counters, tf.int64) if counters else tf.constant(0.0),
        )


class Forward:
    """The forward pass in inference mode: (element, vectors) -> (labels, predictions).

    Parameters
    ----------
    ids : IdsFunction or None
        The lookups that it makes; None for a model without tables.
    then : callable, optional
        (labels, predictions) -> whatever the pass should return instead, traced with it.

    Raises
    ------
    ModelError
        If the code raises while it is traced.
    """

    def __init__(
        self,
        contract: ModelContract,
        built: BuiltModel,
        spec: Any,
        ids: IdsFunction | None = None,
        then: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        self._contract, self._built, self._then = contract, built, then
        self._rows = RowInputs(built.tables, ids)
        self._vector_count = len(_vector_specs(built))
        self._spec, self._element_count = spec, len(flat_tensors(spec))
        specs = [*flat_tensors(spec), *_vector_specs(built), *self._rows.specs]
        self._function = TracedFunction.trace(self._run, specs)

    def __call__(self, element: Any, vectors: LoadedVectors, rows: Sequence[Any] = ()) -> Any:
        return self._function([*flat_tensors(element), *vectors.tensors, *rows])

    def first(self, what: str, element: Any, vectors: LoadedVectors, rows: Sequence[Any] = ()) -> Any:
        """Return the pass of the first minibatch of all.

        Raises
        ------
        UserCodeError
            If the values are refused; `what` is what the records are called.
        """
        try:
            return self(element, vectors, rows)
        except Exception as e:
            shown = self._explain(e, element, rows)
            text = f"the first {what} records: {told(shown)}"
            raise self._contract.code.error(shown, text, advice_for(message_of(shown))) from e

    def of_task(
        self, task: int, index: int, element: Any, vectors: LoadedVectors, rows: Sequence[Any] = ()
    ) -> Any:
        """Return the pass of a task's minibatch.

        Raises
        ------
        TaskError
            If the user's code raises on it.
        """
        try:
            return self(element, vectors, rows)
        except Exception as e:
            shown = self._explain(e, element, rows)
            raise self._contract.code.task_error(task, index, shown) from e

    def _explain(self, cause: Exception, element: Any, rows: Sequence[Any] = ()) -> Exception:
        """Return the error of a minibatch that made the pass raise, from the user's own line if that can be had.

        Runs the model once more, op by op, and then what follows.
        """
        features, labels, _ = split_element(element)
        try:
            with _served(self._built, self._rows, rows), named_ranges():
                predictions = self._built.model(features, training=False)
            if self._then is not None:
                self._then(labels, predictions)
        except Exception as e:
            return e
        return cause

    def _run(self, *tensors: Any) -> Any:
        features, labels, _ = split_element(packed(self._spec, tensors[: self._element_count]))
        inputs = tensors[self._element_count :]
        vectors, rows = inputs[: self._vector_count], inputs[self._vector_count :]
        _assign_all(self._built, vectors)
        with (
            self._contract.code.running("the model's call()", self._contract.model_definition),
            _served(self._built, self._rows, rows),
        ):
            predictions = self._built.model(features, training=False)
        return (labels, predictions) if self._then is None else self._then(labels, predictions)


@contextmanager
def named_ranges() -> Iterator[None]:
    """While this lasts, plain embeddings that are called eagerly check their ids, and say who they are."""
    cls = keras.layers.Embedding
    original = cls.call

    def call(self: Any, inputs: Any) -> Any:
        _check(self, inputs)
        return original(self, inputs)

    cls.call = call
    try:
        yield
    finally:
        cls.call = original


@contextmanager
def _served(
    built: BuiltModel,
    inputs: RowInputs,
    rows: Sequence[Any],
    watch: Callable[[Any], None] = lambda rows: None,
) -> Iterator[list[Any]]:
    """Let the model's tables be served from these inputs; yield the rows that are watched."""
    if not built.tables:
        yield []
        return
    source, watched = inputs.source(rows, watch)
    with serving(built.tables, source), inlined_functions():
        yield watched
    source.finish()


def _falling_scales(first: float) -> tuple[float, ...]:
    """Return the scales that are tried one after another, down to 1."""
    scales = [first]
    while scales[-1] > 1.0:
        scales.append(max(1.0, scales[-1] / _SCALE_STEP))
    return tuple(scales)


def _vector_specs(built: BuiltModel) -> list[Any]:
    layout = built.layout
    sizes = [
        (layout.dense.size, tf.float32),
        (layout.state.size, tf.float32),
        (layout.counters.size, tf.int64),
    ]
    return [tf.TensorSpec([size], dtype) for size, dtype in sizes if size]


def _assign_all(built: BuiltModel, vectors: Sequence[Any]) -> None:
    given = iter(vectors)
    if built.dense:
        assign(built.dense, next(given), built.layout.dense)
    # Copies: the step changes these variables, perhaps in place, and the vectors are the caller's.
    if built.state:
        assign(built.state, tf.raw_ops.DeepCopy(x=next(given)), built.layout.state)
    if built.counters:
        assign(built.counters, tf.raw_ops.DeepCopy(x=next(given)), built.layout.counters)


def _check(layer: Any, inputs: Any) -> None:
    flat = inputs.values if isinstance(inputs, tf.SparseTensor) else getattr(inputs, "flat_values", inputs)
    if not isinstance(flat, tf.Tensor) or not hasattr(flat, "numpy"):
        return
    ids, size = flat.numpy(), layer.input_dim
    wrong = ids[(ids < -size) | (ids >= size)]  # -1 is the last row
    if wrong.size:
        raise ValueError(f"layer {layer.name}: id {np.ravel(wrong)[0]} is not within [0, {size})")
