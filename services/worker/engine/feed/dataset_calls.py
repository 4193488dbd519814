"""What a feed has done to its dataset, and in which line of the user's code it did so."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from edlz.services.worker.engine.tensorflow.backend import tf

__all__ = ["is_batched", "knows_its_length", "line_of_call"]

# Through these single records stay single records, and batches stay batches.
_PASSING = ("Cache", "Filter", "Map", "Options", "Prefetch", "Repeat", "Shuffle", "Skip", "Take")
_BATCHING = ("BatchDataset", "GroupByWindowDataset")  # the latter is what bucket_by_sequence_length makes

# What of these gives as many elements as `cardinality` says, where it says so.
_COUNTED = frozenset(
    {
        "Batch",
        "Cache",
        "Map",
        "Options",
        "Prefetch",
        "Repeat",
        "Shuffle",
        "Skip",
        "Take",
        "TensorSlice",
        "Variant",
    }
)

_UNKNOWN, _SINGLE = -2, -1  # in place of a length: of a tensor of any rank, of a single value


def is_batched(dataset: Any, *, with_whole: bool = False) -> bool:
    """Whether a dataset yields batches, as `batch` and its kind make them.

    Parameters
    ----------
    with_whole : bool
        Also those of one known length (`drop_remainder`), which may be meant as single records, e.g. windows of a series.
    """
    lengths = {_length(leaf) for leaf in tf.nest.flatten(dataset.element_spec)}
    is_open = lengths <= {None, _UNKNOWN}
    if not is_open and not (with_whole and len(lengths - {None, _UNKNOWN}) == 1 and _SINGLE not in lengths):
        return False
    while True:
        name = type(dataset).__name__.lstrip("_").removeprefix("Parallel")
        if name.endswith(_BATCHING):
            return True
        if not name.startswith(_PASSING) or (lengths == {_UNKNOWN} and name.startswith("Map")):
            return False
        dataset = getattr(dataset, "_input_dataset", None)


def knows_its_length(dataset: Any) -> bool:
    """Whether a dataset ends where its `cardinality` says: none that filters, or whose length the user claims."""
    kind = type(dataset).__name__.lstrip("_").removeprefix("Parallel").removesuffix("Dataset")
    return kind in _COUNTED and all(map(knows_its_length, dataset._inputs()))


def line_of_call(
    run: Callable[[], Any], methods: tuple[str, ...], is_users: Callable[[str], bool]
) -> tuple[str, int, str] | None:
    """Return file, line and function of the user's last call of one of these methods of datasets, while `run` runs.

    Parameters
    ----------
    run : callable
        Calls the user's feed, as Python; what it raises does not matter.
    is_users : callable
        (path) -> whether a file is the user's.
    """
    found: list[tuple[str, int, str]] = []
    with _recording(methods, is_users, found):
        try:
            run()
        except Exception:  # it is told elsewhere
            return found[-1] if found else None
    return found[-1] if found else None


@contextmanager
def _recording(
    methods: tuple[str, ...], is_users: Callable[[str], bool], found: list[tuple[str, int, str]]
) -> Iterator[None]:
    cls = tf.data.Dataset
    originals = {method: getattr(cls, method) for method in methods}

    def recorder(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            frame: Any = sys._getframe(1)
            while frame is not None and not is_users(frame.f_code.co_filename):
                frame = frame.f_back
            if frame is not None:
                found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
            return original(self, *args, **kwargs)

        return call

    for method, original in originals.items():
        setattr(cls, method, recorder(original))
    try:
        yield
    finally:
        for method, original in originals.items():
            setattr(cls, method, original)


def _length(spec: Any) -> int | None:
    """The first dimension of what a spec stands for, or one of the constants."""
    shape = getattr(spec, "shape", None)
    if shape is None or shape.rank is None:
        return _UNKNOWN
    return shape[0] if shape.rank else _SINGLE
