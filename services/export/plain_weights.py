"""Plain embeddings that became tables, given back to their layers as the weights that they are in plain Keras."""

from pathlib import Path

import numpy as np

from edlz.services.export.loaded_model import LoadedModel
from edlz.services.export.tables.table_content import TableContent
from edlz.services.worker.engine.model.embedding_replacement import give_weight

__all__ = ["give_plain_weights"]


def give_plain_weights(model: LoadedModel, scratch: Path) -> None:
    """Give each plain layer of the model its weight, in memory.

    Parameters
    ----------
    scratch : Path
        A folder with room for the largest table.

    Raises
    ------
    DataError
        If the state's files are damaged.
    """
    for content in model.tables:
        if model.is_plain(content):
            _give(model, content, scratch)


def _give(model: LoadedModel, content: TableContent, scratch: Path) -> None:
    layer, size = model.layer_of(content), model.size_of(content)
    values = np.empty((size, content.dim), np.float32)
    for first, block in content.whole(size, scratch):
        values[first : first + len(block)] = block
    give_weight(layer)
    layer.embeddings.assign(values)
