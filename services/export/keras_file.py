"""A Keras file, of Keras' own layers: it loads wherever Keras is, without edlz.

An unbounded table becomes an IntegerLookup of its ids before an Embedding of its rows.  All ids without a row share
row 0 there, and the whole model is in memory while it is saved, twice.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edlz.api.embedding import Embedding
from edlz.services.errors import ConfigError
from edlz.services.export.loaded_model import LoadedModel
from edlz.services.export.plain_weights import give_plain_weights
from edlz.services.export.table_content import TableContent, UnknownIds
from edlz.services.export.tensorflow_errors import as_os_error
from edlz.services.export.unknown_row import RowSum, mean_initial, unknown_row
from edlz.services.worker.backend import keras

__all__ = ["MAX_BYTES", "MAX_ROWS", "own_classes", "refuse_unfit", "write_keras_file"]

MAX_ROWS = 2_000_000  # the ids of a table are text in the file: 3 s for a million
MAX_BYTES = 2 << 30
_UNKNOWN = range(-(2**62), -(2**62) - 10**9, -1)  # what may stand for "no id", the first that is none
_INSTEAD = "export a SavedModel, which takes any model: edlz export … FOLDER"


def refuse_unfit(model: LoadedModel, unknown_ids: UnknownIds | None) -> None:
    """Check that a model can be a Keras file of stock layers.

    Parameters
    ----------
    unknown_ids : UnknownIds or None
        None: whatever the file can have.

    Raises
    ------
    ConfigError
        If it cannot.
    """
    kind = type(model.model)
    if kind not in (keras.Model, keras.Sequential) and kind.__name__ != "Functional":
        raise _unfit(f"{kind.__name__} is a class of its own, whose code would be needed to load it")
    size = sum(variable.value.numpy().nbytes for variable in model.model.variables)
    for content in model.tables:
        layer = model.layer_of(content)
        rows = model.size_of(content) if model.is_plain(content) else content.row_count
        size += rows * 4 * content.dim
        if model.is_plain(content):
            continue
        if rows > MAX_ROWS:
            raise _unfit(f"table {layer.name} has {rows:,} rows, more than {MAX_ROWS:,}")
        for option, is_set in (("a combiner", layer.combiner is not None), ("mask_zero", layer.mask_zero)):
            if is_set:
                raise _unfit(f"layer {layer.name} has {option}, which Keras' own layers do not have")
        if unknown_ids == "initial" and content.initializer.kind != "constant":
            raise _unfit(
                f"unknown_ids=initial: the initial values of {layer.name} are random, and all unknown ids "
                "share one row there"
            )
    if size > MAX_BYTES:
        raise _unfit(f"the model has {size / 1e9:.1f} GB, more than {MAX_BYTES / 1e9:.1f} GB")


def own_classes(model: LoadedModel) -> list[str]:
    """Return the classes of the model's layers that are not Keras' own: code is needed to load them."""
    kinds = {type(layer) for layer in model.model._flatten_layers() if not isinstance(layer, Embedding)}
    foreign = [kind for kind in kinds if not kind.__module__.startswith(("keras.", "edlz.services."))]
    return sorted(kind.__name__ for kind in foreign)


def write_keras_file(
    model: LoadedModel, path: Path, scratch: Path, unknown_ids: UnknownIds | None = None
) -> None:
    """Write the file; the model's layers are changed by that, so it is the last thing done with them.

    Raises
    ------
    ConfigError
        If the model does not fit: see `refuse_unfit`.
    DataError
        If the state's files are damaged.
    OSError
        If the disk is full or fails.
    """
    refuse_unfit(model, unknown_ids)
    whole = model.model
    stock = {
        id(model.layer_of(content)): _stock_layers(model.layer_of(content), content, scratch, unknown_ids)
        for content in model.tables
        if not model.is_plain(content)
    }
    give_plain_weights(model, scratch)
    if stock:
        whole = keras.models.clone_model(
            whole, clone_function=lambda layer: stock.get(id(layer), (layer,))[0], recursive=True
        )
        _refuse_hidden(whole)
        for layers, rows in stock.values():
            layers.layers[-1].set_weights([rows])
    with as_os_error(path):
        whole.save(str(path))


def _stock_layers(
    layer: Any, content: TableContent, scratch: Path, unknown_ids: UnknownIds | None
) -> tuple[Any, Any]:
    """Return what takes the place of a table's layer, and the rows of its weight."""
    blocks, trained = list(content.rows(scratch)), RowSum(content.dim)
    ids = np.concatenate([np.empty(0, np.int64), *(ids for ids, _ in blocks)])
    for _, values in blocks:
        trained.add(values)
    if unknown_ids is None and content.initializer.kind != "constant":
        first = np.full((1, content.dim), mean_initial(content.initializer), np.float32)
    else:
        first = unknown_row(content, trained, unknown_ids or "initial")
    if not len(ids):  # a vocabulary has one id at least
        ids, blocks = np.zeros(1, np.int64), [(ids, first)]
    lookup = keras.layers.IntegerLookup(
        vocabulary=ids, mask_token=None, oov_token=_no_id(ids), name=f"{layer.name}_places"
    )
    rows = keras.layers.Embedding(
        len(ids) + 1, content.dim, name=f"{layer.name}_rows", dtype=layer.dtype_policy
    )
    together = keras.Sequential([lookup, rows], name=layer.name)
    return together, np.concatenate([first, *(values for _, values in blocks)])


def _no_id(ids: npt.NDArray[np.int64]) -> int:
    """Return a number that is none of these ids."""
    return next(number for number in _UNKNOWN if not (ids == number).any())


def _refuse_hidden(model: Any) -> None:
    """A table inside of a layer of the user's own cannot be replaced from outside."""
    hidden = [layer.name for layer in model._flatten_layers() if isinstance(layer, Embedding)]
    if hidden:
        raise _unfit(f"table {hidden[0]} is inside of a layer of its own class, where it cannot be replaced")


def _unfit(reason: str) -> ConfigError:
    return ConfigError(f"a .keras file cannot have this model: {reason}", _INSTEAD)
