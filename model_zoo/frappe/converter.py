"""Frappe, a log of who used which app in which situation, as records: frappe.train.libfm and frappe.test.libfm.

A record is a `tf.train.Example` with `features`, ten numbers of what holds (user, app and eight of the situation; 5,382 in
all), and `label`, 1 if the app was used.  Negative samples are in the files already.

References
----------
Baltrunas et al., Frappe, arXiv 1505.03014; the files are those of He and Chua, SIGIR 2017.
"""

from collections.abc import Iterator
from pathlib import Path

from edlz.api.example import encode_example
from edlz.model_zoo.conversion.shards import Piece, Source
from edlz.model_zoo.conversion.text_files import Row, bad_row, find_file, given_folder, open_unpacked

__all__ = ["FIELDS", "read_frappe"]

FIELDS = 10
_PIECE_RECORDS = 1024
_LABELS = {"-1": 0, "0": 0, "1": 1}


def read_frappe(folder: Path | None) -> Source:
    """Read the data set from its published files, plain or gzipped.

    Raises
    ------
    DatasetError
        If one is missing; while it is read, if it is not as published.
    """
    both, place = (
        "frappe.train.libfm and frappe.test.libfm",
        "github.com/hexiangnan/neural_factorization_machine",
    )
    folder = given_folder(folder, "frappe", both, place)
    files = {part: find_file(folder, f"frappe.{part}.libfm") for part in ("train", "test")}
    return Source(str(folder), _pieces(files))


def _pieces(files: dict[str, Path]) -> Iterator[Piece]:
    for part, path in files.items():
        records: list[bytes] = []
        with open_unpacked(path) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    records.append(_record(Row(path, number, line.decode("ascii", "replace").split())))
                if len(records) == _PIECE_RECORDS:
                    yield Piece(part, records)
                    records = []
        yield Piece(part, records)


def _record(row: Row) -> bytes:
    label, *pairs = row.cells
    numbers = [pair.removesuffix(":1") for pair in pairs]
    if label not in _LABELS:
        raise bad_row(row, f'has label "{label}", which is neither -1 nor 1')
    if len(pairs) != FIELDS or not all(number.isdecimal() for number in numbers):
        raise bad_row(row, f"has not {FIELDS} numbers of features, each with :1 behind it")
    return encode_example({"features": [int(number) for number in numbers], "label": _LABELS[label]})
