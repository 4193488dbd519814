"""What an analysis reads: every value as it is written, gaps as gaps."""

from pathlib import Path

import numpy as np
import pytest

from edlz.api.example import encode_example
from edlz.api.recordio import Writer
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, DataError
from edlz.services.inputs.example_values import ExampleError, example_values
from edlz.services.master.planning import make_plan
from edlz.services.worker.engine.user_code.user_code import TaskError
from tests.analyses import analyzed, task_statistics

BIG = 2**60 + 1


def csv_file(folder: Path) -> Path:
    path = folder / "a.csv"
    path.write_text(f"n,x,t,z\n{BIG},0.1,a,1\n,,,2\n5,0.3,b,3\n5,nan,b,4\n")
    return path


def test_a_csv_file_with_gaps(tmp_path: Path) -> None:
    found = analyzed(tmp_path, csv_file(tmp_path), columns="n, x,t", records_per_task=3)
    assert list(found.columns) == ["n", "t", "x"]
    n, x, t = (found.columns[name] for name in ("n", "x", "t"))
    assert (n.count, n.missing, n.max, n.vocabulary) == (3, 1, BIG, (5, BIG))
    assert (x.count, x.missing, x.min, x.max) == (2, 2, 0.1, 0.3)
    assert (t.count, t.missing, t.vocabulary) == (3, 1, ("b", "a"))


def test_a_parquet_file_with_gaps_and_vectors(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array([1.0, 2.0, 3.0, 4.0]), 2)
    columns = {"n": pyarrow.array([BIG, None]), "b": pyarrow.array([True, None]), "v": vectors}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    found = analyzed(tmp_path, tmp_path / "a.parquet").columns
    assert (found["n"].count, found["n"].missing, found["n"].max) == (1, 1, BIG)
    assert (found["b"].count, found["b"].vocabulary) == (1, (1,))
    assert (found["v"].count, found["v"].missing, found["v"].mean) == (4, 0, 2.5)


def test_examples_have_features(tmp_path: Path) -> None:
    path = tmp_path / "a.recordio"
    with Writer(path) as writer:
        writer.write(encode_example({"n": [1, -2], "x": 0.5, "t": b"a"}))
        writer.write(encode_example({"n": [], "x": [0.25, 1.5]}))
        writer.write(encode_example({"t": b"a"}))
    found = analyzed(tmp_path, path, records_per_task=2)
    n, x, t = (found.columns[name] for name in ("n", "x", "t"))
    assert (n.kind, n.count, n.missing, n.min) == ("int64", 2, 2, -2)
    assert (x.kind, x.count, x.missing, x.mean) == ("float64", 3, 1, 0.75)
    assert (t.kind, t.count, t.missing, t.vocabulary) == ("string", 2, 1, ("a",))
    assert list(analyzed(tmp_path, path, columns="x").columns) == ["x"]


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "a.recordio"
    with Writer(path) as writer:
        writer.write(encode_example({"age": 1}))
    for data in (csv_file(tmp_path), path):
        config = JobConfig(analysis_data=str(data), columns="agee")
        with pytest.raises(ConfigError, match='--columns: there is no column "agee"'):
            make_plan(config)


def test_records_without_columns(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text\n")
    with pytest.raises(DataError, match=r"record 0 of .*a\.txt is no tf\.train\.Example") as raised:
        make_plan(JobConfig(analysis_data=str(tmp_path / "a.txt")))
    assert "CSV, Parquet" in raised.value.help


def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("n,m\n" + "1,123456789012345678\n" * 100_000 + "1,2,3\n")
    with pytest.raises(TaskError, match=r"a\.csv, line 100002: 3 columns") as raised:
        task_statistics(path)
    assert "correct the row" in raised.value.record("evaluation").help


@pytest.mark.parametrize(
    "record",
    [
        b"\x0a",
        b"\x12\x00",
        b"\xff" * 12,
        b"\x0a\x02\x08\x01",
        encode_example({"a": b"x"})[:-1],
        b"\x0a\x0e\x0a\x0c\x0a\x01a\x12\x07\x12\x05\x0a\x03abc",  # three bytes of a float
    ],
)
def test_bytes_that_are_no_example(record: bytes) -> None:
    with pytest.raises(ExampleError, match=r"is no tf\.train\.Example") as raised:
        example_values([encode_example({"a": 1}), record])
    assert raised.value.place == 1


def test_features_of_two_kinds() -> None:
    with pytest.raises(ExampleError, match='has string in feature "a", where others have int64'):
        example_values([encode_example({"a": 1}), encode_example({"a": b"x"})])


def test_examples_as_others_write_them() -> None:
    """Numbers one by one, as protobuf allows."""
    unpacked = b"\x0a\x10\x0a\x0e\x0a\x01a\x12\x09\x1a\x07\x08\x05\x08\x80\x01\x08\x01"
    (found,) = example_values([unpacked]).values()
    np.testing.assert_array_equal(found.array(), [5, 128, 1])
