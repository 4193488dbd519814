"""UCI's Iris data set as CSV: four lengths in centimetres and the species, as they are published, with a header.

Every fifth row is for the test: the file is sorted by species, and each has as many rows.
"""

from collections.abc import Iterator
from pathlib import Path

from edlz.model_zoo.conversion.csv_shards import encode_row
from edlz.model_zoo.conversion.shards import Piece, Source
from edlz.model_zoo.conversion.text_files import Row, bad_row, find_file, given_folder, number_in, read_rows

__all__ = ["COLUMNS", "SPECIES", "read_iris"]

COLUMNS = ("sepal_length", "sepal_width", "petal_length", "petal_width")
SPECIES = ("Iris-setosa", "Iris-versicolor", "Iris-virginica")
_TEST_EVERY = 5


def read_iris(folder: Path | None) -> Source:
    """Read the data set from its published file iris.data, plain or gzipped.

    Raises
    ------
    DatasetError
        If it is missing; while it is read, if it is not as published.
    """
    folder = given_folder(folder, "iris", "iris.data", "archive.ics.uci.edu/dataset/53")
    return Source(str(folder), _pieces(find_file(folder, "iris.data")), columns=(*COLUMNS, "species"))


def _pieces(path: Path) -> Iterator[Piece]:
    for number, row in enumerate(read_rows(path, (*COLUMNS, "species"))):
        yield Piece("test" if number % _TEST_EVERY == _TEST_EVERY - 1 else "train", [_line(row)])


def _line(row: Row) -> bytes:
    for column, name in enumerate(COLUMNS):
        number_in(row, column, name)
    if row.cells[-1] not in SPECIES:
        raise bad_row(row, f'has species "{row.cells[-1]}", which is none of {", ".join(SPECIES)}')
    return encode_row(row.cells)
