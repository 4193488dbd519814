"""The names and tensors of a served model's signature: structures of features and predictions, made flat.

TensorFlow Serving knows named dense tensors only.  A sparse or a ragged tensor is several of them, whose names
tell what they are: `tags_indices`, `tags_values`, `tags_dense_shape`; `words_values`, `words_row_splits`.
"""

import re
from collections.abc import Sequence
from typing import Any

from tensorflow.python.util import nest

from edlz.services.worker.engine.tensorflow.backend import tf
from edlz.services.worker.engine.tensorflow.traced_function import flat_tensors

__all__ = ["FlatSignature", "named_outputs"]

_SPARSE = ("indices", "values", "dense_shape")
_UNNAMED = re.compile(r"keras_tensor(_\d+)?")
_NO_LETTER = re.compile(r"\W")


class FlatSignature:
    """The features of a model as named dense tensors.

    Parameters
    ----------
    model : keras.Model
    spec : structure of TensorSpecs
        Of the features, as the feed yields them.

    Attributes
    ----------
    specs : dict of str to TensorSpec
        In the order of the structure's parts.
    """

    def __init__(self, model: Any, spec: Any) -> None:
        self._spec = spec
        names = []
        for name, leaf in zip(_leaf_names(model, spec), tf.nest.flatten(spec), strict=True):
            names += [f"{name}{ending}" for ending in _endings(leaf)]
        leaves = flat_tensors(spec)
        self.specs = {
            name: tf.TensorSpec(leaf.shape, leaf.dtype, name=name)
            for name, leaf in zip(_distinct(names), leaves, strict=True)
        }

    def packed(self, tensors: dict[str, Any]) -> Any:
        """Return the features that have these tensors."""
        flat = [tensors[name] for name in self.specs]
        return tf.nest.pack_sequence_as(self._spec, flat, expand_composites=True)


def named_outputs(predictions: Any) -> dict[str, Any]:
    """Return predictions as named dense tensors: keys of a dict stay, others are `output_0`, `output_1`, ..."""
    if isinstance(predictions, dict):
        paths = nest.flatten_with_tuple_paths(predictions)
        names = ["_".join(map(str, path)) for path, _ in paths]
    else:
        names = [f"output_{place}" for place in range(len(tf.nest.flatten(predictions)))]
    found = []
    for name, value in zip(names, tf.nest.flatten(predictions), strict=True):
        spec = tf.type_spec_from_value(value)
        tensors = flat_tensors(value)
        found += [(f"{name}{ending}", t) for ending, t in zip(_endings(spec), tensors, strict=True)]
    return dict(zip(_distinct([name for name, _ in found]), (tensor for _, tensor in found), strict=True))


def _leaf_names(model: Any, spec: Any) -> list[str]:
    """Return what each tensor of the features is called: its key, or the name of the model's input."""
    paths = [path for path, _ in nest.flatten_with_tuple_paths(spec)]
    has_keys = any(isinstance(step, str) for path in paths for step in path)
    if has_keys:
        return ["_".join(map(str, path)) for path in paths]
    inputs = _input_names(model)
    if len(inputs) == len(paths):
        return inputs
    return ["_".join(map(str, ("features", *path))) for path in paths]


def _input_names(model: Any) -> list[str]:
    """Return the names of a functional model's inputs; nothing if it has none, or they were given by Keras."""
    names = [tensor.name for tensor in getattr(model, "inputs", None) or ()]
    return [] if any(_UNNAMED.fullmatch(name) for name in names) else names


def _endings(spec: Any) -> list[str]:
    """Return what the names of a tensor's parts end in, in the order in which TensorFlow takes it apart."""
    if isinstance(spec, tf.SparseTensorSpec):
        return [f"_{part}" for part in _SPARSE]
    if isinstance(spec, tf.RaggedTensorSpec):
        levels = range(spec.ragged_rank - 1, -1, -1) if spec.ragged_rank > 1 else ("",)
        return ["_values", *(f"_row_splits{'' if level == '' else f'_{level}'}" for level in levels)]
    return [""]


def _distinct(names: Sequence[str]) -> list[str]:
    """Return the names as TensorFlow takes them: letters, digits and _, none twice."""
    found: list[str] = []
    for name in names:
        legal = _NO_LETTER.sub("_", name)
        legal = legal if legal[:1].isalpha() else f"input_{legal.lstrip('_')}"
        number, free = 1, legal
        while free in found:
            free = f"{legal}_{number}"
            number += 1
        found.append(free)
    return found
