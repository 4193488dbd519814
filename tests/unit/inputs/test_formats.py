"""Every format gives the same records for any range, in any order, as what was written; and says so if the file is another one."""

import csv
import gzip
import io
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from edlz.api.example import encode_example
from edlz.core_ext import scanning, scanning_numpy
from edlz.services.errors import DataError
from edlz.services.inputs.data import RecordSource
from edlz.services.inputs.formats import tfrecord as tfrecord_format
from edlz.services.inputs.listing import list_data
from edlz.services.inputs.reading import lines, spans
from edlz.services.inputs.reading.arrow import to_numpy
from edlz.services.inputs.reading.records import Columns
from edlz.services.protocol.plan import Column, TaskRange
from tests import builders
from tests.same_rows import FORMATS, write_rows
from tests.tfrecords import tfrecord

COUNT = 3000
TEXTS = ("plain", "", "a,b", 'say "x"', "two\nlines", "\u00e4\u00f6", "#", "0x1")
examples = settings(deadline=None, max_examples=60)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(spans, "_LEAST_BYTES", 4 << 10)  # many spans in small files


def table(count: int = COUNT) -> dict[str, list[Any]]:
    rng = np.random.default_rng(5)
    x = rng.standard_normal(count).astype(np.float32)
    return {
        "id": rng.integers(-(2**62), 2**62, count).tolist(),
        "x": [None if i % 7 == 0 else float(x[i]) for i in range(count)],
        "text": [TEXTS[i] for i in rng.integers(0, len(TEXTS), count)],
        "ok": [bool(i % 3) for i in range(count)],
    }


def rows_of(columns: dict[str, list[Any]]) -> list[tuple[Any, ...]]:
    return list(zip(*columns.values(), strict=True))


def csv_text(columns: dict[str, list[Any]], **dialect: Any) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, **dialect)
    writer.writerow(columns)
    writer.writerows([["" if value is None else value for value in row] for row in rows_of(columns)])
    return text.getvalue().encode()


