"""Files that cannot be read: each error names the file, the line or the offset, and what to do."""

import gzip
import sys
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from edlz.services.errors import ConfigError, DataError
from edlz.services.inputs.data import RecordSource
from edlz.services.inputs.listing import list_data
from edlz.services.inputs.reading.records import Columns
from edlz.services.inputs.reading.spans import SpanIndex
from edlz.services.protocol.plan import TaskRange
from tests.tfrecords import tfrecord

HEAD = b"id,name,x\n"
ROWS = b"".join(b"%d,n%d,%d.5\n" % (i, i, i) for i in range(9))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def parquet_file(**columns: object) -> bytes:
    parquet.write_table(pyarrow.table(columns), "made")
    return Path("made").read_bytes()


def read_all(name: str, params: str = "") -> None:
    listed = list_data(name, params=params)
    source = RecordSource(listed.source)
    for shard in listed.shards:
        source.read(TaskRange(name=shard.name, first=shard.first, count=shard.count))


BAD = {
    "an unbalanced quote": (
        "a.csv",
        HEAD + ROWS + b'9,"n9,9.5\n' + ROWS,
        "a.csv, line 11: a quote is opened",
        "quote=none",
    ),
    "a stray quote": (
        "a.csv",
        HEAD + ROWS + b'9,5" disk,1\n' + ROWS + b'9,3" disk,1\n',
        "a.csv, line 11: a quote stands in a text that is not quoted",
        "quote=none",
    ),
    "more columns": (
        "a.csv",
        HEAD + ROWS + b"9,n,1,2\n",
        "a.csv, line 11: 4 columns, and 3 are expected",
        "correct",
    ),
    "fewer columns": (
        "a.csv",
        HEAD + b"1,n\n" + ROWS,
        "a.csv, line 2: 2 columns, and 3 are expected",
        "correct",
    ),
    "one column": ("a.csv", HEAD + b" \n" + ROWS, "a.csv, line 2: 1 column, and 3 are expected", "correct"),
    "a number that is not whole": (
        "a.csv",
        HEAD + ROWS + b"9.5,n,1\n",
        'a.csv, line 11: column "id" has "9.5", which is no int64',
        "types=id:float32",
    ),
    "no number": (
        "a.csv",
        HEAD + ROWS + b"9,n,many\n",
        'a.csv, line 11: column "x" has "many", which is no float32',
        "types=x:string",
    ),
    "a number that is too large": (
        "a.csv",
        HEAD + ROWS + b"99999999999999999999,n,1\n",
        'a.csv, line 11: column "id" has "99999999999999999999", which is no int64',
        "types=id:string",
    ),
    "no value": (
        "a.csv",
        HEAD + ROWS + b",n,1\n",
        'a.csv, line 11: column "id" has no value',
        "defaults=id:-1",
    ),
    "Latin-1": (
        "a.csv",
        HEAD + ROWS + b"9,M\xfcller,1\n",
        "a.csv, line 11: byte 0xfc is not UTF-8",
        "iconv -f LATIN1",
    ),
    "a header in Latin-1": (
        "a.csv",
        b"id,gr\xf6\xdfe\n1,2\n",
        "a.csv, line 1: byte 0xf6 is not UTF-8",
        "iconv -f LATIN1",
    ),
    "UTF-16": (
        "a.csv",
        (HEAD + ROWS).decode().encode("utf-16"),
        "a.csv is in UTF-16: it begins with",
        "iconv -f UTF-16",
    ),
    "nothing": ("a.csv", b"", "a.csv has no rows: it is empty", "a row for each record"),
    "a header alone": ("a.csv", HEAD, "a.csv has no rows: a header alone", "a row for each record"),
    "a name twice": (
        "a.csv",
        b"id,id\n1,2\n",
        'a.csv, line 1: two columns are called "id"',
        "a name of its own",
    ),
    "carriage returns alone": (
        "a.csv",
        b"id\n1\r2\r3\n",
        "a.csv, line 2: a carriage return alone ends a line in the middle of the row",
        "tr ",
    ),
    "carriage returns alone, the header's too": (
        "a.csv",
        b"id,age\r1,2\r3,4\r",
        "a.csv, line 1: a carriage return alone ends a line in the middle of the row",
        "tr ",
    ),
    "a carriage return within the header": (
        "a.csv",
        b"id,age\r1,2\n3,4\n",
        "a.csv, line 1: a carriage return alone ends a line in the middle of the row",
        "tr ",
    ),
    "a carriage return within a row": (
        "a.csv",
        HEAD + ROWS + b"9,n\r,1\n",
        "a.csv, line 11: a carriage return alone ends a line in the middle of the row",
        "tr ",
    ),
    "gzip, cut off": (
        "a.csv.gz",
        gzip.compress(HEAD + ROWS * 50)[:-20],
        r"a.csv.gz is cut off: its gzip data ends at offset \d+",
        "gzip -t",
    ),
    "gzip, damaged": (
        "a.txt.gz",
        gzip.compress(ROWS)[:30] + b"????" + gzip.compress(ROWS)[34:],
        "a.txt.gz is damaged: its gzip data cannot be unpacked before offset",
        "gzip -t",
    ),
    "a TFRecord with a wrong checksum": (
        "a.tfrecord",
        tfrecord([b"one", b"two", b"three"]).replace(b"two", b"tow"),
        "a.tfrecord is damaged: the checksum of record 1, at offset 19, does not fit its data",
        "again",
    ),
    "a TFRecord with a wrong length": (
        "a.tfrecord",
        tfrecord([b"one"]) + b"\x04" + tfrecord([b"two"])[1:],
        "a.tfrecord is damaged: the checksum of the length of record 1, at offset 19",
        "again",
    ),
    "a TFRecord that is cut off": (
        "a.tfrecord",
        tfrecord([b"one", b"two"])[:-2],
        "a.tfrecord is cut off: record 1, at offset 19, is not all there",
        "again",
    ),
    "no TFRecord": (
        "a.tfrecord",
        HEAD + ROWS,
        r'a.tfrecord is not TFRecord \(starts with "id,name,x": a text file\)',
        "reader_type=CSV",
    ),
    "a TFRecord with a wrong first length": (
        "a.tfrecord",
        b"\x04" + tfrecord([b"one"])[1:],
        "a.tfrecord is damaged, or not TFRecord: the checksum of the length of record 0, at offset 0",
        "again",
    ),
    "a zip file called CSV": (
        "a.csv",
        b'PK\x03\x04\0\1"x',
        r'a.csv is no text \(starts with "PK": a zip',
        "unpack",
    ),
    "a TFRecord called text": (
        "a.txt",
        tfrecord([b"one", b"two"]),
        r"a.txt is no text \(starts with 03 00 .*: a TFRecord file\)",
        "reader_type=TFRecord",
    ),
    "no Parquet": (
        "a.parquet",
        HEAD + ROWS,
        r'a.parquet is not Parquet \(starts with "id,name,x": a text file\)',
        "reader_type=CSV",
    ),
    "an empty Parquet": (
        "a.parquet",
        b"",
        r"a.parquet is empty \(0 bytes at offset 0\)",
        "write it again",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_the_error_says_where_and_what_to_do(name: str) -> None:
    file, content, message, advice = BAD[name]
    Path(file).write_bytes(content)
    with pytest.raises((DataError, ConfigError), match=message) as error:
        read_all(
            file, "types=id:int64,x:float32" if content.startswith(HEAD + ROWS) and ".csv" in file else ""
        )
    assert advice in error.value.help


def test_a_parquet_file_without_its_footer() -> None:
    Path("a.parquet").write_bytes(parquet_file(a=[1, 2, 3])[:-30])
    with pytest.raises(
        DataError, match=r"a\.parquet is cut off: there is no footer at its end, offset \d+"
    ) as error:
        read_all("a.parquet")
    assert "again" in error.value.help


def test_a_parquet_file_whose_footer_is_damaged() -> None:
    content = parquet_file(a=[1, 2, 3])
    length = int.from_bytes(content[-8:-4], "little")
    Path("a.parquet").write_bytes(content[: -8 - length] + b"\xff" * length + content[-8:])
    with pytest.raises(DataError, match=r"a\.parquet is damaged: its footer cannot be read") as error:
        read_all("a.parquet")
    assert "again" in error.value.help


def test_an_index_that_is_none() -> None:
    with pytest.raises(DataError, match="an index of 13 bytes is damaged"):
        SpanIndex(bytes(13))


@pytest.mark.parametrize("reader_type", ["CSV", "Text", "TFRecord", "RecordIO"])
def test_parquet_read_as_something_else_is_recognised(reader_type: str) -> None:
    Path("a").write_bytes(parquet_file(a=[1, 2]))
    with pytest.raises(
        DataError, match=r'^a is (no text|not .*) \(starts with "PAR1": a Parquet file\)'
    ) as error:
        read_all("a", f"reader_type={reader_type}")
    assert "reader_type=Parquet" in error.value.help


@pytest.mark.parametrize("header", ["PARK,ORC", "ORC,b", "BZh,PAR1"])
def test_text_that_begins_as_other_formats_do_is_text(header: str) -> None:
    Path("a.csv").write_text(f"{header}\n1,2\n")
    assert [column.name for column in list_data("a.csv").source.columns] == header.split(",")


def test_columns_that_a_model_has_no_use_for() -> None:
    Path("a.parquet").write_bytes(parquet_file(a=[1, 2], b=[[1], [1, 2]]))
    with pytest.raises(DataError, match='column "b" is of type list') as error:
        read_all("a.parquet")
    assert "columns=" in error.value.help
    read_all("a.parquet", "columns=a")
    Path("c.parquet").write_bytes(parquet_file(a=[1, None, 3]))
    with pytest.raises(DataError, match=r'c\.parquet, row 1: column "a" has no value') as error:
        read_all("c.parquet")
    read_all("c.parquet", "defaults=a:-1")


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_missing_column_names_the_nearest(name: str) -> None:
    Path(name).write_bytes(HEAD + ROWS if name == "a.csv" else parquet_file(id=[1], name=["n"]))
    with pytest.raises(DataError, match=f'^{name}.*: there is no column "nme"') as error:
        read_all(name, "columns=id,nme")
    assert error.value.help == "did you mean name?"


def test_files_of_several_kinds_or_columns() -> None:
    Path("data").mkdir()
    Path("data/a.csv").write_bytes(HEAD + ROWS)
    Path("data/b.txt").write_bytes(ROWS)
    with pytest.raises(DataError, match=r"data/a\.csv is CSV by its name, data/b\.txt is Text"):
        read_all("data")
    Path("data/b.txt").rename("data/b.csv")
    with pytest.raises(DataError, match=r'data/b\.csv, line 1: there is no column "id"'):
        read_all("data")


def test_commas_in_one_file_and_tabs_in_another() -> None:
    Path("data").mkdir()
    Path("data/a.csv").write_bytes(HEAD + ROWS)
    Path("data/b.tsv").write_bytes((HEAD + ROWS).replace(b",", b"\t"))
    assert [shard.count for shard in list_data("data").shards] == [9, 9]
    read_all("data")
    Path("data/a.csv").write_bytes(b"")
    assert len(list_data("data").source.columns) == 3


@pytest.mark.parametrize(
    "params", ["types=x:float", "sep=ab", "header=perhaps", "quote=,", 'sep="', "quote=\n", "types=5"]
)
def test_parameters_that_cannot_be(params: str) -> None:
    Path("a.csv").write_bytes(HEAD + ROWS)
    with pytest.raises(ConfigError, match="--data_reader_params: "):
        read_all("a.csv", params)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_without_pyarrow_the_extra_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(name).write_bytes(HEAD + ROWS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match="needs pyarrow, which is not installed") as error:
        read_all(name)
    assert "pip install 'edlz[data]'" in error.value.help
    read_all(name, "reader_type=Text")


def test_parquet_columns_in_another_order_and_among_others() -> None:
    Path("data").mkdir()
    Path("data/a.parquet").write_bytes(parquet_file(id=[1, 2], x=[1.0, 2.0]))
    Path("data/b.parquet").write_bytes(parquet_file(x=[3.0], more=["m"], id=[3]))
    listed = list_data("data")
    assert [column.name for column in listed.source.columns] == ["id", "x"]
    read = RecordSource(listed.source).read(TaskRange(name="data/b.parquet", first=0, count=1))
    assert isinstance(read, Columns)
    assert read.rows() == [{"id": 3, "x": 3.0}]
    Path("data/c.parquet").write_bytes(parquet_file(id=[1.5], x=[1.0]))
    with pytest.raises(
        DataError, match=r'c\.parquet: column "id" is float64, and int64 in data/a\.parquet'
    ) as error:
        read_all("data")
    assert 'leave it out: --data_reader_params="columns=x"' in error.value.help
    Path("data/c.parquet").write_bytes(parquet_file(id=[1]))
    with pytest.raises(DataError, match=r'c\.parquet: there is no column "x"'):
        read_all("data")


def test_two_parquet_columns_of_one_name() -> None:
    table = pyarrow.Table.from_arrays([pyarrow.array([i]) for i in range(3)], names=["a", "b", "a"])
    parquet.write_table(table, "a.parquet")
    with pytest.raises(DataError, match=r'a\.parquet: two columns are called "a"') as error:
        read_all("a.parquet")
    assert '"columns=b"' in error.value.help
    read_all("a.parquet", "columns=b")


def test_parquet_values_that_int64_does_not_hold() -> None:
    large = pyarrow.array([1, 2**63 - 1, 2**63, 2**64 - 1], pyarrow.uint64())
    Path("a.parquet").write_bytes(parquet_file(id=large))
    with pytest.raises(
        DataError, match=r'a\.parquet, row 2: column "id" has 9223372036854775808, which is no int64'
    ):
        read_all("a.parquet")
    Path("a.parquet").write_bytes(parquet_file(id=large.slice(0, 2)))
    read_all("a.parquet")


def test_vectors_with_gaps() -> None:
    pairs = pyarrow.array([[1, 2], [3, None], None, [7, 8]], pyarrow.list_(pyarrow.int64(), 2))
    Path("a.parquet").write_bytes(parquet_file(v=pairs))
    with pytest.raises(DataError, match=r'a\.parquet, row 1: column "v" has no value') as error:
        read_all("a.parquet")
    assert error.value.help == '--data_reader_params="defaults=v:-1" reads none as -1'
    listed = list_data("a.parquet", params="defaults=v:-1")
    read = RecordSource(listed.source).read(TaskRange(name="a.parquet", first=1, count=3))
    assert isinstance(read, Columns)
    assert read.values["v"].tolist() == [[3, -1], [-1, -1], [7, 8]]


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_defaults_that_cannot_be_are_found_before_anything_runs(name: str) -> None:
    Path(name).write_bytes(HEAD + ROWS if name == "a.csv" else parquet_file(id=[1], name=["n"]))
    with pytest.raises(ConfigError, match="'one' for id, which is no int64"):
        list_data(name, params="defaults=id:one")
    with pytest.raises(DataError, match='there is no column "ids"'):
        list_data(name, params="defaults=ids:1")
    for columns, told in (("id,id", 'names "id" twice'), ("", "names no column")):
        with pytest.raises(ConfigError, match=told):
            list_data(name, params=f"columns={columns}")


def test_a_truth_value_that_is_not_there_has_help_that_works() -> None:
    Path("a.csv").write_bytes(b"ok,x\ntrue,1\n,2\n")
    with pytest.raises(DataError, match=r'a\.csv, line 3: column "ok" has no value') as error:
        read_all("a.csv")
    assert error.value.help == '--data_reader_params="defaults=ok:no" reads none as no'
    read_all("a.csv", "defaults=ok:no")


@pytest.mark.parametrize(("sep", "named"), [("\t", "tab"), (";", ";"), ("|", "|")])
def test_another_separator_is_named(sep: str, named: str) -> None:
    Path("a.csv").write_text(f"id{sep}x\n1{sep}2\n")
    told: list[str] = []
    list_data("a.csv", tell=told.append)
    (text,) = told
    assert text.startswith("a.csv has one column, ")
    assert text.endswith(f'if it has more: --data_reader_params="sep={named}"')
    Path("a.csv").write_text(f"id{sep}x\n1{sep}2,5\n")
    with pytest.raises(DataError, match=r"a\.csv, line 2: 2 columns, and 1 is expected") as error:
        read_all("a.csv")
    assert f'"sep={named}"' in error.value.help


def test_texts_that_are_not_utf8_are_found_in_the_first_rows() -> None:
    Path("a.csv").write_bytes(HEAD + ROWS + b"9,M\xfcller,1\n")
    with pytest.raises(DataError, match=r"^a\.csv, line 11: byte 0xfc is not UTF-8$"):
        list_data("a.csv")
    read_all("a.csv", "columns=id,x")
