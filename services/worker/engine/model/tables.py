"""The embedding tables of a model: which layers they belong to, and the ids of a minibatch in them.

A table's number is its place in the model's order of layers, the same in every process.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edlz.api.embedding import Embedding
from edlz.core_ext.ids import group_ids
from edlz.services.worker.core.computation import GroupedIds
from edlz.services.worker.engine.model.embedding_replacement import TableEmbedding, keep_dense

__all__ = ["Places", "blocks_of", "check_range", "find_tables", "group_tables", "table_path"]

Ids = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]


def find_tables(model: Any) -> tuple[Any, ...]:
    """Return the layers of a built model whose rows partitions keep."""
    found = {id(layer): layer for layer in model._flatten_layers()}
    for layer in found.values():
        if isinstance(layer, TableEmbedding) and not layer.trainable:  # frozen after it was built
            keep_dense(layer, "it is not trained")
    return tuple(layer for layer in found.values() if isinstance(layer, Embedding | TableEmbedding))


def blocks_of(layers: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    """Return the numbers of the tables, those whose rows are of one length together."""
    blocks: dict[int, list[int]] = {}
    for number, layer in enumerate(layers):
        blocks.setdefault(layer.output_dim, []).append(number)
    return tuple(tuple(block) for block in blocks.values())


def table_path(layer: Any) -> str:
    """Return the path that the weight of an embedding layer has, or would have."""
    return f"{layer.path or layer.name}/embeddings"


def check_range(layer: Any, ids: Ids) -> None:
    """Check that the ids are rows of a layer's table, and are those that the user meant.

    Raises
    ------
    ValueError
        If one is not; the message names it.
    """
    if not ids.size:
        return
    size, below = layer.input_dim, layer.ids_below
    if (
        size is not None and int(ids.view(np.uint64).max()) >= size
    ):  # a negative one is larger than all others
        wrong = int(ids[(ids < 0) | (ids >= size)][0])
        raise ValueError(f"layer {layer.name}: id {wrong} is not within [0, {size})")
    if below is not None and not -below < int(ids.min()) <= int(ids.max()) < below:
        wrong = int(ids[(ids <= -below) | (ids >= below)][0])
        raise ValueError(
            f"layer {layer.name}: id {wrong} came as a floating-point number, and those from {below:,} on are rounded: "
            "several ids would share a row"
        )


def group_tables(
    layers: Sequence[Any], ids: Sequence[Ids], partitions: int
) -> tuple[tuple[GroupedIds, ...], list[Places]]:
    """Group the ids of each table.

    Parameters
    ----------
    ids : sequence of ndarray, shape (n,), int64
        Of each table, with repetitions.

    Returns
    -------
    groups : tuple of GroupedIds
    places : list of ndarray, shape (n,), int32
        Where in the table's group each id is.

    Raises
    ------
    ValueError
        If an id is not one of its table.
    """
    groups, places = [], []
    for layer, of_table in zip(layers, ids, strict=True):
        check_range(layer, of_table)
        unique, counts, where = group_ids(of_table, partitions)
        groups.append(GroupedIds(unique, counts))
        places.append(where)
    return tuple(groups), places
