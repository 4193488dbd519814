"""The forms of a feed that are begun anew for each task.

A feed that cannot be traced as one stream, or that draws random numbers (their state would run on from
task to task), is called for each task, seeded by the task.  The oldest form, `input_fn`, is Python that
is called for each minibatch.
"""

from collections.abc import Callable, Iterator
from typing import Any

from edlz.api.feeds import Mode
from edlz.services.errors import ModelError
from edlz.services.inputs.reading.records import Records
from edlz.services.protocol.plan import TaskRange
from edlz.services.protocol.seeds import derive_seed
from edlz.services.worker.engine.contract.model_module import ModelContract
from edlz.services.worker.engine.feed.bad_record import blame_record
from edlz.services.worker.engine.feed.batch_structure import shown, split_element
from edlz.services.worker.engine.feed.pipeline import (
    PREFETCHED,
    Element,
    FeedSettings,
    Stream,
    batches_of,
    endless,
    maps_in_python,
    seen,
    shuffles,
    with_options,
)
from edlz.services.worker.engine.feed.task_reader import Assignment
from edlz.services.worker.engine.tensorflow.backend import tf
from edlz.services.worker.engine.tensorflow.traced_function import DatasetIterator
from edlz.services.worker.engine.user_code.user_code import Blame, describe

__all__ = ["RebuiltFeed", "RecordsFeed"]

_FEED_SEED = {Mode.TRAINING: 5, Mode.EVALUATION: 6, Mode.PREDICTION: 7}  # names for derive_seed


class RebuiltFeed:
    """The feed, called for each task, with TensorFlow's global seed set from the task; see `Feed`."""

    def __init__(self, contract: ModelContract, settings: FeedSettings) -> None:
        self._contract, self._settings = contract, settings
        nothing = Assignment(-1, 0, TaskRange(name="", first=0, count=0))
        sample = self._build(nothing, settings.sample())
        self.spec, self.shuffles = seen(sample.element_spec, settings), shuffles(sample)

    def open(self) -> Stream:
        return _SeparateStreams(self._minibatches)

    def blame(self, assignment: Assignment) -> Blame:
        return blame_record(
            self._settings, assignment, lambda records: self._build(assignment, records), maps_in_python
        )

    def _minibatches(self, assignment: Assignment) -> Iterator[tuple[int, Element]]:
        dataset = self._build(assignment, self._settings.read(assignment))
        numbered = dataset.enumerate().skip(assignment.first).prefetch(PREFETCHED)
        iterator = DatasetIterator(with_options(numbered, self._settings))
        return ((int(index), seen(element, self._settings)) for index, element in iterator)

    def _build(self, assignment: Assignment, records: Records) -> Any:
        # The seed is the process's: nothing else may draw while this thread builds.
        settings = self._settings
        seed = derive_seed(settings.seed, _FEED_SEED[settings.mode], assignment.task)
        tf.random.set_seed(seed % 2**32)
        try:
            batches, cardinality = batches_of(self._contract, settings, settings.form.tensors(records))
            if int(cardinality) == tf.data.INFINITE_CARDINALITY:
                raise endless(self._contract, settings)
            return batches
        finally:
            tf.random.set_seed(settings.seed % 2**32)


class _SeparateStreams:
    """An iterator of its own for each assignment, made when it is started, so that it reads ahead."""

    def __init__(self, minibatches: Callable[[Assignment], Iterator[tuple[int, Element]]]) -> None:
        self._minibatches = minibatches
        self._iterators: dict[int, Iterator[tuple[int, Element]]] = {}
        self._failures: dict[int, Exception] = {}

    def start(self, assignment: Assignment) -> None:
        try:
            self._iterators[assignment.number] = self._minibatches(assignment)
        except Exception as e:  # raised when it is this assignment's turn
            self._failures[assignment.number] = e

    def next(self, assignment: Assignment) -> tuple[int, Element, bool] | None:
        failure = self._failures.pop(assignment.number, None)
        if failure is not None:
            raise failure
        found = next(self._iterators[assignment.number], None)
        if found is None:
            del self._iterators[assignment.number]
            return None
        return *found, False

    def close(self) -> None:
        self._iterators.clear()
        self._failures.clear()


class RecordsFeed:
    """The oldest form: `input_fn(records) -> (features, labels)`, called in Python for each minibatch; see `Feed`.

    Raises
    ------
    ModelError
        If the function returns something else.
    """

    shuffles = False

    def __init__(self, contract: ModelContract, settings: FeedSettings) -> None:
        self._contract, self._settings = contract, settings
        self._features = _example_features(contract) if settings.is_example else None
        sample = self._decode(settings.sample()[: settings.minibatch_size])
        try:
            split_element(sample)
        except ModelError as e:
            raise ModelError(
                f"{describe(contract.feed)}() takes one parameter, so it gets a list of records; it returned "
                f"{shown(sample)}, not (features, labels)",
                "write feed(dataset, mode, metadata) for a tf.data.Dataset, or return the minibatch of these records",
            ) from e
        self.spec = tf.nest.map_structure(_spec_of_any_length, sample)

    def open(self) -> Stream:
        return _SeparateStreams(self._minibatches)

    def blame(self, assignment: Assignment) -> Blame:
        return blame_record(self._settings, assignment, lambda records: [self._call(records)])

    def _minibatches(self, assignment: Assignment) -> Iterator[tuple[int, Element]]:
        records, size = self._settings.read(assignment), self._settings.minibatch_size
        starts = range(assignment.first * size, len(records), size)
        return ((start // size, self._call(records[start : start + size])) for start in starts)

    def _call(self, records: Records) -> Element:
        """Return a minibatch; what was traced for the sample takes it as it is."""
        element = self._decode(records)
        tf.nest.assert_same_structure(self.spec, element)
        pairs = zip(tf.nest.flatten(self.spec), tf.nest.flatten(element), strict=True)
        if not all(spec.is_compatible_with(value) for spec, value in pairs):
            raise ValueError(
                f"it gave {shown(element)} for these {len(records)} records, and {shown(self.spec)} for the "
                "first ones of the job; shapes, but for the number of rows, and types must be the same"
            )
        return element

    def _decode(self, records: Records) -> Element:
        features = self._features
        decoded = self._settings.form.single(records)
        if features is not None:
            decoded = [tf.io.parse_single_example(record, features) for record in decoded]
        element = tf.nest.map_structure(_as_tensor, self._contract.feed(decoded))
        return seen(element, self._settings)


def _as_tensor(value: Any) -> Any:
    is_tensor = isinstance(value, tf.SparseTensor | tf.RaggedTensor)
    return value if is_tensor else tf.convert_to_tensor(value)


def _spec_of_any_length(tensor: Any) -> Any:
    shape = [None, *tensor.shape[1:]]
    if isinstance(tensor, tf.SparseTensor):
        return tf.SparseTensorSpec(shape, tensor.dtype)
    if isinstance(tensor, tf.RaggedTensor):
        return tf.RaggedTensorSpec(shape, tensor.dtype, tensor.ragged_rank, tensor.row_splits.dtype)
    return tf.TensorSpec(shape, tensor.dtype)


def _example_features(contract: ModelContract) -> dict[str, Any]:
    if contract.columns is None:
        raise ModelError(
            f"--codec_type=tf_example: {contract.name} defines neither feature_columns() nor label_columns(), "
            "so the records' features are not known",
            "define them, or write feed(dataset, mode, metadata), which parses by itself",
        )
    with contract.code.running("feature_columns() and label_columns()"):
        columns = contract.columns()
    features: dict[str, Any] = {}
    for column in columns:
        features.update(column.parse_example_spec)
    return features
