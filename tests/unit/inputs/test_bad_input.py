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
    "no TFRecord": ("a.tfrecord", HEAD + ROWS, "a.tfrecord is no TFRecord file", "reader_type="),
    "no Parquet": (
        "a.parquet",
        HEAD + ROWS,
        "a.parquet is not Parquet: it begins with 69 64",
        "reader_type=",
    ),
    "an empty Parquet": (
        "a.parquet",
        b"",
        "a.parquet is not Parquet: it begins with nothing",
        "reader_type=",
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


@pytest.mark.parametrize("params", ["types=x:float", "sep=ab", "header=perhaps", "quote=\n", "types=5"])
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