def write(name: str, content: bytes) -> None:
    Path(name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


def write_parquet(name: str, columns: dict[str, list[Any]]) -> None:
    kinds = (pyarrow.int64(), pyarrow.float32(), pyarrow.string(), pyarrow.bool_())
    arrays = {k: pyarrow.array(v, kind) for (k, v), kind in zip(columns.items(), kinds, strict=True)}
    parquet.write_table(pyarrow.table(arrays), name, row_group_size=700)


def read(name: str, first: int, count: int, params: str = "", order: Any = None) -> Any:
    return RecordSource(list_data(name, params=params).source).read(
        TaskRange(name=name, first=first, count=count), order
    )


LINES = [bytes([97 + i % 26]) * (i % 90) for i in range(COUNT)]
BYTES: dict[str, Callable[[], bytes]] = {
    "lines.txt": lambda: b"\n".join(LINES) + b"\n",
    "dos.txt": lambda: b"\r\n".join([*LINES[:-1], b"end"]),
    "lines.txt.gz": lambda: b"\n".join(LINES) + b"\n",
    "marked.txt": lambda: b"\xef\xbb\xbf" + b"\n".join(LINES) + b"\n",
    "x.tfrecord": lambda: tfrecord(LINES),
    "x.tfrecord.gz": lambda: tfrecord(LINES),
}
RANGES = [(0, 1), (0, COUNT), (COUNT - 1, 1), (17, 1000), (2048, 300), (5, 0)]


@pytest.mark.parametrize("name", BYTES)
def test_byte_strings(name: str) -> None:
    write(name, BYTES[name]())
    wanted = [*LINES[:-1], b"end"] if name == "dos.txt" else LINES
    listed = list_data(name)
    assert [shard.count for shard in listed.shards] == [COUNT]
    assert len(listed.source.files[0].index) > 12 * 10
    source = RecordSource(listed.source)
    for first, count in RANGES:
        task = TaskRange(name=name, first=first, count=count)
        assert source.read(task) == wanted[first : first + count]
        order = np.random.default_rng(first).permutation(count)
        assert source.read(task, order) == [wanted[first + i] for i in order]


TABLES: dict[str, Callable[[str, dict[str, list[Any]]], None]] = {
    "a.csv": lambda name, columns: write(name, csv_text(columns)),
    "unix.csv": lambda name, columns: write(name, csv_text(columns, lineterminator="\n")),
    "quoted.csv": lambda name, columns: write(name, csv_text(columns, quoting=csv.QUOTE_ALL)),
    "a.csv.gz": lambda name, columns: write(name, csv_text(columns)),
    "a.tsv": lambda name, columns: write(name, csv_text(columns, delimiter="\t")),
    "marked.csv": lambda name, columns: write(name, b"\xef\xbb\xbf" + csv_text(columns)),
    "gaps.csv": lambda name, columns: write(name, csv_text(columns, lineterminator="\r\n\r\n\n")),
    "a.parquet": write_parquet,
}


@pytest.mark.parametrize("name", TABLES)
def test_tables(name: str) -> None:
    columns = table()
    TABLES[name](name, columns)
    listed = list_data(name)
    assert listed.source.columns == (
        Column(name="id", kind="int64"),
        Column(name="x", kind="float32"),
        Column(name="text", kind="string"),
        Column(name="ok", kind="bool"),
    )
    assert [shard.count for shard in listed.shards] == [COUNT]
    source = RecordSource(listed.source)
    wanted = rows_of(columns)
    for first, count in RANGES:
        order = np.random.default_rng(first).permutation(count)
        for places in (None, order):
            found = source.read(TaskRange(name=name, first=first, count=count), places)
            numbers = range(count) if places is None else order
            assert len(found) == count
            for place, row in zip(numbers, found.rows(), strict=True):
                number, x, text, ok = wanted[first + place]
                assert (row["id"], row["text"].decode(), row["ok"]) == (number, text, ok)
                assert row["x"] == x or (x is None and np.isnan(row["x"]))


@pytest.mark.parametrize("name", [*BYTES, *TABLES])
def test_a_file_that_has_changed_is_refused_by_name(name: str) -> None:
    """One of another length when it is opened; one with other content of the same length where that is read."""
    columns = table()
    if name in BYTES:
        write(name, BYTES[name]())
    else:
        TABLES[name](name, columns)
    listed = list_data(name)
    content = bytearray(Path(name).read_bytes())
    Path(name).write_bytes(content + b"\n")
    with pytest.raises(DataError, match=f"^{name} has {len(content) + 1} bytes, and had {len(content)}"):
        RecordSource(listed.source).read(TaskRange(name=name, first=0, count=1))
    content[len(content) // 2] ^= 3
    Path(name).write_bytes(content)
    if name.endswith(
        "parquet"
    ):  # known by its footer, which has the least and greatest values: written anew, it is another
        write_parquet(name, {**columns, "id": [number + 1 for number in columns["id"]]})
    with pytest.raises(DataError, match=f"^{name} ") as error:
        RecordSource(listed.source).read(TaskRange(name=name, first=0, count=COUNT))
    assert error.value.help


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "lines.txt", "x.tfrecord.gz"])
def test_large_files_are_not_counted_before_a_job_is_planned(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in BYTES:
        write(name, BYTES[name]())
    else:
        TABLES[name](name, table())
    whole = list_data(name, is_quick=True)
    assert (whole.is_counted, whole.shards[0].count) == (True, COUNT)
    for module in (lines, tfrecord_format):
        monkeypatch.setattr(module, "QUICK_BYTES", 100)
        monkeypatch.setattr(module, "open_content", None)  # what reads all of a file
    quick = list_data(name, is_quick=True)
    assert not quick.is_counted
    assert quick.source.columns == whole.source.columns


def test_types_stay_what_the_plan_says() -> None:
    write("a.csv", b"id,x\n" + b"1,2\n" * 5)
    write("b.csv", b"x,id\n" + b"1.5,2\n" * 5)
    training = list_data("a.csv")
    assert [column.kind for column in training.source.columns] == ["int64", "int64"]
    other = list_data("b.csv", params="types=x:float64", columns=training.source.columns)
    assert {c.name: c.kind for c in other.source.columns} == {"id": "int64", "x": "float64"}
    with pytest.raises(DataError, match=r'b\.csv, line 2: column "x" has "1.5", which is no int64'):
        list_data("b.csv", columns=training.source.columns)


@pytest.mark.parametrize(
    "kind",
    [
        pyarrow.string(),
        pyarrow.large_string(),
        pyarrow.string_view(),
        pyarrow.binary(),
        pyarrow.large_binary(),
        pyarrow.binary_view(),
        pyarrow.binary(2),
        pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
    ],
    ids=str,
)
def test_texts_of_parquet_in_each_of_their_types(kind: Any) -> None:
    texts = pyarrow.array([b"ab", None, b"yz"], pyarrow.binary())
    values = (
        texts.cast(pyarrow.string()).dictionary_encode() if str(kind).startswith("dict") else texts.cast(kind)
    )
    parquet.write_table(pyarrow.table({"t": values}), "a.parquet")
    assert [row["t"] for row in read("a.parquet", 0, 3).rows()] == [b"ab", b"", b"yz"]
    assert [row["t"] for row in read("a.parquet", 0, 3, "defaults=t:none").rows()] == [b"ab", b"none", b"yz"]


def test_whole_numbers_that_int64_does_not_hold_are_texts() -> None:
    """As float32 different ids would be one."""
    large = f"{2**64 - 1}"
    write("a.csv", f"id,x,y,z\n5,{2**63},1e30,1\n{large},NA,{large}.5,{2**63 - 1}\n".encode())
    kinds = {column.name: column.kind for column in list_data("a.csv").source.columns}
    assert kinds == {"id": "string", "x": "string", "y": "float32", "z": "int64"}
    (row,) = read("a.csv", 1, 1).rows()
    assert row["id"] == large.encode()
    named = list_data("a.csv", params="types=id:float64").source.columns
    assert named[0].kind == "float64"


@pytest.mark.parametrize("params", ["", "header=no"])
@pytest.mark.parametrize("in_header", [True, False])
def test_a_first_row_longer_than_what_is_looked_at(
    params: str, in_header: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "SAMPLE_BYTES", 4 << 10)
    long, short = "x" * (200 << 10), "name"
    first, second = (long, short) if in_header else (short, long)
    write("a.csv", f"id,{first}\n1,{second}\n2,{short}\n".encode())
    assert len(read("a.csv", 1, 1, params)) == 1
    (found,) = read("a.csv", 0, 1, params).rows()
    assert list(found.values())[1] == (first if params else second).encode()


def test_parameters_of_csv() -> None:
    write("a.csv", b"7;'x;y';\n8;z;3\n")
    params = "sep=;;quote=';header=no;columns=a,b,c;types=c:int32;defaults=c:-1"
    found = read("a.csv", 0, 2, params)
    assert found.rows() == [{"a": 7, "b": b"x;y", "c": -1}, {"a": 8, "b": b"z", "c": 3}]
    write("b.csv", b'a,b\n1,5" disk\n2,3" disk\n')
    found = read("b.csv", 0, 2, "quote=none;columns=b,a;null_values=2;defaults=a:7")
    assert found.values["b"].tolist() == [b'5" disk', b'3" disk']
    assert list(found.values) == ["b", "a"]
    assert found.values["a"].tolist() == [1, 7]


@examples
@given(
    st.lists(st.sampled_from([b"a", b",", b"\n", b"\r\n", b"\r", b'"', b"x" * 70]), max_size=120).map(
        b"".join
    ),
    st.sampled_from((-1, 34)),
    st.booleans(),
    st.integers(0, 12),
    st.integers(0, 12),
)
def test_rows_are_found_as_in_the_plain_twin(
    data: bytes, quote: int, skips: bool, first: int, count: int
) -> None:
    assert scanning.count_rows(data, quote, skips) == scanning_numpy.count_rows(data, quote, skips)
    ours = scanning.row_bounds(data, quote, skips, first, count)
    twins = scanning_numpy.row_bounds(data, quote, skips, first, count)
    assert [part.tolist() for part in ours[:2]] == [part.tolist() for part in twins[:2]]
    assert ours[2] == twins[2]
    assert scanning.slices(data, *ours[:2]) == scanning_numpy.slices(data, *twins[:2])


@examples
@given(
    st.lists(
        st.sampled_from([b"", b"a", b"b", b"ab", b"x" * 70, b"x" + b"y" * 69, b"xyx", b"x\0x"]) | st.binary()
    )
)
def test_texts_are_those_of_the_plain_twin(parts: list[bytes]) -> None:
    ends = np.cumsum([1, *map(len, parts)])
    data = b"?" + b"".join(parts) + b"!"
    ours, twins = scanning.texts(data, ends), scanning_numpy.texts(data, ends)
    assert ours.dtype == twins.dtype == object
    assert ours.tolist() == twins.tolist() == parts


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("large", [False, True])
def test_texts_of_any_arrow_type_become_bytes(binary: bool, large: bool) -> None:
    kinds = (
        (pyarrow.binary(), pyarrow.large_binary()) if binary else (pyarrow.string(), pyarrow.large_string())
    )
    column = Column(name="t", kind="string")
    for texts in ([], [""], ["a", None, "\u00e4", "", "a"], ["b"] * 2000):
        values = [text.encode() if binary and text is not None else text for text in texts]
        wanted = [(text or "").encode() for text in texts]
        array = pyarrow.array(values, kinds[large])
        assert to_numpy(column, array, {}).tolist() == wanted
        assert to_numpy(column, array[1:], {}).tolist() == wanted[1:]
        assert to_numpy(column, pyarrow.chunked_array([array, array[:1]]), {}).tolist() == [
            *wanted,
            *wanted[:1],
        ]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 24_575, 24_576, 24_577, 49_163])
