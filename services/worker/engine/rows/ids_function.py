"""From a minibatch's features to the ids that the model will look up, ahead of the step.

The model is traced once more, with a source that notes the ids, and all that leads to no id is cut away: what
is left is the model's preprocessing, without towers and side effects.
"""

import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from keras.src.random.seed_generator import global_seed_generator

from edlz.services.errors import ModelError
from edlz.services.worker.engine.contract.model_module import ModelContract
from edlz.services.worker.engine.feed.batch_structure import split_element
from edlz.services.worker.engine.model.keras_model import BuiltModel
from edlz.services.worker.engine.model.lookups import ROWS, Recorder, inlined_functions, serving
from edlz.services.worker.engine.model.tables import blocks_of
from edlz.services.worker.engine.model.vectors import shared_array
from edlz.services.worker.engine.tensorflow.autograph import within_autograph
from edlz.services.worker.engine.tensorflow.backend import tf
from edlz.services.worker.engine.tensorflow.random_ops import STATEFUL
from edlz.services.worker.engine.tensorflow.traced_function import TracedFunction, flat_tensors, packed

__all__ = ["IdsFunction"]

# Of a value that is not known yet, these know all that they need.
_SHAPE_ONLY = frozenset({"OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike"})
_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarHandleOp"})
_IS_ROWS = re.compile(rf"(^|/){ROWS}(_\d+)?$")


class IdsFunction:
    """The lookups of a model in one mode.

    Parameters
    ----------
    spec : tuple of TensorSpec structures
        The feed's element_spec.
    is_training : bool
        A model may look up more when it is trained.

    Attributes
    ----------
    tables : tuple of int
        The table of each lookup, in the order of the model's calls.

    Raises
    ------
    ModelError
        If the code raises while it is traced, or ids depend on what is known only in the step.
    """

    def __init__(self, contract: ModelContract, built: BuiltModel, spec: Any, is_training: bool) -> None:
        self._contract, self._built, self._is_training = contract, built, is_training
        self._spec = split_element(spec)[0]
        self._recorder = Recorder(built.tables)
        leaves = flat_tensors(self._spec)
        whole = tf.compat.v1.wrap_function(within_autograph(self._run), leaves)
        self.tables = tuple(self._recorder.tables)
        _check_origins(whole.graph, built, self._recorder, self.tables)
        self._function = TracedFunction(whole.prune(whole.inputs[: len(leaves)], whole.structured_outputs))

    @property
    def order(self) -> tuple[int, ...]:
        """The lookups as `sizes` has them: by block (see `blocks_of`), then by table."""
        return _order(self.tables, self._built.tables)

    def __call__(self, element: Any) -> tuple[list[npt.NDArray[np.int64]], Any]:
        """Return the ids of each table, lookup after lookup, and the lengths of the lookups in `order`.

        Returns
        -------
        ids : list of ndarray, shape (n,), int64, read-only
        sizes : int32 tensor, shape (lookups,)
        """
        *ids, sizes = self._function.flat(flat_tensors(split_element(element)[0]))
        return [shared_array(of_table) for of_table in ids], sizes

    def _run(self, *flat: Any) -> list[Any]:
        features = packed(self._spec, flat)
        built, recorder = self._built, self._recorder
        recorder.begin()
        with (
            serving(built.tables, recorder),
            inlined_functions(),
            self._contract.code.running("the model's call()", self._contract.model_definition),
        ):
            built.model(features, training=self._is_training)
        ids: list[list[Any]] = [[] for _ in built.tables]
        for table, of_lookup in zip(recorder.tables, recorder.ids, strict=True):
            ids[table].append(of_lookup)
        sizes = [tf.size(recorder.ids[lookup]) for lookup in _order(recorder.tables, built.tables)]
        joined = [_joined(of_table) for of_table in ids]
        return [*joined, tf.stack(sizes) if sizes else tf.zeros([0], tf.int32)]


def _order(tables: Sequence[int], layers: Sequence[Any]) -> tuple[int, ...]:
    rank = {table: rank for rank, table in enumerate(itertools.chain(*blocks_of(layers)))}
    return tuple(sorted(range(len(tables)), key=lambda lookup: rank[tables[lookup]]))


def _joined(ids: Sequence[Any]) -> Any:
    if len(ids) == 1:
        return ids[0]
    return tf.concat(ids, 0) if ids else tf.zeros([0], tf.int64)


def _check_origins(graph: Any, built: BuiltModel, recorder: Recorder, tables: Sequence[int]) -> None:
    """Check that all ids follow from the features alone."""
    handles = {id(variable.value.handle): variable for variable in _changing(built)}
    captured = {inside.name: handles.get(id(outside)) for outside, inside in graph.captures}
    for ids, table in zip(recorder.ids, tables, strict=True):
        reason = _unknown_origin(ids, captured)
        if reason:
            raise ModelError(
                f"layer {built.tables[table].name}: the ids that it looks up depend on {reason}; rows are fetched "
                "before the step, when only the features are known",
                "let ids follow from the features, or use a keras.layers.Embedding below "
                "--embedding_threshold_bytes there",
            )


def _changing(built: BuiltModel) -> list[Any]:
    return [*built.dense, *built.state, *built.counters, *built.seeds, global_seed_generator().state]


def _unknown_origin(tensor: Any, captured: dict[str, Any]) -> str:
    """Return what in the ancestry of a tensor is not known before the step, or nothing."""
    seen, left = set(), [tensor.op]
    while left:
        op = left.pop()
        if op.name in seen:
            continue
        seen.add(op.name)
        if _IS_ROWS.search(op.name):
            return "the rows of another lookup"
        if op.type in STATEFUL:
            return f"random numbers that the model draws ({op.type})"
        if op.type in _READS and op.inputs:
            variable = captured.get(op.inputs[0].name)
            if variable is not None:
                return f"the variable {variable.path or variable.name}"
        if op.type not in _SHAPE_ONLY:
            left.extend(source.op for source in op.inputs)
    return ""
