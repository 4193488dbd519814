"""Writes a data set as shards: OUTPUT/train/data-00000, ... and OUTPUT/test/data-00000, ...; RecordIO, or CSV: data-00000.csv.

A folder appears when it is whole, and what is there is never overwritten: the same records are found done,
other content is an error.  What is in a record is the converters' business.
"""

import errno
import filecmp
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from edlz.api.recordio import Reader, RecordIOError, Writer
from edlz.model_zoo.conversion.csv_shards import CSVReader, CSVWriter, encode_row

__all__ = ["PARTS", "SAMPLE_FOLDER", "DatasetError", "Piece", "Source", "Written", "write_shards"]

SAMPLE_FOLDER = Path(__file__).parents[1] / "data"
"""Where the samples of data sets lie that come with edlz; their licences lie beside them."""

PARTS = ("train", "test")
_SHARD = re.compile(r"data-\d{5,}(\.csv)?")


class DatasetError(ValueError):
    """A data set cannot be read or converted; `message` says what happened, `help` what to do."""

    def __init__(self, message: str, help: str) -> None:  # noqa: A002
        super().__init__(message, help)
        self.message = message
        self.help = help

    def __str__(self) -> str:
        return f"{self.message}; {self.help}"


class Piece(NamedTuple):
    """Some records of one part, in order; of CSV: lines."""

    part: str
    records: list[bytes]


@dataclass(frozen=True)
class Source:
    """A data set as its converter gives it.

    Attributes
    ----------
    origin : str
        Where it came from, for people to read.
    pieces : iterable of Piece
        Can be gone through once; reading goes on meanwhile, and may raise DatasetError.
    records : int
        How many there are in all; 0 if that shows at the end only.
    columns : tuple of str
        Of CSV, which is what is written then; without any: RecordIO.
    """

    origin: str
    pieces: Iterable[Piece]
    records: int = 0
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Written:
    """The outcome: records a part, the shards (those of the training data first)."""

    counts: dict[str, int]
    paths: tuple[Path, ...]
    was_there: bool


@dataclass(frozen=True)
class _Form:
    """How shards are written and read, and how their names end."""

    columns: tuple[str, ...]

    @property
    def suffix(self) -> str:
        return ".csv" if self.columns else ""

    def writer(self, path: Path) -> Writer | CSVWriter:
        return CSVWriter(path, encode_row(self.columns)) if self.columns else Writer(path)

    def reader(self, path: Path) -> Reader | CSVReader:
        """Open a shard; raise ValueError, as RecordIOError is, if it is none."""
        return CSVReader(path, encode_row(self.columns)) if self.columns else Reader(path)


def write_shards(
    source: Source,
    output: Path,
    records_per_shard: int,
    on_records: Callable[[int], None] = lambda _: None,
) -> Written:
    """Write the parts of a data set; those that are there already are compared instead.

    Parameters
    ----------
    on_records : callable, optional
        Told of so many records more that are written, or compared.

    Raises
    ------
    DatasetError
        If a part has no records, or its folder has other content.
    OSError
        If the output cannot be written.
    """
    existing = {part for part in PARTS if _holds_shards(output / part)}
    staging = output / f".converting-{os.getpid()}-{secrets.token_hex(4)}"
    if len(existing) < len(PARTS):
        output.mkdir(parents=True, exist_ok=True)
        staging.mkdir()
    try:
        sinks: dict[str, _Comparison | _Shards] = {}
        for part in PARTS:
            is_there = part in existing
            sinks[part] = (_Comparison if is_there else _Shards)(
                (output if is_there else staging) / part, records_per_shard, _Form(source.columns)
            )
        _pour(source.pieces, sinks, on_records)
        for part, sink in sinks.items():
            if not sink.count:
                raise DatasetError(f"the {part} part would have no records", "use more of the data")
        for part in PARTS:
            if part not in existing:
                _publish(staging / part, output / part)
    finally:
        if len(existing) < len(PARTS):
            shutil.rmtree(staging)
    return Written(
        counts={part: sink.count for part, sink in sinks.items()},
        paths=tuple(output / part / name for part, sink in sinks.items() for name in sink.names),
        was_there=len(existing) == len(PARTS),
    )


