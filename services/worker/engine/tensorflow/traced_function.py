"""Functions of structures of tensors, traced once and called with little Python in between; and so the elements of a dataset.

TensorFlow's own call of a concrete function binds arguments to a signature, looks for tapes that record, and
makes ready to explain an error: 0.15 to 0.25 ms each time, which is 2 % of a small step.  Here a call hands the
runtime a flat list of tensors.  The iterator of a dataset takes a third of the Python of its own one (0.2 ms an element).
"""

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tensorflow.python.data.util import structure
from tensorflow.python.eager import context, execute
from tensorflow.python.ops import gen_dataset_ops

from edlz.services.worker.engine.tensorflow.autograph import to_be_traced
from edlz.services.worker.engine.tensorflow.backend import tf

__all__ = ["DatasetIterator", "TracedFunction", "flat_tensors", "packed", "packer"]


def flat_tensors(structure: Any) -> list[Any]:
    """Return the tensors of a structure, or of its spec, those of sparse and ragged ones each by itself."""
    flat: list[Any] = tf.nest.flatten(structure, expand_composites=True)
    return flat


def packed(spec: Any, tensors: Sequence[Any]) -> Any:
    """Return the structure of this spec that has these tensors: the inverse of `flat_tensors`."""
    return tf.nest.pack_sequence_as(spec, tensors, expand_composites=True)


def packer(spec: Any) -> Callable[[Sequence[Any]], Any]:
    """Return `packed` of a spec, as a function that does not look at it again where it is tuples and dicts of dense tensors."""
    return _builder(spec, itertools.count()) if _is_plain(spec) else functools.partial(packed, spec)


def _is_plain(spec: Any) -> bool:
    if type(spec) is tf.TensorSpec:
        return True
    parts = spec.values() if type(spec) is dict else spec
    return type(spec) in (tuple, dict) and all(map(_is_plain, parts))


def _builder(spec: Any, places: Iterator[int]) -> Callable[[Sequence[Any]], Any]:
    if type(spec) is tf.TensorSpec:
        return operator.itemgetter(next(places))
    if type(spec) is tuple:
        parts = [_builder(part, places) for part in spec]
        return lambda tensors: tuple([part(tensors) for part in parts])
    builders = {key: _builder(spec[key], places) for key in sorted(spec)}  # as TensorFlow counts them
    named = [(key, builders[key]) for key in spec]
    return lambda tensors: {key: part(tensors) for key, part in named}


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
        spec = dataset.element_spec
        is_dense = all(type(leaf) is tf.TensorSpec for leaf in tf.nest.flatten(spec))
        self._pack = (
            packer(spec) if is_dense else functools.partial(structure.from_compatible_tensor_list, spec)
        )
        self._types = [int(kind.as_datatype_enum) for kind in structure.get_flat_tensor_types(spec)]
        self._shapes = [None] * len(self._types)  # it goes through them each time, and tensors have their own

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            tensors = gen_dataset_ops.iterator_get_next(
                self._iterator._iterator_resource, output_types=self._types, output_shapes=self._shapes
            )
        except tf.errors.OutOfRangeError as e:
            raise StopIteration from e
        return self._pack(tensors)
