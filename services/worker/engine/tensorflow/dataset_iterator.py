"""Iterating over a tf.data.Dataset, with a third of the Python that its own iterator takes (0.2 ms an element)."""

from collections.abc import Iterator
from typing import Any

from tensorflow.python.data.util import structure
from tensorflow.python.ops import gen_dataset_ops

from edlz.services.worker.engine.tensorflow.backend import tf
from edlz.services.worker.engine.tensorflow.traced_function import packed

__all__ = ["DatasetIterator"]


class DatasetIterator:
    """The elements of a dataset, in eager mode.

    Raises
    ------
    Exception
        From `next`: whatever the dataset's functions raise.
    """

    def __init__(self, dataset: Any) -> None:
        self._iterator = iter(dataset)  # it owns the resource
        self._spec = dataset.element_spec
        self._is_dense = all(type(leaf) is tf.TensorSpec for leaf in tf.nest.flatten(self._spec))
        self._types = structure.get_flat_tensor_types(self._spec)
        self._shapes = structure.get_flat_tensor_shapes(self._spec)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            tensors = gen_dataset_ops.iterator_get_next(
                self._iterator._iterator_resource, output_types=self._types, output_shapes=self._shapes
            )
        except tf.errors.OutOfRangeError as e:
            raise StopIteration from e
        if self._is_dense:
            return packed(self._spec, tensors)
        return structure.from_compatible_tensor_list(self._spec, tensors)