def test_checksums_are_those_of_the_plain_twin(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 255, size, np.uint8).tobytes()
    assert scanning.crc32c(data) == scanning_numpy.crc32c(data)
    assert scanning.crc32c(memoryview(data)[1:]) == scanning_numpy.crc32c(data[1:])


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_any_rows_are_those_of_the_whole_file_though_some_have_quotes(line_end: bytes) -> None:
    """Rows lie in spans of 4 KiB, some of which have no quote, and some rows are followed by empty lines."""
    rows, lines = [], [b"a,b"]
    for number in range(1500):
        text = f'"{number}, and\n ""more"""' if number // 400 % 2 else f"text {number}"
        rows.append((number, f'{number}, and\n "more"' if number // 400 % 2 else text))
        lines.append(f"{number},{text}".encode())
        lines += [b"", b""] if number % 97 == 0 else []
    write("a.csv", line_end.join([*lines, b"", b""]))
    for first, count in ((0, 1500), (0, 1), (399, 2), (450, 300), (700, 500), (1499, 1)):
        found = read("a.csv", first, count)
        texts = [text.decode() for text in found.values["b"]]
        assert list(zip(found.values["a"].tolist(), texts, strict=True)) == rows[first : first + count]


@examples
@given(st.lists(st.binary(max_size=40), max_size=6), st.integers(0, 9), st.integers(0, 9), st.data())
def test_tfrecords_are_found_as_in_the_plain_twin(
    records: list[bytes], first: int, count: int, data: st.DataObject
) -> None:
    content = bytearray(tfrecord(records))
    if content and data.draw(st.booleans()):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    assert scanning.hop_records(cut, 0, 1 << 40) == scanning_numpy.hop_records(cut, 0, 1 << 40)
    assert scanning.hop_records(cut, 0, 50) == scanning_numpy.hop_records(cut, 0, 50)
    ours, twins = scanning.record_bounds(cut, first, count), scanning_numpy.record_bounds(cut, first, count)
    assert [part.tolist() for part in ours[:2]] == [part.tolist() for part in twins[:2]]
    assert ours[2:] == twins[2:]


def test_what_the_kernels_refuse() -> None:
    with pytest.raises(ValueError, match="line end"):
        scanning.count_rows(b"a", 10, True)
    with pytest.raises(ValueError, match="negative"):
        scanning.row_bounds(b"a", -1, True, -1, 5)
    for places, kernels in itertools.product(([0, 4], [2, 1], [-1, 1], []), (scanning, scanning_numpy)):
        with pytest.raises(IndexError, match=r"within|before"):
            kernels.texts(b"abc", np.array(places, np.int64))
    with pytest.raises(ValueError, match="not within"):
        scanning.hop_records(b"abc", 4, 5)
    with pytest.raises(IndexError, match="not within"):
        scanning.slices(b"abc", np.array([2]), np.array([4]))


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 5)), min_size=1, max_size=20),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_spans_hold_the_records_that_are_asked_for(
    parts: list[tuple[int, int]], first: int, count: int
) -> None:
    index = spans.SpanIndex(spans.pack_spans([(size, records, 7) for size, records in parts]), 3)
    assert index.records == sum(records for _, records in parts)
    if first + count > index.records:
        with pytest.raises(IndexError):
            index.holding(first, count)
        return
    found = index.holding(first, count)
    held = [number for span in found for number in range(span.first, span.first + span.records)]
    assert set(range(first, first + count)) <= set(held)
    assert all(span.end == after.start for span, after in itertools.pairwise(found))


def test_the_tasks_of_a_plan_have_the_same_rows_in_every_format(tmp_path: Path) -> None:
    """So any format gives the same minibatches, and training on them the same bits."""
    write_rows(tmp_path, 500)
    found = []
    for name in FORMATS:
        listed = list_data(name)
        plan = builders.plan(
            shards=listed.shards, source=listed.source, records_per_task=70, epochs=2, seed=4
        )
        source = RecordSource(plan.source)
        tasks = [
            source.read(plan.task_range(task), plan.record_order(task)) for task in range(plan.task_count)
        ]
        found.append([task if isinstance(task, list) else _examples(task) for task in tasks])
    assert all(tasks == found[0] for tasks in found)
    assert sum(map(len, found[0])) == 1000


def _examples(rows: Columns) -> list[bytes]:
    return [encode_example(row) for row in rows.rows()]
