"""UCI's Heart Disease data set, the 14-column table of Cleveland, as records.

A record is a `tf.train.Example` with the 13 columns as floats under their published names, NaN where the
file has `?`, and `label`, 1 for any heart disease (num above 0).  Every fifth row is for the test.
"""

from collections.abc import Iterator
from pathlib import Path

from edlz.api.example import FeatureValue, encode_example
from edlz.model_zoo.conversion.shards import Piece, Source
from edlz.model_zoo.conversion.text_files import Row, find_file, given_folder, number_in, read_rows

__all__ = ["COLUMNS", "read_heart"]

COLUMNS = (
    "age",
    "sex",
    "cp",
    "trestbps",
    "chol",
    "fbs",
    "restecg",
    "thalach",
    "exang",
    "oldpeak",
    "slope",
    "ca",
    "thal",
)
_FILE = "processed.cleveland.data"
_TEST_EVERY = 5


def read_heart(folder: Path | None) -> Source:
    """Read the data set from its published file processed.cleveland.data, plain or gzipped.

    Raises
    ------
    DatasetError
        If it is missing; while it is read, if it is not as published.
    """
    folder = given_folder(folder, "heart", _FILE, "archive.ics.uci.edu/dataset/45")
    return Source(str(folder), _pieces(find_file(folder, _FILE)))


def _pieces(path: Path) -> Iterator[Piece]:
    for number, row in enumerate(read_rows(path, (*COLUMNS, "num"))):
        yield Piece("test" if number % _TEST_EVERY == _TEST_EVERY - 1 else "train", [_record(row)])


def _record(row: Row) -> bytes:
    features: dict[str, FeatureValue] = {
        name: float("nan") if row.cells[column] == "?" else number_in(row, column, name)
        for column, name in enumerate(COLUMNS)
    }
    features["label"] = int(number_in(row, len(COLUMNS), "num") > 0)
    return encode_example(features)
