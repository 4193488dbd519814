"""How the rows of a minibatch get into a traced function, and its rows' gradients out of it.

Tables whose rows are of one length form a block.  Fed are, for each block, the distinct rows of its tables, one
table after another; then one vector of places (which of the block's rows each looked up id means), and the
lengths of the lookups.  So a model with many tables costs few operations.
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
from edlz.services.worker.tables import Places, blocks_of
from edlz.services.worker.vectors import shared_array, shared_tensor

__all__ = ["Located", "RowInputs", "row_tensors"]

Rows = npt.NDArray[np.float32]


class Located:
    """Where in the rows of its tables each id of a minibatch is.

    Parameters
    ----------
    layers : sequence of table layers
    places : sequence of ndarray, shape (n,), int32
        Of each table.
    counts : sequence of int
        Distinct rows of each table.
    sizes : int32 tensor, shape (lookups,)
        As `IdsFunction` gives them.

    Attributes
    ----------
    tensors : tuple
        What is fed besides the rows.
    """

    def __init__(
        self, layers: Sequence[Any], places: Sequence[Places], counts: Sequence[int], sizes: Any
    ) -> None:
        self._blocks, self._counts = blocks_of(layers), counts
        joined = aligned_empty(sum(of_table.size for of_table in places), np.int32)
        self._places: list[Places] = []  # of each block
        end = 0
        for block in self._blocks:
            start, rows = end, 0
            for table in block:
                of_table = places[table]
                np.add(of_table, np.int32(rows), out=joined[end : end + of_table.size])
                end += of_table.size
                rows += counts[table]
            self._places.append(joined[start:end])
        self.tensors = (_tensor(joined), sizes)

    def sum(self, gradients: Sequence[Any]) -> tuple[Rows, ...]:
        """Return the gradients of each table's rows, those of equal ids added in the order of the ids.

        Parameters
        ----------
        gradients : sequence of float32 tensors, shape (n, dim)
            Of each block, one for each id.
        """
        found: list[Rows] = [np.empty((0, 0), np.float32)] * len(self._counts)
        for block, places, gradient in zip(self._blocks, self._places, gradients, strict=True):
            bounds = list(itertools.accumulate((self._counts[table] for table in block), initial=0))
            rows = sum_rows(shared_array(gradient), places, bounds[-1])
            for table, (start, end) in zip(block, itertools.pairwise(bounds), strict=True):
                found[table] = rows[start:end]
        return tuple(found)


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
        self._blocks = blocks_of(layers)

    @property
    def specs(self) -> list[Any]:
        """The specs of `row_tensors`, then those of `Located.tensors`."""
        if self._function is None:
            return []
        rows = [tf.TensorSpec([None, self._layers[block[0]].output_dim]) for block in self._blocks]
        lookups = len(self._function.tables)
        return [*rows, tf.TensorSpec([None], tf.int32), tf.TensorSpec([lookups], tf.int32)]

    def source(
        self, inputs: Sequence[Any], watch: Callable[[Any], None] = lambda rows: None
    ) -> tuple[Gathered, list[Any]]:
        """Return the source that serves from these inputs, in the graph that is being traced.

        Parameters
        ----------
        watch : callable
            Called with the rows of each block before they are served.

        Returns
        -------
        source : Gathered
        rows : list of float32 tensors, shape (n, dim)
            Of each block, one row for each id: what is watched.
        """
        assert self._function is not None
        *rows, places, sizes = inputs
        tables, order = self._function.tables, self._function.order
        lookups = [[lookup for lookup in order if tables[lookup] in block] for block in self._blocks]
        bounds = list(itertools.accumulate(map(len, lookups), initial=0))
        sizes = [sizes[start:end] for start, end in itertools.pairwise(bounds)]
        served: list[Any] = [None] * len(tables)
        watched = []
        for of_block, of_sizes, block_rows, block_places in zip(
            lookups, sizes, rows, _split(places, [tf.reduce_sum(s) for s in sizes]), strict=True
        ):
            gathered = tf.gather(block_rows, block_places)
            watch(gathered)
            watched.append(gathered)
            for lookup, piece in zip(of_block, _split(gathered, of_sizes), strict=True):
                served[lookup] = piece
        return Gathered(self._layers, tables, served), watched


def row_tensors(layers: Sequence[Any], rows: Sequence[Rows], counts: Sequence[int]) -> tuple[Any, ...]:
    """Return the rows of each block as tensors.

    A table that is a block by itself is not copied, if it is 64-byte aligned and writable.

    Raises
    ------
    LocalProtocolError
        If a table has other rows than were found.
    """
    shapes = [(count, layer.output_dim) for count, layer in zip(counts, layers, strict=True)]
    given = [of_table.shape for of_table in rows]
    if given != shapes:
        raise LocalProtocolError(f"rows of shapes {given} came for ids of {shapes}")
    return tuple(_block_tensor([rows[table] for table in block]) for block in blocks_of(layers))


def _block_tensor(rows: Sequence[Rows]) -> Any:
    if len(rows) == 1:
        return _tensor(rows[0])
    count, dim = sum(map(len, rows)), rows[0].shape[1]
    return _tensor(np.concatenate(rows, out=aligned_empty(count * dim, np.float32).reshape(count, dim)))


def _tensor(array: npt.NDArray[Any]) -> Any:
    flags = array.flags
    can_share = flags.c_contiguous and flags.writeable and array.ctypes.data % ALIGNMENT_BYTES == 0
    return shared_tensor(array) if can_share and array.size else tf.constant(array)


def _split(tensor: Any, sizes: Any) -> list[Any]:
    """Return a tensor in pieces of these sizes, which make up the whole."""
    count = len(sizes) if isinstance(sizes, list) else int(sizes.shape[0])
    if count < 2:
        return [tensor] * count
    return list(tf.split(tensor, sizes, num=count))
