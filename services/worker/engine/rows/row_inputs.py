"""How the rows of a minibatch get into a traced function, and its rows' gradients out of it.

Tables whose rows are of one length form a block.  Fed is, for each block, one row for each id that its tables
are asked for, one table after another, and the lengths of the lookups.  So a model with many tables costs few
operations; NumPy copies rows to where they are looked up in half of the time that TensorFlow takes.
"""

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edlz.core_ext.ids import sum_rows
from edlz.core_ext.memory import aligned_empty
from edlz.services.errors import LocalProtocolError
from edlz.services.worker.engine.model.lookups import Gathered
from edlz.services.worker.engine.model.tables import Places, blocks_of
from edlz.services.worker.engine.model.vectors import shared_array, shared_tensor
from edlz.services.worker.engine.rows.ids_function import IdsFunction
from edlz.services.worker.engine.tensorflow.backend import tf

__all__ = ["Located", "RowBuffers", "RowInputs"]

Rows = npt.NDArray[np.float32]


class RowBuffers:
    """Memory for the rows of minibatches, used again as soon as TensorFlow has let go of it."""

    def __init__(self) -> None:
        self._lent: list[tuple[Rows, weakref.ref[Rows]]] = []  # the buffer, and what was given of it

    def take(self, count: int, dim: int) -> Rows:
        """Return an array of shape (count, dim), 64-byte aligned, content undefined."""
        size = count * dim
        fitting = (
            place for place, (buffer, last) in enumerate(self._lent) if last() is None and buffer.size >= size
        )
        place = next(fitting, None)
        buffer = aligned_empty(size + size // 4, np.float32) if place is None else self._lent.pop(place)[0]
        given = buffer[:size].reshape(count, dim)
        self._lent.append((buffer, weakref.ref(given)))
        return given


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
    """

    def __init__(
        self, layers: Sequence[Any], places: Sequence[Places], counts: Sequence[int], sizes: Any
    ) -> None:
        self._blocks, self._counts, self._sizes = blocks_of(layers), counts, sizes
        self._dims = [layer.output_dim for layer in layers]
        self._places = places

    def inputs(self, rows: Sequence[Rows], buffers: RowBuffers) -> tuple[Any, ...]:
        """Return what is fed, with these rows of the tables.

        Raises
        ------
        LocalProtocolError
            If a table has other rows than were found.
        """
        shapes = list(zip(self._counts, self._dims, strict=True))
        given = [of_table.shape for of_table in rows]
        if given != shapes:
            raise LocalProtocolError(f"rows of shapes {given} came for ids of {shapes}")
        return (*(self._spread(block, rows, buffers) for block in self._blocks), self._sizes)

    def _spread(self, block: tuple[int, ...], rows: Sequence[Rows], buffers: RowBuffers) -> Any:
        """Return a block's row for each id."""
        bounds = list(itertools.accumulate((self._places[table].size for table in block), initial=0))
        spread = buffers.take(bounds[-1], self._dims[block[0]])
        for table, (start, end) in zip(block, itertools.pairwise(bounds), strict=True):
            if end > start:
                np.take(rows[table], self._places[table], axis=0, out=spread[start:end], mode="clip")
        return shared_tensor(spread) if spread.size else tf.constant(spread)

    def sum(self, gradients: Sequence[Any]) -> tuple[Rows, ...]:
        """Return the gradients of each table's rows, those of equal ids added in the order of the ids.

        Parameters
        ----------
        gradients : sequence of float32 tensors, shape (n, dim)
            Of each block, one for each id.
        """
        found: list[Rows] = [np.empty((0, 0), np.float32)] * len(self._counts)
        for block, gradient in zip(self._blocks, gradients, strict=True):
            of_ids, end = shared_array(gradient), 0
            for table in block:
                start, end = end, end + self._places[table].size
                found[table] = sum_rows(of_ids[start:end], self._places[table], self._counts[table])
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
        """The specs of `Located.inputs`."""
        if self._function is None:
            return []
        rows = [tf.TensorSpec([None, self._layers[block[0]].output_dim]) for block in self._blocks]
        return [*rows, tf.TensorSpec([len(self._function.tables)], tf.int32)]

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
        *rows, sizes = inputs
        tables, order = self._function.tables, self._function.order
        lookups = [[lookup for lookup in order if tables[lookup] in block] for block in self._blocks]
        bounds = list(itertools.accumulate(map(len, lookups), initial=0))
        sizes = [sizes[start:end] for start, end in itertools.pairwise(bounds)]
        served: list[Any] = [None] * len(tables)
        for of_block, of_sizes, block_rows in zip(lookups, sizes, rows, strict=True):
            watch(block_rows)
            for lookup, piece in zip(of_block, _split(block_rows, of_sizes), strict=True):
                served[lookup] = piece
        return Gathered(self._layers, tables, served), rows


def _split(tensor: Any, sizes: Any) -> list[Any]:
    """Return a tensor in pieces of these sizes, which make up the whole."""
    count = len(sizes) if isinstance(sizes, list) else int(sizes.shape[0])
    if count < 2:
        return [tensor] * count
    return list(tf.split(tensor, sizes, num=count))