def _pour(
    pieces: Iterable[Piece], sinks: "dict[str, _Comparison | _Shards]", on_records: Callable[[int], None]
) -> None:
    try:
        for piece in pieces:
            sinks[piece.part].add(piece.records)
            on_records(len(piece.records))
        for sink in sinks.values():
            sink.finish()
    except BaseException:
        for sink in sinks.values():
            sink.abort()
        raise


class _Shards:
    """Writes records to a new folder, file after file."""

    def __init__(self, folder: Path, records_per_shard: int, form: _Form) -> None:
        self.count = 0
        self.names: list[str] = []
        self._folder, self._records_per_shard, self._form = folder, records_per_shard, form
        self._writer: Writer | CSVWriter | None = None
        folder.mkdir()

    def add(self, records: list[bytes]) -> None:
        for record in records:
            if self.count % self._records_per_shard == 0:
                self._start_next()
            assert self._writer is not None
            self._writer.write(record)
            self.count += 1

    def finish(self) -> None:
        """End the file, which need not be full."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def abort(self) -> None:
        """Give up the file."""
        if self._writer is not None:
            self._writer.abort()

    def _start_next(self) -> None:
        self.finish()
        self.names.append(_shard_name(len(self.names), self._form))
        self._writer = self._form.writer(self._folder / self.names[-1])


class _Comparison:
    """Compares records with those of a folder that is there.

    Raises
    ------
    DatasetError
        At the first difference.
    """

    def __init__(self, folder: Path, records_per_shard: int, form: _Form) -> None:
        self.count = 0
        self.names: list[str] = []
        self._folder, self._records_per_shard, self._form = folder, records_per_shard, form
        self._found = sorted(path.name for path in folder.iterdir())
        self._reader: Reader | CSVReader | None = None

    def add(self, records: list[bytes]) -> None:
        done = 0
        while done < len(records):
            place = self.count % self._records_per_shard
            if place == 0:
                self._open_next()
            stop = min(len(records), done + self._records_per_shard - place)
            if not self._has(place, records[done:stop]):
                raise self._differs()
            self.count += stop - done
            done = stop

    def finish(self) -> None:
        """Check that nothing more is there."""
        if self._found != self.names or not self._ends_here():
            raise self._differs()
        self.abort()

    def abort(self) -> None:
        """Let go of the file."""
        if self._reader is not None:
            self._reader.close()

    def _has(self, place: int, records: list[bytes]) -> bool:
        assert self._reader is not None
        if place + len(records) > len(self._reader):
            return False
        try:
            return self._reader.read(place, len(records)) == records
        except RecordIOError:
            return False

    def _ends_here(self) -> bool:
        last = self.count % self._records_per_shard or self._records_per_shard
        return self._reader is not None and len(self._reader) == last

    def _open_next(self) -> None:
        name = _shard_name(len(self.names), self._form)
        is_next_missing = self._found[len(self.names) : len(self.names) + 1] != [name]
        if is_next_missing or (self._reader is not None and not self._ends_here()):
            raise self._differs()
        self.abort()
        self.names.append(name)
        try:
            self._reader = self._form.reader(self._folder / name)
        except ValueError as error:
            raise self._differs() from error

    def _differs(self) -> DatasetError:
        return _other_content(self._folder, self._found)


def _shard_name(number: int, form: _Form) -> str:
    return f"data-{number:05d}{form.suffix}"


def _holds_shards(folder: Path) -> bool:
    """Return whether a folder holds shards of whatever data; False if it is empty or missing."""
    if not folder.is_dir():
        if folder.exists():
            raise DatasetError(f"{folder} is not a folder", "remove it, or choose another --output")
        return False
    found = sorted(path.name for path in folder.iterdir())
    if not all(_SHARD.fullmatch(name) for name in found):  # before anything is read
        raise _other_content(folder, found)
    return bool(found)


def _other_content(folder: Path, found: list[str]) -> DatasetError:
    return DatasetError(
        f"{folder} already has other content ({len(found)} files, first {found[0]})",
        "remove it, or choose another --output",
    )


def _publish(staged: Path, place: Path) -> None:
    try:
        os.rename(staged, place)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        # Another process was faster; that is fine if it wrote the same.
        names = sorted(path.name for path in staged.iterdir())
        _, differing, missing = filecmp.cmpfiles(staged, place, names, shallow=False)
        if differing or missing or names != sorted(path.name for path in place.iterdir()):
            raise DatasetError(
                f"{place} got other content in the meantime", "remove it, or choose another --output"
            ) from error
