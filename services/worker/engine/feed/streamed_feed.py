"""The usual form of a feed: one long-lived stream that all tasks flow through.

Building a tf.data pipeline costs 30 to 200 ms of Python, several small steps' worth.  So the feed is traced
once, as a function of one task's records; parsing and reading ahead happen in TensorFlow's threads, and
Python runs once a task.  The user's `shuffle` is made afresh for each task, with the seeds of the trace.
"""

import itertools
import queue
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
from tensorflow.python.framework import config, op_def_registry

from edlz.services.errors import LocalProtocolError, ModelError
from edlz.services.inputs.reading.records import Records
from edlz.services.worker.engine.contract.model_module import ModelContract
from edlz.services.worker.engine.feed.bad_record import blame_record
from edlz.services.worker.engine.feed.dataset_calls import knows_its_length
from edlz.services.worker.engine.feed.pipeline import (
    ENDLESS,
    PREFETCHED,
    Element,
    FeedSettings,
    Stream,
    batches_of,
    endless,
    maps_in_python,
    seen,
    with_options,
)
from edlz.services.worker.engine.feed.task_reader import Assignment
from edlz.services.worker.engine.tensorflow.autograph import to_be_traced
from edlz.services.worker.engine.tensorflow.backend import tf
from edlz.services.worker.engine.tensorflow.random_ops import stateful_random_ops
from edlz.services.worker.engine.tensorflow.traced_function import DatasetIterator
from edlz.services.worker.engine.user_code.user_code import Blame

__all__ = ["StreamedFeed"]

# A minibatch's name is one number, made of its assignment's and of how many are left with it: no `map` has to put the former
# to each, and the last one is known where a dataset knows its length.
_NAMES_OF_ONE = 2**32
_MANY = _NAMES_OF_ONE - 1  # are left, where it does not; then a marker, with none left, tells the end
_NOTHING = -1  # in place of the first minibatch to be looked for
_CLOSED = -1  # the number of what comes, without records, when a stream is closed

_PYTHON_OPS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})

# Ops that TensorFlow calls stateful but that only read, or whose state is one task's (a shuffle's).
_READING_OPS = frozenset(
    {
        "Assert",
        "AnonymousHashTable",
        "AnonymousMemoryCache",
        "AnonymousRandomSeedGenerator",
        "AnonymousSeedGenerator",
        "DummyMemoryCache",
        "DummySeedGenerator",
        "HashTableV2",
        "LookupTableFindV2",
        "LookupTableSizeV2",
        "ReadVariableOp",
        "ResourceGather",
        "ResourceGatherNd",
        "VarHandleOp",
    }
)


class StreamedFeed:
    """The feed, traced once for any task's records; see `Feed`.

    Attributes
    ----------
    random_ops : list of str
        Those whose state would run on from task to task: such a feed must not be streamed.
    calls_python : bool
        Whether it calls back into Python.
    failures : dict of int to Exception
        By assignment, why its records could not be read.

    Raises
    ------
    Exception
        Whatever the user's code raises while it is traced.
    """

    def __init__(self, contract: ModelContract, settings: FeedSettings) -> None:
        self._contract, self.settings = contract, settings
        self._inboxes: dict[int, queue.SimpleQueue[Assignment | None]] = {}
        self._stream_numbers = itertools.count()
        self.failures: dict[int, Exception] = {}
        self.spec: Any = None
        tf.random.set_seed(settings.seed % 2**32)
        self._minibatches = to_be_traced(self._trace, [tf.TensorSpec([], tf.int64)])
        with _refusing_iteration():
            graph = self._minibatches.get_concrete_function().graph
        self.random_ops = stateful_random_ops(graph)
        definition = graph.as_graph_def()
        inner = {node.op for f in definition.library.function for node in f.node_def}
        self.calls_python = bool(_PYTHON_OPS & inner)
        self.shuffles = any("Shuffle" in op for op in inner | {node.op for node in definition.node})
        self._only_reads = all(_only_reads(op) for op in inner)

    def open(self) -> Stream:
        number = next(self._stream_numbers)
        inbox = self._inboxes[number] = queue.SimpleQueue()
        source = tf.data.Dataset.from_tensors(tf.constant(number, tf.int64)).repeat()
        dataset = source.flat_map(self._minibatches).prefetch(PREFETCHED)
        with _reading_ahead() if self._only_reads else nullcontext():
            iterator = DatasetIterator(with_options(dataset, self.settings))
        return _SharedStream(self, iterator, inbox)

    def blame(self, assignment: Assignment) -> Blame:
        def run(records: Records) -> Any:
            return batches_of(self._contract, self.settings, self.settings.form.tensors(records))[0]

        return blame_record(self.settings, assignment, run, maps_in_python)

    def _trace(self, stream: Any) -> Any:
        """One task's minibatches, each with its name, and a marker behind them where they are not counted."""
        form = self.settings.form
        marks, *arrays = tf.numpy_function(self._pull, [stream], [tf.int64, *form.packed_dtypes])
        number, first = tf.unstack(marks, 2)
        records = form.structure(form.unpacked(arrays))
        batches, cardinality = batches_of(self._contract, self.settings, records)
        spec = batches.element_spec
        self.spec = seen(spec, self.settings)
        is_finite = tf.raw_ops.Assert(
            condition=tf.not_equal(cardinality, tf.data.INFINITE_CARDINALITY), data=[ENDLESS]
        )
        with tf.control_dependencies([is_finite]):
            first = tf.identity(first)
        count = batches.cardinality() if knows_its_length(batches) else tf.constant(0, tf.int64)
        is_counted = (first >= 0) & (count > first)
        left = tf.where(is_counted, count - first, tf.where(first >= 0, tf.constant(_MANY, tf.int64), 0))
        end = number * _NAMES_OF_ONE
        names = tf.data.Dataset.range(end + left, end, -1)
        named = tf.data.Dataset.zip(names, batches.skip(tf.maximum(first, 0)))
        marker = tf.data.Dataset.from_tensors((end, tf.nest.map_structure(_empty, spec)))
        return named.concatenate(marker.take(tf.where(is_counted, tf.constant(0, tf.int64), 1)))

    def _pull(self, stream: Any) -> tuple[Any, ...]:
        """Runs in TensorFlow's threads: waits, without the GIL, for the next assignment and reads it.

        Where it cannot be read, and for ever when the stream is closed, there are no records, and no minibatch is looked
        for: reading ahead stops, as what is read ahead is full.  An error would be logged, if only to end the stream.
        """
        inbox = self._inboxes.get(int(stream))
        assignment = inbox.get() if inbox is not None else None
        if assignment is None:
            self._inboxes.pop(int(stream), None)
            return self._packed(_CLOSED, _NOTHING, self.settings.form.nothing)
        try:
            records = self.settings.read(assignment)
        except Exception as e:  # raised in the compute thread, where it means something
            self.failures[assignment.number] = e
            return self._packed(assignment.number, _NOTHING, self.settings.form.nothing)
        return self._packed(assignment.number, assignment.first, records)

    def _packed(self, number: int, first: int, records: Records) -> tuple[Any, ...]:
        return np.array([number, first], np.int64), *self.settings.form.packed(records)


