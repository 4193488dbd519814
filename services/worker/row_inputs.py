"""How the rows of a minibatch get into a traced function, and its rows' gradients out of it.

Fed are, for each table, the distinct rows; for all lookups together, one vector of places (which of them each
id means); and the lengths of the lookups.  Lookups are ordered by table, then as the model calls.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edlz.core_ext.ids import sum_rows
from edlz.core_ext.memory import ALIGNMENT_BYTES, aligned_empty
from edlz.services.errors import LocalProtocolError
from edlz.services.worker.backend import tf
from edlz.services.worker.ids_function import IdsFunction
from edlz.services.worker.lookups import Gathered
from edlz.services.worker.tables import Places
from edlz.services.worker.vectors import shared_array, shared_tensor

__all__ = ["Located", "RowInputs", "row_tensors"]

Rows = npt.NDArray[np.float32]


class Located:
    """Where in the rows of its tables each id of a minibatch is.

    Parameters
    ----------
    places : sequence of ndarray, shape (n,), int32
        Of each table.
    sizes : int32 tensor, shape (lookups,)

    Attributes
    ----------
    tensors : tuple
        What is fed besides the rows.
    """

    def __init__(self, places: Sequence[Places], sizes: Any) -> None:
        joined = aligned_empty(sum(of_table.size for of_table in places), np.int32)
        np.concatenate([np.empty(0, np.int32), *places], out=joined)
        bounds = np.cumsum([0, *(of_table.size for of_table in places)])
        self._places = [joined[a:b] for a, b in itertools.pairwise(bounds)]
        self.tensors = (_tensor(joined), sizes)

    def sum(self, gradients: Sequence[Any], counts: Sequence[int]) -> tuple[Rows, ...]:
        """Return the gradients of the distinct rows, those of equal ids added in the order of the ids.

        Parameters
        ----------
        gradients : sequence of float32 tensors, shape (n, dim)
            One for each id.
        counts : sequence of int
            Distinct rows of each table.
        """
        return tuple(
            sum_rows(shared_array(gradient), places, count)
            for gradient, places, count in zip(gradients, self._places, counts, strict=True)
        )


class RowInputs:
    """The part of a traced function's signature that has to do with rows; nothing, for a model without tables.

    Parameters
    ----------
    layers : sequence of table layers
    function : IdsFunction or None
        None for a model without tables.
    """

    def __init__(self, layers: Sequence[Any], function: IdsFunction | None) -> None:
        self._layers, self._function = layers, function

    @property
    def specs(self) -> list[Any]:
        """The specs of `row_tensors`, then those of `Located.tensors`."""
        if self._function is None:
            return []
        rows = [tf.TensorSpec([None, layer.output_dim]) for layer in self._layers]
        lookups = len(self._function.tables)
        return [*rows, tf.TensorSpec([None], tf.int32), tf.TensorSpec([lookups], tf.int32)]

    def source(self, inputs: Sequence[Any], watch: Callable[[Any], None] = lambda rows: None) -> Gathered:
        """Return the source that serves from these inputs, in the graph that is being traced."""
        assert self._function is not None
        *rows, places, sizes = inputs
        tables = self._function.tables
        pieces = tf.split(places, sizes, num=len(tables)) if len(tables) > 1 else [places]
        return Gathered(self._layers, tables, rows, [pieces[place] for place in self._function.places], watch)

    def by_table(self, gradients: Sequence[Any]) -> list[Any]:
        """Return the gradients of lookups as one tensor for each table, in the order of its ids."""
        assert self._function is not None
        found: list[list[Any]] = [[] for _ in self._layers]
        for table, gradient in zip(self._function.tables, gradients, strict=True):
            found[table].append(tf.convert_to_tensor(gradient))
        return [
            (of_table[0] if len(of_table) == 1 else tf.concat(of_table, 0))
            if of_table
            else tf.zeros([0, layer.output_dim])
            for layer, of_table in zip(self._layers, found, strict=True)
        ]


def row_tensors(layers: Sequence[Any], rows: Sequence[Rows], counts: Sequence[int]) -> tuple[Any, ...]:
    """Return the rows of each table as tensors, sharing their memory where it is 64-byte aligned.

    Raises
    ------
    LocalProtocolError
        If a table has other rows than were found.
    """
    shapes = [(count, layer.output_dim) for count, layer in zip(counts, layers, strict=True)]
    given = [of_table.shape for of_table in rows]
    if given != shapes:
        raise LocalProtocolError(f"rows of shapes {given} came for ids of {shapes}")
    return tuple(_tensor(of_table) for of_table in rows)


def _tensor(array: npt.NDArray[Any]) -> Any:
    flags = array.flags
    can_share = flags.c_contiguous and flags.writeable and array.ctypes.data % ALIGNMENT_BYTES == 0
    return shared_tensor(array) if can_share and array.size else tf.constant(array)
