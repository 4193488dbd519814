"""Functions of structures of tensors, traced once and called with little Python in between; and so the elements of a dataset.

TensorFlow's own call of a concrete function binds arguments to a signature, looks for tapes that record, and
makes ready to explain an error: 0.15 to 0.25 ms each time, which is 2 % of a small step.  Here a call hands the
runtime a flat list of tensors.  The iterator of a dataset takes a third of the Python of its own one (0.2 ms an element).
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tensorflow.python.data.util import structure
from tensorflow.python.eager import context, execute
from tensorflow.python.ops import gen_dataset_ops

from edlz.services.worker.engine.tensorflow.autograph import to_be_traced
from edlz.services.worker.engine.tensorflow.backend import tf

__all__ = ["DatasetIterator", "TracedFunction", "flat_tensors", "packed"]


def flat_tensors(structure: Any) -> list[Any]:
    """Return the tensors of a structure, or of its spec, those of sparse and ragged ones each by itself."""
    flat: list[Any] = tf.nest.flatten(structure, expand_composites=True)
    return flat


def packed(spec: Any, tensors: Sequence[Any]) -> Any:
    """Return the structure of this spec that has these tensors: the inverse of `flat_tensors`."""
    return tf.nest.pack_sequence_as(spec, tensors, expand_composites=True)


class TracedFunction:
    """A concrete function, called by the tensors of its inputs.

    The caller sees to it that they are as the function was traced: nothing checks them before the kernels do.

    Parameters
    ----------
    concrete : ConcreteFunction
        Kept alive, with what it captured.
    """

    def __init__(self, concrete: Any) -> None:
        self._concrete = concrete
        self._captured = list(concrete.captured_inputs)
        self._context = context.context()
        # All of it is fixed once TensorFlow's threads are: finding it anew costs as much as the call.
        self._attributes = tuple(
            itertools.chain.from_iterable(self._context.function_call_options.as_attrs().items())
        )
        self._name = concrete._inference_function.name.decode()
        self._output_count = len(concrete.outputs)

    @classmethod
    def trace(cls, function: Callable[..., Any], specs: Sequence[Any]) -> "TracedFunction":
        """Trace a function of as many tensors; see `within_autograph`."""
        return cls(to_be_traced(function, list(specs)).get_concrete_function())

    @property
    def graph(self) -> Any:
        return self._concrete.graph

    def __call__(self, tensors: Sequence[Any]) -> Any:
        """Return what the function returns, as a structure."""
        return self._concrete._call_flat(list(tensors), self._captured)

    def flat(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the tensors of what the function returns; the faster call.

        Raises
        ------
        tf.errors.OpError
            If a kernel refuses the values.
        """
        outputs: list[Any] = execute.execute(
            self._name, self._output_count, [*tensors, *self._captured], self._attributes, self._context
        )
        return outputs


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
