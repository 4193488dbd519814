"""A SavedModel that plain TensorFlow runs: the graph first, with empty tables, then the variables' files."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from tensorflow.python.saved_model import fingerprinting_utils

from edlz.services.export.loaded_model import LoadedModel
from edlz.services.export.served import Served
from edlz.services.export.tables.table_content import RowSum, TableContent, UnknownIds, unknown_row
from edlz.services.export.tables.table_lookup import IdTable, WholeTable
from edlz.services.export.tensorflow_errors import as_os_error
from edlz.services.export.variable_files import Slice, VariableFiles, key_of

__all__ = ["write_saved_model"]


def write_saved_model(
    model: LoadedModel, folder: Path, scratch: Path, unknown_ids: UnknownIds
) -> tuple[str, ...]:
    """Write a SavedModel; return the names of its signatures.

    Parameters
    ----------
    folder : Path
        Exists.
    scratch : Path
        A folder with room for the largest table.

    Raises
    ------
    ModelError
        If the model cannot be traced or saved.
    DataError
        If the state's files are damaged.
    OSError
        If the disk is full or fails.
    """
    tables = [
        WholeTable(content) if model.is_plain(content) else IdTable(content, unknown_ids)
        for content in model.tables
    ]
    served = Served(model.job, tables)
    with as_os_error(folder):
        served.save(str(folder))
    if not tables:
        return tuple(served.signatures)
    files = VariableFiles(folder)
    for place, content in enumerate(model.tables):
        for slices in _slices(model, place, content, scratch, unknown_ids):
            files.write(slices)
    files.finish()
    with as_os_error(folder):
        fingerprinting_utils.write_fingerprint(str(folder))
    return tuple(served.signatures)


def _slices(
    model: LoadedModel, place: int, content: TableContent, scratch: Path, unknown_ids: UnknownIds
) -> Iterator[Sequence[Slice]]:
    """Return what is written of a table's variables, file by file."""
    ids_key, rows_key = key_of(f"tables/{place}/ids"), key_of(f"tables/{place}/rows")
    if model.is_plain(content):
        size = model.size_of(content)
        for first, values in content.whole(size, scratch):
            yield [Slice(rows_key, size, first, values)]
        return
    # A hash table cannot be filled from nothing, so a table without rows has one that says what unknown ids get.
    count = max(1, content.row_count)
    trained, first = RowSum(content.dim), 0
    for ids, values in content.rows(scratch):
        if unknown_ids == "mean":
            trained.add(values)
        yield [Slice(ids_key, count, first, ids), Slice(rows_key, count + 1, first + 1, values)]
        first += len(ids)
    unknown = unknown_row(content, trained, unknown_ids)
    yield [Slice(rows_key, count + 1, 0, unknown)]
    if not content.row_count:
        none = np.zeros(1, np.int64)
        row = content.initial_rows(none) if unknown_ids == "initial" else unknown
        yield [Slice(ids_key, 1, 0, none), Slice(rows_key, 2, 1, row)]
