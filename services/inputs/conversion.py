"""Writing the records of any data as RecordIO or Parquet: one file, there as a whole or not at all."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from edlz.api.example import encode_example
from edlz.api.recordio import Writer
from edlz.services.configuration.data_addresses import is_address
from edlz.services.errors import ConfigError, DataError
from edlz.services.inputs.data import RecordSource
from edlz.services.inputs.known_formats import GZIP, known_formats
from edlz.services.inputs.listing import Listed
from edlz.services.inputs.reading.arrow import arrow_type, require_pyarrow
from edlz.services.inputs.reading.format import CHANGED_HELP
from edlz.services.inputs.reading.records import Columns, Records
from edlz.services.protocol.plan import Column, TaskRange
from edlz.services.storage.durable import fsync_path

__all__ = ["check_target", "convert", "record_blocks"]

BLOCK_RECORDS = 8192
_PARQUET = (".parquet", ".pq")
_WRITTEN = ("RecordIO", "Parquet")
_GROUP_RECORDS = 8 * BLOCK_RECORDS


def record_blocks(listed: Listed, most: int | None = None) -> Iterator[Records]:
    """Yield the records of all shards in their order, some thousand at a time.

    Raises
    ------
    DataError
        If they cannot be read.
    """
    source = RecordSource(listed.source)
    left = sum(shard.count for shard in listed.shards) if most is None else most
    try:
        for shard in listed.shards:
            for first in range(shard.first, shard.first + shard.count, BLOCK_RECORDS):
                count = min(BLOCK_RECORDS, shard.first + shard.count - first, left)
                if not count:
                    return
                left -= count
                yield _read(source, TaskRange(name=shard.name, first=first, count=count))
    finally:
        source.close()


def _read(source: RecordSource, task: TaskRange) -> Records:
    try:
        return source.read(task)
    except DataError as error:
        if error.help != CHANGED_HELP:  # which speaks of a job
            raise
        raise DataError(
            f"{task.name} has changed while it was read", "wait until nobody writes into it, then do it again"
        ) from error


def check_target(given: str) -> Path:
    """Return the file that is to be written.

    Raises
    ------
    ConfigError
        If it exists, cannot be there, or is called as files are that are not written.
    """
    target = Path(given)
    if is_address(given):
        raise ConfigError(
            f"{given} is an address: files are written here alone", "name a file, then copy it there"
        )
    if os.path.lexists(target):
        raise ConfigError(f"{target} exists", "name another file, or remove it first")
    if not target.parent.is_dir():
        raise ConfigError(
            f"{target} cannot be written: there is no folder {target.parent}", f"mkdir -p {target.parent}"
        )
    plain = target.name.lower().removesuffix(GZIP)
    called = next((known.name for known in known_formats().values() if plain.endswith(known.suffixes)), "")
    if called not in ("", *_WRITTEN) or plain != target.name.lower():
        stem = target.with_name(target.name.partition(".")[0])
        raise ConfigError(
            f"{target}: {' and '.join(_WRITTEN)} are written, unpacked, and no other files",
            f"name it {stem}.recordio or {stem}.parquet",
        )
    return target


def convert(listed: Listed, target: Path, on_records: Callable[[int], None] = lambda more: None) -> int:
    """Write all records into one file; return how many they are.

    Records with columns become a tf.train.Example each in RecordIO; byte strings stay what they are.

    Parameters
    ----------
    target : Path
        As `check_target` gives it; Parquet if its name ends so, else RecordIO.
    on_records : callable
        Told of so many more that are written.

    Raises
    ------
    ConfigError
        If the file cannot be written, or Parquet is asked for and records have no columns.
    DataError
        If the records cannot be read, or Parquet has not what is in them; nothing is left behind.
    """
    if target.suffix.lower() in _PARQUET:
        require_pyarrow("Parquet", "name a file x.recordio")
        if listed.source.form != "columns":
            raise ConfigError(
                f"{target}: Parquet needs columns, and records of {listed.source.format} are byte strings",
                f"RecordIO takes them: {target.with_suffix('.recordio')}",
            )
    unfinished = target.with_name(f".{target.name}-{secrets.token_hex(4)}")
    try:
        write = _write_parquet if target.suffix.lower() in _PARQUET else _write_recordio
        count = write(unfinished, listed, on_records)
        expected = sum(shard.count for shard in listed.shards)
        if count != expected:
            raise DataError(f"{count} records were read, and there are {expected}", "convert it again")
        fsync_path(unfinished)
        unfinished.replace(target)
        fsync_path(target.parent)
        return count
    except OSError as error:
        reason = error.strerror or (
            os.strerror(error.errno) if error.errno else error
        )  # pyarrow's have numbers alone
        raise ConfigError(f"{target} cannot be written: {reason}") from error
    finally:
        with suppress(OSError):
            unfinished.unlink()


def _write_recordio(path: Path, listed: Listed, on_records: Callable[[int], None]) -> int:
    count = 0
    with Writer(path) as writer:
        for block in record_blocks(listed):
            for record in block.rows() if isinstance(block, Columns) else block:
                writer.write(record if isinstance(record, bytes) else _example(record))
            count += len(block)
            on_records(len(block))
    return count


def _example(row: dict[str, Any]) -> bytes:
    values = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in row.items()}
    return encode_example(values)


def _write_parquet(path: Path, listed: Listed, on_records: Callable[[int], None]) -> int:
    import pyarrow
    from pyarrow import parquet

    columns, count = listed.source.columns, 0
    schema = pyarrow.schema([(column.name, _arrow_type(column)) for column in columns])
    with open(path, "wb") as file, parquet.ParquetWriter(file, schema) as writer:
        waiting: list[Any] = []
        for block in record_blocks(listed):
            assert isinstance(block, Columns)
            waiting.append(
                pyarrow.table([_arrow_array(c, block.values[c.name]) for c in columns], schema=schema)
            )
            count += len(block)
            on_records(len(block))
            if sum(part.num_rows for part in waiting) >= _GROUP_RECORDS:
                writer.write_table(pyarrow.concat_tables(waiting))
                waiting.clear()
        if waiting:
            writer.write_table(pyarrow.concat_tables(waiting))
    return count


def _arrow_type(column: Column) -> Any:
    import pyarrow

    kind = arrow_type(column.kind)
    return pyarrow.list_(kind, column.width) if column.width else kind


def _arrow_array(column: Column, values: Any) -> Any:
    import pyarrow

    flat = values.reshape(-1)
    if column.kind == "string":
        try:
            array = pyarrow.array(flat.tolist(), pyarrow.binary()).cast(pyarrow.string())
        except pyarrow.ArrowInvalid as error:
            raise DataError(
                f'column "{column.name}" has bytes that are not UTF-8, and texts in Parquet are',
                "RecordIO takes them: name a file x.recordio",
            ) from error
    else:
        array = pyarrow.array(flat, arrow_type(column.kind))
    return pyarrow.FixedSizeListArray.from_arrays(array, column.width) if column.width else array
