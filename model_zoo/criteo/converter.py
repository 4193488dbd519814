"""Criteo's published click log (the display advertising challenge of 2014) as records.

train.txt has a line a click: label, 13 numbers, 26 values of 8 hexadecimal digits, split by tabs; a missing
value is empty.  Every tenth line is for the test, as the published test.txt has no labels.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edlz.model_zoo.conversion.shards import DatasetError, Piece, Source
from edlz.model_zoo.conversion.text_files import Row, bad_row, find_file, open_unpacked
from edlz.model_zoo.criteo.layout import CATEGORICAL, MISSING, NUMERIC, PRESENT, encode_clicks

__all__ = ["TEST_EVERY", "read_criteo"]

TEST_EVERY = 10
_COLUMNS = 1 + NUMERIC + CATEGORICAL
_DIGITS = 8
_PIECE_BYTES = 1 << 20


class _Clicks(NamedTuple):
    labels: npt.NDArray[np.int64]
    numeric: npt.NDArray[np.float32]
    categorical: npt.NDArray[np.int64]


def read_criteo(folder: Path | None) -> Source:
    """Read a click log from train.txt, plain or gzipped; a file of any length is read piece by piece.

    Raises
    ------
    DatasetError
        If the file is missing; while it is read, if it is not as published.
    """
    if folder is None:
        raise DatasetError(
            "criteo comes from a file of yours, as its terms ask",
            "give the folder of train.txt as --source, or take made-up data: edlz zoo data criteo-generated",
        )
    return Source(str(folder), _pieces(find_file(folder, "train.txt")))


def _pieces(path: Path) -> Iterator[Piece]:
    first = 0
    with open_unpacked(path) as file:
        while lines := file.readlines(_PIECE_BYTES):
            clicks = _parsed(path, first + 1, lines)
            is_test = np.arange(first, first + len(lines)) % TEST_EVERY == TEST_EVERY - 1
            for part, chosen in (("train", ~is_test), ("test", is_test)):
                yield Piece(part, encode_clicks(*(array[chosen] for array in clicks)))
            first += len(lines)


def _parsed(path: Path, first: int, lines: list[bytes]) -> _Clicks:
    """Parse lines, of which the first one has this number in its file."""
    try:
        return _parsed_together(lines)
    except ValueError:
        # Which line it is, and why, is found out only now.
        for number, line in enumerate(lines, first):
            _check(Row(path, number, line.decode(errors="replace").rstrip("\r\n").split("\t")))
        raise


def _parsed_together(lines: list[bytes]) -> _Clicks:
    rows = [line.rstrip(b"\r\n").split(b"\t") for line in lines]
    if set(map(len, rows)) != {_COLUMNS}:
        raise ValueError("another number of columns")
    cells = np.array(rows, object)
    labels = cells[:, 0].astype(np.int64)
    if not np.isin(labels, (0, 1)).all():
        raise ValueError("another label")
    numeric = cells[:, 1 : 1 + NUMERIC]
    numeric[numeric == b""] = b"nan"
    return _Clicks(labels, numeric.astype(np.float32), _categorical(cells[:, 1 + NUMERIC :]))


def _categorical(cells: npt.NDArray[np.object_]) -> npt.NDArray[np.int64]:
    flat = cells.ravel().tolist()
    is_missing = np.array([not cell for cell in flat])
    digits = b"".join(cell or b"00000000" for cell in flat)
    if len(digits) != _DIGITS * len(flat) or {len(cell) for cell in flat} - {0, _DIGITS}:
        raise ValueError("another number of digits")
    values = np.frombuffer(bytes.fromhex(digits.decode()), ">u4").astype(np.int64) + PRESENT
    return np.where(is_missing, MISSING, values).reshape(cells.shape)


def _check(row: Row) -> None:
    """Raise what is wrong with a line, if anything is."""
    if len(row.cells) != _COLUMNS:
        raise bad_row(row, f"has {len(row.cells)} columns split by tabs, not {_COLUMNS}")
    if row.cells[0] not in ("0", "1"):
        raise bad_row(row, f'has label "{row.cells[0]}", not 0 or 1')
    for number, cell in enumerate(row.cells[1 : 1 + NUMERIC], 1):
        if cell and not _is_number(cell):
            raise bad_row(row, f'has I{number} "{cell}", which is no number')
    for number, cell in enumerate(row.cells[1 + NUMERIC :], 1):
        if cell and not (len(cell) == _DIGITS and _is_hexadecimal(cell)):
            raise bad_row(row, f'has C{number} "{cell}", which is not {_DIGITS} hexadecimal digits')


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _is_hexadecimal(text: str) -> bool:
    return all(digit in "0123456789abcdefABCDEF" for digit in text)
