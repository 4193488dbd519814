"""What a feed yields (an element: one minibatch): its parts, how many records are in it, and how messages show it."""

from collections.abc import Mapping
from typing import Any

from edlz.services.errors import ModelError
from edlz.services.worker.engine.tensorflow.backend import tf

__all__ = ["features_of", "record_count", "records_in", "shown", "split_element", "whole_shape"]

_MOST_SHOWN = 6


def split_element(element: Any) -> tuple[Any, Any, Any]:
    """Return features, labels and sample weights (or None) of an element, or of its spec.

    Raises
    ------
    ModelError
        If it is neither (features, labels) nor (features, labels, sample weights).
    """
    if not isinstance(element, tuple) or len(element) not in (2, 3):
        raise ModelError(
            f"feed() yields {shown(element)}, not (features, labels)",
            "let the function that it maps return a tuple: return features, labels",
        )
    features, labels, *weights = element
    return features, labels, weights[0] if weights else None


def features_of(element: Any) -> Any:
    """Return the features of what a feed yields in prediction mode: alone, or before labels, as for Keras' `predict`.

    In all other code such an element is (features, ()): without labels.

    Raises
    ------
    ModelError
        If it is a tuple of something else.
    """
    if not isinstance(element, tuple):
        return element
    if not 1 <= len(element) <= 3:
        raise ModelError(
            f"feed() yields a tuple of {len(element)} in prediction mode: {shown(element)}",
            "let it yield the features alone; several inputs of a model go into a dict",
        )
    return element[0]


def records_in(structure: Any) -> Any:
    """Return how many records a structure of tensors is of, as a tensor: the length of its first one."""
    first = tf.nest.flatten(structure)[0]
    if isinstance(first, tf.SparseTensor):
        return first.dense_shape[0]
    if isinstance(first, tf.RaggedTensor):
        return first.nrows()
    return tf.shape(first)[0]


def record_count(element: Any) -> int:
    """Return how many records are in a minibatch of eager tensors."""
    first = tf.nest.flatten(element)[0]
    if isinstance(first, tf.Tensor):
        return int(first.shape[0])
    return int(records_in(first))


def whole_shape(shape: Any, batch: int) -> list[int | None]:
    """Return a shape's dimensions with `batch` for an open first one."""
    dims: list[int | None] = shape.as_list()
    return [batch, *dims[1:]] if dims and dims[0] is None else dims


def shown(value: Any, batch: int | None = None) -> str:
    """Return a tensor, a spec, or a structure of them, as `(64, 10) float32`.

    Parameters
    ----------
    batch : int, optional
        Shown for an open first dimension.
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {shown(part, batch)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        more = f", … {len(value) - _MOST_SHOWN} more" if len(value) > _MOST_SHOWN else ""
        return "[" + ", ".join(shown(part, batch) for part in value[:_MOST_SHOWN]) + more + "]"
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None or shape.rank is None:
        return type(value).__name__
    dims = shape.as_list() if batch is None else whole_shape(shape, batch)
    return f"({', '.join(map(str, dims))}{',' if len(dims) == 1 else ''}) {dtype.name}"
