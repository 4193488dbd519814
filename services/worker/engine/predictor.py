"""Prediction: the outputs of one task at a time, as columns to be written and for the user's own code."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
from tensorflow.python.util import nest

from edlz.services.errors import ModelError
from edlz.services.predictions.table import RECORD, Array, Column, PredictionTable, Ragged
from edlz.services.protocol.plan import TaskRange
from edlz.services.worker.core.computation import GroupedIds, Predicted
from edlz.services.worker.engine.contract.model_module import ModelContract
from edlz.services.worker.engine.feed.batch_structure import record_count
from edlz.services.worker.engine.feed.feed import Feed
from edlz.services.worker.engine.model.keras_model import BuiltModel
from edlz.services.worker.engine.outputs_processor import OutputsProcessor
from edlz.services.worker.engine.rows.row_inputs import Rows
from edlz.services.worker.engine.step import Forward, LoadedVectors
from edlz.services.worker.engine.tensorflow.backend import tf
from edlz.services.worker.engine.user_code.user_code import UserCodeError, definition, describe
from edlz.services.worker.engine.whole_tasks import WholeTasks

__all__ = ["Predictor"]

_KINDS = "fiubO"  # of NumPy's types: floats, integers, booleans, texts


class Predictor:
    """Predicts with a model.

    Parameters
    ----------
    feed : Feed
        In prediction mode.
    vectors : LoadedVectors
        Any: a first minibatch is tried on them.
    ranges : sequence of TaskRange
        The tasks of the job.
    has_files : bool
        Whether the outputs are written: a row for each record, so the feed must keep all of them, in their order.

    Raises
    ------
    ModelError
        If the user's code raises, what it gives has no row for each record, or nobody takes it.
    DataError
        If the feed leaves out every record.
    """

    def __init__(
        self,
        contract: ModelContract,
        built: BuiltModel,
        feed: Feed,
        vectors: LoadedVectors,
        ranges: Sequence[TaskRange],
        partitions: int = 1,
        *,
        has_files: bool,
        worker_id: int = 0,
    ) -> None:
        self._contract, self._has_files = contract, has_files
        kind = contract.outputs_processor
        self._processor = None if kind is None else OutputsProcessor(kind, contract.code, worker_id)
        if not has_files and kind is None:
            raise ModelError(
                f"{contract.name} defines no PredictionOutputsProcessor, and there is no --prediction_output",
                "--prediction_output=DIR writes the predictions into files",
            )
        if has_files and feed.shuffles:
            raise self._feed_error("shuffles the records to predict", "leave shuffle() to Mode.TRAINING")
        self._tasks = WholeTasks(contract, built, feed, "prediction", partitions)
        self._specs: Sequence[Any] = ()
        self._names: Sequence[str] = ()
        self._forward = Forward(contract, built, feed.spec, self._tasks.ids, then=self._note_outputs)
        element, inputs = self._tasks.first(ranges)
        self._check_rows(record_count(element), self._forward.first("prediction", element, vectors, inputs))

    def find_ids(self, task: int, records: TaskRange) -> tuple[GroupedIds, ...]:
        """Read a task's minibatches, and return the distinct ids of each table; errors as for `predict`."""
        return self._tasks.find_ids(task, records)

    def predict(
        self,
        task: int,
        records: TaskRange,
        vectors: LoadedVectors,
        rows: Sequence[Rows] = (),
        attempt: int = 0,
    ) -> Predicted:
        """Compute the outputs of a task, and hand them to the user's code if it wants them.

        Parameters
        ----------
        rows : sequence of ndarray, shape (m, dim)
            Of each table, in the order of `find_ids`.
        attempt : int
            How often the task was given to a worker before.

        Raises
        ------
        TaskError
            If its records cannot be read, or the user's code raises on them.
        ModelError
            If there is no row for each record.
        """
        outputs, count = [], 0
        for index, element, inputs in self._tasks.minibatches(task, records, rows):
            predictions = self._forward.of_task(task, index, element, vectors, inputs)
            size = record_count(element)
            self._check_rows(size, predictions)
            outputs.append((index, count, predictions))
            count += size
        if self._has_files and count != records.count:
            place = f"{records.count} records from number {records.first} on of {records.name}"
            raise self._feed_error(
                f"gives {count} rows for the {place}: a prediction has one row for each record",
                "let it keep all records in Mode.PREDICTION, or take the outputs by a PredictionOutputsProcessor",
            )
        if self._processor is not None:
            self._processor.take(task, records, attempt, outputs)
        return Predicted(count, self._table(records, outputs) if self._has_files else None)

    def close(self) -> None:
        self._tasks.close()

    def _note_outputs(self, _labels: Any, predictions: Any) -> Any:
        """While tracing: what the outputs are called, and of which kinds they are."""
        self._specs = [tf.type_spec_from_value(leaf) for leaf in tf.nest.flatten(predictions)]
        self._names = _names_of(predictions)
        if not self._specs:
            raise ModelError("the model gives no output", "let call() return a tensor, or a dict of them")
        if RECORD in self._names and self._has_files:
            raise ModelError(
                f'the model has an output called "{RECORD}", which is the column of the records\' names',
                "give it another name",
            )
        for name, spec in zip(self._names, self._specs, strict=True):
            self._check_kind(name, spec)
        return predictions

    def _check_kind(self, name: str, spec: Any) -> None:
        if not self._has_files:
            return
        if isinstance(spec, tf.SparseTensorSpec):
            raise ModelError(
                f'output "{name}" is sparse, and has no place in a file', "return tf.sparse.to_dense(…) of it"
            )
        dtype = tf.as_dtype(spec.dtype)
        if not (dtype.is_floating or dtype.is_integer or dtype.is_bool or dtype == tf.string):
            raise ModelError(f'output "{name}" is of type {dtype.name}, which has no place in a file')

    def _check_rows(self, count: int, predictions: Any) -> None:
        for name, leaf in zip(self._names, tf.nest.flatten(predictions), strict=True):
            found = leaf.shape[0] if leaf.shape.rank else None
            if isinstance(leaf, tf.RaggedTensor):
                found = int(leaf.nrows())
            if found != count:
                given = "a single value" if found is None else f"{found} rows"
                raise ModelError(
                    f'output "{name}" of the model has {given} for {count} records',
                    "let the first dimension of each output be that of the minibatch",
                )

    def _feed_error(self, what: str, help_: str) -> UserCodeError:
        feed = self._contract.feed
        return UserCodeError(f"{describe(feed)}() {what}", help_, where=definition(feed))

    def _table(self, records: TaskRange, outputs: list[tuple[int, int, Any]]) -> PredictionTable:
        shard = PurePath(records.name).name
        numbers = range(records.first, records.first + records.count)
        leaves = zip(*(tf.nest.flatten(predictions) for _, _, predictions in outputs), strict=True)
        columns = {
            name: _column(spec, parts)
            for name, spec, parts in zip(self._names, self._specs, leaves, strict=True)
        }
        return PredictionTable([f"{shard}:{number}" for number in numbers], columns)


def _names_of(predictions: Any) -> list[str]:
    """Return what the outputs are called, as in an export: keys of a dict stay, others are numbered."""
    if isinstance(predictions, dict):
        return ["_".join(map(str, path)) for path, _ in nest.flatten_with_tuple_paths(predictions)]
    return [f"output_{place}" for place in range(len(tf.nest.flatten(predictions)))]


def _column(spec: Any, parts: Sequence[Any]) -> Column:
    """Return one output of a whole task; rows may differ in length where the model leaves it open."""
    if isinstance(spec, tf.RaggedTensorSpec):
        rows = [row for part in parts for row in part.to_list()]
        return Ragged(rows, np.dtype(spec.dtype.as_numpy_dtype), parts[0].shape.rank - 1)
    arrays = [_array(part) for part in parts]
    if spec.shape.rank is None or None in spec.shape[1:]:
        rows = [row for array in arrays for row in array.tolist()]
        return Ragged(rows, arrays[0].dtype, arrays[0].ndim - 1)
    return np.concatenate(arrays)


def _array(tensor: Any) -> Array:
    array: Array = tensor.numpy()
    return array if array.dtype.kind in _KINDS else array.astype(np.float32)  # bfloat16 and its like
