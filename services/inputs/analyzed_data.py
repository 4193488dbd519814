"""The data of an analysis: which columns there are, and how they are read so that nothing is lost."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from edlz.services.errors import ConfigError, DataError
from edlz.services.inputs.data import RecordSource
from edlz.services.inputs.example_values import ExampleError, example_values
from edlz.services.inputs.listing import Listed, list_data
from edlz.services.inputs.reading.columns import no_such_column
from edlz.services.protocol.plan import Column, TaskRange

__all__ = ["chosen_columns", "list_analyzed"]

_FLAG = "--columns"
_LOOKED_AT = 1000  # records whose features are known before a job begins
_EXAMPLES = (
    "what can be analyzed: files with columns (CSV, Parquet), and records that are a tf.train.Example each"
)


def chosen_columns(text: str) -> tuple[str, ...]:
    """Return the names in `--columns`, each once; none for all columns."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def list_analyzed(
    given: str, flag: str, params: str, columns: str, tell: Callable[[str], None], *, is_quick: bool = False
) -> Listed:
    """Return the records to analyze, read as they are written: no value that is missing is replaced, none is rounded.

    Parameters
    ----------
    columns : str
        `--columns`.
    given, flag, params, tell, is_quick
        As of `list_data`.

    Raises
    ------
    ConfigError, DataError
        As `list_data`; or if a column is not there, or records have none.
    """
    listed = list_data(given, flag, params, tell, is_quick=is_quick, leaves_out=True)
    wanted = chosen_columns(columns)
    source = listed.source
    if source.form == "bytes":
        _check_examples(listed, wanted)
        return listed
    _refuse_unknown(wanted, [column.name for column in source.columns])
    chosen = tuple(_unrounded(one) for one in source.columns if not wanted or one.name in wanted)
    return replace(listed, source=msgspec.structs.replace(source, columns=chosen, masks=True))


def _unrounded(column: Column) -> Column:
    return msgspec.structs.replace(column, kind="float64") if column.kind == "float32" else column


def _check_examples(listed: Listed, wanted: Sequence[str]) -> None:
    """See that the first records have features, and those that are wanted among them."""
    shard, source = listed.shards[0], RecordSource(listed.source)
    try:
        records = source.read(
            TaskRange(name=shard.name, first=shard.first, count=min(shard.count, _LOOKED_AT))
        )
    finally:
        source.close()
    assert isinstance(records, list)
    try:
        found = example_values(records)
    except ExampleError as error:
        raise DataError(f"record {shard.first + error.place} of {shard.name} {error}", _EXAMPLES) from error
    _refuse_unknown(wanted, list(found))


def _refuse_unknown(wanted: Sequence[str], names: Sequence[str]) -> None:
    for name in wanted:
        if name not in names:
            raise ConfigError(*no_such_column(_FLAG, name, names))