class _SharedStream:
    """An iterator through which all assignments flow."""

    def __init__(
        self,
        feed: StreamedFeed,
        iterator: DatasetIterator,
        inbox: "queue.SimpleQueue[Assignment | None]",
    ) -> None:
        self._feed, self._inbox = feed, inbox
        self._iterator: DatasetIterator | None = iterator
        self._end = -1, 0  # of which assignment, and the index behind its last minibatch
        # An iterator waits, when it is freed, for the thread that waits for an assignment: free that first,
        # also if nobody closes the stream.
        self._free_thread = weakref.finalize(self, inbox.put, None)

    def start(self, assignment: Assignment) -> None:
        self._inbox.put(assignment)

    def next(self, assignment: Assignment) -> tuple[int, Element, bool] | None:
        assert self._iterator is not None, "the stream is closed"
        try:
            name, element = next(self._iterator)
        except Exception as e:
            # Even without records a feed may raise: what kept them away comes first.
            failure = self._feed.failures.pop(assignment.number, None)
            if failure is not None:
                raise failure from e
            if ENDLESS in str(e):
                raise endless(self._feed._contract, self._feed.settings) from e
            raise
        failure = self._feed.failures.pop(assignment.number, None)
        if failure is not None:
            raise failure
        number, left = divmod(int(name), _NAMES_OF_ONE)
        if number != assignment.number:
            raise LocalProtocolError(f"minibatches of run {number} came for run {assignment.number}")
        if not left:
            return None
        if self._end[0] != number:
            self._end = number, assignment.first + left
        return self._end[1] - left, seen(element, self._feed.settings), left == 1

    def close(self) -> None:
        self._free_thread()
        # Letting go of the iterator waits for a read that is under way; nobody else need.
        last = [self._iterator]
        self._iterator = None
        threading.Thread(target=last.clear, name="feed-close", daemon=True).start()


@contextmanager
def _refusing_iteration() -> Iterator[None]:
    """While tracing, iterating over a dataset in Python would never end: make it an error."""
    cls = tf.data.Dataset
    original = cls.__iter__

    def refuse(self: Any) -> Any:
        if tf.executing_eagerly():
            return original(self)
        raise ModelError("feed() iterates over the dataset in Python")

    cls.__iter__ = refuse
    try:
        yield
    finally:
        cls.__iter__ = original


def _empty(spec: Any) -> Any:
    """A value of this spec without rows, for the marker at a task's end."""
    if isinstance(spec, tf.SparseTensorSpec):
        dims = [dim or 0 for dim in spec.shape]
        return tf.SparseTensor(tf.zeros([0, len(dims)], tf.int64), tf.zeros([0], spec.dtype), dims)
    if isinstance(spec, tf.RaggedTensorSpec):
        inner = [dim or 0 for dim in spec.shape[spec.ragged_rank + 1 :]]
        value = tf.zeros([0, *inner], spec.dtype)
        for _ in range(spec.ragged_rank):
            value = tf.RaggedTensor.from_row_splits(value, tf.zeros([1], spec.row_splits_dtype))
        return value
    return tf.zeros([dim or 0 for dim in spec.shape], spec.dtype)


def _only_reads(op: str) -> bool:
    definition = op_def_registry.get(op)
    is_stateful = definition is not None and definition.is_stateful
    return not is_stateful or op in _READING_OPS or "Dataset" in op


@contextmanager
def _reading_ahead() -> Iterator[None]:
    """Let an iterator that is made meanwhile read ahead.

    Under op determinism tf.data would do without any read-ahead for a pipeline with stateful ops, as
    waiting for the next assignment is one, and a shuffle's seed.  Which minibatch comes when does not
    depend on reading ahead here: there is one assignment after another.
    """
    was_on = config.is_op_determinism_enabled()
    config.disable_op_determinism()
    try:
        yield
    finally:
        if was_on:
            config.enable_op_determinism()
