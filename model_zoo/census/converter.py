"""UCI's Adult data set, also called Census Income, as records or CSV: adult.data to train on, adult.test to test.

A record is a `tf.train.Example` with the columns under their published names (`-` as `_`): the six numeric
ones as a float, the others as text, empty where the file has `?`; and `label`, 1 for an income above 50K.
In CSV these are the columns.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from edlz.api.example import FeatureValue, encode_example
from edlz.model_zoo.conversion.csv_shards import encode_row
from edlz.model_zoo.conversion.shards import SAMPLE_FOLDER, Piece, Source
from edlz.model_zoo.conversion.text_files import Row, bad_row, find_file, number_in, read_rows

__all__ = ["COLUMNS", "NUMERIC", "read_adult", "read_adult_as_csv"]

COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
)
NUMERIC = ("age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week")

_PIECE_RECORDS = 1024
_LABELS = {"<=50K": 0, ">50K": 1}
_CROSS_VALIDATOR = "|"  # how the first line of adult.test begins


def read_adult(folder: Path | None) -> Source:
    """Read the data set from its published files.

    Parameters
    ----------
    folder : Path or None
        Has adult.data and adult.test, plain or gzipped.  None: the built-in sample.

    Raises
    ------
    DatasetError
        If a file is missing; while it is read, if it is not as published.
    """
    return _read(folder, _record, ())


def read_adult_as_csv(folder: Path | None) -> Source:
    """Read the data set as `read_adult` does, for files of CSV."""
    return _read(folder, _line, (*COLUMNS, "label"))


def _read(folder: Path | None, encode: Callable[[Row], bytes], columns: tuple[str, ...]) -> Source:
    place = folder or SAMPLE_FOLDER
    files = {"train": find_file(place, "adult.data"), "test": find_file(place, "adult.test")}
    origin = (
        str(folder)
        if folder
        else "the built-in sample, the first rows of each file; with all of them at hand: --source"
    )
    return Source(origin, _pieces(files, encode), columns=columns)


def _pieces(files: dict[str, Path], encode: Callable[[Row], bytes]) -> Iterator[Piece]:
    for part, path in files.items():
        records: list[bytes] = []
        for row in read_rows(path, (*COLUMNS, "income"), skipped_start=_CROSS_VALIDATOR):
            records.append(encode(row))
            if len(records) == _PIECE_RECORDS:
                yield Piece(part, records)
                records = []
        yield Piece(part, records)


def _record(row: Row) -> bytes:
    features: dict[str, FeatureValue] = {}
    for column, name in enumerate(COLUMNS):
        cell = row.cells[column]
        if name in NUMERIC:
            features[name] = number_in(row, column, name)
        else:
            features[name] = b"" if cell == "?" else cell.encode()
    features["label"] = _label(row)
    return encode_example(features)


def _line(row: Row) -> bytes:
    for column, name in enumerate(COLUMNS):
        if name in NUMERIC:
            number_in(row, column, name)
    cells = ("" if cell == "?" else cell for cell in row.cells[: len(COLUMNS)])
    return encode_row([*cells, _label(row)])


def _label(row: Row) -> int:
    income = row.cells[-1].removesuffix(".")  # adult.test has the full stop
    if income not in _LABELS:
        raise bad_row(row, f'has income "{row.cells[-1]}", which is neither <=50K nor >50K')
    return _LABELS[income]
