"""What all forms of a feed share: their settings and protocols, batching, and options of tf.data."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from tensorflow.python.data.ops import debug_mode, unbatch_op

from edlz.api.feeds import Mode
from edlz.services.errors import ModelError
from edlz.services.inputs.reading.records import Records
from edlz.services.worker.engine.contract.model_module import ModelContract
from edlz.services.worker.engine.feed.batch_structure import features_of, shown, split_element
from edlz.services.worker.engine.feed.dataset_calls import is_batched, line_of_call
from edlz.services.worker.engine.feed.record_form import BYTES, RecordForm
from edlz.services.worker.engine.feed.task_reader import Assignment
from edlz.services.worker.engine.tensorflow.autograph import call_users
from edlz.services.worker.engine.tensorflow.backend import tf
from edlz.services.worker.engine.user_code.user_code import Blame, UserCodeError, shown_place

__all__ = [
    "ENDLESS",
    "PREFETCHED",
    "Element",
    "Feed",
    "FeedSettings",
    "Stream",
    "batches_of",
    "endless",
    "maps_in_python",
    "plain_batches",
    "refuse_whole_batches",
    "seen",
    "shuffles",
    "with_options",
]

ENDLESS = "feed() repeats its records without end: a task would never be done"
PREFETCHED = 2

Element = Any  # what the feed yields: a tuple of structures of tensors


@dataclass(frozen=True, slots=True)
class FeedSettings:
    """What a feed needs besides the user's function.

    Attributes
    ----------
    read : callable
        (assignment) -> its records in order; called from any thread.
    number : callable
        (assignment, place) -> the number in its file of the record at this place.
    sample : callable
        () -> a few records of the job's data.
    form : RecordForm
        What records are as tensors.
    is_example : bool
        Records are tf.train.Examples, to be decoded for an `input_fn`.
    """

    mode: Mode
    minibatch_size: int
    seed: int
    threads: int
    read: Callable[[Assignment], Records]
    number: Callable[[Assignment, int], int]
    sample: Callable[[], Records]
    form: RecordForm = BYTES
    is_example: bool = False


class Stream(Protocol):
    """Minibatches of one assignment after another, in the order in which they were started."""

    def start(self, assignment: Assignment) -> None:
        """Queue an assignment; its records are read ahead."""

    def next(self, assignment: Assignment) -> tuple[int, Element, bool] | None:
        """Return the index and tensors of the next minibatch, and whether it is known to be the assignment's last.

        Behind one that is nothing more of the assignment comes; behind others None comes once, where it ends.

        Raises whatever reading or the user's code raised; only `close` may follow then.
        """

    def close(self) -> None:
        """Give up whatever was started."""


class Feed(Protocol):
    """A feed of the user's module, made ready for one mode: of a ModelContract and FeedSettings.

    Attributes
    ----------
    spec : object
        Its element_spec, the batch's length None.
    shuffles : bool
        Whether it gives records in another order than theirs.
    """

    spec: Any
    shuffles: bool

    def open(self) -> Stream:
        """Return a new stream."""

    def blame(self, assignment: Assignment) -> Blame:
        """Return which record makes the user's code raise, or nothing if that is not to be found out."""


def batches_of(contract: ModelContract, settings: FeedSettings, records: Any) -> tuple[Any, Any]:
    """Call the user's feed on the dataset of these records, and batch what it gives.

    Parameters
    ----------
    records : structure of tensors
        As the settings' form has them.

    Returns
    -------
    batches : tf.data.Dataset
    cardinality : int64 tensor
        Of what the feed gave: `tf.data.INFINITE_CARDINALITY` where it repeats its records without end.
    """
    batches, cardinality = plain_batches(contract, settings, records, settings.minibatch_size)
    split_element(seen(batches.element_spec, settings))
    return batches, cardinality


def seen(element: Any, settings: FeedSettings) -> Any:
    """Return an element, or its spec, as all that is behind a feed has it: (features, ()) where it is to predict.

    Not by the dataset: one more `map` would cost as much as a small model.
    """
    return (features_of(element), ()) if settings.mode is Mode.PREDICTION else element


