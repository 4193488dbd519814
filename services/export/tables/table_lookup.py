"""How a served model looks rows up: with TensorFlow's own operations, from variables that are filled on the disk.

While the model is traced the variables are empty; their shapes are open, so that what is written into the files
later may have any number of rows (see `variable_files`).
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from tensorflow.python.ops import gen_lookup_ops, lookup_ops

from edlz.core_ext.table import Initializer
from edlz.services.export.tables.initial_values import InitialValues
from edlz.services.export.tables.table_content import UnknownIds
from edlz.services.worker.engine.tensorflow.backend import tf

__all__ = ["IdTable", "WholeTable"]


class LookedUp(Protocol):
    """What is to be known of a table whose rows are looked up."""

    @property
    def dim(self) -> int:
        """The length of a row."""

    @property
    def initializer(self) -> Initializer:
        """What rows begin with."""

    @property
    def seed(self) -> int:
        """The table's own."""


class IdTable(tf.Module):  # type: ignore[misc]
    """A table of any ids: a hash table gives the row's place, place 0 is that of ids without a row.

    Parameters
    ----------
    unknown_ids : UnknownIds
        With "initial" the rows of ids without one are computed where they are needed.
    ids, rows : ndarray, optional
        What is in the variables, where it is not written to the disk later.

    Attributes
    ----------
    ids : int64 variable, shape (n,)
    rows : float32 variable, shape (1 + n, dim)
    """

    def __init__(
        self,
        content: LookedUp,
        unknown_ids: UnknownIds,
        ids: npt.NDArray[np.int64] | None = None,
        rows: npt.NDArray[np.float32] | None = None,
    ) -> None:
        super().__init__()
        self._dim = content.dim
        ids = np.zeros(1, np.int64) if ids is None else ids
        rows = np.zeros((2, content.dim), np.float32) if rows is None else rows
        self.ids = tf.Variable(ids, shape=[None], trainable=False, name="ids")
        self.rows = tf.Variable(rows, shape=[None, content.dim], trainable=False, name="rows")
        self._places = tf.lookup.StaticHashTable(_PlacesOfIds(self.ids), 0)
        is_computed = unknown_ids == "initial" and content.initializer.kind != "constant"
        self._initial = InitialValues(content.initializer, content.seed, content.dim) if is_computed else None

    def __call__(self, layer: Any, ids: Any) -> Any:
        """Return the rows of flat int64 ids: a `Source`."""
        places = self._places.lookup(ids)
        rows = tf.ensure_shape(tf.gather(self.rows, places), [None, self._dim])
        if self._initial is None:
            return rows
        is_unknown = tf.equal(places, 0)
        return tf.cond(
            tf.reduce_any(is_unknown), lambda: self._with_initial(rows, ids, is_unknown), lambda: rows
        )

    def _with_initial(self, rows: Any, ids: Any, is_unknown: Any) -> Any:
        assert self._initial is not None
        computed = self._initial(tf.boolean_mask(ids, is_unknown))
        return tf.tensor_scatter_nd_update(rows, tf.where(is_unknown), computed)


class WholeTable(tf.Module):  # type: ignore[misc]
    """A table of known size: the weight that a plain embedding layer has.

    Attributes
    ----------
    rows : float32 variable, shape (input_dim, dim)
    """

    def __init__(self, content: LookedUp) -> None:
        super().__init__()
        self._dim = content.dim
        nothing = np.zeros((1, content.dim), np.float32)
        self.rows = tf.Variable(nothing, shape=[None, content.dim], trainable=False, name="rows")

    def __call__(self, layer: Any, ids: Any) -> Any:
        """Return the rows of flat int64 ids: a `Source`."""
        return tf.ensure_shape(tf.gather(self.rows, ids), [None, self._dim])


class _PlacesOfIds(lookup_ops.TableInitializerBase):  # type: ignore[misc]
    """Fills a hash table from a variable of ids: the k-th one has place k + 1.

    Loaders restore the variables first and run this then, so the ids are nowhere in the graph.
    """

    def __init__(self, ids: Any) -> None:
        super().__init__(tf.int64, tf.int64)
        self._ids = ids

    def initialize(self, table: Any) -> Any:
        ids = self._ids.read_value()
        places = tf.range(1, tf.size(ids, out_type=tf.int64) + 1)
        return gen_lookup_ops.lookup_table_import_v2(table.resource_handle, ids, places)
