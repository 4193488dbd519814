"""The user's model, built the same in every process, and its variables sorted by what becomes of them.

Four kinds: trained ones (the dense vector), statistics that a step assigns (the state vector), integers
that it assigns (the counters), and all others, which stay as they were built: frozen layers, vocabularies,
seeds.  What a step assigns is read from its trace, not guessed from layer types.
"""

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from keras.src.random.seed_generator import global_seed_generator
from tensorflow.python.framework import auto_control_deps_utils

from edlz.services.configuration.nearest import nearest
from edlz.services.errors import ModelError
from edlz.services.protocol.layout import Layout
from edlz.services.worker.engine.contract.model_module import ModelContract
from edlz.services.worker.engine.feed.batch_structure import shown, split_element, whole_shape
from edlz.services.worker.engine.model.embedding_replacement import replacing
from edlz.services.worker.engine.model.keras_features import check_features
from edlz.services.worker.engine.model.lookups import without_rows
from edlz.services.worker.engine.model.tables import find_tables
from edlz.services.worker.engine.model.vectors import initial_vector, vector_layout
from edlz.services.worker.engine.tensorflow.autograph import to_be_traced
from edlz.services.worker.engine.tensorflow.backend import keras, tf
from edlz.services.worker.engine.user_code.advice import advice_for
from edlz.services.worker.engine.user_code.user_code import UserCodeError, message_of

__all__ = ["BuiltModel", "build_model", "start_from"]

logger = logging.getLogger(__name__)

Vectors = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class BuiltModel:
    """A model with its variables sorted; all lists are of Keras variables, in the model's order.

    Attributes
    ----------
    seeds : tuple of object
        The states of its seed generators, (2,) int64 each.
    tables : tuple of object
        The layers whose rows partitions keep.
    predictions : structure of specs of what the model gives
    """

    model: Any
    dense: tuple[Any, ...]
    state: tuple[Any, ...]
    counters: tuple[Any, ...]
    seeds: tuple[Any, ...]
    layout: Layout
    tables: tuple[Any, ...] = ()
    predictions: Any = None

    def initial_vectors(self) -> Vectors:
        """Return dense (float32), state (float32) and counters (int64) as they are now, padded and aligned."""
        return (
            initial_vector(self.dense, self.layout.dense, np.float32),
            initial_vector(self.state, self.layout.state, np.float32),
            initial_vector(self.counters, self.layout.counters, np.int64),
        )


def start_from(seed: int) -> None:
    """Forget what Keras built and drew so far, so that what is built next depends on `seed` alone.

    Initial values are then those of `keras.utils.set_random_seed(seed)` right before `custom_model()`.  The
    dtype policy stays: a module may have set it while it was imported.
    """
    policy = keras.config.dtype_policy()
    keras.utils.clear_session()
    keras.config.set_dtype_policy(policy)
    keras.utils.set_random_seed(seed % 2**32)


def build_model(
    contract: ModelContract,
    spec: Any,
    minibatch_size: int,
    sample: Callable[[], Any],
    threshold_bytes: int = sys.maxsize,
    *,
    has_labels: bool = True,
) -> BuiltModel:
    """Build the user's model and find out what its training step does to its variables.

    Parameters
    ----------
    spec : tuple of TensorSpec structures
        The feed's element_spec: features, labels and possibly sample weights.
    sample : callable
        () -> one minibatch; asked for only by a model that must see data to be built: sparse, ragged,
        or of a width that the feed leaves open.
    threshold_bytes : int
        Plain embeddings above this size become tables.
    has_labels : bool
        Whether there is a loss to be looked at.

    Raises
    ------
    ModelError
        If the code raises, labels and predictions do not fit, or a variable is of a kind that cannot be
        trained here.
    """
    with replacing(threshold_bytes), without_rows():
        model = contract.build()
        check_features(contract, model)
        _make_variables(contract, model, spec, sample)
        tables, assigned, predictions = _traced(contract, model, minibatch_size, spec, has_labels=has_labels)
    seeds = _seed_states(model)
    with contract.code.blaming(contract.model_definition):
        parts = _parts(model, assigned, seeds, has_tables=bool(tables))
    layout = Layout(**{name: vector_layout(variables) for name, variables in parts.items()})
    return BuiltModel(model, **parts, seeds=seeds, layout=layout, tables=tables, predictions=predictions)


def _traced(
    contract: ModelContract, model: Any, minibatch_size: int, spec: Any, *, has_labels: bool
) -> tuple[tuple[Any, ...], set[int], Any]:
    """Return the model's tables, the handles of what a step assigns, and the specs of its predictions."""
    while True:
        tables = find_tables(model)
        traced = _TracedLoss(contract, model, minibatch_size, has_labels=has_labels)
        assigned = traced.assigned_by(spec)
        # The trace may have met a use of a table that makes it a weight again.
        if find_tables(model) == tables:
            return tables, assigned, traced.predictions


