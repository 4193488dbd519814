"""A model with its tables in this process, for whoever goes on with it in Python."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from tensorflow.python.framework import config

from edlz.services.configuration.job_config import JobConfig
from edlz.services.export.loaded_model import LoadedModel, give_plain_weights
from edlz.services.export.tables.table_content import RowSum, TableContent, UnknownIds, unknown_row
from edlz.services.export.tables.table_lookup import IdTable
from edlz.services.protocol.plan import Plan
from edlz.services.storage.whole_cut import WholeCut

__all__ = ["keras_model"]


def keras_model(settings: JobConfig, plan: Plan, cut: WholeCut, unknown_ids: UnknownIds = "initial") -> Any:
    """Return the Keras model of a job; its tables are in memory, and it needs no servers.

    Rows of `edlz.api.Embedding` are looked up but not trained: they are no weights of the model.

    Parameters
    ----------
    settings, plan, cut
        As of LoadedModel.

    Raises
    ------
    ModelError, DataError
        As LoadedModel; a DataError also if the state's files are damaged.
    """
    was_deterministic = config.is_op_determinism_enabled()  # a setting of the process, which is not ours
    try:
        model = LoadedModel(settings, plan, cut)
        with tempfile.TemporaryDirectory(prefix="edlz-load-") as scratch:
            for content in model.tables:
                if not model.is_plain(content):
                    model.layer_of(content).source = _table(content, Path(scratch), unknown_ids)
            give_plain_weights(model, Path(scratch))
    finally:
        if not was_deterministic:
            config.disable_op_determinism()
    return model.model


def _table(content: TableContent, scratch: Path, unknown_ids: UnknownIds) -> IdTable:
    count, first = content.row_count, 0
    ids = np.zeros(max(1, count), np.int64)
    rows = np.empty((len(ids) + 1, content.dim), np.float32)
    trained = RowSum(content.dim)
    for block, values in content.rows(scratch):
        end = first + len(block)
        ids[first:end], rows[first + 1 : end + 1] = block, values
        trained.add(values)
        first = end
    rows[0] = unknown_row(content, trained, unknown_ids)
    if not count:  # a hash table has one id at least
        rows[1] = content.initial_rows(ids)[0] if unknown_ids == "initial" else rows[0]
    return IdTable(content, unknown_ids, ids, rows)
