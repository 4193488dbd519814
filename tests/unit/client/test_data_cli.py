"""`edlz data`: what it prints and writes."""

import json
import random
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from edlz.api.example import encode_example
from edlz.api.recordio import Reader, Writer
from edlz.client.cli import main
from edlz.client.screen import long_work
from edlz.services.inputs import conversion
from edlz.services.inputs.listing import list_data
from edlz.services.inputs.reading.records import Records
from tests.same_rows import write_rows


@pytest.fixture(autouse=True)
def _rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path, 40)


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "info", "rows.csv", "--minibatch_size=3", "--num_minibatches_per_task=2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["format", "CSV"]
    assert lines[2].split() == ["records", "40"]
    assert lines[3].split(maxsplit=1)[1] == "7 of 6 records: 2 minibatches of 3"
    assert [line.split()[1:] for line in lines[4:]] == [
        ["x:", "float32"],
        ["n:", "int64"],
        ["city:", "string"],
        ["label:", "int64"],
    ]


def test_head(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "head", "rows.parquet", "--records=3"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [list(row) for row in rows] == [["x", "n", "city", "label"]] * 3
    Path("a.txt").write_bytes(b"one\ntwo\n\x00\x01\n")
    assert main(["data", "head", "a.txt"]) == 0
    assert capsys.readouterr().out == "one\ntwo\n2 bytes: 00 01\n"
    Path("a.csv").write_text("x,y\n,1\n")
    assert main(["data", "head", "a.csv", "--data_reader_params=types=x:float32"]) == 0
    assert capsys.readouterr().out == '{"x": "nan", "y": 1}\n'


def test_examples_are_shown_by_their_features(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "info", "rows.recordio"]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[4:]]
    assert lines == [
        ["record", "bytes: a tf.train.Example"],
        ["feature", "city: string"],
        ["feature", "label: int64"],
        ["feature", "n: int64"],
        ["feature", "x: float32"],
    ]
    assert main(["data", "head", "rows.csv", "--records=7"]) == 0
    wanted = capsys.readouterr().out
    assert main(["data", "head", "rows.recordio", "--records=7"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found == [json.loads(line) for line in wanted.splitlines()]
    with Writer("long.recordio") as writer:
        writer.write(encode_example({"v": list(range(20))}))
        writer.write(b"no example")
    assert main(["data", "head", "long.recordio"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert json.loads(first) == {"v": [*range(16), "… 4 more"]}
    assert second == "no example"
    assert main(["data", "info", "long.recordio"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["record", "bytes"]


def test_convert_to_recordio_gives_what_encode_example_writes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "convert", "quoted.csv", "out.recordio"]) == 0
    assert capsys.readouterr().out.startswith("out.recordio  40 records, ")
    with Reader("out.recordio") as ours, Reader("rows.recordio") as wanted:
        assert ours.read(0, 40) == wanted.read(0, 40)


def test_convert_says_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_work, "due_again_s", lambda running_s: 0.0)
    assert main(["data", "convert", "rows.csv", "out.recordio"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("out.recordio  40 records, ")
    assert "converting rows.csv  " in said.err
    assert "\r" not in said.err


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet", "rows.tfrecord"])
def test_a_file_that_changes_meanwhile_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, count = conversion.record_blocks, 0

    def grown(*asked: Any) -> Iterator[Records]:
        nonlocal count
        with open(name, "ab") as file:
            count += file.write(b"7")
        return whole(*asked)

    monkeypatch.setattr(conversion, "record_blocks", grown)
    assert main(["data", "convert", name, "all.recordio"]) == 1
    assert count
    assert capsys.readouterr().err == (
        f"error: {name} has changed while it was read\n"
        "help: wait until nobody writes into it, then do it again\n"
    )
    assert not list(Path().glob("*all*")) + list(Path().glob(".*"))


def test_convert_to_parquet_keeps_columns_and_types() -> None:
    assert main(["data", "convert", "rows.csv", "out.parquet"]) == 0
    found, wanted = list_data("out.parquet"), list_data("rows.csv")
    assert found.source.columns == wanted.source.columns
    (ours,), (theirs,) = conversion.record_blocks(found), conversion.record_blocks(wanted)
    assert ours.rows() == theirs.rows()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rows.csv", "rows.parquet"), "rows.parquet exists"),
        (("rows.tfrecord", "x.parquet"), "Parquet needs columns"),
        (("rows.csv", "none/x.recordio"), "none/x.recordio cannot be written: there is no folder none"),
        (("rows.csv", "x.csv"), "x.csv: RecordIO and Parquet are written"),
        (("rows.csv", "x.tfrecord"), "x.tfrecord: RecordIO and Parquet are written"),
        (("rows.csv", "x.recordio.gz"), "x.recordio.gz: RecordIO and Parquet are written"),
        (("rows.csv", "s3://bucket/x.recordio"), "s3://bucket/x.recordio is an address"),
        (("raw.parquet", "x.parquet"), 'column "raw" has bytes that are not UTF-8'),
        (("cut.csv", "x.recordio"), "cut.csv, line 41: "),
        (("nothing.csv", "x.recordio"), 'PATH "nothing.csv" does not exist'),
    ],
)
def test_what_cannot_be_converted_leaves_nothing(
    arguments: tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("cut.csv").write_text("a,b\n" + "1,2\n" * 39 + "3\n")
    parquet.write_table(pyarrow.table({"raw": [b"\xff", b"x"]}), "raw.parquet")
    before = sorted(Path().rglob("*"))
    assert main(["data", "convert", *arguments]) in (1, 2)
    said = capsys.readouterr().err
    assert message in said
    assert said.startswith("error: ")
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize("name", ["x.recordio", "x.parquet"])
def test_a_disk_without_room_leaves_nothing(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.csv").write_text("text\n" + "".join(f"{random.Random(i).random()}:\n" for i in range(20_000)))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        code = main(["data", "convert", "a.csv", name])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert code == 2
    assert capsys.readouterr().err == f"error: {name} cannot be written: File too large\n"
    assert not [path for path in Path().iterdir() if "x." in path.name]