def plain_batches(
    contract: ModelContract, settings: FeedSettings, records: Any, size: Any
) -> tuple[Any, Any]:
    """Return what `batches_of` does, in batches of a size that may be a tensor, whatever the feed yields."""
    with _refusing_cache_files():
        dataset = _fed(contract, settings, records, size)
    if not isinstance(dataset, tf.data.Dataset):
        raise ModelError(
            f"feed() returned {type(dataset).__name__}, not a tf.data.Dataset", "return dataset.map(parse)"
        )
    if contract.is_batched:
        return _checked_batches(dataset), dataset.cardinality()
    if is_batched(dataset):
        raise _batches(contract, settings)
    batches = _rebatched(dataset, size)
    if batches is not None:  # rebatch() does not know that an endless dataset is
        cardinality = dataset.cardinality()
    else:
        # Of the batches: another reader of what is batched is in the way of tf.data's optimisations.
        batches = _with_plain_rows(dataset.batch(size))
        cardinality = batches.cardinality()
    return batches, cardinality


def _fed(contract: ModelContract, settings: FeedSettings, records: Any, size: Any) -> Any:
    """Return what the user's feed makes of records: one by one, or in minibatches if it wants them so."""
    if contract.is_batched:
        dataset = _minibatches(records, size)
    else:
        dataset = tf.data.Dataset.from_tensor_slices(records)
    return call_users(contract.feed, dataset, settings.mode, settings.form.metadata)


