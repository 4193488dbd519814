"""Reads data sets that are published as text: plain or gzipped files in a folder, line by line.

What is wrong is said with file and line.
"""

import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from edlz.model_zoo.conversion.shards import DatasetError

__all__ = ["Row", "bad_row", "find_file", "given_folder", "number_in", "open_unpacked", "read_rows"]


class Row(NamedTuple):
    """The cells of one line of a file."""

    path: Path
    line: int
    cells: list[str]


def find_file(folder: Path, *names: str) -> Path:
    """Return the first of these files that the folder has, as it is or with `.gz` behind its name.

    Raises
    ------
    DatasetError
        If it has none of them.
    """
    if not folder.is_dir():
        wrong = "is not a folder" if folder.exists() else "does not exist"
        raise DatasetError(f"{folder} {wrong}", f"give the folder that holds {names[0]} as --source")
    for name in names:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    both = " or ".join(f"{name} or {name}.gz" for name in names)
    raise DatasetError(f"{folder} has no {both}", "put the file there, or give another --source")


def given_folder(folder: Path | None, name: str, files: str, place: str) -> Path:
    """Return the folder of a data set that is not fetched from here.

    Parameters
    ----------
    files, place : str
        What it is, and where people get it.

    Raises
    ------
    DatasetError
        If none is given.
    """
    if folder is None:
        raise DatasetError(
            f"{name} comes from files of yours", f"get {files} from {place}; give the folder as --source"
        )
    return folder


@contextmanager
def open_unpacked(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading; whether it is gzipped is told by its bytes.

    Raises
    ------
    DatasetError
        From the block as well: if the file cannot be read, is empty or damaged.
    """
    try:
        with open(path, "rb") as file:
            start = file.peek(2)[:2]
            if not start:
                raise DatasetError(f"{path} is empty", "copy the file again from where it came")
            if start == b"\x1f\x8b":
                with gzip.GzipFile(fileobj=file) as unpacked:
                    yield cast(BinaryIO, unpacked)
            else:
                yield file
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path} cannot be read ({error})", "copy the file again") from error


def read_rows(
    path: Path, columns: Sequence[str], *, has_header: bool = False, skipped_start: str = ""
) -> Iterator[Row]:
    """Read a file of comma-separated values; blank lines and blanks around a cell are left out.

    Parameters
    ----------
    columns : sequence of str
    has_header : bool
        The first line names the columns.
    skipped_start : str
        A first line that begins so is left out.

    Raises
    ------
    DatasetError
        If the file is damaged or has no rows, a line has another number of columns, or the header names
        others.
    """
    count = 0
    with open_unpacked(path) as file:
        reader = csv.reader(_lines(path, file), skipinitialspace=True)
        for cells in reader:
            row = Row(path, reader.line_num, [cell.strip() for cell in cells])
            if not any(row.cells) or _is_skipped(row, skipped_start):
                continue
            if len(cells) != len(columns):
                raise bad_row(row, f"has {len(cells)} columns, not {len(columns)} ({', '.join(columns)})")
            if has_header:
                if row.cells != list(columns):
                    raise bad_row(row, f"is not the header {','.join(columns)}")
                has_header = False
                continue
            yield row
            count += 1
    if not count:
        raise DatasetError(f"{path} has no rows", "copy the file again from where it came")


def number_in(row: Row, column: int, name: str) -> float:
    """Return the number in a cell.

    Raises
    ------
    DatasetError
        If it is none.
    """
    try:
        return float(row.cells[column])
    except ValueError:
        raise bad_row(row, f'has {name} "{row.cells[column]}", which is no number') from None


def bad_row(row: Row, what: str) -> DatasetError:
    """Return the error that a row is not as expected."""
    return DatasetError(
        f"{row.path}, line {row.line} {what}", "use the file as it is published, or mend the line"
    )


def _is_skipped(row: Row, start: str) -> bool:
    return bool(start) and row.line == 1 and row.cells[0].startswith(start)


def _lines(path: Path, file: BinaryIO) -> Iterator[str]:
    for number, line in enumerate(file, 1):
        try:
            yield line.decode()
        except UnicodeDecodeError:
            raise bad_row(Row(path, number, []), "is not UTF-8 text") from None
