"""`edlz data`: what is in files of data, and other files made of them."""

import json
import math
import sys
from typing import Annotated, Any

import typer

from edlz.client.screen.columns import aligned
from edlz.client.screen.long_work import long_work
from edlz.client.screen.terminal import print_lines
from edlz.client.screen.wording import count_of, size
from edlz.services.inputs.conversion import check_target, record_blocks
from edlz.services.inputs.conversion import convert as convert_records
from edlz.services.inputs.example_values import ExampleError, example_values
from edlz.services.inputs.listing import Listed, list_data
from edlz.services.inputs.reading.records import Columns

__all__ = ["convert", "data", "head", "info"]

_MOST_SHOWN = 100  # letters of a record that is bytes
_MOST_VALUES = 16  # of a feature
_LOOKED_AT = 100  # records, for features
_KINDS = {"string": "string", "float64": "float32", "int64": "int64"}

data = typer.Typer(help="Files of data.", add_completion=False)

_Source = Annotated[str, typer.Argument(metavar="PATH", help="a file, a directory, or a pattern")]
_Params = Annotated[str, typer.Option("--data_reader_params", metavar="K=V;K=V", help="how it is read")]


@data.callback()
def _group() -> None:
    """Files of data: what is in them, and other files made of them."""


@data.command()
def head(
    path: _Source,
    data_reader_params: _Params = "",
    records: Annotated[int, typer.Option(metavar="N", help="how many", min=1)] = 5,
) -> None:
    """Print the first records: a JSON object each, or the bytes as text."""
    listed = _listed(path, data_reader_params)
    for block in record_blocks(listed, records):
        for record in block.rows() if isinstance(block, Columns) else block:
            print(_line(record))


@data.command()
def info(
    path: _Source,
    data_reader_params: _Params = "",
    minibatch_size: Annotated[int, typer.Option(metavar="N", help="records in one gradient", min=1)] = 64,
    num_minibatches_per_task: Annotated[int, typer.Option(metavar="N", help="in one task", min=1)] = 8,
) -> None:
    """Print what there is: records, columns and their types, tasks."""
    listed = _listed(path, data_reader_params)
    source, counts = listed.source, [shard.count for shard in listed.shards]
    per_task = minibatch_size * num_minibatches_per_task
    tasks = sum(-(-count // per_task) for count in counts)
    about = f"of {per_task:,} records: {num_minibatches_per_task} minibatches of {minibatch_size}"
    rows = [
        ["format", source.format],
        ["files", f"{len(counts):,}, {size(sum(file.size_bytes for file in source.files))}"],
        ["records", f"{sum(counts):,}"],
        ["tasks", f"{tasks:,} {about}"],
    ]
    if source.form == "bytes":
        features = _features(listed)
        rows.append(["record", "bytes: a tf.train.Example" if features else "bytes"])
        rows += [["feature", f"{name}: {kind}"] for name, kind in features.items()]
    for column in source.columns:
        rows.append(["column", f"{column.name}: {column.type}"])
    print_lines(aligned(["", ""], rows)[1:])


@data.command()
def convert(
    source: _Source,
    target: Annotated[str, typer.Argument(metavar="FILE", help="x.recordio or x.parquet")],
    data_reader_params: _Params = "",
) -> None:
    """Write all records into one RecordIO or Parquet file, which is there as a whole or not at all."""
    path = check_target(target)
    listed = _listed(source, data_reader_params)
    total = sum(shard.count for shard in listed.shards)
    with long_work(f"converting {source}", noun="record", total=total) as advance:
        count = convert_records(listed, path, advance)
    print(f"{path}  {count_of(count, 'record')}, {size(path.stat().st_size)}")


def _listed(path: str, params: str) -> Listed:
    with long_work(
        f"looking at {path}"
    ):  # text formats are read to the end: nothing else says how many records there are
        return list_data(path, "PATH", params, lambda text: print(f"note: {text}", file=sys.stderr))


def _line(record: bytes | dict[str, Any]) -> str:
    row = _example(record) if isinstance(record, bytes) else record
    if row is None:
        assert isinstance(record, bytes)
        return _shown(record)
    return json.dumps(_plain(row), ensure_ascii=False)


def _features(listed: Listed) -> dict[str, str]:
    """Return the features of the first records and their types, if each is a tf.train.Example."""
    records = next(record_blocks(listed, _LOOKED_AT), [])
    assert isinstance(records, list)
    try:
        return {name: _KINDS[found.kind] for name, found in sorted(example_values(records).items())}
    except ExampleError:
        return {}


def _example(record: bytes) -> dict[str, Any] | None:
    """Return the features of a record that is a tf.train.Example and has some; of many values the first ones."""
    try:
        found = {name: one.array().tolist() for name, one in example_values([record]).items()}
    except ExampleError:
        return None
    for name, values in found.items():
        more = len(values) - _MOST_VALUES
        found[name] = (
            values[0] if len(values) == 1 else values[:_MOST_VALUES] + [f"… {more} more"] * (more > 0)
        )
    return found or None


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as JSON has it; numbers that are not finite are texts, as in all of edlz."""

    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            return value.decode(errors="backslashreplace")
        if hasattr(value, "tolist"):
            return plain(value.tolist())
        if isinstance(value, list):
            return [plain(part) for part in value]
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value

    return {name: plain(value) for name, value in row.items()}


def _shown(record: bytes) -> str:
    """Return a record as text if it is some, else its first bytes."""
    try:
        text = record.decode()
    except UnicodeDecodeError:
        text = ""
    if text.isprintable() and (text or not record):
        return text
    more = " …" if len(record) > _MOST_SHOWN // 3 else ""
    return f"{count_of(len(record), 'byte')}: {record[: _MOST_SHOWN // 3].hex(' ')}{more}"
