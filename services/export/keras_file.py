"""A Keras file, of Keras' own layers: it loads wherever Keras is, without edlz.

An unbounded table becomes an IntegerLookup of its ids before an Embedding of its rows.  All ids without a row share
row 0 there, and the whole model is in memory while it is saved, twice.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from edlz.api.embedding import Embedding
from edlz.services.errors import ConfigError
from edlz.services.export.loaded_model import LoadedModel, give_plain_weights
from edlz.services.export.tables.table_content import (
    RowSum,
    TableContent,
    UnknownIds,
    mean_initial,
    unknown_row,
)
from edlz.services.export.tensorflow_errors import as_os_error
from edlz.services.worker.engine.model.embedding_replacement import TableEmbedding
from edlz.services.worker.engine.model.initializers import initializer_spec
from edlz.services.worker.engine.model.keras_model import BuiltModel
from edlz.services.worker.engine.tensorflow.backend import keras

__all__ = ["MAX_BYTES", "MAX_ROWS", "own_classes", "refuse_unfit", "refuse_unfit_model", "write_keras_file"]

MAX_ROWS = 2_000_000  # the ids of a table are text in the file: 3 s for a million
MAX_BYTES = 2 << 30
_UNKNOWN = range(
    -(2**62), -(2**62) - 10**9, -1
)  # what may stand for "no id", the first of them that is not an id
_INSTEAD = "a SavedModel takes any model: name a folder to export to, and no keras in --output_format"


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
    rows = {model.layer_of(content).name: content.row_count for content in model.tables}
    refuse_unfit_model(model.job.built, unknown_ids, rows)


def refuse_unfit_model(
    built: BuiltModel, unknown_ids: UnknownIds | None, rows: Mapping[str, int] = MappingProxyType({})
) -> None:
    """Check the same of a model that need not be trained yet.

    Parameters
    ----------
    rows : mapping of str to int
        How many each of its unbounded tables has, by the name of the layer; unknown before training.

    Raises
    ------
    ConfigError
        If it cannot.
    """
    kind = type(built.model)
    if kind not in (keras.Model, keras.Sequential) and kind.__name__ != "Functional":
        raise _unfit(f"{kind.__name__} is not a class of Keras, so its code would be needed to load the file")
    size = sum(variable.value.numpy().nbytes for variable in built.model.variables)
    for layer in built.tables:
        is_plain = isinstance(layer, TableEmbedding)
        count = int(layer.input_dim) if is_plain else rows.get(layer.name, 0)
        size += count * 4 * layer.output_dim
        if not is_plain:
            _refuse_unfit_table(layer, count, unknown_ids)
    _refuse_hidden(built)
    if size > MAX_BYTES:
        raise _unfit(f"the model has {size / 1e9:.1f} GB, more than {MAX_BYTES / 1e9:.1f} GB")


def _refuse_unfit_table(layer: Any, rows: int, unknown_ids: UnknownIds | None) -> None:
    if rows > MAX_ROWS:
        raise _unfit(f"table {layer.name} has {rows:,} rows, more than {MAX_ROWS:,}")
    for option, is_set in (("a combiner", layer.combiner is not None), ("mask_zero", layer.mask_zero)):
        if is_set:
            raise _unfit(f"layer {layer.name} has {option}, which Keras' own layers do not have")
    initializer = initializer_spec(layer.embeddings_initializer, layer.input_dim, layer.output_dim)
    if unknown_ids == "initial" and initializer.kind != "constant":
        raise _unfit(
            f"unknown_ids=initial: the initial values of {layer.name} are random, and all unknown ids "
            "share one row there"
        )


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


def _refuse_hidden(built: BuiltModel) -> None:
    """A table inside of a layer of the user's own cannot be replaced from outside."""
    replaced = {id(layer) for layer in _replaceable(built.model)}
    for layer in built.tables:
        if isinstance(layer, Embedding) and id(layer) not in replaced:
            raise _unfit(
                f"table {layer.name} is inside a layer of the model's own code, where it cannot be replaced"
            )


def _replaceable(model: Any) -> Iterator[Any]:
    """Yield the layers that `clone_model` replaces: those of models inside of the model, too."""
    for layer in model.layers:
        yield layer
        if isinstance(layer, keras.Sequential) or type(layer).__name__ == "Functional":
            yield from _replaceable(layer)


def _unfit(reason: str) -> ConfigError:
    return ConfigError(f"a .keras file cannot have this model: {reason}", _INSTEAD)