def _minibatches(records: Any, size: Any) -> Any:
    """Return the dataset of these records' minibatches, of known length; the rows of one are open, as the last may be short.

    `Dataset.rebatch` would map them first, through a function that is made ready for each task; nor does it know how many
    they are.
    """
    tensors = tf.nest.flatten(records)
    spec = tf.nest.map_structure(
        lambda tensor: tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype), records
    )
    count, size = tf.shape(tensors[0], tf.int64)[0], tf.cast(size, tf.int64)
    variant = tf.raw_ops.RebatchDatasetV2(
        input_dataset=tf.data.experimental.to_variant(tf.data.Dataset.from_tensors(records)),
        batch_sizes=[size],
        drop_remainder=False,
        output_types=[tensor.dtype for tensor in tensors],
        output_shapes=[each.shape for each in tf.nest.flatten(spec)],
    )
    minibatches = tf.data.experimental.from_variant(variant, spec)
    counted = minibatches.apply(tf.data.experimental.assert_cardinality((count + size - 1) // size))
    # It is no user's claim: see `knows_its_length`.
    return tf.data.experimental.from_variant(tf.data.experimental.to_variant(counted), spec)


def _checked_batches(dataset: Any) -> Any:
    """Return the minibatches of a batched feed, if they are such."""
    for spec in tf.nest.flatten(dataset.element_spec):
        shape = spec.shape
        if shape.rank == 0 or (shape.rank and shape[0] is not None):
            raise ModelError(
                f"feed() is batched, but yields {shown(dataset.element_spec)}: no tensor of any number of rows",
                "keep the first dimension of what it gets, which is the minibatch's; or leave out @edlz.api.batched",
            )
    return dataset


def refuse_whole_batches(contract: ModelContract, settings: FeedSettings) -> None:
    """Raise ModelError if the feed yields batches of one length: asked where the model does not take what it yields."""
    if contract.feed_form != "dataset" or contract.is_batched:
        return
    dataset = _fed(contract, settings, settings.form.tensors(settings.sample()), settings.minibatch_size)
    if is_batched(dataset, with_whole=True):
        raise _batches(contract, settings)


def shuffles(dataset: Any) -> bool:
    """Whether a dataset, or what it is made of, shuffles."""
    return "Shuffle" in type(dataset).__name__ or any(map(shuffles, dataset._inputs()))


def _rebatched(dataset: Any, size: Any) -> Any:
    """Return the minibatches of a feed that decodes many records at a time and ends with `unbatch()`.

    Taking them from its own batches gives the same, without a tensor for every value of every record; None
    where the feed does not end so, or its minibatches would have a spec of their own.
    """
    if not isinstance(dataset, unbatch_op._UnbatchDataset):
        return None
    specs = tf.nest.flatten(dataset.element_spec)
    if not all(type(spec) is tf.TensorSpec for spec in specs):
        return None
    batches = dataset._input_dataset.rebatch(size)
    # Where its batches are of one known length, so are these; then a task's last one would not fit.
    is_open = all(spec.shape[0] is None for spec in tf.nest.flatten(batches.element_spec))
    return batches if is_open else None


def _with_plain_rows(batches: Any) -> Any:
    """Make (batch, 1, n) of ragged values (batch, n): a record's ragged value is a tensor of one row.

    A feed gives single records, and `batch` cannot put dense values of different lengths together.
    """
    if not any(map(_is_of_one_row, tf.nest.flatten(batches.element_spec))):
        return batches

    def merge(value: Any) -> Any:
        is_ragged = isinstance(value, tf.RaggedTensor) and _is_of_one_row(tf.type_spec_from_value(value))
        return value.merge_dims(0, 1) if is_ragged else value

    def merge_all(*element: Any) -> Any:
        merged = tf.nest.map_structure(merge, element)
        return merged[0] if len(merged) == 1 else merged

    return batches.map(merge_all)


def _is_of_one_row(spec: Any) -> bool:
    return isinstance(spec, tf.RaggedTensorSpec) and spec.shape.rank >= 3 and spec.shape[1] == 1


@contextmanager
def _refusing_cache_files() -> Iterator[None]:
    """A file that one task has filled would be what the next task reads."""
    cls = tf.data.Dataset
    original = cls.cache

    def cache(self: Any, filename: str = "", name: str | None = None) -> Any:
        if not isinstance(filename, str) or filename:
            raise ModelError(
                f"feed() caches records in a file ({filename}): all tasks would get those of the first",
                "use cache() without a file, or none: a task's records are read once an epoch",
            )
        return original(self, name=name)

    cls.cache = cache
    try:
        yield
    finally:
        cls.cache = original


@contextmanager
def maps_in_python() -> Iterator[None]:
    """Run the functions that datasets map line by line, as Python: their errors name the line, and it is slow."""
    debug_mode.toggle_debug_mode(True)
    try:
        yield
    finally:
        debug_mode.toggle_debug_mode(False)


def _batches(contract: ModelContract, settings: FeedSettings) -> ModelError:
    return _refused_call(
        contract,
        settings,
        ("batch", "padded_batch", "ragged_batch", "bucket_by_sequence_length"),
        "feed() batches its records, but edlz puts what it yields into minibatches",
        "leave batch() out (--minibatch_size says how many), or end with unbatch()",
    )


def endless(contract: ModelContract, settings: FeedSettings) -> ModelError:
    """Return the error of a feed whose dataset never ends."""
    advice = "give repeat() a count, or leave it out: epochs are --num_epochs"
    return _refused_call(contract, settings, ("repeat",), ENDLESS, advice)


def _refused_call(
    contract: ModelContract, settings: FeedSettings, methods: tuple[str, ...], text: str, advice: str
) -> ModelError:
    """Return the error of a feed that must not call one of these methods, with the line of the call."""
    if not tf.executing_eagerly():
        return ModelError(text, advice)

    def run() -> Any:
        return _fed(contract, settings, settings.form.tensors(settings.sample()), settings.minibatch_size)

    found = line_of_call(run, methods, contract.code.is_users)
    where = shown_place(*found) if found else contract.code.place(contract.feed)
    return UserCodeError(text, advice, where=where)


def with_options(dataset: Any, settings: FeedSettings) -> Any:
    options = tf.data.Options()
    options.deterministic = True  # wins over what the feed has set
    options.experimental_warm_start = True  # read ahead at once, not from the first `next` on
    options.threading.private_threadpool_size = settings.threads
    return dataset.with_options(options)