def _make_variables(contract: ModelContract, model: Any, spec: Any, sample: Callable[[], Any]) -> None:
    """Functional models have their variables; others get them by a call that computes nothing."""
    if model.built and all(layer.built for layer in model._flatten_layers()):
        return
    features = split_element(spec)[0]
    is_known = all(_is_known(leaf) for leaf in tf.nest.flatten(features))
    given = tf.nest.map_structure(_symbolic, features) if is_known else split_element(sample())[0]
    with _calling(contract, model, given):
        model(given)


def _is_known(spec: Any) -> bool:
    """Whether a tensor of this spec is known well enough to make variables for it."""
    return isinstance(spec, tf.TensorSpec) and spec.shape.rank is not None and None not in spec.shape[1:]


def _symbolic(spec: Any) -> Any:
    return keras.KerasTensor(tuple(spec.shape), dtype=spec.dtype.name)


class _TracedLoss:
    """Forward pass and loss, traced to see whether they work and what they assign; never run."""

    def __init__(self, contract: ModelContract, model: Any, minibatch_size: int, *, has_labels: bool) -> None:
        self._contract, self._model = contract, model
        self._minibatch_size, self._has_labels = minibatch_size, has_labels
        self.predictions: Any = None

    def assigned_by(self, spec: Any) -> set[int]:
        """Return the ids of the handles of the variables that a training step assigns.

        Warns of those that are not the model's.
        """
        graph = to_be_traced(self._run, [spec]).get_concrete_function().graph
        if self._has_labels:
            self._check_whole_minibatch(spec)
        read_only = set(auto_control_deps_utils.get_read_only_resource_input_indices_graph(graph))
        written = {id(e) for e, inside in graph.captures if _place(graph, inside) not in read_only}
        known = {_handle(v) for v in (*self._model.variables, global_seed_generator().state)}
        for variable in graph.variables:
            if id(variable.handle) in written - known:
                logger.warning(
                    "variable=%s is assigned in a step but is not the model's: its value stays in this worker",
                    variable.name,
                )
        return written

    def _run(self, element: Any) -> Any:
        features, labels, weights = split_element(element)
        with _calling(self._contract, self._model, features):
            predictions = self._model(features, training=True)
        self.predictions = tf.nest.map_structure(tf.type_spec_from_value, predictions)
        extra = [tf.cast(loss, tf.float32) for loss in self._model.losses]
        own = self._loss(labels, predictions, weights) if self._has_labels else tf.constant(0.0)
        return tf.add_n([own, *extra])

    def _loss(self, labels: Any, predictions: Any, weights: Any) -> Any:
        code, loss = self._contract.code, self._contract.loss
        try:
            with code.blaming(loss.function):
                return loss(labels, predictions, weights)
        except ModelError:
            raise
        except Exception as e:
            raise self._loss_error(e, labels, predictions) from e

    def _check_whole_minibatch(self, spec: Any) -> None:
        """Trace the loss for a whole minibatch: shapes that cannot meet are seen only when all are known."""
        _, labels, weights = split_element(spec)
        parts = [labels, self.predictions, *([] if weights is None else [weights])]
        if not all(isinstance(leaf, tf.TensorSpec) for leaf in tf.nest.flatten(parts)):
            return
        whole = tf.nest.map_structure(self._with_rows, parts)
        traced = to_be_traced(
            lambda labels, predictions, weights=None: self._loss(labels, predictions, weights)
        )
        traced.get_concrete_function(*whole)

    def _with_rows(self, spec: Any) -> Any:
        return tf.TensorSpec(whole_shape(spec.shape, self._minibatch_size), spec.dtype)

    def _loss_error(self, cause: Exception, labels: Any, predictions: Any) -> ModelError:
        size = self._minibatch_size
        message = (
            f"loss() raised {type(cause).__name__} on the first minibatch: "
            f"labels {shown(labels, size)}, predictions {shown(predictions, size)}"
        )
        is_of_values = isinstance(cause, ValueError | tf.errors.InvalidArgumentError)
        advice = _advice_on(labels, predictions) if is_of_values else ""
        contract = self._contract
        return contract.code.error(
            cause,
            message,
            advice or advice_for(message_of(cause)),
            contract.loss.function,
            place=contract.loss_place,
            shows_cause=True,
        )


@contextmanager
def _calling(contract: ModelContract, model: Any, features: Any) -> Iterator[None]:
    """Turn what a model's call raises into a ModelError; one of names that are missing tells those that the feed has."""
    try:
        with contract.code.running("the model's call()", contract.model_definition):
            yield
    except UserCodeError as e:
        if isinstance(features, Mapping):
            raise _names_error(contract, model, features, e) from e.__cause__
        raise


def _names_error(
    contract: ModelContract, model: Any, features: Mapping[str, Any], error: UserCodeError
) -> UserCodeError:
    """Return the error of features that may lack names which the model takes; the error itself if they do not."""
    feed, taken = contract.code.place(contract.feed), _input_names(model)
    missing = [name for name in taken if name not in features]
    if missing:
        near = nearest(missing[0], [name for name in features if name not in taken])
        example = f'; is "{near[0]}" meant to be "{missing[0]}"?' if near else ""
        return UserCodeError(
            f"the model takes {_quoted(taken)} ({contract.model_place}), but feed() yields {_quoted(features)}",
            f"the keys of feed()'s features must be the names of the model's inputs{example}",
            where=feed or error.where,
            traceback=error.traceback,
        )
    if isinstance(error.__cause__, KeyError):
        advice = f"the features are {_quoted(features)}, by feed() ({feed}): use one name in both places"
        return UserCodeError(error.text, advice, where=error.where, traceback=error.traceback)
    return error


def _input_names(model: Any) -> list[str]:
    """Return what a functional model calls its inputs; nothing for other models."""
    inputs = getattr(model, "_inputs", None) or ()
    return [tensor.name for tensor in inputs]


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _check_dense(dense: Sequence[Any], assigned: set[int], has_tables: bool) -> None:
    if not dense and not has_tables:
        raise ModelError("the model has no trainable variables", "set trainable=True on the layers to train")
    for variable in dense:
        if variable.dtype != "float32":
            raise ModelError(
                f"variable {variable.path} is {variable.dtype}: trained variables must be float32",
                "for 16-bit computation use a mixed policy: it keeps variables in float32",
            )
        if _handle(variable) in assigned:
            raise ModelError(
                f"the model assigns its trainable variable {variable.path} in a step",
                "parameter servers own trainable variables: make it trainable=False, or leave that layer out",
            )
        if variable.constraint is not None:
            raise ModelError(
                f"variable {variable.path} has the constraint {type(variable.constraint).__name__}, "
                "which parameter servers do not have yet",
                "leave the constraint out, or use a regularizer",
            )


def _check_counters(counters: Sequence[Any]) -> None:
    for variable in counters:
        if np.dtype(variable.value.dtype.as_numpy_dtype).kind not in "iub":
            raise ModelError(
                f"variable {variable.path}, which a step assigns, is {variable.dtype}",
                "variables that a step assigns must be float32, integers or booleans",
            )


def _parts(
    model: Any, assigned: set[int], seeds: tuple[Any, ...], *, has_tables: bool
) -> dict[str, tuple[Any, ...]]:
    """Sort the variables of a model: what is trained, and what its steps assign beside that."""
    live = assigned - {_handle(state) for state in seeds}
    others = [v for v in model.non_trainable_variables if _handle(v) in live]
    dense = tuple(model.trainable_variables)
    _check_dense(dense, assigned, has_tables=has_tables)
    counters = tuple(v for v in others if v.dtype != "float32")
    _check_counters(counters)
    return {
        "dense": dense,
        "state": tuple(v for v in others if v.dtype == "float32"),
        "counters": counters,
    }


def _seed_states(model: Any) -> tuple[Any, ...]:
    return tuple(
        generator.state
        for layer in model._flatten_layers()
        for generator in getattr(layer, "_seed_generators", [])
    )


def _handle(variable: Any) -> int:
    """What identifies a Keras variable and the captures of it in a trace alike."""
    return id(variable.value.handle)


def _place(graph: Any, tensor: Any) -> int:
    return next(i for i, other in enumerate(graph.inputs) if other is tensor)


def _advice_on(labels: Any, predictions: Any) -> str:
    """Say what is wrong with labels and predictions whose shapes tell; nothing if they do not."""
    if not all(hasattr(value, "dtype") and hasattr(value, "shape") for value in (labels, predictions)):
        return ""
    ranks = labels.shape.rank, predictions.shape.rank
    if None in ranks or not ranks[1]:
        return ""
    is_short, is_one = ranks[0] < ranks[1], predictions.shape[-1] == 1
    if is_short and is_one:
        return "labels need the shape of the predictions: tf.reshape(labels, tf.shape(predictions))"
    if labels.dtype.is_integer and (
        is_short or (ranks[0] and labels.shape[-1] == 1 != predictions.shape[-1])
    ):
        return "integer labels need a sparse categorical loss"
    return ""
